// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

const (
	// mostWhole is the largest content in bytes that S3 servers take in one request.
	mostWhole = 5 << 30
	// spoolSize is the size in bytes up to which content of unknown length is kept in memory.
	spoolSize = 8 << 20
	// expectSize is the size in bytes above which content is sent only after the upstream has agreed to the headers.
	expectSize = 1 << 20
)

// Put implements object.Objects. The content is streamed to the upstream. Content of unknown length is sent in parts if
// it is larger than 8 MiB. Finish and Judge are called before the last byte is sent, or before the parts are completed.
func (t *Through) Put(ctx context.Context, p object.Put) (object.Info, error) {
	const op = "put"
	if err := t.check(op, p.Bucket, p.Key); err != nil {
		return object.Info{}, err
	}
	if err := object.CheckAttributes(op, p.Key, p.Attributes); err != nil {
		return object.Info{}, err
	}
	if p.Size < 0 {
		head, err := io.ReadAll(io.LimitReader(p.Body, spoolSize))
		if err != nil {
			return object.Info{}, err
		}
		if len(head) < spoolSize {
			// The body is read on to its end, because its reader may check the content there.
			p.Body, p.Size = io.MultiReader(bytes.NewReader(head), p.Body), int64(len(head))
		} else {
			p.Body = io.MultiReader(bytes.NewReader(head), p.Body)
		}
	}
	if p.Size < 0 || p.Size > mostWhole {
		return t.putParts(ctx, p)
	}
	return t.putWhole(ctx, p)
}

// putWhole writes an object in one request.
func (t *Through) putWhole(ctx context.Context, p object.Put) (object.Info, error) {
	const op = "put"
	name := t.b.label(p.Key)
	if err := t.b.probed(ctx); err != nil {
		return object.Info{}, err
	}
	judged, err := t.judge(ctx, op, p.Judge)
	if err != nil {
		return object.Info{}, err
	}
	attrs := object.MergeAttributes(p.Attributes, judged)
	h, err := headersOf(op, name, attrs)
	if err != nil {
		return object.Info{}, err
	}
	if err := t.b.condition(ctx, op, name, h, p.Condition, putGuards); err != nil {
		return object.Info{}, err
	}
	w := &write{b: t.b, op: op, key: p.Key, size: p.Size, header: h, body: p.Body, md5: p.MD5, finish: p.Finish,
		attrs: attrs}
	w.algorithm = p.SumAlgorithm
	if w.algorithm == "" {
		w.algorithm = "CRC64NVME"
	}
	if !t.b.Capabilities().Has(TrailerCRC64) || !short(w.algorithm) {
		w.algorithm = ""
	}
	r, err := w.send(ctx)
	if err != nil {
		return object.Info{}, err
	}
	i := object.Info{Bucket: t.name, Key: p.Key, Version: version(r), Latest: true, Size: p.Size,
		ETag: unquote(r.Get("ETag")), CRC64: w.sum, Modified: dateOf(r, t.b.now), Attributes: w.attrs}
	if w.algorithm == "" {
		unsummed(&i)
	}
	if i.ETag == "" {
		return object.Info{}, uncertain(op, name, nonsense(op, name, "the reply names no ETag"))
	}
	t.b.seen.Store(true)
	return i, nil
}

// unsummed removes the checksums from the description of a new object, because the upstream does not keep them.
func unsummed(i *object.Info) {
	i.NoCRC64 = true
	for _, name := range []string{object.AttrSum, object.AttrSumAlgo, object.AttrSumType} {
		delete(i.Attributes, name)
	}
}

// short reports whether the length of a checksum in base64 is known, as the format aws-chunked requires.
func short(algorithm string) bool { return sumLength(algorithm) > 0 }

func sumLength(algorithm string) int {
	for _, a := range algorithms {
		if a.name == algorithm {
			return (a.size + 2) / 3 * 4
		}
	}
	return 0
}

func version(h http.Header) string {
	if v := h.Get("x-amz-version-id"); v != "" {
		return v
	}
	return object.NullVersion
}

// dateOf returns the upstream's time of a reply, which is the time of a new object up to a second.
func dateOf(h http.Header, now func() time.Time) time.Time {
	if at, err := http.ParseTime(h.Get("Last-Modified")); err == nil {
		return at
	}
	if at, err := http.ParseTime(h.Get("Date")); err == nil {
		return at
	}
	return now().UTC().Truncate(time.Second)
}

// write is a request with content: an object or a part.
type write struct {
	b      *Bucket
	op     string
	key    string
	of     subject
	query  url.Values
	size   int64
	header http.Header
	body   io.Reader
	md5    bool
	finish func(object.Written) (map[string]string, error)
	// algorithm is the checksum that is sent as a trailer; "" means none.
	algorithm string
	forced    string // value of the trailer, for probes
	path      string // whole key on the upstream, for probes

	attrs map[string]string // with those of finish, after send
	sum   uint64            // CRC-64/NVME of the content, after send
}

// send sends the content and returns the headers of the reply.
func (w *write) send(ctx context.Context) (http.Header, error) {
	name := w.b.label(w.key)
	value := ""
	body := w.b.newHeld(name, w.body, w.size, w.md5, func(done object.Written) error {
		if ctx.Err() != nil {
			return cancelled(ctx, w.op, name)
		}
		all, err := object.FinishAttributes(w.op, w.key, w.attrs, w.finish, done)
		if err != nil {
			return err
		}
		w.attrs = all
		if value = all[object.AttrSum]; value == "" || w.algorithm == "CRC64NVME" {
			value = sumText(done.CRC64)
		}
		if w.forced != "" {
			value = w.forced
		}
		return nil
	})
	q := &call{op: w.op, of: w.of, change: true, raw: true,
		Request: s3.Request{Method: http.MethodPut, Bucket: w.b.o.Bucket,
			Key: w.b.path(w.key), Query: w.query, Header: w.header, Body: body, Size: w.size}}
	if w.path != "" {
		q.Key = w.path
	}
	if w.size == 0 {
		// No byte can be held back, so that finish decides before the request.
		if _, err := body.Read(nil); err != io.EOF {
			return nil, err
		}
		q.Body, q.Text = nil, []byte{}
		if w.algorithm != "" {
			w.header.Set(sumHeader+w.algorithm, value)
		}
	}
	if w.algorithm != "" && w.size > 0 {
		trailer := strings.ToLower(sumHeader) + strings.ToLower(w.algorithm)
		q.Framed, q.Body = true, &framed{h: body, trailer: trailer, value: func() string { return value }}
		q.Size = framedLength(w.size, trailer, sumLength(w.algorithm))
		encoding := "aws-chunked"
		if kind := w.header.Get("Content-Encoding"); kind != "" {
			encoding += "," + kind
		}
		w.header.Set("Content-Encoding", encoding)
		w.header.Set("X-Amz-Decoded-Content-Length", strconv.FormatInt(w.size, 10))
		w.header.Set("X-Amz-Trailer", trailer)
	}
	if w.size > expectSize {
		w.header.Set("Expect", "100-continue") // a refused write does not send its content first
	}
	r, err := w.b.send(ctx, q)
	_ = body.Close()
	sum, whole, failure := body.result()
	w.sum = sum
	if failure != nil && !errors.Is(failure, errUnread) {
		if err == nil {
			r.Close()
		}
		return nil, failure
	}
	if f := faultOf(err); f != nil {
		return nil, refused(w.op, name, f, w.of)
	}
	if err != nil {
		if whole {
			err = maybe(w.op, name, err)
		}
		return nil, err
	}
	h := maps.Clone(r.Header)
	if _, err := r.text(mostReply); err != nil {
		return nil, uncertain(w.op, name, unavailable(w.op, name, explain(err)))
	}
	if !whole {
		return nil, uncertain(w.op, name, nonsense(w.op, name, "the upstream answered before it had the content"))
	}
	if got := h.Get(sumHeader + "CRC64NVME"); got != "" && got != sumText(sum) {
		return nil, uncertain(w.op, name, nonsense(w.op, name,
			fmt.Sprintf("the upstream received other bytes than were sent: "+
				"their CRC-64/NVME is %.32q, expected %q", got, sumText(sum))))
	}
	return h, nil
}
