// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"

	"github.com/nebulaio/nebulaio/internal/object"
)

// uploadError returns the S3 error for an upload, with the identifier of an upload that does not exist.
func (b *backend) uploadError(op string, ref object.Ref, id string, err error) error {
	if errors.Is(err, object.ErrNoSuchUpload) {
		return s3err.GetNoSuchUploadErr(id)
	}
	return b.s3Error(op, ref, err)
}

func (b *backend) CreateMultipartUpload(ctx context.Context,
	in s3response.CreateMultipartUploadInput) (s3response.InitiateMultipartUploadResult, error) {
	var none s3response.InitiateMultipartUploadResult
	ref, bk, err := b.target(ctx, in.Bucket, in.Key)
	if err != nil {
		return none, err
	}
	attrs, err := putAttributes(ctx, &s3response.PutObjectInput{
		ContentType: in.ContentType, ContentEncoding: in.ContentEncoding, ContentDisposition: in.ContentDisposition,
		ContentLanguage: in.ContentLanguage, CacheControl: in.CacheControl, Expires: in.Expires,
		WebsiteRedirectLocation: in.WebsiteRedirectLocation, Metadata: in.Metadata, Tagging: in.Tagging,
		ObjectLockMode: in.ObjectLockMode, ObjectLockRetainUntilDate: in.ObjectLockRetainUntilDate,
		ObjectLockLegalHoldStatus: in.ObjectLockLegalHoldStatus,
	}, bk)
	if err == nil {
		err = addACL(ctx, b, bk, attrs)
	}
	if err != nil {
		return none, err
	}
	if in.ChecksumAlgorithm != "" {
		attrs[attrSumAlgo], attrs[attrSumType] = strings.Clone(string(in.ChecksumAlgorithm)),
			strings.Clone(string(in.ChecksumType))
	}
	store, err := encryptedWrite(ctx, b, bk)
	if err != nil {
		return none, err
	}
	id, err := b.store.CreateUpload(store, ref.Bucket, ref.Key, attrs)
	if err != nil {
		return none, b.s3Error("CreateMultipartUpload", ref, err)
	}
	if b.encrypter != nil && (store != patient(ctx) || bk.Settings[object.SettingEncryption] != nil) {
		if up, err := b.store.GetUpload(patient(ctx), ref.Bucket, ref.Key, id); err == nil {
			tellEncryption(ctx, up.Attributes)
		}
	}
	return s3response.InitiateMultipartUploadResult{Bucket: ref.Bucket, Key: ref.Key, UploadId: id}, nil
}

func (b *backend) AbortMultipartUpload(ctx context.Context, in *s3.AbortMultipartUploadInput) error {
	ref, id := refOf(in.Bucket, in.Key, nil), own(in.UploadId)
	if t := in.IfMatchInitiatedTime; t != nil {
		up, err := b.store.GetUpload(patient(ctx), ref.Bucket, ref.Key, id)
		if err != nil {
			return b.uploadError("AbortMultipartUpload", ref, id, err)
		}
		if up.Started.Unix() != t.Unix() {
			return s3err.GetPreconditionFailedErr(s3err.ConditionIfMatchLastModTime)
		}
	}
	return b.uploadError("AbortMultipartUpload", ref, id, b.store.AbortUpload(patient(ctx), ref.Bucket, ref.Key, id))
}

func (b *backend) ListMultipartUploads(ctx context.Context,
	in *s3.ListMultipartUploadsInput) (s3response.ListMultipartUploadsResult, error) {
	e, err := encoderOf(ctx)
	if err != nil {
		return s3response.ListMultipartUploadsResult{}, err
	}
	l := object.UploadList{
		Bucket: own(in.Bucket), Prefix: own(in.Prefix), Delimiter: own(in.Delimiter), AfterKey: own(in.KeyMarker),
		AfterID: own(in.UploadIdMarker),
		Limit:   int(*in.MaxUploads),
	}
	bk, err := b.bucketOf(ctx, l.Bucket)
	if err != nil {
		return s3response.ListMultipartUploadsResult{}, err
	}
	out := s3response.ListMultipartUploadsResult{
		Bucket: l.Bucket, Prefix: e.text(l.Prefix), Delimiter: e.text(l.Delimiter), KeyMarker: e.text(l.AfterKey),
		UploadIDMarker: l.AfterID,
		MaxUploads:     l.Limit, EncodingType: string(e.kind()),
	}
	if l.AfterKey == "" {
		l.AfterID = "" // S3 ignores an upload marker without a key marker
	}
	if l.AfterID != "" {
		if _, err := b.store.GetUpload(patient(ctx), l.Bucket, l.AfterKey, l.AfterID); err != nil {
			return s3response.ListMultipartUploadsResult{},
				s3err.GetInvalidArgumentErr(s3err.InvalidArgUploadIdMarker, l.AfterID)
		}
	}
	if l.Limit == 0 {
		return out, nil
	}
	l.Limit = min(l.Limit, 1000)
	p, err := b.store.ListUploads(patient(ctx), l)
	if err != nil {
		return s3response.ListMultipartUploadsResult{}, b.s3Error("ListMultipartUploads", object.Ref{Bucket: l.Bucket}, err)
	}
	out.IsTruncated = p.Truncated
	if p.Truncated {
		out.NextKeyMarker, out.NextUploadIDMarker = e.text(p.NextKey), p.NextID
	}
	for i := range p.Uploads {
		u := &p.Uploads[i]
		sum := checksumOf(u.Attributes)
		owner := ownerIn(bk, u.Attributes)
		out.Uploads = append(out.Uploads, s3response.Upload{
			Key: e.text(u.Key), UploadID: u.ID, Initiated: u.Started, StorageClass: types.StorageClass(classOf(u.Attributes)),
			Owner:             s3response.Owner{ID: owner, DisplayName: owner},
			Initiator:         s3response.Initiator{ID: owner, DisplayName: owner},
			ChecksumAlgorithm: sum.Algorithm, ChecksumType: sum.Type,
		})
	}
	for _, prefix := range p.Prefixes {
		out.CommonPrefixes = append(out.CommonPrefixes, s3response.CommonPrefix{Prefix: e.text(prefix)})
	}
	return out, nil
}

func (b *backend) ListParts(ctx context.Context, in *s3.ListPartsInput) (s3response.ListPartsResult, error) {
	var none s3response.ListPartsResult
	ref, id := refOf(in.Bucket, in.Key, nil), own(in.UploadId)
	after, err := strconv.Atoi(own(in.PartNumberMarker))
	if err != nil && own(in.PartNumberMarker) != "" {
		return none, s3err.GetInvalidArgMaxLimiter("part-number-marker", own(in.PartNumberMarker))
	}
	bk, err := b.bucketOf(ctx, ref.Bucket)
	if err != nil {
		return none, err
	}
	up, err := b.store.GetUpload(patient(ctx), ref.Bucket, ref.Key, id)
	if err != nil {
		return none, b.uploadError("ListParts", ref, id, err)
	}
	sum := checksumOf(up.Attributes)
	owner := ownerIn(bk, up.Attributes)
	out := s3response.ListPartsResult{
		Bucket: ref.Bucket, Key: ref.Key, UploadID: id, StorageClass: types.StorageClass(classOf(up.Attributes)),
		MaxParts:         int(*in.MaxParts),
		PartNumberMarker: after, ChecksumAlgorithm: sum.Algorithm, ChecksumType: sum.Type,
		Owner:     s3response.Owner{ID: owner, DisplayName: owner},
		Initiator: s3response.Initiator{ID: owner, DisplayName: owner},
	}
	if sum.Algorithm == "" {
		out.ChecksumAlgorithm, out.ChecksumType = "null", "null"
	}
	limit := min(out.MaxParts, 1000)
	if limit == 0 {
		return out, nil
	}
	parts, more, err := b.store.ListParts(patient(ctx), ref.Bucket, ref.Key, id, after, limit)
	if err != nil {
		return none, b.uploadError("ListParts", ref, id, err)
	}
	out.IsTruncated = more
	for i := range parts {
		p := &parts[i]
		psum := partChecksum(sum.Algorithm, p)
		s := psum.sums()
		out.Parts = append(out.Parts, s3response.Part{
			PartNumber: p.Number, ETag: quoted(p.ETag), LastModified: p.Modified, Size: p.Size,
			ChecksumCRC32: s.CRC32, ChecksumCRC32C: s.CRC32C, ChecksumCRC64NVME: s.CRC64NVME, ChecksumSHA1: s.SHA1,
			ChecksumSHA256: s.SHA256,
			ChecksumSHA512: s.SHA512, ChecksumMD5: s.MD5, ChecksumXXHASH64: s.XXHASH64, ChecksumXXHASH3: s.XXHASH3,
			ChecksumXXHASH128: s.XXHASH128,
		})
		out.NextPartNumberMarker = p.Number
	}
	return out, nil
}
