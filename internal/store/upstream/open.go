// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Open asks for the description and for bytes of an object in one request. An empty version means the current version.
// The reader returns n bytes from byte off, or fewer if the content ends before; n < 0 means to the end. If the
// connection breaks, the reader asks for the rest of the same content, as a reader of Fetch does.
//
// Open fails like Stat and Fetch, and with object.ErrInvalidRange if off lies behind the last byte. The caller closes
// the reader.
func (b *Bucket) Open(ctx context.Context, key, version string, off, n int64) (About, io.ReadCloser, error) {
	const op = "get"
	name := b.label(key)
	if key == "" || off < 0 || n == 0 {
		return About{}, nil, object.Fail(op, name, object.ErrInvalidRange, fmt.Sprintf("%d bytes from %d", n, off))
	}
	q := &call{op: op, of: about(version), raw: true, Request: s3.Request{Method: http.MethodGet, Bucket: b.o.Bucket,
		Key: b.path(key), Query: versioned(version), Header: http.Header{"X-Amz-Checksum-Mode": {"ENABLED"}}}}
	switch {
	case n > 0 && n <= 1<<63-1-off:
		q.Header.Set("Range", "bytes="+strconv.FormatInt(off, 10)+"-"+strconv.FormatInt(off+n-1, 10))
	case off > 0:
		q.Header.Set("Range", "bytes="+strconv.FormatInt(off, 10)+"-")
	}
	r, err := b.send(ctx, q)
	if err != nil {
		f := faultOf(err)
		if f == nil {
			return About{}, nil, err
		}
		a := markerOf(b.origin, key, version, f)
		if a.Marker && version != "" {
			return a, nil, object.Fail(op, name, object.ErrIsMarker, version)
		}
		return a, nil, refused(op, name, f, q.of)
	}
	a, got, err := b.opened(r, key, version, off, n)
	if err != nil {
		r.Close()
		return About{}, nil, err
	}
	if count := r.Header.Get("x-amz-tagging-count"); count != "" {
		if err := b.addTags(ctx, &a, r.Header); err != nil {
			r.Close()
			return About{}, nil, err
		}
	}
	return a, &reader{ctx: ctx, b: b, id: a.Identity, off: off, end: off + got, body: r}, nil
}

// opened reads the headers of a reply to Open. It returns the number of bytes that follow.
func (b *Bucket) opened(r *reply, key, version string, off, n int64) (About, int64, error) {
	const op = "get"
	name := b.label(key)
	switch r.StatusCode {
	case http.StatusPartialContent:
		at, got, size, ok := s3.ParseContentRange(r.Header.Get("Content-Range"))
		if !ok || size < 0 || at != off || n > 0 && got > n || (n < 0 || got < n) && at+got != size ||
			r.ContentLength >= 0 && r.ContentLength != got {
			return About{}, 0, nonsense(op, name, fmt.Sprintf(
				"asked for %d bytes from %d, the upstream sends %.64q with %d bytes",
				n, off, r.Header.Get("Content-Range"), r.ContentLength))
		}
		a, err := b.aboutOf(key, version, r.Header, size)
		return a, got, err
	case http.StatusOK:
		size := r.ContentLength
		if size < 0 {
			return About{}, 0, nonsense(op, name, "the reply has no Content-Length")
		}
		a, err := b.aboutOf(key, version, r.Header, size)
		if err != nil {
			return About{}, 0, err
		}
		if off > 0 && off >= size {
			return About{}, 0, object.Fail(op, name, object.ErrInvalidRange, fmt.Sprintf("byte %d of %d", off, size))
		}
		got := size - off
		if n > 0 {
			got = min(got, n)
		}
		return a, got, (&reader{b: b, id: a.Identity, off: off}).skip(r)
	}
	return About{}, 0, nonsense(op, name, fmt.Sprintf("the upstream answers with HTTP %d; expected 200 or 206",
		r.StatusCode))
}

// markerOf returns the description of a delete marker, if the refusal is about one.
func markerOf(origin, key, version string, f *s3.Fault) About {
	if f.Header("x-amz-delete-marker") != "true" {
		return About{}
	}
	a := About{Marker: true, Identity: object.Identity{Origin: origin, Key: key, Version: f.Header("x-amz-version-id")}}
	a.Modified, _ = http.ParseTime(f.Header("Last-Modified"))
	if version != "" {
		a.Identity.Version = version
	}
	return a
}
