// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	vgwbackend "github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

func (b *backend) CreateBucket(ctx context.Context, in *s3.CreateBucketInput, text []byte) error {
	owner := accountOf(ctx, "bucket-owner").Access
	tags, err := vgwbackend.ParseCreateBucketTags(in.CreateBucketConfiguration.Tags)
	if err != nil {
		return err
	}
	name := own(in.Bucket)
	if !bucketNameAllowed(name) {
		return s3err.GetBucketErr(s3err.ErrInvalidBucketName, name)
	}
	bk := object.Bucket{
		Name: name, Owner: strings.Clone(owner), ETag: b.etag(name),
		Settings: map[string][]byte{policy.SettingOwnership: []byte(strings.Clone(string(in.ObjectOwnership)))},
	}
	if bk.Settings[policy.SettingACL], err = askedBucketACL(ctx, b, &bk, bytes.Clone(text)); err != nil {
		return err
	}
	if tags != nil {
		if bk.Settings[settingTags], err = json.Marshal(tags); err != nil {
			return err
		}
	}
	if in.ObjectLockEnabledForBucket != nil && *in.ObjectLockEnabledForBucket {
		bk.Versioning = object.VersioningEnabled // object lock needs versions
		if bk.Settings[settingLock], err = json.Marshal(auth.BucketLockConfig{Enabled: true}); err != nil {
			return err
		}
	}
	err = b.store.CreateBucket(patient(ctx), bk)
	if errors.Is(err, object.ErrBucketExists) {
		if old, oldErr := b.store.Bucket(patient(ctx), name); oldErr == nil && old.Owner == owner {
			return s3err.GetBucketErr(s3err.ErrBucketAlreadyOwnedByYou, name)
		}
		return s3err.GetBucketErr(s3err.ErrBucketAlreadyExists, name)
	}
	return b.s3Error("CreateBucket", object.Ref{Bucket: name}, err)
}

func (b *backend) HeadBucket(ctx context.Context, in *s3.HeadBucketInput) (*s3.HeadBucketOutput, error) {
	if _, err := b.bucketOf(ctx, *in.Bucket); err != nil {
		return nil, err
	}
	return &s3.HeadBucketOutput{}, nil
}

func (b *backend) DeleteBucket(ctx context.Context, bucket string) error {
	bucket = strings.Clone(bucket)
	err := b.store.DeleteBucket(patient(ctx), bucket)
	if err == nil {
		b.rules.Delete(bucket)
	}
	if errors.Is(err, object.ErrBucketNotEmpty) {
		code := s3err.ErrBucketNotEmpty
		if bk, bkErr := b.store.Bucket(patient(ctx), bucket); bkErr == nil && bk.Versioning != object.VersioningOff {
			code = s3err.ErrVersionedBucketNotEmpty
		}
		return s3err.GetBucketErr(code, bucket)
	}
	return b.s3Error("DeleteBucket", object.Ref{Bucket: bucket}, err)
}

func (b *backend) ListBuckets(ctx context.Context, in s3response.ListBucketsInput) (s3response.ListAllMyBucketsResult,
	error) {
	out := s3response.ListAllMyBucketsResult{Owner: s3response.CanonicalUser{ID: strings.Clone(in.Owner)},
		Prefix: strings.Clone(in.Prefix)}
	if strings.ContainsFunc(in.ContinuationToken, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-')
	}) {
		// a continuation token is the name of a bucket
		return out, invalid("The continuation token provided is incorrect")
	}
	all, err := b.store.ListBuckets(patient(ctx))
	if err != nil {
		return out, b.s3Error("ListBuckets", object.Ref{}, err)
	}
	in.IsAdmin = in.IsAdmin || b.iam.listsAll(signer(accountOf(ctx, "account")))
	for i := range all {
		bk := &all[i]
		if bk.Name <= in.ContinuationToken || !strings.HasPrefix(bk.Name, in.Prefix) || !in.IsAdmin && bk.Owner != in.Owner {
			continue
		}
		if n := len(out.Buckets.Bucket); n == int(in.MaxBuckets) {
			if n > 0 {
				out.ContinuationToken = out.Buckets.Bucket[n-1].Name
			}
			break
		}
		out.Buckets.Bucket = append(out.Buckets.Bucket, s3response.ListAllMyBucketsEntry{Name: bk.Name,
			CreationDate: bk.Created})
	}
	return out, nil
}

func (b *backend) ListBucketsAndOwners(ctx context.Context) ([]s3response.Bucket, error) {
	all, err := b.store.ListBuckets(patient(ctx))
	if err != nil {
		return nil, b.s3Error("ListBuckets", object.Ref{}, err)
	}
	out := make([]s3response.Bucket, len(all))
	for i := range all {
		out[i] = s3response.Bucket{Name: all[i].Name, Owner: all[i].Owner}
	}
	return out, nil
}

// ChangeBucketOwner makes another account the owner of a bucket. The bucket's new ACL grants access only to the new
// owner, and the bucket's policy is removed.
func (b *backend) ChangeBucketOwner(ctx context.Context, bucket, owner string) error {
	owner = strings.Clone(owner)
	if _, err := b.accounts.Get(owner); err != nil {
		return s3err.GetAPIError(s3err.ErrAdminUserNotFound)
	}
	_, acl, err := policy.OwnersACL(owner)
	if err != nil {
		return err
	}
	return b.change(ctx, bucket, func(bk *object.Bucket) error {
		bk.Owner = owner
		bk.Settings[policy.SettingACL] = acl
		delete(bk.Settings, policy.Setting)
		return nil
	})
}

func (b *backend) PutBucketVersioning(ctx context.Context, bucket string, status types.BucketVersioningStatus) error {
	if err := checkDocument(ctx, "VersioningConfiguration"); err != nil {
		return err
	}
	if asksForMFA(ctx) {
		return refusal(http.StatusNotImplemented, "NotImplemented",
			"Deletion with a second factor (MfaDelete) is not implemented.")
	}
	bk, err := b.bucketOf(ctx, bucket)
	if err != nil {
		return err
	}
	if u := b.upstreamOf(bk); u != nil {
		return b.s3Error("PutBucketVersioning", object.Ref{Bucket: bk.Name},
			u.SetVersioning(patient(ctx), object.Versioning(strings.Clone(string(status)))))
	}
	return b.change(ctx, bucket, func(bk *object.Bucket) error {
		if status == types.BucketVersioningStatusEnabled {
			bk.Versioning = object.VersioningEnabled
			return nil
		}
		if lockEnabled(bk) {
			return suspended()
		}
		bk.Versioning = object.VersioningSuspended
		return nil
	})
}

// asksForMFA reports whether a versioning configuration requires a second factor for the deletion of versions.
func asksForMFA(ctx context.Context) bool {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return false
	}
	var conf struct{ MfaDelete string }
	return xml.Unmarshal(rctx.Request.Body(), &conf) == nil && conf.MfaDelete != "" && conf.MfaDelete != "Disabled"
}

// suspended returns the S3 error for suspending versioning in a bucket with object lock.
func suspended() error {
	err := s3err.GetAPIError(s3err.ErrSuspendedVersioningNotAllowed)
	err.HTTPStatusCode = http.StatusConflict
	return err
}

func (b *backend) GetBucketVersioning(ctx context.Context, bucket string) (s3response.GetBucketVersioningOutput,
	error) {
	bk, err := b.bucketOf(ctx, bucket)
	if err != nil {
		return s3response.GetBucketVersioningOutput{}, err
	}
	state := bk.Versioning
	if u := b.upstreamOf(bk); u != nil && asksFor(ctx, "versioning") {
		if state, err = u.Versioning(patient(ctx)); err != nil {
			return s3response.GetBucketVersioningOutput{}, b.s3Error("GetBucketVersioning", object.Ref{Bucket: bk.Name}, err)
		}
	}
	if state == object.VersioningOff {
		return s3response.GetBucketVersioningOutput{}, nil
	}
	return s3response.GetBucketVersioningOutput{Status: ptr(types.BucketVersioningStatus(state))}, nil
}
