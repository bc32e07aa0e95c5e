// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// copyReply is the reply to a copy of an object or a part.
type copyReply struct {
	ETag         string
	LastModified string
	ChecksumType string
	sumFields
}

// source adds the headers that name the source of a copy. The content is pinned by its ETag.
func (b *Bucket) source(h http.Header, from object.Ref, etag string) {
	path := "/" + b.o.Bucket + "/" + s3.EscapePath(b.path(from.Key))
	if from.Version != "" {
		path += "?versionId=" + s3.EscapePath(from.Version)
	}
	h.Set("X-Amz-Copy-Source", path)
	if etag != "" {
		h.Set("X-Amz-Copy-Source-If-Match", `"`+etag+`"`)
	}
}

// pinnable reports whether the upstream makes sure that a copy has the content of this version and ETag.
func (b *Bucket) pinnable(ctx context.Context, from object.Ref, etag string) bool {
	return etag == "" || from.Version != "" && from.Version != object.NullVersion || b.proven(ctx, CopySourceIfMatch)
}

// Copy implements object.Objects. The source must be in the same bucket. The upstream copies the content itself, unless
// it is not proven to compare the source with its ETag: then the content is read and written.
func (t *Through) Copy(ctx context.Context, c object.Copy) (object.Info, error) {
	const op = "copy"
	if err := t.check(op, c.Bucket, c.Key); err != nil {
		return object.Info{}, err
	}
	if err := t.check(op, c.From.Bucket, c.From.Key); err != nil {
		return object.Info{}, err
	}
	c.From.Version = t.b.named(ctx, c.From.Version)
	from := c.FromCondition
	if from.IfNoneMatch != "" || from.IfSize != nil || from.IfModified != nil || from.IfMatch == "*" {
		return object.Info{}, cannot(op, t.b.label(c.From.Key), "Only If-Match with an ETag is a condition on the source.")
	}
	src, err := t.Stat(ctx, c.From)
	switch {
	case err != nil:
		return object.Info{}, err
	case src.Marker:
		return object.Info{}, object.Fail(op, t.b.label(c.From.Key), object.ErrIsMarker, c.From.Version)
	case from.IfMatch != "" && from.IfMatch != src.ETag:
		return object.Info{}, object.Fail(op, t.b.label(c.From.Key), object.ErrPrecondition, "the source has another ETag")
	}
	if c.Attributes == nil {
		c.Attributes = maps.Clone(src.Attributes)
		delete(c.Attributes, object.AttrClass) // a copy does not have the class of its source
	}
	if src.Size > mostWhole || !t.b.pinnable(ctx, c.From, src.ETag) {
		return t.copyThrough(ctx, c, src)
	}
	judged, err := t.judge(ctx, op, c.Judge)
	if err != nil {
		return object.Info{}, err
	}
	attrs := object.MergeAttributes(c.Attributes, judged)
	h, err := headersOf(op, t.b.label(c.Key), attrs)
	if err != nil {
		return object.Info{}, err
	}
	if err := t.b.condition(ctx, op, t.b.label(c.Key), h, c.Condition, copyGuards); err != nil {
		return object.Info{}, err
	}
	t.b.source(h, c.From, src.ETag)
	h.Set("X-Amz-Metadata-Directive", "REPLACE")
	h.Set("X-Amz-Tagging-Directive", "REPLACE")
	if algo := attrs[object.AttrSumAlgo]; algo != "" && t.b.Capabilities().Has(Checksums) {
		h.Set("X-Amz-Checksum-Algorithm", algo)
	}
	q := &call{op: op, assembles: true, Request: s3.Request{Method: http.MethodPut, Bucket: t.b.o.Bucket,
		Key: t.b.path(c.Key), Header: h}}
	var x copyReply
	got, err := t.b.readHeaders(ctx, q, t.b.label(c.Key), "CopyObjectResult", &x)
	if err != nil {
		return object.Info{}, err
	}
	i := object.Info{Bucket: t.name, Key: c.Key, Version: version(got), Latest: true, Size: src.Size,
		ETag: unquote(x.ETag), CRC64: src.CRC64, NoCRC64: src.NoCRC64, Modified: parseTime(x.LastModified), Attributes: attrs}
	if i.ETag == "" {
		return object.Info{}, uncertain(op, t.b.label(c.Key), nonsense(op, t.b.label(c.Key), "the reply names no ETag"))
	}
	if i.Modified.IsZero() {
		i.Modified = dateOf(got, t.b.now)
	}
	return i, nil
}

// copyThrough copies an object by reading and writing it.
func (t *Through) copyThrough(ctx context.Context, c object.Copy, src object.Info) (object.Info, error) {
	r, err := t.b.Fetch(ctx, t.identity(c.From, src), 0, src.Size)
	if err != nil {
		return object.Info{}, err
	}
	defer r.Close()
	return t.Put(ctx, object.Put{Bucket: c.Bucket, Key: c.Key, Size: src.Size, Body: r, Attributes: c.Attributes,
		Condition: c.Condition, Judge: c.Judge, Finish: func(w object.Written) (map[string]string, error) {
			if !src.NoCRC64 && w.CRC64 != src.CRC64 {
				return nil, object.Fail("copy", t.b.label(c.From.Key), object.ErrDamaged, "its CRC-64/NVME differs")
			}
			return nil, nil
		}})
}

// identity returns the identity of a version that Stat described.
func (t *Through) identity(ref object.Ref, i object.Info) object.Identity {
	id := object.Identity{Origin: t.b.origin, Key: i.Key, Version: i.Version, ETag: i.ETag, Size: i.Size}
	if id.Version == object.NullVersion && ref.Version == "" {
		id.Version = "" // an upstream without versioning may refuse the name "null"
	}
	return id
}

// readHeaders does the same as read, and also returns the headers of the reply. A reply with an error inside is an
// error.
func (b *Bucket) readHeaders(ctx context.Context, q *call, name, root string, x any) (http.Header, error) {
	r, err := b.send(ctx, q)
	if err != nil {
		return nil, maybe(q.op, name, err)
	}
	h := r.Header
	doc, err := r.text(mostDocument)
	if err == nil {
		if f, ok := s3.FaultIn(doc); ok {
			return nil, refused(q.op, name, f, q.of)
		}
		err = decode(doc, root, x)
	}
	if err != nil {
		return nil, uncertain(q.op, name, unavailable(q.op, name, explain(err)))
	}
	return h, nil
}

// maybe marks the error of a change that may have been made although no reply came.
func maybe(op, name string, err error) error {
	var u *unsent
	if errors.Is(err, ErrUnavailable) && !errors.As(err, &u) {
		return uncertain(op, name, err)
	}
	return err
}

// CopyPart implements object.Uploads.
func (t *Through) CopyPart(ctx context.Context, c object.CopyPart) (object.PartInfo, error) {
	const op = "copy part of"
	if err := t.check(op, c.Bucket, c.Key); err != nil {
		return object.PartInfo{}, err
	}
	if err := t.check(op, c.From.Bucket, c.From.Key); err != nil {
		return object.PartInfo{}, err
	}
	if err := checkPart(op, t.b.label(c.Key), c.Number); err != nil {
		return object.PartInfo{}, err
	}
	c.From.Version = t.b.named(ctx, c.From.Version)
	src, err := t.Stat(ctx, c.From)
	if err != nil {
		return object.PartInfo{}, err
	}
	if c.N < 0 {
		c.N = src.Size - c.Off
	}
	if c.Off < 0 || c.N < 0 || c.Off > src.Size || c.N > src.Size-c.Off {
		return object.PartInfo{}, object.Fail(op, t.b.label(c.From.Key), object.ErrInvalidRange,
			strconv.FormatInt(c.N, 10)+" bytes from "+strconv.FormatInt(c.Off, 10)+" of "+strconv.FormatInt(src.Size, 10))
	}
	up, err := t.upload(ctx, c.Key, c.Upload)
	if err != nil {
		return object.PartInfo{}, err
	}
	// The checksum of the part is computed here if somebody needs it and the upstream does not say it.
	needs := c.Finish != nil || up.algorithm != "" && !up.upstream
	if needs || c.N == 0 || c.N > mostWhole || !t.b.pinnable(ctx, c.From, src.ETag) {
		r, err := t.b.Fetch(ctx, t.identity(c.From, src), c.Off, c.N)
		if err != nil {
			return object.PartInfo{}, err
		}
		defer r.Close()
		return t.PutPart(ctx, object.PutPart{Bucket: c.Bucket, Key: c.Key, Upload: c.Upload, Number: c.Number, Size: c.N,
			Body: r, Finish: c.Finish})
	}
	h := http.Header{}
	t.b.source(h, c.From, src.ETag)
	h.Set("X-Amz-Copy-Source-Range", "bytes="+strconv.FormatInt(c.Off, 10)+"-"+strconv.FormatInt(c.Off+c.N-1, 10))
	q := &call{op: op, of: ofUpload, assembles: true, Request: s3.Request{Method: http.MethodPut, Bucket: t.b.o.Bucket,
		Key: t.b.path(c.Key), Query: partQuery(c.Upload, c.Number), Header: h}}
	var x copyReply
	if _, err := t.b.readHeaders(ctx, q, t.b.label(c.Key), "CopyPartResult", &x); err != nil {
		return object.PartInfo{}, err
	}
	p := object.PartInfo{Number: c.Number, Size: c.N, ETag: unquote(x.ETag), Modified: parseTime(x.LastModified)}
	fillSum(&p, up.algorithm, &x.sumFields)
	return p, nil
}
