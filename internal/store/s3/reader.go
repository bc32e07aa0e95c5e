// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// reader returns the bytes of one range. If a reply breaks off, the rest of the same version is requested from the
// byte reached.
type reader struct {
	ctx      context.Context
	o        *Object
	first    int64 // where the range begins
	off, end int64
	sum      uint64        // of what was read, where it is compared
	body     io.ReadCloser // nil: to be asked for
	tries    *tries
	err      error // final
}

func (r *reader) name() string { return URL(r.o.info.Bucket, r.o.info.Key) }

// Read returns the next bytes of the range. If p is larger than the buffer of the connection, the bytes are read
// directly into p.
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
		if r.off += int64(n); n > 0 {
			r.tries.moved()
			if k := r.o.content; k != nil {
				r.sum = k.add(r.sum, p[:n])
			}
			if r.off == r.end {
				// Before the last bytes are returned: a caller that has all bytes may not read on.
				if r.err = r.o.content.took(r.name(), r.first, r.end, r.sum); r.err != nil {
					return 0, r.err
				}
			}
		}
		if err != nil && r.off < r.end {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			r.broken(err)
		}
		if n > 0 {
			return n, nil
		}
	}
}

// broken discards a body that failed, and waits until the next request may be made.
func (r *reader) broken(err error) {
	r.body.Close()
	r.body = nil
	if cause := context.Cause(r.ctx); cause != nil {
		err = cause
	} else {
		r.o.note(err)
	}
	if r.err = r.tries.again(r.ctx, "get", r.name(), err); r.err == nil {
		r.o.traffic.retry()
	}
}

// open requests the rest of the range.
func (r *reader) open() error {
	i := &r.o.info
	q := &call{op: "get", method: http.MethodGet, bucket: i.Bucket, key: i.Key, query: versioned(i.Version),
		traffic: &r.o.traffic, header: http.Header{}}
	if r.o.ahead > 0 {
		q.connected = r.o.limitAhead
	}
	q.header.Set("Range", "bytes="+strconv.FormatInt(r.off, 10)+"-"+strconv.FormatInt(r.end-1, 10))
	if i.ETag != "" {
		q.header.Set("If-Match", `"`+i.ETag+`"`)
	}
	for {
		resp, err := r.o.c.do(r.ctx, q, r.tries)
		if err != nil {
			switch CodeOf(err) {
			case "PreconditionFailed", "InvalidRange":
				return r.changed(err)
			case "NoSuchKey", "NotFound", "NoSuchVersion":
				if r.o.traffic.count().Requests > 1 {
					return r.changed(err)
				}
			}
			return err
		}
		if err = r.check(resp); err == nil {
			r.body = resp.Body
			r.o.tell(resp.Header)
			return nil
		}
		resp.Body.Close()
		if !transient(err) {
			return err
		}
		r.o.note(err)
		if err := r.tries.again(r.ctx, q.op, q.name(), err); err != nil {
			return err
		}
		r.o.traffic.retry()
	}
}

func (r *reader) changed(cause error) error {
	return &errs.Error{Kind: errs.IO, Op: "get", Name: r.name(), Err: cause,
		Msg: fmt.Sprintf("the object changed while it was being read: it is no longer the version with ETag %q and %d bytes",
			r.o.info.ETag, r.o.info.Size),
		Fix: "read it again; keep versions that are being read, or write new ones under other keys"}
}

// check refuses a reply that is not the requested one; nothing of it is used.
func (r *reader) check(resp *http.Response) error {
	i, want := &r.o.info, r.end-r.off
	bad := func(kind errs.Kind, msg string) error {
		return errs.New(kind, "get", r.name(), msg).WithFix("check what stands between this machine and the server: a " +
			"proxy or a gateway changes replies")
	}
	if tag := unquote(resp.Header.Get("ETag")); tag != "" && i.ETag != "" && tag != i.ETag {
		return r.changed(errs.New(errs.IO, "", "", fmt.Sprintf("the reply has ETag %q", tag)))
	}
	switch resp.StatusCode {
	case http.StatusPartialContent:
		off, n, size, ok := parseContentRange(resp.Header.Get("Content-Range"))
		if !ok || off != r.off || n != want || size >= 0 && size != i.Size {
			return bad(errs.Unsupported, fmt.Sprintf("asked for bytes %d to %d of %d, the server sends %q", r.off, r.end-1,
				i.Size, resp.Header.Get("Content-Range")))
		}
	case http.StatusOK:
		if r.off != 0 || want != i.Size {
			return bad(errs.Unsupported, "the server ignores that a range was asked for, and sends everything")
		}
	default:
		return bad(errs.Unsupported, fmt.Sprintf("the server answers with HTTP %d; expected 206", resp.StatusCode))
	}
	if resp.ContentLength >= 0 && resp.ContentLength != want {
		return bad(errs.IO, fmt.Sprintf("the server sends %d bytes, expected %d", resp.ContentLength, want))
	}
	return nil
}

// Close ends the request. Reads after Close fail with kind Closed.
func (r *reader) Close() error {
	if r.body == nil {
		return nil
	}
	err := r.body.Close()
	r.body = nil
	if r.err == nil {
		r.err = errs.New(errs.Closed, "get", r.name(), "the reader is closed")
	}
	return err
}

// parseContentRange reads "bytes 0-9/100"; size is -1 for "*".
func parseContentRange(s string) (off, n, size int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	if !ok {
		return 0, 0, 0, false
	}
	span, total, ok := strings.Cut(s, "/")
	if !ok {
		return 0, 0, 0, false
	}
	lo, hi, ok := strings.Cut(span, "-")
	if !ok {
		return 0, 0, 0, false
	}
	first, err1 := strconv.ParseUint(lo, 10, 63)
	last, err2 := strconv.ParseUint(hi, 10, 63)
	size = -1
	var err3 error
	if total != "*" {
		var u uint64
		u, err3 = strconv.ParseUint(total, 10, 63)
		size = int64(u)
	}
	if err1 != nil || err2 != nil || err3 != nil || last < first || last-first == 1<<63-1 || size >= 0 &&
		int64(last) >= size {
		return 0, 0, 0, false
	}
	return int64(first), int64(last-first) + 1, size, true
}
