// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/accesslog"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam/document"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/acl"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// MayDeliver returns nil if an object of a bucket's access log may be written to the log's target with the given key.
// The service logging.s3.amazonaws.com writes the object. MayDeliver fails with accesslog.ErrDenied if the target
// bucket refuses the object, and with object.ErrNoSuchBucket if the target bucket does not exist. MayDeliver is safe
// for concurrent use while the store is open.
//
// The policy of the target bucket decides first: a denial refuses, and a statement that allows admits. Otherwise the
// ACL of the target bucket admits if it grants WRITE and READ_ACP to the group LogDelivery. Otherwise the owner of the
// source bucket may deliver to its own buckets. Amazon S3 does not have this last rule.
func MayDeliver(ctx context.Context, s *Server, t accesslog.Target, key string) error {
	target, err := s.backend.store.Bucket(patient(ctx), t.Bucket)
	if err != nil {
		return errs.Wrap("deliver the access log of", t.Source, err)
	}
	return s.backend.mayDeliver(t, target, key)
}

// mayDeliver is MayDeliver for a target bucket that was read before.
func (b *backend) mayDeliver(t accesslog.Target, target *object.Bucket, key string) error {
	r := b.rulesOf(target)
	refused := func(why, fix string) error {
		return &errs.Error{Kind: errs.Permission, Op: "deliver the access log of", Name: t.Source, Msg: why, Fix: fix,
			Err: accesslog.ErrDenied}
	}
	switch r.DecideService(policy.LoggingService, auth.PutObjectAction, key, deliveryRequest(t, key)) {
	case document.Allow:
		return nil
	case document.Deny:
		return refused(fmt.Sprintf("the policy of the target bucket %s denies s3:PutObject to %s", target.Name,
			policy.LoggingService), "remove the denial from the policy, or turn the access log off")
	}
	if r.ACLFault == nil && acl.DeliversLogs(r.ACL) || target.Owner == t.Owner {
		return nil
	}
	return refused(fmt.Sprintf("the target bucket %s has another owner, and its policy does not allow s3:PutObject to %s",
		target.Name, policy.LoggingService),
		"let the owner of the target bucket allow it in the bucket's policy, or choose a bucket of the same owner")
}

// deliveryRequest returns what the conditions of a target bucket's policy compare. No network carries the delivery, so
// it counts as a secure transport.
func deliveryRequest(t accesslog.Target, key string) *document.Request {
	now := time.Now().UTC()
	values := map[string][]string{
		"aws:sourcearn": {auth.ResourceArnPrefix + t.Source}, "aws:sourceaccount": {t.Owner},
		"aws:currenttime": {now.Format(time.RFC3339)}, "aws:epochtime": {strconv.FormatInt(now.Unix(), 10)},
		"aws:securetransport": {"true"},
	}
	return &document.Request{Action: string(auth.PutObjectAction), Resource: auth.ResourceArnPrefix + t.Bucket + "/" + key,
		Value: func(name string) []string { return values[name] }}
}
