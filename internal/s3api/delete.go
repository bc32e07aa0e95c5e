// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"

	"github.com/nebulaio/nebulaio/internal/object"
)

func (b *backend) DeleteObject(ctx context.Context, in *s3.DeleteObjectInput) (*s3.DeleteObjectOutput, error) {
	d := object.Deletion{
		Ref: refOf(in.Bucket, in.Key, in.VersionId),
		Condition: object.Condition{IfMatch: unquoted(in.IfMatch), IfSize: in.IfMatchSize,
			IfModified: in.IfMatchLastModifiedTime},
	}
	if err := b.authorizePublic(ctx, d.Ref, auth.DeleteObjectVersionAction, auth.PermissionWrite); err != nil {
		return nil, err
	}
	if err := b.mayCompare(ctx, d.Ref, d.Condition); err != nil {
		return nil, err
	}
	bk, err := b.bucketOf(ctx, d.Bucket)
	if err != nil {
		return nil, err
	}
	if d.Origin, err = originOf(ctx, bk); err != nil {
		return nil, err
	}
	d.Bypass = b.mayBypass(ctx, bk, d.Ref)
	d.Judge = judgeRemoval(d.Bypass)
	done, err := b.store.Delete(replicated(ctx, d.Origin), d)
	out, err := b.deleted(d, done, unmatchedMarker(ctx, b, d, err))
	if err != nil {
		return nil, err
	}
	return out, nil
}

// deleted returns the reply to a deletion. The deletion of an object that does not exist succeeds, even with a
// condition.
func (b *backend) deleted(d object.Deletion, done object.Deleted, err error) (*s3.DeleteObjectOutput, error) {
	conditional := d.Condition != (object.Condition{})
	if err != nil && !(conditional && errors.Is(err, object.ErrNoSuchKey)) {
		return nil, b.writeError("DeleteObject", d.Ref, d.Condition, err)
	}
	out := &s3.DeleteObjectOutput{}
	if d.Version != "" {
		if !done.Existed && !plausibleVersion(d.Version) {
			return nil, s3err.GetInvalidArgumentErr(s3err.InvalidArgVersionId, d.Version)
		}
		out.VersionId, out.DeleteMarker = &d.Version, &done.Marker
		return out, nil
	}
	if done.Marker {
		out.VersionId, out.DeleteMarker = &done.Version, ptr(true)
	}
	return out, nil
}

// unmatchedMarker returns the error for a deletion with a condition, from the error of the store. If the current
// version of the key is a delete marker, the store says that there is no object. S3 says that the condition is not met,
// because a delete marker has no ETag, size or time to compare. So unmatchedMarker then returns ErrPrecondition.
func unmatchedMarker(ctx context.Context, b *backend, d object.Deletion, err error) error {
	c := d.Condition
	if !errors.Is(err, object.ErrNoSuchKey) || c.IfSize == nil && c.IfModified == nil &&
		(c.IfMatch == "" || c.IfMatch == "*") {
		return err
	}
	if info, _ := b.store.Stat(patient(ctx), object.Ref{Bucket: d.Bucket, Key: d.Key}); info.Marker {
		return object.ErrPrecondition
	}
	return err
}

// maxVersion is the largest length of a version identifier in a request. No store has one that long.
const maxVersion = 128

// maxDeletions is the largest number of objects that S3 deletes in one request.
const maxDeletions = 1000

func (b *backend) DeleteObjects(ctx context.Context, in *s3.DeleteObjectsInput) (s3response.DeleteResult, error) {
	out := s3response.DeleteResult{Deleted: []types.DeletedObject{}, Error: []types.Error{}}
	bucket := own(in.Bucket)
	bk, err := b.bucketOf(ctx, bucket)
	if err != nil {
		return out, err
	}
	if len(in.Delete.Objects) > maxDeletions {
		return out, s3err.GetAPIError(s3err.ErrMalformedXML)
	}
	ds := make([]object.Deletion, 0, len(in.Delete.Objects))
	for i := range in.Delete.Objects {
		o := &in.Delete.Objects[i]
		d := object.Deletion{
			Ref:       refOf(&bucket, o.Key, o.VersionId),
			Condition: object.Condition{IfMatch: unquoted(o.ETag), IfSize: o.Size, IfModified: o.LastModifiedTime},
		}
		if err := b.mayDelete(ctx, d); err != nil {
			out.Error = append(out.Error, s3err.ObjectDeleteError(&d.Key, some(d.Version), err))
			continue
		}
		d.Bypass = b.mayBypass(ctx, bk, d.Ref)
		d.Judge = judgeRemoval(d.Bypass)
		ds = append(ds, d)
	}
	quiet, logged := isQuiet(ctx), bk.Settings[settingLogging] != nil
	var removals []removal
	done, errs := b.store.DeleteMany(patient(ctx), bucket, ds)
	for i := range ds {
		d := &ds[i]
		res, err := b.deleted(*d, done[i], unmatchedMarker(ctx, b, *d, errs[i]))
		if err != nil {
			out.Error = append(out.Error, s3err.ObjectDeleteError(&d.Key, some(d.Version), err))
			continue
		}
		if logged {
			removals = append(removals, removal{key: d.Key, asked: d.Version, version: own(res.VersionId)})
		}
		if quiet {
			continue
		}
		entry := types.DeletedObject{Key: &d.Key, DeleteMarker: res.DeleteMarker, VersionId: some(d.Version)}
		if res.DeleteMarker != nil && *res.DeleteMarker {
			entry.DeleteMarkerVersionId = res.VersionId
		}
		out.Deleted = append(out.Deleted, entry)
	}
	if rctx, ok := ctx.(*fasthttp.RequestCtx); ok && len(removals) > 0 {
		rctx.SetUserValue(removalsKey, removals)
	}
	return out, nil
}

// isQuiet reports whether the reply to a list of deletions should contain only failures. versitygw does not pass
// this option on.
func isQuiet(ctx context.Context) bool {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok || !bytes.Contains(rctx.Request.Body(), []byte("Quiet")) {
		return false
	}
	var doc struct {
		Quiet string `xml:"Quiet"`
	}
	if xml.Unmarshal(rctx.Request.Body(), &doc) != nil {
		return false // cannot happen: the document was parsed before
	}
	quiet, err := strconv.ParseBool(strings.TrimSpace(doc.Quiet))
	return err == nil && quiet
}

// mayDelete checks the permissions that versitygw does not check for a list of deletions. versitygw ignores the
// versions in the list, and lets an ACL that grants writing delete old versions, which only the owner may do in S3.
// For a request without an account, it checks nothing.
func (b *backend) mayDelete(ctx context.Context, d object.Deletion) error {
	bk, err := b.bucketOf(ctx, d.Bucket)
	if err != nil {
		return err
	}
	if d.Version == "" && (anonymous(ctx) || b.rulesOf(bk).ObjectConditions) {
		if err := b.allowed(ctx, d.Ref, auth.PermissionWrite, auth.DeleteObjectAction); err != nil {
			return err
		}
	}
	if d.Version != "" {
		if len(d.Version) > maxVersion { // no such version exists, and comparing it with patterns would be slow
			return s3err.GetInvalidArgumentErr(s3err.InvalidArgVersionId, d.Version)
		}
		if err := b.allowed(ctx, d.Ref, auth.PermissionWrite, auth.DeleteObjectVersionAction); err != nil {
			return err
		}
	}
	return b.mayCompare(ctx, d.Ref, d.Condition)
}
