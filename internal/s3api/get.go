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
	vgwbackend "github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// admitRead checks that a request may read an object, and returns the object's bucket.
func (b *backend) admitRead(ctx context.Context, ref object.Ref) (*object.Bucket, error) {
	if err := b.authorizeRead(ctx, ref); err != nil {
		return nil, err
	}
	return b.bucketOf(ctx, ref.Bucket)
}

// judgeRead returns the range of an object that a read asks for, or why the read is refused.
func judgeRead(ctx context.Context, in *s3.GetObjectInput, info *object.Info) (picked, error) {
	if err := readable(info, in.IfMatch, in.IfNoneMatch, in.IfModifiedSince, in.IfUnmodifiedSince); err != nil {
		return picked{}, unread(ctx, info, err)
	}
	return pick(info, in.Range, in.PartNumber)
}

// describe returns the reply to a read of the object that ref names, without a body.
func (b *backend) describe(ctx context.Context, in *s3.GetObjectInput, bk *object.Bucket, ref object.Ref,
	info *object.Info, p *picked) *s3.GetObjectOutput {
	a, side := info.Attributes, b.shown(ctx, ref, info.Attributes)
	out := &s3.GetObjectOutput{
		AcceptRanges: ptr("bytes"), ContentLength: &p.N, ContentRange: p.header(info.Size), PartsCount: p.parts,
		ContentType: some(a[attrType]), ContentEncoding: some(a[attrEncoding]), ContentDisposition: some(a[attrDisposition]),
		ContentLanguage: some(a[attrLanguage]), CacheControl: some(a[attrCache]), ExpiresString: some(a[attrExpires]),
		WebsiteRedirectLocation: some(a[attrRedirect]), ETag: ptr(quoted(info.ETag)), LastModified: &info.Modified,
		Metadata: metadataOf(a), TagCount: tagCount(side), StorageClass: types.StorageClass(classIn(bk.Name, a)),
		VersionId: ptr(shownVersion(bk, info)),
	}
	tellExpiration(ctx, b, bk, info)
	tellReplication(ctx, b, bk, info)
	out.ObjectLockMode, out.ObjectLockRetainUntilDate, out.ObjectLockLegalHoldStatus = locked(side)
	if in.ChecksumMode == types.ChecksumModeEnabled {
		sum := p.sum(info)
		s := sum.sums()
		out.ChecksumType = sum.Type
		out.ChecksumCRC32, out.ChecksumCRC32C, out.ChecksumCRC64NVME = s.CRC32, s.CRC32C, s.CRC64NVME
		out.ChecksumSHA1, out.ChecksumSHA256, out.ChecksumSHA512, out.ChecksumMD5 = s.SHA1, s.SHA256, s.SHA512, s.MD5
		out.ChecksumXXHASH64, out.ChecksumXXHASH3, out.ChecksumXXHASH128 = s.XXHASH64, s.XXHASH3, s.XXHASH128
	}
	return out
}

// GetObject opens the content of an object, or a range of it, as the body of a reply.
func (b *backend) GetObject(ctx context.Context, in *s3.GetObjectInput) (*s3.GetObjectOutput, error) {
	ref := refOf(in.Bucket, in.Key, in.VersionId)
	bk, err := b.admitRead(ctx, ref)
	if err != nil {
		return nil, err
	}
	var out *s3.GetObjectOutput
	for range mostChanges {
		// If another server keeps the object, and has changed it or sent wrong bytes, the reply begins anew: no byte was
		// sent yet.
		if out, err = readObject(ctx, b, in, bk, ref); !anew(err) {
			break
		}
	}
	if anew(err) {
		return nil, b.s3Error("GetObject", ref, err)
	}
	return out, err
}

// mostChanges is how often a read begins anew because the object has changed or wrong bytes came.
const mostChanges = 3

// anew reports whether a read that failed before its first byte may begin anew.
func anew(err error) bool {
	return errors.Is(err, object.ErrChanged) || errors.Is(err, object.ErrWrongReply)
}

// readObject opens the content of an object as the body of a reply. If the read may begin anew, readObject returns the
// store's error; all other errors are S3 errors.
func readObject(ctx context.Context, b *backend, in *s3.GetObjectInput, bk *object.Bucket,
	ref object.Ref) (*s3.GetObjectOutput, error) {
	store, err := encryptedRead(ctx, b)
	if err != nil {
		return nil, err
	}
	content, err := b.store.Open(expecting(store, in.Range), ref)
	if anew(err) {
		return nil, err
	}
	if err != nil {
		return b.marker(ctx, ref, err)
	}
	defer content.Close() // an open body keeps the content open
	info := content.Info()
	if err := locate(ctx, b, bk, ref, in.PartNumber, &info); err != nil {
		return nil, err
	}
	p, err := judgeRead(ctx, in, &info)
	if err != nil {
		return nil, err
	}
	tellSource(ctx, content, p.Range)
	body, err := content.Section(p.Range)
	if err == nil {
		err = verified(body)
	}
	if anew(err) {
		return nil, err
	}
	if err != nil {
		return nil, b.s3Error("GetObject", ref, err)
	}
	tellEncryption(ctx, info.Attributes)
	out := b.describe(ctx, in, bk, ref, &info, &p)
	out.Body = &sentBody{Body: body, ref: object.Ref{Bucket: ref.Bucket, Key: ref.Key, Version: info.Version}}
	return out, nil
}

// HeadObject returns the same headers as GetObject, without opening the object's content.
func (b *backend) HeadObject(ctx context.Context, in *s3.HeadObjectInput) (*s3.HeadObjectOutput, error) {
	out, err := statObject(ctx, b, &s3.GetObjectInput{
		Bucket: in.Bucket, Key: in.Key, VersionId: in.VersionId, IfMatch: in.IfMatch, IfNoneMatch: in.IfNoneMatch,
		IfModifiedSince: in.IfModifiedSince, IfUnmodifiedSince: in.IfUnmodifiedSince, Range: in.Range,
		PartNumber: in.PartNumber, ChecksumMode: in.ChecksumMode,
	})
	if out == nil {
		return nil, err
	}
	return head(out), err
}

// statObject returns the reply to a GET without its body. For a delete marker, it returns an error and an output.
func statObject(ctx context.Context, b *backend, in *s3.GetObjectInput) (*s3.GetObjectOutput, error) {
	ref := refOf(in.Bucket, in.Key, in.VersionId)
	bk, err := b.admitRead(ctx, ref)
	if err != nil {
		return nil, err
	}
	store, err := encryptedRead(ctx, b)
	if err != nil {
		return nil, err
	}
	asking := patient(ctx)
	if in.PartNumber != nil {
		asking = details(ctx, in.PartNumber)
	}
	info, err := b.store.Stat(asking, ref)
	if info.Marker {
		if err == nil {
			err = object.ErrIsMarker
		}
		return &s3.GetObjectOutput{DeleteMarker: ptr(true), LastModified: &info.Modified, VersionId: &info.Version},
			b.s3Error("HeadObject", ref, err)
	}
	if err != nil {
		return nil, b.s3Error("HeadObject", ref, err)
	}
	if err := unlock(store, b, "HeadObject", ref, &info); err != nil {
		return nil, err
	}
	p, err := judgeRead(ctx, in, &info)
	if err != nil {
		return nil, err
	}
	tellEncryption(ctx, info.Attributes)
	return b.describe(ctx, in, bk, ref, &info, &p), nil
}

// head returns the reply to a HEAD with the same headers as the reply to a GET.
func head(o *s3.GetObjectOutput) *s3.HeadObjectOutput {
	return &s3.HeadObjectOutput{
		AcceptRanges: o.AcceptRanges, ContentLength: o.ContentLength, ContentRange: o.ContentRange, PartsCount: o.PartsCount,
		ContentType: o.ContentType, ContentEncoding: o.ContentEncoding, ContentDisposition: o.ContentDisposition,
		ContentLanguage: o.ContentLanguage, CacheControl: o.CacheControl, ExpiresString: o.ExpiresString,
		WebsiteRedirectLocation: o.WebsiteRedirectLocation, ETag: o.ETag, LastModified: o.LastModified,
		DeleteMarker: o.DeleteMarker, Metadata: o.Metadata,
		TagCount: o.TagCount, StorageClass: o.StorageClass, VersionId: o.VersionId,
		ObjectLockMode: o.ObjectLockMode, ObjectLockRetainUntilDate: o.ObjectLockRetainUntilDate,
		ObjectLockLegalHoldStatus: o.ObjectLockLegalHoldStatus,
		ChecksumType:              o.ChecksumType, ChecksumCRC32: o.ChecksumCRC32, ChecksumCRC32C: o.ChecksumCRC32C,
		ChecksumCRC64NVME: o.ChecksumCRC64NVME, ChecksumSHA1: o.ChecksumSHA1, ChecksumSHA256: o.ChecksumSHA256,
		ChecksumSHA512: o.ChecksumSHA512, ChecksumMD5: o.ChecksumMD5, ChecksumXXHASH64: o.ChecksumXXHASH64,
		ChecksumXXHASH3: o.ChecksumXXHASH3, ChecksumXXHASH128: o.ChecksumXXHASH128,
	}
}

// verified compares the first block of a body with its checksum before the status line is sent, so that damage in
// this block leads to status 500. It closes a damaged body.
func verified(body object.Body) error {
	v, ok := body.(object.Verifier)
	if !ok {
		return nil // the blocks were compared when the content was opened
	}
	err := v.Verify()
	if err != nil {
		_ = body.Close()
	}
	return err
}

// marker returns the S3 error for a version that cannot be opened. For a delete marker, it also returns an output.
func (b *backend) marker(ctx context.Context, ref object.Ref, err error) (*s3.GetObjectOutput, error) {
	if errors.Is(err, object.ErrIsMarker) || errors.Is(err, object.ErrNoSuchKey) {
		if info, _ := b.store.Stat(patient(ctx), ref); info.Marker {
			return &s3.GetObjectOutput{DeleteMarker: ptr(true), LastModified: &info.Modified}, b.s3Error("GetObject", ref, err)
		}
	}
	return nil, b.s3Error("GetObject", ref, err)
}

// readable checks the conditions of a read. HTTP times have whole seconds, so readable truncates the object's time.
// A condition with the Last-Modified of an earlier reply is then true.
func readable(info *object.Info, ifMatch, ifNoneMatch *string, since, until *time.Time) error {
	if ifMatch == nil && ifNoneMatch == nil && since == nil && until == nil {
		return nil
	}
	if until != nil {
		// versitygw refuses an object that was modified exactly at that time
		until = ptr(until.Add(time.Nanosecond))
	}
	return vgwbackend.EvaluatePreconditions(info.ETag, info.Modified.Truncate(time.Second), vgwbackend.PreConditions{
		IfMatch: ifMatch, IfNoneMatch: ifNoneMatch, IfModSince: since, IfUnmodeSince: until,
	})
}

// unread adds ETag and Last-Modified to a 304 reply, as HTTP requires. Caches rely on both headers.
func unread(ctx context.Context, info *object.Info, err error) error {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if ok && errors.Is(err, s3err.GetAPIError(s3err.ErrNotModified)) {
		rctx.Response.Header.Set("ETag", quoted(info.ETag))
		rctx.Response.Header.Set("Last-Modified", info.Modified.UTC().Format(http.TimeFormat))
	}
	return err
}

// picked is the range of an object that a request asks for.
type picked struct {
	object.Range
	partial bool
	parts   *int32
	part    *object.PartInfo // the part, if the request asks for a part number
}

// sum returns the checksum of the picked range. For a part, it is the checksum of the part if the object's checksum
// is composite. Any other range has no checksum.
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

// pick returns the range of an object that a Range header or a part number selects.
func pick(info *object.Info, header *string, part *int32) (picked, error) {
	p := picked{Range: object.Range{N: info.Size}}
	switch {
	case part == nil:
		if header == nil || *header == "" {
			return p, nil
		}
		return pickRange(info.Size, *header)
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
		p.partial = p.N > 0 // no Range header can describe an empty part
	case info.Part != nil:
		return partAt(p, info.Part), nil
	default:
		if *part > 1 {
			return p, s3err.GetInvalidPartNumberRangeErr(1, *part)
		}
		p.partial = info.Size > 0
	}
	return p, nil
}

// locked returns the retention and the legal hold of a version.
func locked(attrs map[string]string) (mode types.ObjectLockMode, until *time.Time,
	hold types.ObjectLockLegalHoldStatus) {
	switch attrs[attrHold] {
	case "1":
		hold = types.ObjectLockLegalHoldStatusOn
	case "0":
		hold = types.ObjectLockLegalHoldStatusOff
	}
	if doc := attrs[attrRetention]; doc != "" {
		var r types.ObjectLockRetention
		if json.Unmarshal([]byte(doc), &r) == nil { // only this package writes it
			mode, until = types.ObjectLockMode(r.Mode), r.RetainUntilDate
		}
	}
	return mode, until, hold
}

// SelectObjectContent writes nothing, and the guard replaces the reply by status 501. The default implementation in
// the S3 library versitygw would keep a context until the process ends, and would panic when the server stops.
func (b *backend) SelectObjectContent(context.Context, *s3.SelectObjectContentInput) func(*bufio.Writer) {
	return func(*bufio.Writer) {}
}
