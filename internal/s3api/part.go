// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	vgwbackend "github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"

	"github.com/nebulaio/nebulaio/internal/object"
)

// partChecksum returns the checksum of a part in an upload with the algorithm algo, or none if algo is empty. The
// store's own checksum is not stored a second time.
func partChecksum(algo types.ChecksumAlgorithm, p *object.PartInfo) checksum {
	switch algo {
	case "":
		return checksum{}
	case types.ChecksumAlgorithmCrc64nvme:
		return checksum{Algorithm: algo, Value: crc64Text(p.CRC64)}
	}
	return checksum{Algorithm: algo, Value: p.Attributes[attrSum]}
}

func (b *backend) UploadPart(ctx context.Context, in *s3.UploadPartInput) (*s3.UploadPartOutput, error) {
	ref, id := refOf(in.Bucket, in.Key, nil), own(in.UploadId)
	up, err := b.store.GetUpload(patient(ctx), ref.Bucket, ref.Key, id)
	if err != nil {
		return nil, b.uploadError("UploadPart", ref, id, err)
	}
	store, err := encryptedPart(ctx, b, &up, true)
	if err != nil {
		return nil, err
	}
	of := checksumOf(up.Attributes)
	content := in.Body
	if content == nil {
		content = bytes.NewReader(nil)
	}
	given := sums{
		CRC32: in.ChecksumCRC32, CRC32C: in.ChecksumCRC32C, CRC64NVME: in.ChecksumCRC64NVME, SHA1: in.ChecksumSHA1,
		SHA256: in.ChecksumSHA256,
		SHA512: in.ChecksumSHA512, MD5: in.ChecksumMD5, XXHASH64: in.ChecksumXXHASH64, XXHASH3: in.ChecksumXXHASH3,
		XXHASH128: in.ChecksumXXHASH128,
	}
	body, err := newBody(content, given, of.Algorithm)
	if err != nil {
		return nil, err
	}
	asked := body.trailer != nil || body.want != ""
	switch {
	case !asked && of.Type == types.ChecksumTypeComposite:
		return nil, s3err.GetChecksumTypeMismatchErr(of.Algorithm, "null")
	case asked && of.Type != "" && body.algo != of.Algorithm:
		return nil, s3err.GetChecksumTypeMismatchErr(of.Algorithm, body.algo)
	}
	size := int64(-1)
	if in.ContentLength != nil {
		size = *in.ContentLength
	}
	var sum checksum
	info, err := b.store.PutPart(store, object.PutPart{
		Bucket: ref.Bucket, Key: ref.Key, Upload: id, Number: int(*in.PartNumber), Size: size, Body: body,
		Finish: func(w object.Written) (map[string]string, error) {
			var err error
			sum, err = body.sum(w)
			if err != nil || of.Algorithm == "" || of.Algorithm == types.ChecksumAlgorithmCrc64nvme {
				return nil, err
			}
			return map[string]string{attrSum: sum.Value}, nil
		},
	})
	if err != nil {
		return nil, b.uploadError("UploadPart", ref, id, body.failure(err))
	}
	tellEncryption(ctx, up.Attributes)
	out := &s3.UploadPartOutput{ETag: ptr(quoted(info.ETag))}
	if (asked || of.Type != "") && !up.NoSums {
		s := sum.sums()
		out.ChecksumCRC32, out.ChecksumCRC32C, out.ChecksumCRC64NVME = s.CRC32, s.CRC32C, s.CRC64NVME
		out.ChecksumSHA1, out.ChecksumSHA256, out.ChecksumSHA512, out.ChecksumMD5 = s.SHA1, s.SHA256, s.SHA512, s.MD5
		out.ChecksumXXHASH64, out.ChecksumXXHASH3, out.ChecksumXXHASH128 = s.XXHASH64, s.XXHASH3, s.XXHASH128
	}
	return out, nil
}

func (b *backend) UploadPartCopy(ctx context.Context, in *s3.UploadPartCopyInput) (s3response.CopyPartResult, error) {
	var none s3response.CopyPartResult
	ref, id := refOf(in.Bucket, in.Key, nil), own(in.UploadId)
	up, err := b.store.GetUpload(patient(ctx), ref.Bucket, ref.Key, id)
	if err != nil {
		return none, b.uploadError("UploadPartCopy", ref, id, err)
	}
	from, err := b.source(ctx, in.CopySource, in.ExpectedSourceBucketOwner)
	if err != nil {
		return none, err
	}
	src, err := b.statSource(ctx, from)
	if err != nil {
		return none, err
	}
	store, err := encryptedPart(ctx, b, &up, true)
	if err == nil {
		store, err = encryptedSource(ctx, store, b)
	}
	if err == nil {
		err = unlock(store, b, "UploadPartCopy", from, &src)
	}
	if err != nil {
		return none, err
	}
	off, n, err := copySourceRange(src.Size, own(in.CopySourceRange))
	if err != nil {
		return none, err
	}
	n = min(n, src.Size-off)
	if n > maxCopy {
		return none, s3err.GetCopySourceObjectTooLargeErr(maxCopy)
	}
	if err := readable(&src, in.CopySourceIfMatch, in.CopySourceIfNoneMatch, in.CopySourceIfModifiedSince,
		in.CopySourceIfUnmodifiedSince); err != nil {
		return none, err
	}
	from.Version = src.Version
	algo := checksumOf(up.Attributes).Algorithm
	c := object.CopyPart{From: from, Off: off, N: n, Bucket: ref.Bucket, Key: ref.Key, Upload: id,
		Number: int(*in.PartNumber)}
	info, err := b.copyPart(store, c, algo)
	if errors.Is(err, object.ErrDamaged) {
		return none, b.s3Error("UploadPartCopy", from, err)
	}
	if err != nil {
		return none, b.uploadError("UploadPartCopy", ref, id, err)
	}
	sum := partChecksum(algo, &info)
	if up.NoSums {
		sum = checksum{}
	}
	s := sum.sums()
	tellEncryption(ctx, up.Attributes)
	out := s3response.CopyPartResult{
		ETag: ptr(quoted(info.ETag)), LastModified: info.Modified,
		ChecksumCRC32: s.CRC32, ChecksumCRC32C: s.CRC32C, ChecksumCRC64NVME: s.CRC64NVME, ChecksumSHA1: s.SHA1,
		ChecksumSHA256: s.SHA256,
		ChecksumSHA512: s.SHA512, ChecksumMD5: s.MD5, ChecksumXXHASH64: s.XXHASH64, ChecksumXXHASH3: s.XXHASH3,
		ChecksumXXHASH128: s.XXHASH128,
	}
	if src.Versioned() {
		out.CopySourceVersionId = src.Version
	}
	return out, nil
}

// copyPart copies a part with the store's CopyPart. The bytes pass through memory only if the upload needs a
// checksum that the store does not compute.
func (b *backend) copyPart(ctx context.Context, c object.CopyPart, algo types.ChecksumAlgorithm) (object.PartInfo,
	error) {
	if algo == "" || algo == types.ChecksumAlgorithmCrc64nvme {
		return b.store.CopyPart(patient(ctx), c)
	}
	content, err := b.store.Open(patient(ctx), c.From)
	if err != nil {
		return object.PartInfo{}, err
	}
	defer content.Close()
	section, err := strict(content, object.Range{Off: c.Off, N: c.N})
	if err != nil {
		return object.PartInfo{}, err
	}
	defer section.Close()
	body, err := newBody(section, sums{}, algo)
	if err != nil {
		return object.PartInfo{}, err
	}
	return b.store.PutPart(patient(ctx), object.PutPart{
		Bucket: c.Bucket, Key: c.Key, Upload: c.Upload, Number: c.Number, Size: c.N, Body: body,
		Finish: func(w object.Written) (map[string]string, error) {
			sum, err := body.sum(w)
			return map[string]string{attrSum: sum.Value}, err
		},
	})
}

// copySourceRange returns the range of a source that a part copies. Unlike a Range header, a malformed range is refused
// and not ignored.
func copySourceRange(size int64, header string) (off, n int64, err error) {
	if _, ok := readRange(header); !ok && header != "" {
		return 0, 0, s3err.GetInvalidArgumentErr(s3err.InvalidArgCopySourceRange, header)
	}
	return vgwbackend.ParseCopySourceRange(size, header)
}
