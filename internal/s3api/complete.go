// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	vgwbackend "github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"

	"github.com/nebulaio/nebulaio/internal/object"
)

func (b *backend) CompleteMultipartUpload(ctx context.Context,
	in *s3.CompleteMultipartUploadInput) (s3response.CompleteMultipartUploadResult, string, error) {
	var none s3response.CompleteMultipartUploadResult
	ref, id := refOf(in.Bucket, in.Key, nil), own(in.UploadId)
	if in.MultipartUpload == nil {
		return none, "", s3err.GetAPIError(s3err.ErrInvalidRequest)
	}
	cond, err := condition(in.IfMatch, in.IfNoneMatch)
	if err == nil {
		err = b.mayCompare(ctx, ref, cond)
	}
	if err != nil {
		return none, "", err
	}
	bk, err := b.bucketOf(ctx, ref.Bucket)
	if err != nil {
		return none, "", err
	}
	origin, err := originOf(ctx, bk)
	if err != nil {
		return none, "", err
	}
	up, err := b.store.GetUpload(patient(ctx), ref.Bucket, ref.Key, id)
	if errors.Is(err, object.ErrNoSuchUpload) {
		return b.completedBefore(ctx, ref, in)
	}
	if err != nil {
		return none, "", b.s3Error("CompleteMultipartUpload", ref, err)
	}
	of := checksumOf(up.Attributes)
	// S3 needs the key of a customer here only if the upload has checksums.
	store, err := encryptedPart(ctx, b, &up, of.Algorithm != "")
	if err != nil {
		return none, "", err
	}
	if in.ChecksumType != "" && of.Type != in.ChecksumType {
		was := of.Type
		if was == "" {
			was = "null"
		}
		return none, "", s3err.GetChecksumTypeMismatchOnMpErr(was)
	}
	have, err := b.allParts(ctx, ref, id)
	var parts []object.CompletedPart
	if err == nil {
		parts, err = checkParts(in.MultipartUpload.Parts, have, of, &up)
	}
	if err != nil {
		// If another request completed the upload since GetUpload, its parts are missing for that reason.
		_, gone := b.store.GetUpload(patient(ctx), ref.Bucket, ref.Key, id)
		if errors.Is(gone, object.ErrNoSuchUpload) {
			return b.completedBefore(ctx, ref, in)
		}
		return none, "", err
	}
	var sum checksum
	info, err := b.store.CompleteUpload(store, object.Complete{
		Bucket: ref.Bucket, Key: ref.Key, Upload: id, Parts: parts, MinPart: vgwbackend.MinPartSize, Condition: cond,
		Judge: judgeCopy(up.Attributes, origin), Origin: origin,
		Finish: func(done []object.PartInfo) (map[string]string, error) {
			var err error
			if sum, err = joinedSum(of, done); err != nil {
				return nil, err
			}
			if err := checkWhole(in, done, of, sum); err != nil {
				return nil, err
			}
			add := map[string]string{attrUpload: id, attrUploadParts: partsDigest(parts)}
			sum.keep(add)
			markReplica(ctx, add, origin)
			return add, nil
		},
	})
	if errors.Is(err, object.ErrNoSuchUpload) {
		return b.completedBefore(ctx, ref, in) // another request has completed the upload at the same time
	}
	if err != nil {
		return none, "", b.writeError("CompleteMultipartUpload", ref, cond, err)
	}
	tellExpiration(ctx, b, bk, &info)
	if bk.OnUpstream() {
		sum = full(&info) // what the upstream keeps
	}
	tellEncryption(ctx, info.Attributes)
	return completed(&info, sum), versionOf(&info), nil
}

func versionOf(info *object.Info) string {
	if info.Versioned() {
		return info.Version
	}
	return ""
}

func completed(info *object.Info, sum checksum) s3response.CompleteMultipartUploadResult {
	s := sum.sums()
	return s3response.CompleteMultipartUploadResult{
		Bucket: &info.Bucket, Key: &info.Key, ETag: ptr(quoted(info.ETag)), ChecksumType: &sum.Type,
		ChecksumCRC32: s.CRC32, ChecksumCRC32C: s.CRC32C, ChecksumCRC64NVME: s.CRC64NVME, ChecksumSHA1: s.SHA1,
		ChecksumSHA256: s.SHA256,
		ChecksumSHA512: s.SHA512, ChecksumMD5: s.MD5, ChecksumXXHASH64: s.XXHASH64, ChecksumXXHASH3: s.XXHASH3,
		ChecksumXXHASH128: s.XXHASH128,
	}
}

// completedBefore answers the completion of an upload that does not exist any more. A client repeats a completion
// if it has lost the first reply. So the same list of parts succeeds again as long as the object is the result of
// that upload. Any other list is refused, because the client would believe that the object has those parts.
func (b *backend) completedBefore(
	ctx context.Context, ref object.Ref, in *s3.CompleteMultipartUploadInput,
) (s3response.CompleteMultipartUploadResult, string, error) {
	var none s3response.CompleteMultipartUploadResult
	id := own(in.UploadId)
	list := make([]object.CompletedPart, len(in.MultipartUpload.Parts))
	for i := range list {
		p := &in.MultipartUpload.Parts[i]
		if p.PartNumber == nil || p.ETag == nil {
			return none, "", s3err.GetAPIError(s3err.ErrMalformedXML)
		}
		list[i] = object.CompletedPart{Number: int(*p.PartNumber), ETag: unquoted(p.ETag)}
	}
	info, err := b.store.Stat(patient(ctx), ref)
	if err != nil || info.Attributes[attrUpload] != id || info.Attributes[attrUploadParts] != partsDigest(list) {
		return none, "", s3err.GetNoSuchUploadErr(id)
	}
	return completed(&info, full(&info)), versionOf(&info), nil
}

// partsDigest returns a digest of the parts of a completion: their numbers and ETags, in order.
func partsDigest(parts []object.CompletedPart) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s\n", p.Number, p.ETag) // writing to a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// allParts returns the parts of an upload by their numbers.
func (b *backend) allParts(ctx context.Context, ref object.Ref, id string) (map[int]object.PartInfo, error) {
	have := map[int]object.PartInfo{}
	for after, more := 0, true; more; {
		var page []object.PartInfo
		var err error
		page, more, err = b.store.ListParts(patient(ctx), ref.Bucket, ref.Key, id, after, 1000)
		if err != nil {
			return nil, b.uploadError("CompleteMultipartUpload", ref, id, err)
		}
		for i := range page {
			have[page[i].Number] = page[i]
			after = page[i].Number
		}
		more = more && len(page) > 0
	}
	return have, nil
}

// checkParts compares the list of a completion with the uploaded parts, in the order and with the errors of S3. The
// store checks the list again.
func checkParts(list []types.CompletedPart, have map[int]object.PartInfo, of checksum,
	up *object.Upload) ([]object.CompletedPart, error) {
	id := up.ID
	out := make([]object.CompletedPart, len(list))
	last := 0
	for i := range list {
		p := &list[i]
		if p.PartNumber == nil || p.ETag == nil {
			return nil, s3err.GetAPIError(s3err.ErrMalformedXML)
		}
		n := int(*p.PartNumber)
		if n < 1 {
			return nil, s3err.GetInvalidArgumentErr(s3err.InvalidArgCompleteMpPartNumber, fmt.Sprint(n))
		}
		if n <= last {
			return nil, s3err.GetAPIError(s3err.ErrInvalidPartOrder)
		}
		last = n
		part, ok := have[n]
		if !ok {
			return nil, s3err.GetInvalidPartErr(id, *p.PartNumber, own(p.ETag))
		}
		if i < len(list)-1 && part.Size < vgwbackend.MinPartSize {
			return nil, s3err.GetEntityTooSmallErr(part.Size, vgwbackend.MinPartSize)
		}
		if unquoted(p.ETag) != part.ETag {
			return nil, s3err.GetInvalidPartErr(id, *p.PartNumber, quoted(part.ETag))
		}
		if !up.Forgotten {
			if err := checkPartSum(p, &part, of.Algorithm, up); err != nil {
				return nil, err
			}
		}
		out[i] = object.CompletedPart{Number: n, ETag: part.ETag}
	}
	return out, nil
}

// checkPartSum compares the checksum of a part in a completion with the checksum of the uploaded part. If an upstream
// keeps no checksums of parts, the client need not repeat them: the reply to the part did not name one.
func checkPartSum(p *types.CompletedPart, part *object.PartInfo, algo types.ChecksumAlgorithm,
	up *object.Upload) error {
	id := up.ID
	given := sums{
		CRC32: p.ChecksumCRC32, CRC32C: p.ChecksumCRC32C, CRC64NVME: p.ChecksumCRC64NVME, SHA1: p.ChecksumSHA1,
		SHA256: p.ChecksumSHA256,
		SHA512: p.ChecksumSHA512, MD5: p.ChecksumMD5, XXHASH64: p.ChecksumXXHASH64, XXHASH3: p.ChecksumXXHASH3,
		XXHASH128: p.ChecksumXXHASH128,
	}
	count, text := 0, ""
	for _, f := range given.all() {
		if *f.at != nil && **f.at != "" {
			count++
			text += string(f.algo) + ":" + **f.at + ";"
		}
	}
	switch {
	case count > 1:
		return s3err.GetInvalidArgumentErr(s3err.InvalidArgChecksumPart, text)
	case (algo == "" || up.NoSums) && count == 0:
		return nil
	case algo == "":
		return s3err.GetInvalidPartErr(id, *p.PartNumber, own(p.ETag))
	case count == 0:
		return s3err.APIError{
			Code: "InvalidRequest", HTTPStatusCode: http.StatusBadRequest,
			Description: fmt.Sprintf("The upload was created using a %v checksum. The complete request must include the "+
				"checksum for each part. It was missing for part %v in the request.", strings.ToLower(string(algo)), *p.PartNumber),
		}
	}
	gotAlgo, got := given.given()
	switch {
	case !utils.IsValidChecksum(got, gotAlgo):
		return s3err.GetInvalidArgumentErr(s3err.InvalidArgChecksumPart, got)
	case gotAlgo != algo:
		return s3err.APIError{
			Code: "BadDigest", HTTPStatusCode: http.StatusBadRequest,
			Description: fmt.Sprintf("The %v you specified for part %v did not match what we received.",
				strings.ToLower(string(gotAlgo)), *p.PartNumber),
		}
	case got != partChecksum(algo, part).Value:
		return s3err.GetInvalidPartErr(id, *p.PartNumber, own(p.ETag))
	}
	return nil
}

// joinedSum returns the checksum of an object, computed from the checksums of its parts. If the algorithm can
// combine checksums, the result is the checksum of the whole content, and otherwise the checksum of the checksums.
func joinedSum(of checksum, parts []object.PartInfo) (checksum, error) {
	if of.Algorithm == "" {
		of = checksum{Algorithm: types.ChecksumAlgorithmCrc64nvme, Type: types.ChecksumTypeFullObject}
	}
	if of.Type == types.ChecksumTypeComposite {
		h, err := utils.NewCompositeChecksumReader(utils.HashType(strings.ToLower(string(of.Algorithm))))
		if err != nil {
			return of, s3err.GetAPIError(s3err.ErrInvalidRequest)
		}
		for i := range parts {
			if err := h.Process(partChecksum(of.Algorithm, &parts[i]).Value); err != nil {
				return of, err
			}
		}
		of.Value = fmt.Sprintf("%s-%d", h.Sum(), len(parts))
		return of, nil
	}
	for i := range parts {
		v := partChecksum(of.Algorithm, &parts[i]).Value
		if i == 0 {
			of.Value = v
			continue
		}
		var err error
		if of.Value, err = utils.AddCRCChecksum(of.Algorithm, of.Value, v, parts[i].Size); err != nil {
			return of, err
		}
	}
	return of, nil
}

// checkWhole compares the size and the checksum of the object with those of the completion.
func checkWhole(in *s3.CompleteMultipartUploadInput, parts []object.PartInfo, of, sum checksum) error {
	if err := checkObjectSize(parts); err != nil {
		return err
	}
	if in.MpuObjectSize != nil {
		var size int64
		for i := range parts {
			size += parts[i].Size
		}
		if size != *in.MpuObjectSize {
			return s3err.GetIncorrectMpObjectSizeErr(size, *in.MpuObjectSize)
		}
	}
	if of.Type == "" {
		return nil
	}
	given := sums{
		CRC32: in.ChecksumCRC32, CRC32C: in.ChecksumCRC32C, CRC64NVME: in.ChecksumCRC64NVME, SHA1: in.ChecksumSHA1,
		SHA256: in.ChecksumSHA256,
		SHA512: in.ChecksumSHA512, MD5: in.ChecksumMD5, XXHASH64: in.ChecksumXXHASH64, XXHASH3: in.ChecksumXXHASH3,
		XXHASH128: in.ChecksumXXHASH128,
	}
	for _, f := range given.all() {
		if f.algo != sum.Algorithm || *f.at == nil {
			continue
		}
		got := **f.at
		if of.Type == types.ChecksumTypeComposite && !strings.Contains(got, "-") {
			got = fmt.Sprintf("%s-%d", got, len(parts))
		}
		if got != sum.Value {
			return s3err.GetChecksumBadDigestErr(sum.Algorithm)
		}
	}
	return nil
}
