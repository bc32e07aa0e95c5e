// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"encoding/json"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// rulesOf returns the access rules of a bucket. It reads the rules once for the bucket's settings, and then logs
// faults in its policy.
func (b *backend) rulesOf(bk *object.Bucket) *policy.Rules {
	if known, ok := b.rules.Load(bk.Name); ok && known.(*policy.Rules).Of == bk {
		return known.(*policy.Rules)
	}
	r := policy.ReadRules(bk, b.accounts.Root().AccessKey)
	switch {
	case r.Sealed:
		b.log.Warn("a bucket's policy is not understood: until it is corrected, it allows nothing except to the bucket's "+
			"owner and to admins",
			"bucket", bk.Name, "fault", r.Fault, "fix", "put a policy without that part")
	case r.Fault != nil:
		b.log.Warn("a statement of a bucket's policy is not understood: until it is corrected, it allows nothing",
			"bucket", bk.Name, "fault", r.Fault, "fix", "put a policy without that part")
	}
	b.rules.Store(bk.Name, r)
	return r
}

// tellFaults logs the stored policies that the server does not understand. It runs at the start, so that operators
// notice them before users do.
func (b *backend) tellFaults(ctx context.Context) {
	all, err := b.store.ListBuckets(ctx)
	if err != nil {
		b.log.Error("reading the policies of all buckets failed", "error", err)
		return
	}
	for i := range all {
		if _, ok := all[i].Settings[policy.Setting]; !ok {
			continue
		}
		if bk, err := b.store.Bucket(ctx, all[i].Name); err == nil { // the bucket may have been deleted meanwhile
			b.rulesOf(bk)
		}
	}
}

// shownPolicy returns the policy of a bucket as the client put it.
func (b *backend) shownPolicy(ctx context.Context, bucket string) ([]byte, bool) {
	bk, err := b.store.Bucket(patient(ctx), bucket)
	if err != nil {
		return nil, false
	}
	text, ok := bk.Settings[policy.Setting]
	return text, ok && json.Valid(text)
}
