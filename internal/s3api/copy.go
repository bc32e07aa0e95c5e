// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"

	"github.com/nebulaio/nebulaio/internal/object"
)

// maxCopy is the largest object or range in bytes that S3 copies in one request.
const maxCopy = 5 << 30

// source returns the source object of a copy, and checks the owner of its bucket and the permission to read it.
// versitygw has checked the permission with the text of the header, which policy statements about the key may not
// match.
func (b *backend) source(ctx context.Context, header, owner *string) (object.Ref, error) {
	ref, err := copySource(own(header))
	if err != nil {
		return ref, err
	}
	bk, err := b.bucketOf(ctx, ref.Bucket)
	if err != nil {
		return ref, err
	}
	if o := own(owner); o != "" && o != bk.Owner {
		return ref, s3err.GetAPIError(s3err.ErrAccessDenied)
	}
	return ref, b.allowed(ctx, ref, auth.PermissionRead, ofVersion(ref, auth.GetObjectAction, auth.GetObjectVersionAction))
}

// destination returns the condition on the destination of a copy, which versitygw does not pass on.
func destination(ctx context.Context) (object.Condition, error) {
	r, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return object.Condition{}, nil
	}
	return condition(some(string(r.Request.Header.Peek("If-Match"))), some(string(r.Request.Header.Peek("If-None-Match"))))
}

// statSource describes the source object of a copy. It fails if the source is a delete marker.
func (b *backend) statSource(ctx context.Context, ref object.Ref) (object.Info, error) {
	info, err := b.store.Stat(patient(ctx), ref)
	if info.Marker && ref.Version != "" {
		return info, s3err.GetAPIError(s3err.ErrMethodNotAllowed)
	}
	var r *object.Refusal
	if ref.Version != "" && errors.As(err, &r) && r.Code == "InvalidArgument" {
		err = object.ErrNoSuchVersion // an upstream whose versions have another form
	}
	return info, b.s3Error("CopyObject", ref, err)
}

func (b *backend) CopyObject(ctx context.Context, in s3response.CopyObjectInput) (s3response.CopyObjectOutput, error) {
	var none s3response.CopyObjectOutput
	from, err := b.source(ctx, in.CopySource, in.ExpectedSourceBucketOwner)
	if err != nil {
		return none, err
	}
	to := refOf(in.Bucket, in.Key, nil)
	if err := checkKey(to.Key); err != nil {
		return none, err
	}
	cond, err := destination(ctx)
	if err == nil {
		err = b.mayCompare(ctx, to, cond)
	}
	if err != nil {
		return none, err
	}
	bk, err := b.bucketOf(ctx, to.Bucket)
	if err != nil {
		return none, err
	}
	src, err := b.statSource(ctx, from)
	if err != nil {
		return none, err
	}
	if src.Size > maxCopy {
		return none, s3err.GetCopySourceObjectTooLargeErr(maxCopy)
	}
	if err := readable(&src, in.CopySourceIfMatch, in.CopySourceIfNoneMatch, in.CopySourceIfModifiedSince,
		in.CopySourceIfUnmodifiedSince); err != nil {
		return none, err
	}
	store, err := encryptedWrite(ctx, b, bk)
	if err == nil {
		store, err = encryptedSource(ctx, store, b)
	}
	if err == nil {
		err = unlock(store, b, "CopyObject", from, &src)
	}
	if err != nil {
		return none, err
	}
	_, encrypts := object.EncryptionIn(store)
	replace := in.MetadataDirective == types.MetadataDirectiveReplace
	if !replace && !encrypts && from.Bucket == to.Bucket && from.Key == to.Key && src.Latest {
		return none, s3err.GetAPIError(s3err.ErrInvalidCopyDest)
	}
	if src.Attributes[attrTags] != "" && in.TaggingDirective != types.TaggingDirectiveReplace {
		// To copy tags, the client needs the permissions to read and to write them.
		if err := b.allowed(ctx, from, auth.PermissionRead,
			ofVersion(from, auth.GetObjectTaggingAction, auth.GetObjectVersionTaggingAction)); err != nil {
			return none, err
		}
		if err := b.allowed(ctx, to, auth.PermissionWrite, auth.PutObjectTaggingAction); err != nil {
			return none, err
		}
	}
	attrs, err := copyAttributes(ctx, &in, &src, bk, replace)
	if err == nil {
		err = addACL(ctx, b, bk, attrs)
	}
	if err != nil {
		return none, err
	}
	// The version and the ETag make sure that the copy reads the content that was checked.
	from.Version = src.Version
	c := object.Copy{From: from, FromCondition: object.Condition{IfMatch: src.ETag}, Bucket: to.Bucket, Key: to.Key,
		Attributes: attrs, Condition: cond, Judge: judgeWrite(attrs)}
	sum, err := b.copySum(store, &src, types.ChecksumAlgorithm(strings.Clone(string(in.ChecksumAlgorithm))))
	if err != nil {
		return none, err
	}
	sum.keep(attrs)
	info, err := b.store.Copy(store, c)
	if errors.Is(err, object.ErrDamaged) {
		return none, b.s3Error("CopyObject", from, err)
	}
	if err != nil {
		return none, b.writeError("CopyObject", to, cond, err)
	}
	tellEncryption(ctx, info.Attributes)
	if bk, err := b.bucketOf(ctx, to.Bucket); err == nil {
		tellExpiration(ctx, b, bk, &info)
	}
	s := sum.sums()
	out := s3response.CopyObjectOutput{
		CopyObjectResult: &s3response.CopyObjectResult{
			ETag: ptr(quoted(info.ETag)), LastModified: &info.Modified, ChecksumType: sum.Type,
			ChecksumCRC32: s.CRC32, ChecksumCRC32C: s.CRC32C, ChecksumCRC64NVME: s.CRC64NVME, ChecksumSHA1: s.SHA1,
			ChecksumSHA256: s.SHA256,
			ChecksumSHA512: s.SHA512, ChecksumMD5: s.MD5, ChecksumXXHASH64: s.XXHASH64, ChecksumXXHASH3: s.XXHASH3,
			ChecksumXXHASH128: s.XXHASH128,
		},
		VersionId: ptr(""), CopySourceVersionId: ptr(""),
	}
	if info.Versioned() {
		out.VersionId = &info.Version
	}
	if src.Versioned() {
		out.CopySourceVersionId = &src.Version
	}
	return out, nil
}

// copyAttributes returns the attributes of a copy, as its metadata and tagging directives require.
func copyAttributes(ctx context.Context, in *s3response.CopyObjectInput, src *object.Info, bk *object.Bucket,
	replace bool) (map[string]string, error) {
	attrs := copied(src.Attributes)
	if replace {
		attrs = headers{
			Type: in.ContentType, Encoding: storedEncoding(in.ContentEncoding), Disposition: in.ContentDisposition,
			Language: in.ContentLanguage,
			Cache:    in.CacheControl, Expires: in.Expires, Metadata: in.Metadata,
		}.attributes()
	}
	if v := own(in.WebsiteRedirectLocation); v != "" {
		attrs[attrRedirect] = v
	}
	if in.TaggingDirective == types.TaggingDirectiveReplace {
		if err := addTags(attrs, in.Tagging); err != nil {
			return nil, err
		}
	} else if tags, ok := src.Attributes[attrTags]; ok {
		attrs[attrTags] = tags
	}
	if err := addClass(ctx, attrs, bk); err != nil { // a copy does not have the class of its source
		return nil, err
	}
	return attrs, askedLock(attrs, bk, in.ObjectLockMode, in.ObjectLockRetainUntilDate, in.ObjectLockLegalHoldStatus)
}

// copySum returns the checksum of a copy. It uses the source's checksum if that covers the whole content and the
// client asks for no other algorithm. It uses the store's own checksum if the client asks for that algorithm.
// Otherwise it reads the content to compute the checksum. The checksum is empty if nobody knows or asks for one.
func (b *backend) copySum(ctx context.Context, src *object.Info, asked types.ChecksumAlgorithm) (checksum, error) {
	old := full(src)
	if asked == "" {
		asked = old.Algorithm
	}
	if asked == old.Algorithm && (old.Type == types.ChecksumTypeFullObject || asked == "") {
		return old, nil
	}
	if asked == types.ChecksumAlgorithmCrc64nvme && !src.NoCRC64 {
		return checksum{Algorithm: asked, Type: types.ChecksumTypeFullObject, Value: crc64Text(src.CRC64)}, nil
	}
	ref := object.Ref{Bucket: src.Bucket, Key: src.Key, Version: src.Version}
	content, err := b.store.Open(patient(ctx), ref)
	if err != nil {
		return old, b.s3Error("CopyObject", ref, err)
	}
	defer content.Close()
	body, err := strict(content, object.Range{N: src.Size})
	if err != nil {
		return old, b.s3Error("CopyObject", ref, err)
	}
	defer body.Close()
	h, err := utils.NewHashReader(body, "", utils.HashType(strings.ToLower(string(asked))))
	if err != nil {
		return old, s3err.GetAPIError(s3err.ErrInvalidRequest)
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, h, make([]byte, 1<<20)); err != nil {
		return old, b.s3Error("CopyObject", ref, err)
	}
	return checksum{Algorithm: asked, Type: types.ChecksumTypeFullObject, Value: h.Sum()}, nil
}

// strict returns a Body that compares every block with the store's checksums, because a new checksum is computed
// from its bytes.
func strict(c object.Content, r object.Range) (object.Body, error) {
	if s, ok := c.(object.Stricter); ok {
		return s.Strict(r)
	}
	return c.Section(r)
}
