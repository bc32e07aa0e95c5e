// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"

	"github.com/nebulaio/nebulaio/internal/object"
)

func (b *backend) GetObjectAttributes(ctx context.Context,
	in *s3.GetObjectAttributesInput) (s3response.GetObjectAttributesResponse, error) {
	var out s3response.GetObjectAttributesResponse
	ref := refOf(in.Bucket, in.Key, in.VersionId)
	if err := b.authorizePublic(ctx, ref, auth.GetObjectVersionAttributesAction, auth.PermissionRead); err != nil {
		return out, err
	}
	// versitygw checks only the action for attributes.
	if err := b.allowed(ctx, ref, auth.PermissionRead,
		ofVersion(ref, auth.GetObjectAction, auth.GetObjectVersionAction)); err != nil {
		return out, err
	}
	bk, err := b.bucketOf(ctx, ref.Bucket)
	if err != nil {
		return out, err
	}
	store, err := encryptedRead(ctx, b)
	if err != nil {
		return out, err
	}
	info, err := b.store.Stat(details(ctx, nil), ref)
	if info.Marker {
		return s3response.GetObjectAttributesResponse{DeleteMarker: ptr(true), VersionId: &info.Version},
			s3err.GetAPIError(s3err.ErrNoSuchKey)
	}
	if err != nil {
		return out, b.s3Error("GetObjectAttributes", ref, err)
	}
	if err := unlock(store, b, "GetObjectAttributes", ref, &info); err != nil {
		return out, err
	}
	tellEncryption(ctx, info.Attributes)
	sum := full(&info)
	s := sum.sums()
	out = s3response.GetObjectAttributesResponse{
		ETag: &info.ETag, ObjectSize: &info.Size, StorageClass: types.StorageClass(classOf(info.Attributes)),
		LastModified: &info.Modified,
		VersionId:    ptr(shownVersion(bk, &info)),
		Checksum: &types.Checksum{
			ChecksumType: sum.Type, ChecksumCRC32: s.CRC32, ChecksumCRC32C: s.CRC32C, ChecksumCRC64NVME: s.CRC64NVME,
			ChecksumSHA1: s.SHA1, ChecksumSHA256: s.SHA256, ChecksumSHA512: s.SHA512, ChecksumMD5: s.MD5,
			ChecksumXXHASH64: s.XXHASH64, ChecksumXXHASH3: s.XXHASH3, ChecksumXXHASH128: s.XXHASH128,
		},
	}
	if len(info.Parts) > 0 {
		out.ObjectParts = objectParts(&info, in.PartNumberMarker, in.MaxParts)
		countParts(ctx, len(info.Parts))
	}
	return out, nil
}

// objectParts returns one page of an object's parts.
func objectParts(info *object.Info, marker *string, limit *int32) *s3response.ObjectParts {
	after, _ := strconv.Atoi(own(marker)) // an invalid marker means the first part
	n := 1000
	if limit != nil && *limit > 0 {
		n = min(n, int(*limit))
	}
	out := &s3response.ObjectParts{PartNumberMarker: after, MaxParts: n}
	for i := range info.Parts {
		p := &info.Parts[i]
		if i+1 <= after {
			continue
		}
		if len(out.Parts) == n {
			out.IsTruncated = true
			break
		}
		sum := partChecksum(checksumOf(info.Attributes).Algorithm, p)
		s := sum.sums()
		out.Parts = append(out.Parts, types.ObjectPart{
			PartNumber: ptr(int32(i + 1)), Size: &p.Size, ChecksumCRC32: s.CRC32, ChecksumCRC32C: s.CRC32C,
			ChecksumCRC64NVME: s.CRC64NVME,
			ChecksumSHA1:      s.SHA1, ChecksumSHA256: s.SHA256,
		})
		out.NextPartNumberMarker = i + 1
	}
	return out
}
