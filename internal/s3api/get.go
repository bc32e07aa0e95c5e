// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	vgwbackend "github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"

	"github.com/nebulaio/nebulaio/internal/object"
)

func (b *backend) GetObject(ctx context.Context, in *s3.GetObjectInput) (*s3.GetObjectOutput, error) {
	ref := refOf(in.Bucket, in.Key, in.VersionId)
	if err := b.authorizeRead(ctx, ref); err != nil {
		return nil, err
	}
	bk, err := b.bucketOf(ctx, ref.Bucket)
	if err != nil {
		return nil, err
	}
	content, err := b.store.Open(patient(ctx), ref)
	if err != nil {
		return b.marker(ctx, ref, err)
	}
	defer content.Close() // bodies keep it open
	info := content.Info()
	if err := readable(&info, in.IfMatch, in.IfNoneMatch, in.IfModifiedSince, in.IfUnmodifiedSince); err != nil {
		return nil, unread(ctx, &info, err)
	}
	r, err := pick(&info, in.Range, in.PartNumber)
	if err != nil {
		return nil, err
	}
	body, err := content.Section(r.Range)
	if err == nil {
		err = verified(body)
	}
	if err != nil {
		return nil, b.s3Error("GetObject", ref, err)
	}
	a, side := info.Attributes, b.shown(ctx, ref, info.Attributes)
	out := &s3.GetObjectOutput{
		Body:         &sentBody{Body: body, ref: object.Ref{Bucket: ref.Bucket, Key: ref.Key, Version: info.Version}},
		AcceptRanges: ptr("bytes"), ContentLength: &r.N, ContentRange: r.header(info.Size), PartsCount: r.parts,
		ContentType: some(a[attrType]), ContentEncoding: some(a[attrEncoding]), ContentDisposition: some(a[attrDisposition]),
		ContentLanguage: some(a[attrLanguage]), CacheControl: some(a[attrCache]), ExpiresString: some(a[attrExpires]),
		WebsiteRedirectLocation: some(a[attrRedirect]), ETag: ptr(quoted(info.ETag)), LastModified: &info.Modified,
		Metadata: metadataOf(a), TagCount: tagCount(side), StorageClass: types.StorageClassStandard,
		VersionId: ptr(shownVersion(bk, info.Version)),
	}
	out.ObjectLockMode, out.ObjectLockRetainUntilDate, out.ObjectLockLegalHoldStatus = locked(side)
	if in.ChecksumMode == types.ChecksumModeEnabled {
		sum := r.sum(&info)
		s := sum.sums()
		out.ChecksumType = sum.Type
		out.ChecksumCRC32, out.ChecksumCRC32C, out.ChecksumCRC64NVME = s.CRC32, s.CRC32C, s.CRC64NVME
		out.ChecksumSHA1, out.ChecksumSHA256, out.ChecksumSHA512, out.ChecksumMD5 = s.SHA1, s.SHA256, s.SHA512, s.MD5
		out.ChecksumXXHASH64, out.ChecksumXXHASH3, out.ChecksumXXHASH128 = s.XXHASH64, s.XXHASH3, s.XXHASH128
	}
	return out, nil
}

// verified compares the first block of a reply before the status line is sent: damage there is still a 500. It closes a body
// that is damaged.
func verified(body object.Body) error {
	v, ok := body.(object.Verifier)
	if !ok {
		return nil // it was compared when it was opened
	}
	err := v.Verify()
	if err != nil {
		_ = body.Close()
	}
	return err
}

// marker says why a version cannot be opened; a delete marker is told apart by the output beside the error.
func (b *backend) marker(ctx context.Context, ref object.Ref, err error) (*s3.GetObjectOutput, error) {
	if errors.Is(err, object.ErrIsMarker) || errors.Is(err, object.ErrNoSuchKey) {
		if info, _ := b.store.Stat(patient(ctx), ref); info.Marker {
			return &s3.GetObjectOutput{DeleteMarker: ptr(true), LastModified: &info.Modified}, b.s3Error("GetObject", ref, err)
		}
	}
	return nil, b.s3Error("GetObject", ref, err)
}

func (b *backend) HeadObject(ctx context.Context, in *s3.HeadObjectInput) (*s3.HeadObjectOutput, error) {
	ref := refOf(in.Bucket, in.Key, in.VersionId)
	if err := b.authorizeRead(ctx, ref); err != nil {
		return nil, err
	}
	bk, err := b.bucketOf(ctx, ref.Bucket)
	if err != nil {
		return nil, err
	}
	info, err := b.store.Stat(patient(ctx), ref)
	if info.Marker {
		if err == nil {
			err = object.ErrIsMarker
		}
		return &s3.HeadObjectOutput{DeleteMarker: ptr(true), LastModified: &info.Modified, VersionId: &info.Version},
			b.s3Error("HeadObject", ref, err)
	}
	if err != nil {
		return nil, b.s3Error("HeadObject", ref, err)
	}
	if err := readable(&info, in.IfMatch, in.IfNoneMatch, in.IfModifiedSince, in.IfUnmodifiedSince); err != nil {
		return nil, unread(ctx, &info, err)
	}
	r, err := pick(&info, in.Range, in.PartNumber)
	if err != nil {
		return nil, err
	}
	a, side := info.Attributes, b.shown(ctx, ref, info.Attributes)
	out := &s3.HeadObjectOutput{
		AcceptRanges: ptr("bytes"), ContentLength: &r.N, ContentRange: r.header(info.Size), PartsCount: r.parts,
		ContentType: some(a[attrType]), ContentEncoding: some(a[attrEncoding]), ContentDisposition: some(a[attrDisposition]),
		ContentLanguage: some(a[attrLanguage]), CacheControl: some(a[attrCache]), ExpiresString: some(a[attrExpires]),
		WebsiteRedirectLocation: some(a[attrRedirect]), ETag: ptr(quoted(info.ETag)), LastModified: &info.Modified,
		Metadata: metadataOf(a), TagCount: tagCount(side), StorageClass: types.StorageClassStandard,
		VersionId: ptr(shownVersion(bk, info.Version)),
	}
	out.ObjectLockMode, out.ObjectLockRetainUntilDate, out.ObjectLockLegalHoldStatus = locked(side)
	if in.ChecksumMode == types.ChecksumModeEnabled {
		sum := r.sum(&info)
		s := sum.sums()
		out.ChecksumType = sum.Type
		out.ChecksumCRC32, out.ChecksumCRC32C, out.ChecksumCRC64NVME = s.CRC32, s.CRC32C, s.CRC64NVME
		out.ChecksumSHA1, out.ChecksumSHA256, out.ChecksumSHA512, out.ChecksumMD5 = s.SHA1, s.SHA256, s.SHA512, s.MD5
		out.ChecksumXXHASH64, out.ChecksumXXHASH3, out.ChecksumXXHASH128 = s.XXHASH64, s.XXHASH3, s.XXHASH128
	}
	return out, nil
}

func (b *backend) GetObjectAttributes(ctx context.Context,
	in *s3.GetObjectAttributesInput) (s3response.GetObjectAttributesResponse, error) {
	var out s3response.GetObjectAttributesResponse
	ref := refOf(in.Bucket, in.Key, in.VersionId)
	if err := b.authorizePublic(ctx, ref, auth.GetObjectVersionAttributesAction, auth.PermissionRead); err != nil {
		return out, err
	}
	// versitygw asks for the action of attributes alone.
	if err := b.allowed(ctx, ref, auth.PermissionRead, ofVersion(ref, auth.GetObjectAction, auth.GetObjectVersionAction)); err != nil {
		return out, err
	}
	bk, err := b.bucketOf(ctx, ref.Bucket)
	if err != nil {
		return out, err
	}
	info, err := b.store.Stat(patient(ctx), ref)
	if info.Marker {
		return s3response.GetObjectAttributesResponse{DeleteMarker: ptr(true), VersionId: &info.Version}, s3err.GetAPIError(s3err.ErrNoSuchKey)
	}
	if err != nil {
		return out, b.s3Error("GetObjectAttributes", ref, err)
	}
	sum := full(&info)
	s := sum.sums()
	out = s3response.GetObjectAttributesResponse{
		ETag: &info.ETag, ObjectSize: &info.Size, StorageClass: types.StorageClassStandard, LastModified: &info.Modified,
		VersionId: ptr(shownVersion(bk, info.Version)),
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
	after, _ := strconv.Atoi(own(marker)) // what is no number begins at the front
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
			PartNumber: ptr(int32(i + 1)), Size: &p.Size, ChecksumCRC32: s.CRC32, ChecksumCRC32C: s.CRC32C, ChecksumCRC64NVME: s.CRC64NVME,
			ChecksumSHA1: s.SHA1, ChecksumSHA256: s.SHA256,
		})
		out.NextPartNumberMarker = i + 1
	}
	return out
}

// readable judges the conditions of a read. Times of HTTP have whole seconds, so
// the object's is cut: with the Last-Modified that it was told, a client is right.
func readable(info *object.Info, ifMatch, ifNoneMatch *string, since, until *time.Time) error {
	if ifMatch == nil && ifNoneMatch == nil && since == nil && until == nil {
		return nil
	}
	if until != nil {
		until = ptr(until.Add(time.Nanosecond)) // not modified at that time is not modified since, which versitygw takes for before
	}
	return vgwbackend.EvaluatePreconditions(info.ETag, info.Modified.Truncate(time.Second), vgwbackend.PreConditions{
		IfMatch: ifMatch, IfNoneMatch: ifNoneMatch, IfModSince: since, IfUnmodeSince: until,
	})
}

// unread lets the reply that nothing has changed say what has not, as HTTP asks for and caches count on.
func unread(ctx context.Context, info *object.Info, err error) error {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if ok && errors.Is(err, s3err.GetAPIError(s3err.ErrNotModified)) {
		rctx.Response.Header.Set("ETag", quoted(info.ETag))
		rctx.Response.Header.Set("Last-Modified", info.Modified.UTC().Format(http.TimeFormat))
	}
	return err
}

// picked is the part of an object that a request asks for.
type picked struct {
	object.Range
	partial bool
	parts   *int32
	part    *object.PartInfo // where one was asked for by its number
}

// sum returns the checksum of what was picked: the part's own where the object's is made of those of its parts,
// and none where it is a range, of which nothing is known.
func (p *picked) sum(info *object.Info) checksum {
	whole := full(info)
	switch {
	case p.part != nil && whole.Type == types.ChecksumTypeComposite:
		c := partChecksum(whole.Algorithm, p.part)
		c.Type = whole.Type
		return c
	case p.N == info.Size:
		return whole
	}
	return checksum{}
}

func (p *picked) header(size int64) *string {
	if !p.partial {
		return nil
	}
	text := make([]byte, 0, 48)
	text = strconv.AppendInt(append(text, "bytes "...), p.Off, 10)
	text = strconv.AppendInt(append(text, '-'), p.Off+p.N-1, 10)
	text = strconv.AppendInt(append(text, '/'), size, 10)
	return ptr(string(text))
}

// pick returns what a range or a part number means for an object.
func pick(info *object.Info, header *string, part *int32) (picked, error) {
	p := picked{Range: object.Range{N: info.Size}}
	switch {
	case part == nil:
		if header == nil || *header == "" {
			return p, nil
		}
		off, n, ok, err := vgwbackend.ParseObjectRange(info.Size, own(header))
		if err != nil {
			return p, err
		}
		p.Off, p.N, p.partial = off, n, ok
	case len(info.Parts) > 0:
		count := int32(len(info.Parts))
		p.parts = &count
		if *part > count {
			return p, s3err.GetInvalidPartNumberRangeErr(count, *part)
		}
		for i := range info.Parts[:*part-1] {
			p.Off += info.Parts[i].Size
		}
		p.part = &info.Parts[*part-1]
		p.N = p.part.Size
		p.partial = p.N > 0 // no range says no bytes
	default:
		if *part > 1 {
			return p, s3err.GetInvalidPartNumberRangeErr(1, *part)
		}
		p.partial = info.Size > 0
	}
	return p, nil
}

// locked returns how a version is protected.
func locked(attrs map[string]string) (mode types.ObjectLockMode, until *time.Time, hold types.ObjectLockLegalHoldStatus) {
	switch attrs[attrHold] {
	case "1":
		hold = types.ObjectLockLegalHoldStatusOn
	case "0":
		hold = types.ObjectLockLegalHoldStatusOff
	}
	if doc := attrs[attrRetention]; doc != "" {
		var r types.ObjectLockRetention
		if json.Unmarshal([]byte(doc), &r) == nil { // written by this package alone
			mode, until = types.ObjectLockMode(r.Mode), r.RetainUntilDate
		}
	}
	return mode, until, hold
}

// SelectObjectContent writes nothing: the guard turns the reply into 501. versitygw's own would tie a
// context to the request for as long as the process lives, and bring it down when the server stops.
func (b *backend) SelectObjectContent(context.Context, *s3.SelectObjectContentInput) func(*bufio.Writer) {
	return func(*bufio.Writer) {}
}
