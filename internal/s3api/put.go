// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"errors"

	vgwbackend "github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"

	"github.com/nebulaio/nebulaio/internal/object"
)

// earlyCheck is the size in bytes above which the condition of a PUT is also checked before its body is read. A
// refused upload then does not cross the network first.
const earlyCheck = 1 << 20

func (b *backend) PutObject(ctx context.Context, in s3response.PutObjectInput) (s3response.PutObjectOutput, error) {
	var none s3response.PutObjectOutput
	ref, bk, err := b.target(ctx, in.Bucket, in.Key)
	if err != nil {
		return none, err
	}
	fields := form(ctx)
	if fields != nil {
		if err := b.authorizeForm(ctx, ref, fields); err != nil {
			return none, err
		}
	}
	attrs, err := putAttributes(ctx, &in, bk)
	if err == nil {
		err = addACL(ctx, b, bk, attrs)
	}
	if err != nil {
		return none, err
	}
	origin, err := originOf(ctx, bk)
	if err != nil {
		return none, err
	}
	markReplica(ctx, attrs, origin)
	cond, err := condition(in.IfMatch, in.IfNoneMatch)
	if err == nil {
		err = b.mayCompare(ctx, ref, cond)
	}
	if err != nil {
		return none, err
	}
	size := int64(-1)
	if in.ContentLength != nil && fields == nil { // the length of a form's file is known only at its end
		size = *in.ContentLength
	}
	if cond != (object.Condition{}) && size > earlyCheck {
		if err := b.refuseEarly(ctx, ref, cond); err != nil {
			return none, err
		}
	}
	content := in.Body
	if content == nil {
		content = bytes.NewReader(nil)
	}
	body, err := newBody(content, sums{
		CRC32: in.ChecksumCRC32, CRC32C: in.ChecksumCRC32C, CRC64NVME: in.ChecksumCRC64NVME, SHA1: in.ChecksumSHA1,
		SHA256: in.ChecksumSHA256,
		SHA512: in.ChecksumSHA512, MD5: in.ChecksumMD5, XXHASH64: in.ChecksumXXHASH64, XXHASH3: in.ChecksumXXHASH3,
		XXHASH128: in.ChecksumXXHASH128,
	}, in.ChecksumAlgorithm)
	if err != nil {
		return none, err
	}
	store, err := encryptedWrite(ctx, b, bk)
	if err != nil {
		return none, err
	}
	var sum checksum
	if fields != nil {
		store = object.WithChangeKind(store, object.ChangePost)
	}
	info, err := b.store.Put(store, object.Put{
		Bucket: ref.Bucket, Key: ref.Key, Size: size, Body: body, Attributes: attrs, Condition: cond,
		Judge: judgeCopy(attrs, origin), SumAlgorithm: string(body.algo), Origin: origin,
		Finish: func(w object.Written) (map[string]string, error) {
			var err error
			if sum, err = body.sum(w); err != nil {
				return nil, err
			}
			add := map[string]string{}
			sum.keep(add)
			return add, nil
		},
	})
	if err != nil {
		return none, b.writeError("PutObject", ref, cond, body.failure(err))
	}
	if bk.OnUpstream() {
		sum = full(&info) // what the upstream keeps
	}
	tellEncryption(ctx, info.Attributes)
	tellExpiration(ctx, b, bk, &info)
	out := s3response.PutObjectOutput{ETag: quoted(info.ETag), Size: &info.Size, ChecksumType: sum.Type}
	if info.Versioned() {
		out.VersionID = info.Version
	}
	s := sum.sums()
	out.ChecksumCRC32, out.ChecksumCRC32C, out.ChecksumCRC64NVME = s.CRC32, s.CRC32C, s.CRC64NVME
	out.ChecksumSHA1, out.ChecksumSHA256, out.ChecksumSHA512, out.ChecksumMD5 = s.SHA1, s.SHA256, s.SHA512, s.MD5
	out.ChecksumXXHASH64, out.ChecksumXXHASH3, out.ChecksumXXHASH128 = s.XXHASH64, s.XXHASH3, s.XXHASH128
	return out, nil
}

// target returns the reference and the bucket of an object that will be written. It returns an error if S3 does not
// allow the key.
func (b *backend) target(ctx context.Context, bucket, key *string) (object.Ref, *object.Bucket, error) {
	ref := refOf(bucket, key, nil)
	if err := checkKey(ref.Key); err != nil {
		return ref, nil, err
	}
	bk, err := b.bucketOf(ctx, ref.Bucket)
	return ref, bk, err
}

// putAttributes returns the attributes of an object that a PUT makes in a bucket.
func putAttributes(ctx context.Context, in *s3response.PutObjectInput, bk *object.Bucket) (map[string]string, error) {
	described := headers{
		Type: in.ContentType, Encoding: storedEncoding(in.ContentEncoding), Disposition: in.ContentDisposition,
		Language: in.ContentLanguage,
		Cache:    in.CacheControl, Expires: in.Expires, Redirect: in.WebsiteRedirectLocation, Metadata: in.Metadata,
	}
	if err := described.check(); err != nil {
		return nil, err
	}
	attrs := described.attributes()
	if err := addTags(attrs, in.Tagging); err != nil {
		return nil, err
	}
	if err := addClass(ctx, attrs, bk); err != nil {
		return nil, err
	}
	return attrs, askedLock(attrs, bk, in.ObjectLockMode, in.ObjectLockRetainUntilDate, in.ObjectLockLegalHoldStatus)
}

// maxTags is the largest number of tags of an object, as in S3.
const maxTags = 10

// addTags adds the tags of a header, which contains them as a query string.
func addTags(attrs map[string]string, tagging *string) error {
	tags, err := vgwbackend.ParseObjectTags(own(tagging))
	if err != nil || tags == nil {
		return err
	}
	if len(tags) > maxTags {
		return s3err.GetAPIError(s3err.ErrObjectTaggingLimited)
	}
	attrs[attrTags], err = encodeTags(tags)
	return err
}

// condition returns the condition of a write. It returns an error if S3 does not allow the condition.
func condition(ifMatch, ifNoneMatch *string) (object.Condition, error) {
	c := object.Condition{IfMatch: unquoted(ifMatch), IfNoneMatch: unquoted(ifNoneMatch)}
	if ifNoneMatch != nil && c.IfNoneMatch != "*" {
		return c, s3err.GetNotImplementedErr("If-None-Match", s3err.NmpAdditionalMessageIfNoneMatch)
	}
	if ifNoneMatch != nil && ifMatch != nil {
		return c, s3err.GetNotImplementedErr("If-Match,If-None-Match", s3err.NmpAdditionalMessageMultipleCondHeaders)
	}
	return c, nil
}

// refuseEarly returns an error if the condition of a write is already false. The store checks the condition again
// when it writes.
func (b *backend) refuseEarly(ctx context.Context, ref object.Ref, c object.Condition) error {
	info, err := b.store.Stat(patient(ctx), ref)
	switch {
	case err == nil && c.IfNoneMatch == "*", err == nil && c.IfMatch != "" && c.IfMatch != "*" && c.IfMatch != info.ETag:
		return b.writeError("PutObject", ref, c, object.ErrPrecondition)
	case errors.Is(err, object.ErrNoSuchKey) && c.IfMatch != "":
		return b.writeError("PutObject", ref, c, err)
	}
	return nil
}

// writeError returns the S3 error of a failed write, with the name of the condition that was false.
func (b *backend) writeError(op string, ref object.Ref, c object.Condition, err error) error {
	if errors.Is(err, object.ErrPrecondition) {
		switch {
		case c.IfNoneMatch != "":
			return s3err.GetPreconditionFailedErr(s3err.ConditionIfNoneMatch)
		case c.IfMatch == "" && c.IfSize != nil:
			return s3err.GetPreconditionFailedErr(s3err.ConditionIfMatchSize)
		case c.IfMatch == "" && c.IfModified != nil:
			return s3err.GetPreconditionFailedErr(s3err.ConditionIfMatchLastModTime)
		}
		return s3err.GetPreconditionFailedErr(s3err.ConditionIfMatch)
	}
	return b.s3Error(op, ref, err)
}
