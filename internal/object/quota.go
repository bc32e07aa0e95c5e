// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// SettingQuota is the name of the setting that holds the Quota of a bucket in Bucket.Settings, as JSON.
const SettingQuota = "nebulaio-quota"

// Quota limits what a bucket, or all buckets of one owner, may hold.
type Quota struct {
	// Bytes is the largest number of bytes of all versions and of the parts of uploads in progress; 0 means no limit.
	Bytes int64 `json:"bytes,omitempty"`
	// Objects is the largest number of object versions, current and noncurrent; 0 means no limit. Delete markers are not
	// counted.
	Objects int64 `json:"objects,omitempty"`
}

// Check returns an error of kind Invalid if the quota is negative or limits nothing.
func (q Quota) Check(op, name string) error {
	if q.Bytes < 0 || q.Objects < 0 || q == (Quota{}) {
		return errs.New(errs.Invalid, op, name, fmt.Sprintf("a quota of %d bytes and %d objects, expected at least one "+
			"limit above 0", q.Bytes, q.Objects)).WithFix("to remove a quota, use nebulaio quota remove")
	}
	return nil
}

// QuotaOf returns the quota of a bucket, or nil if it has none.
func QuotaOf(b *Bucket) (*Quota, error) {
	doc, ok := b.Settings[SettingQuota]
	if !ok {
		return nil, nil
	}
	var q Quota
	if err := json.Unmarshal(doc, &q); err != nil {
		return nil, errs.New(errs.Corrupt, "read the quota", b.Name, err.Error()).
			WithFix("set the quota again: nebulaio quota set")
	}
	return &q, nil
}

// Usage is what counts against a quota.
type Usage struct {
	Bytes   int64 `json:"bytes"`
	Objects int64 `json:"objects"`
}

// Quotas limits what buckets and their owners hold. A store checks a quota in the same step as a change, so that no
// change exceeds it. A change that exceeds a quota fails with ErrQuota. A change that frees space always succeeds.
type Quotas interface {
	// SetOwnerQuota limits what all buckets of an owner hold together. If q is nil, the limit is removed. The quota of a
	// bucket is its setting SettingQuota.
	SetOwnerQuota(ctx context.Context, owner string, q *Quota) error
	// OwnerQuotas returns the quotas of all owners that have one.
	OwnerQuotas(ctx context.Context) (map[string]Quota, error)
	// BucketUsage returns what a bucket holds. BucketUsage fails with ErrNoSuchBucket if the bucket does not exist.
	BucketUsage(ctx context.Context, bucket string) (Usage, error)
	// OwnerUsage returns what all buckets of an owner hold.
	OwnerUsage(ctx context.Context, owner string) (Usage, error)
}
