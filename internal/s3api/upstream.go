// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"encoding/json"
	"math"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/xmldoc"
)

// Versioning and object lock of an upstream bucket are settings of the upstream. Requests for them are passed on, and
// the upstream decides on versions and locks. The other settings of a bucket, such as its policy, belong to this
// server.

// upstreamOf returns the server that keeps the objects of a bucket, or nil if the store keeps them.
func (b *backend) upstreamOf(bk *object.Bucket) object.Upstream {
	if !bk.OnUpstream() {
		return nil
	}
	f, ok := b.store.(object.Foreign)
	if !ok {
		return nil
	}
	return f.Upstream(bk.Name)
}

// asksFor reports whether a request asks for a sub-resource, such as "versioning".
func asksFor(ctx context.Context, resource string) bool {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	return ok && rctx.QueryArgs().Has(resource)
}

// upstreamLock returns an object lock configuration in the form for upstreams.
func upstreamLock(conf auth.BucketLockConfig) object.Lock {
	var l object.Lock
	if d := conf.DefaultRetention; d != nil {
		l.Mode = string(d.Mode)
		if d.Days != nil {
			l.Days = *d.Days
		}
		if d.Years != nil {
			l.Years = *d.Years
		}
	}
	return l
}

// lockOnUpstream returns the object lock configuration of an upstream bucket in the form of versitygw.
func lockOnUpstream(ctx context.Context, b *backend, bucket string, u object.Upstream) ([]byte, error) {
	l, err := u.Lock(patient(ctx))
	if err != nil {
		return nil, b.s3Error("GetObjectLockConfiguration", object.Ref{Bucket: bucket}, err)
	}
	if l == nil {
		return nil, s3err.GetBucketErr(s3err.ErrObjectLockConfigurationNotFound, bucket)
	}
	conf := auth.BucketLockConfig{Enabled: true}
	if l.Mode != "" {
		conf.DefaultRetention = &types.DefaultRetention{Mode: types.ObjectLockRetentionMode(l.Mode)}
		if l.Days > 0 {
			conf.DefaultRetention.Days = &l.Days
		}
		if l.Years > 0 {
			conf.DefaultRetention.Years = &l.Years
		}
	}
	return json.Marshal(conf)
}

// locks reports whether versions in a bucket can have a retention or a legal hold.
func locks(ctx context.Context, b *backend, bk *object.Bucket) (bool, error) {
	u := b.upstreamOf(bk)
	if u == nil {
		return lockEnabled(bk), nil
	}
	l, err := u.Lock(patient(ctx))
	return l != nil, b.s3Error("GetObjectLockConfiguration", object.Ref{Bucket: bk.Name}, err)
}

// details returns a context with which a store asks an upstream for all that can change without a new ETag, and for the
// part with the given number.
func details(ctx context.Context, part *int32) context.Context {
	n := 0
	if part != nil {
		n = int(*part)
	}
	return object.Detailed(patient(ctx), n)
}

// locate adds the place of the part that a read of an upstream bucket asks for. It fails with object.ErrChanged if the
// object has changed since it was opened.
func locate(ctx context.Context, b *backend, bk *object.Bucket, ref object.Ref, part *int32, info *object.Info) error {
	if part == nil || !bk.OnUpstream() || len(info.Parts) > 0 {
		return nil
	}
	now, err := b.store.Stat(details(ctx, part), ref)
	if err != nil {
		return b.s3Error("GetObject", ref, err)
	}
	if now.ETag != info.ETag || now.Size != info.Size {
		return object.Fail("read", ref.Key, object.ErrChanged, "the ETag is "+now.ETag)
	}
	info.Parts, info.Part = now.Parts, now.Part
	return nil
}

// partAt picks a part whose place an upstream has named.
func partAt(p picked, at *object.PartRange) picked {
	p.Range = at.Range
	if at.Count == 0 {
		return p
	}
	p.partial = at.N > 0
	p.parts = ptr(int32(min(at.Count, math.MaxInt32)))
	return p
}

// deleteNothing answers a list of deletions without an object. S3 refuses such a list, but some upstreams accept it.
// The bucket bk is nil if the bucket does not exist.
func deleteNothing(ctx context.Context, b *backend, bk *object.Bucket, missing *xmldoc.Missing) error {
	if bk != nil && !anonymous(ctx) {
		if u := b.upstreamOf(bk); u != nil {
			return b.s3Error("DeleteObjects", object.Ref{Bucket: bk.Name}, u.DeleteNothing(patient(ctx)))
		}
	}
	return malformedXML(missing)
}
