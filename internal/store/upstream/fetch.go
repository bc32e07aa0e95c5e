// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

const (
	// mostResumes is how often a read that breaks off without a new byte is resumed. Every new byte resets the count.
	mostResumes = 2
	// mostBreaks limits the resumes of one read in total.
	mostBreaks = 20
)

// Fetch returns n bytes of the content id, beginning at byte off. Each reply is compared with id before its first byte
// is returned: ETag, version, range and length. If the connection breaks, Fetch asks for the rest of the same content.
//
// Fetch and the reader fail with ErrChanged if the upstream has other content under the key, and with ErrUnavailable.
// Fetch fails with object.ErrInvalidRange if the range does not lie within the content. The caller closes the reader.
// The reader returns exactly n bytes or an error.
func (b *Bucket) Fetch(ctx context.Context, id object.Identity, off, n int64) (io.ReadCloser, error) {
	if off < 0 || n < 0 || off > id.Size || n > id.Size-off {
		return nil, object.Fail("get", b.label(id.Key), object.ErrInvalidRange,
			fmt.Sprintf("%d bytes from %d of %d", n, off, id.Size))
	}
	if id.Origin != b.origin || id.ETag == "" {
		return nil, errs.New(errs.Invalid, "get", b.label(id.Key),
			fmt.Sprintf("content of %q with ETag %q, expected content of %q with an ETag", id.Origin, id.ETag, b.origin))
	}
	r := &reader{ctx: ctx, b: b, id: id, off: off, end: off + n}
	if n == 0 {
		return r, nil
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

// reader returns the bytes of a range of one content.
type reader struct {
	ctx      context.Context
	b        *Bucket
	id       object.Identity
	off, end int64
	body     *reply
	failed   int // resumes since the last byte
	breaks   int // resumes in total
	err      error
}

func (r *reader) name() string { return r.b.label(r.id.Key) }

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		switch {
		case r.err != nil:
			return 0, r.err
		case r.off == r.end:
			return 0, io.EOF
		case r.body == nil:
			if r.err = r.open(); r.err != nil {
				return 0, r.err
			}
		}
		n, err := r.body.Read(p[:min(int64(len(p)), r.end-r.off)])
		if n > 0 {
			r.off += int64(n)
			r.failed = 0
		}
		switch {
		case r.off == r.end:
			if r.err = r.last(err); r.err != nil {
				return 0, r.err
			}
		case err == io.EOF:
			r.resume(io.ErrUnexpectedEOF)
		case err != nil:
			r.resume(err)
		}
		if n > 0 {
			return n, nil
		}
	}
}

// last ends the request after its last byte. If the reply did not announce its length, more bytes must not follow.
func (r *reader) last(err error) error {
	defer r.drop()
	if r.body.ContentLength >= 0 || err == io.EOF {
		return nil
	}
	var one [1]byte
	if n, _ := io.ReadFull(r.body, one[:]); n > 0 {
		return nonsense("get", r.name(), fmt.Sprintf("the upstream sends more than the %d bytes of the range", r.end))
	}
	return nil
}

// drop ends the current request.
func (r *reader) drop() {
	if r.body != nil {
		r.body.Close()
		r.body = nil
	}
}

// resume prepares the next request after the body broke off, or sets the final error.
func (r *reader) resume(err error) {
	r.drop()
	if r.ctx.Err() != nil {
		r.err = cancelled(r.ctx, "get", r.name())
		return
	}
	r.failed++
	r.breaks++
	if r.failed > mostResumes || r.breaks > mostBreaks || Silent(err) {
		r.err = unavailable("get", r.name(), fmt.Errorf("%w (at byte %d)", explain(err), r.off))
	}
}

// open asks for the rest of the range and compares the reply.
func (r *reader) open() error {
	q := &call{op: "get", of: about(r.id.Version), Request: s3.Request{Method: http.MethodGet, Bucket: r.b.o.Bucket,
		Key: r.b.path(r.id.Key), Query: versioned(r.id.Version), Header: http.Header{"If-Match": {`"` + r.id.ETag + `"`}}}}
	whole := r.off == 0 && r.end == r.id.Size
	if !whole {
		q.Header.Set("Range", "bytes="+strconv.FormatInt(r.off, 10)+"-"+strconv.FormatInt(r.end-1, 10))
	}
	resp, err := r.b.send(r.ctx, q)
	switch {
	case errors.Is(err, object.ErrPrecondition), errors.Is(err, object.ErrInvalidRange):
		return changed(r.name(), fmt.Sprintf("it no longer has the ETag %q and %d bytes", r.id.ETag, r.id.Size))
	case errors.Is(err, object.ErrNoSuchKey), errors.Is(err, object.ErrNoSuchVersion):
		return &errs.Error{Kind: errs.NotFound, Op: "get", Name: r.name(), Err: &gone{err}}
	case err != nil:
		return err
	}
	if err := r.check(resp, whole); err != nil {
		resp.Close()
		return err
	}
	r.body = resp
	return nil
}

// gone is the error for content that was deleted: it wraps ErrChanged and the reason.
type gone struct{ err error }

func (g *gone) Error() string   { return ErrChanged.Error() + ": " + errs.MessageOf(g.err) }
func (g *gone) Unwrap() []error { return []error{ErrChanged, g.err} }

// check compares a reply with the content. A reply with the status 200 to a request for a range is accepted if it is
// the same content: the bytes before the range are skipped.
func (r *reader) check(resp *reply, whole bool) error {
	h := resp.Header
	if tag := unquote(h.Get("ETag")); tag != r.id.ETag {
		return changed(r.name(), fmt.Sprintf("it has the ETag %.64q instead of %.64q", tag, r.id.ETag))
	}
	if v := h.Get("x-amz-version-id"); v != "" && r.id.Version != "" && v != r.id.Version {
		return changed(r.name(), fmt.Sprintf("the reply has the version %.64q instead of %.64q", v, r.id.Version))
	}
	want := r.end - r.off
	switch resp.StatusCode {
	case http.StatusPartialContent:
		off, n, size, ok := s3.ParseContentRange(h.Get("Content-Range"))
		if ok && size >= 0 && size != r.id.Size {
			return changed(r.name(), fmt.Sprintf("it has %d bytes instead of %d", size, r.id.Size))
		}
		if !ok || off != r.off || n != want || whole && size < 0 {
			return nonsense("get", r.name(), fmt.Sprintf("asked for the bytes %d to %d of %d, the upstream sends %.64q", r.off,
				r.end-1, r.id.Size, h.Get("Content-Range")))
		}
		if resp.ContentLength >= 0 && resp.ContentLength != want {
			return nonsense("get", r.name(), fmt.Sprintf("asked for %d bytes, the upstream sends %d", want, resp.ContentLength))
		}
		return nil
	case http.StatusOK:
		return r.skip(resp)
	}
	return nonsense("get", r.name(), fmt.Sprintf("the upstream answers with HTTP %d; expected 206", resp.StatusCode))
}

// mostSkipped is the largest number of bytes that are read and thrown away if the upstream ignores ranges.
const mostSkipped = 8 << 20

// skip reads the bytes before the range from a reply that has the whole content.
func (r *reader) skip(resp *reply) error {
	if resp.ContentLength != r.id.Size {
		return changed(r.name(), fmt.Sprintf("it has %d bytes instead of %d", resp.ContentLength, r.id.Size))
	}
	if r.off > mostSkipped {
		return cannot("get", r.name(), fmt.Sprintf(
			"The upstream ignores ranges, and the bytes before byte %d are too many to "+"skip.", r.off))
	}
	if _, err := io.CopyN(io.Discard, resp, r.off); err != nil {
		return unavailable("get", r.name(), explain(err))
	}
	return nil
}

// Close ends the request. Reads after Close fail with kind Closed.
func (r *reader) Close() error {
	r.drop()
	if r.err == nil {
		r.err = errs.New(errs.Closed, "get", r.name(), "the reader is closed")
	}
	return nil
}
