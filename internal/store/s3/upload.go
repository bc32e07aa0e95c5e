// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// Put describes a new object and the conditions for writing it.
type Put struct {
	Bucket, Key          string
	ContentType          string
	Metadata             map[string]string // values of the x-amz-meta-… headers; names are without the prefix
	IfMatch, IfNoneMatch string            // conditions on the existing object: an ETag, or "*"; empty: no condition
}

// Upload writes one S3 object. Upload implements vfs.Upload.
type Upload struct {
	c       *Client
	put     Put
	traffic traffic

	mu    sync.Mutex
	id    string // upload ID of the parts; empty before Begin
	sums  bool   // the server checks the content of parts
	parts map[int]sentPart
	done  bool
	info  Info
	notes []string
}

type sentPart struct {
	etag string
	sum  uint64
	size int64
}

// NewUpload returns an Upload and sends nothing yet. NewUpload fails with kind Invalid for an invalid bucket, key,
// header value or metadata name.
func (c *Client) NewUpload(p Put) (*Upload, error) {
	if err := checkName(p.Bucket, p.Key); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	return &Upload{c: c, put: p, parts: map[int]sentPart{}}, nil
}

// check refuses values that no header can have, before they are sent.
func (p *Put) check() error {
	bad := func(what, value, expected string) error {
		return errs.New(errs.Invalid, "put", URL(p.Bucket, p.Key), fmt.Sprintf("%s %q; expected %s", what, value, expected))
	}
	for name, v := range p.Metadata {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool {
			return r <= ' ' || r >= 0x7f ||
				strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
		}) {
			return bad("metadata", name, "a name of letters, digits and !#$%&'*+-.^_`|~")
		}
		if strings.ContainsFunc(v, control) {
			return bad("metadata "+name+" of", v, "no control characters")
		}
	}
	for what, v := range map[string]string{"content type": p.ContentType, "If-Match": p.IfMatch,
		"If-None-Match": p.IfNoneMatch} {
		if strings.ContainsFunc(v, control) {
			return bad(what, v, "no control characters")
		}
	}
	return nil
}

func control(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// Name returns the s3:// URL of the object.
func (u *Upload) Name() string { return URL(u.put.Bucket, u.put.Key) }

// Parallel returns the number of concurrent connections for parts.
func (u *Upload) Parallel() int { return u.c.o.Connections }

// Traffic returns the requests, retries and connections of the upload so far.
func (u *Upload) Traffic() vfs.Traffic { return u.traffic.count() }

// Info returns the description of the new object. Info is valid after Whole or Complete has succeeded.
func (u *Upload) Info() Info {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.info
}

// Notes returns remarks for the report, for example that the server did not accept checksums.
func (u *Upload) Notes() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.notes...)
}

func (u *Upload) note(s string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.notes = append(u.notes, s)
}

// NoSumsNote is the remark of an Upload whose server does not check the content.
const NoSumsNote = "the server does not take CRC-64/NVME checksums: the content was sent without"

func (u *Upload) header() http.Header {
	h := http.Header{}
	if u.put.ContentType != "" {
		h.Set("Content-Type", u.put.ContentType)
	}
	for k, v := range u.put.Metadata {
		h.Set("X-Amz-Meta-"+k, v)
	}
	return h
}

func (u *Upload) conditions(h http.Header) {
	for name, v := range map[string]string{"If-Match": u.put.IfMatch, "If-None-Match": u.put.IfNoneMatch} {
		if v != "" && v != "*" {
			v = `"` + unquote(v) + `"`
		}
		if v != "" {
			h.Set(name, v)
		}
	}
}

// Whole sends the object in one request, as vfs.Upload describes.
func (u *Upload) Whole(ctx context.Context, size int64, open func() (vfs.Blocks, error)) error {
	if size < 0 || size > vfs.MostWhole {
		return errs.New(errs.Invalid, "put", u.Name(), fmt.Sprintf("has %d bytes, expected at most %d in one request", size,
			vfs.MostWhole))
	}
	src, err := open()
	if err != nil {
		return err
	}
	data, err := gather(src, size)
	if err != nil {
		return err
	}
	return u.send(ctx, data)
}

func (u *Upload) send(ctx context.Context, data []byte) error {
	sum := checksum.Of(data)
	q := &call{op: "put", method: http.MethodPut, bucket: u.put.Bucket, key: u.put.Key, header: u.header(),
		traffic: &u.traffic,
		body:    func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }, size: int64(len(data)),
		hash: unsignedPayload}
	if !u.c.secure() || u.c.o.SignBodies {
		q.hash = hashOf(data)
	}
	if len(data) == 0 {
		q.body = nil
	}
	u.conditions(q.header)
	before := u.traffic.count().Retries
	_, h, err := u.withSums(func(on bool) {
		if q.header.Del(trailerName); on {
			q.header.Set(trailerName, sumText(sum))
		}
	}, func() ([]byte, http.Header, error) { return u.c.text(ctx, q, mostError) })
	if CodeOf(err) == "PreconditionFailed" && u.traffic.count().Retries > before &&
		u.isThere(ctx, int64(len(data)), sum, "the request") {
		return nil // an earlier try had succeeded, and stands in its own way
	}
	if err == nil {
		err = u.compare(q.op, h, sum)
	}
	if err != nil {
		return err
	}
	u.finish(h, unquote(h.Get("ETag")), int64(len(data)), sum)
	return nil
}

// withSums makes a request with checksums. If the server refuses the unknown checksums, withSums repeats the request
// without, and the client leaves them out from then on.
func (u *Upload) withSums(set func(on bool), do func() ([]byte, http.Header, error)) ([]byte, http.Header, error) {
	if !u.c.noSums.Load() {
		set(true)
		body, h, err := do()
		if err == nil || !refusesSums(err) {
			return body, h, err
		}
	}
	set(false)
	body, h, err := do()
	if err == nil {
		u.c.noSums.Store(true)
		u.note(NoSumsNote)
	}
	return body, h, err
}

// refusesSums reports whether a server may have refused a request because it does not know the checksum.
func refusesSums(err error) bool {
	var f *Fault
	if !errors.As(err, &f) {
		return false
	}
	switch f.Code {
	case "NotImplemented", "InvalidArgument", "InvalidRequest", "NotSupported", "MalformedTrailerError":
		return true
	}
	return f.Status == http.StatusNotImplemented
}

// compare compares the checksum that the server received with the one that was sent.
func (u *Upload) compare(op string, h http.Header, sum uint64) error {
	got, ok := parseSum(h.Get(trailerName))
	if !ok || got == sum {
		return nil
	}
	return errs.New(errs.Corrupt, op, u.Name(), fmt.Sprintf("the server received other bytes than were sent: their "+
		"checksum is %016x, expected %016x", got, sum)).
		WithFix("try again; if it happens again, something between this machine and the server damages content")
}

func (u *Upload) finish(h http.Header, etag string, size int64, sum uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.done = true
	u.info = infoOf(u.put.Bucket, u.put.Key, h, size)
	u.info.ETag, u.info.ContentType, u.info.Metadata, u.info.CRC64, u.info.HasCRC64 = etag, u.put.ContentType,
		u.put.Metadata, sum, true
}

// Begin starts a multipart upload, as vfs.Upload describes.
func (u *Upload) Begin(ctx context.Context) error {
	if u.c.o.SignBodies && !u.c.secure() {
		return errs.New(errs.Unsupported, "upload", u.Name(),
			"bodies are to be signed, which parts that are sent as they are gathered cannot be over plain HTTP").
			WithFix("use https, or do not ask for signed bodies")
	}
	q := &call{op: "begin upload of", method: http.MethodPost, bucket: u.put.Bucket, key: u.put.Key,
		query: url.Values{"uploads": {""}}, header: u.header(), traffic: &u.traffic}
	body, h, err := u.withSums(func(on bool) {
		q.header.Del("X-Amz-Checksum-Algorithm")
		q.header.Del("X-Amz-Checksum-Type")
		if on {
			q.header.Set("X-Amz-Checksum-Algorithm", "CRC64NVME")
			q.header.Set("X-Amz-Checksum-Type", "FULL_OBJECT")
		}
	}, func() ([]byte, http.Header, error) { return u.c.text(ctx, q, mostError) })
	if err != nil {
		return err
	}
	id, err := parseInitiate(body)
	if err != nil {
		return errs.Wrap(q.op, q.name(), err)
	}
	// A server that does not repeat the algorithm does not know it, and would take the frames around checksums for
	// content.
	sums := strings.EqualFold(h.Get("X-Amz-Checksum-Algorithm"), "CRC64NVME")
	u.mu.Lock()
	u.id, u.sums = id, sums
	u.mu.Unlock()
	if !sums && !u.c.noSums.Load() {
		u.note(NoSumsNote)
	}
	return nil
}

func parseInitiate(body []byte) (string, error) {
	var x struct {
		XMLName xml.Name `xml:"InitiateMultipartUploadResult"`
		ID      string   `xml:"UploadId"`
	}
	if err := xml.Unmarshal(body, &x); err != nil || x.ID == "" || len(x.ID) > 4096 {
		return "", errs.New(errs.Corrupt, "read reply", "", "names no upload").WithFix("check that the endpoint is one of S3")
	}
	return x.ID, nil
}

// Part sends one part, as vfs.Upload describes.
func (u *Upload) Part(ctx context.Context, number int, size, block int64, open func() (vfs.Blocks, error)) error {
	u.mu.Lock()
	id, sums := u.id, u.sums
	u.mu.Unlock()
	var sent *payload
	q := &call{op: fmt.Sprintf("put part %d of", number), method: http.MethodPut, bucket: u.put.Bucket, key: u.put.Key,
		traffic: &u.traffic,
		query:   url.Values{"uploadId": {id}, "partNumber": {strconv.Itoa(number)}}, header: http.Header{}, size: size,
		hash: unsignedPayload,
		body: func() (io.ReadCloser, error) {
			src, err := open()
			if err != nil {
				return nil, err
			}
			sent = &payload{src: src, join: u.c.join, framed: sums}
			return sent, nil
		}}
	if sums {
		q.hash = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
		q.size = framedSize(size, block)
		q.header.Set("Content-Encoding", "aws-chunked")
		q.header.Set("X-Amz-Decoded-Content-Length", strconv.FormatInt(size, 10))
		q.header.Set("X-Amz-Trailer", trailerName)
	}
	for t := u.c.tries(); ; u.traffic.retry() {
		_, h, err := u.c.text(ctx, q, mostError)
		if err != nil {
			return err
		}
		sum, n, whole := sent.result()
		etag := h.Get("ETag")
		switch {
		case !whole || n != size:
			err = errs.New(errs.IO, q.op, q.name(), fmt.Sprintf("the server answered after %d of %d bytes", n, size))
		case etag == "":
			err = errs.New(errs.IO, q.op, q.name(), "the server names no ETag of the part")
		default:
			err = u.compare(q.op, h, sum)
		}
		if err == nil {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.parts[number] = sentPart{etag: etag, sum: sum, size: n}
			return nil
		}
		if err := t.again(ctx, q.op, q.name(), err); err != nil {
			return err
		}
	}
}

type completePart struct {
	Number int    `xml:"PartNumber"`
	ETag   string `xml:"ETag"`
	CRC64  string `xml:"ChecksumCRC64NVME,omitempty"`
}

// Complete combines the parts into the object, as vfs.Upload describes. The server checks the conditions of Put
// during Complete.
func (u *Upload) Complete(ctx context.Context) error {
	x := struct {
		XMLName xml.Name       `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CompleteMultipartUpload"`
		Parts   []completePart `xml:"Part"`
	}{}
	var sum uint64
	var size int64
	u.mu.Lock()
	id, sums := u.id, u.sums
	for n := 1; n <= len(u.parts); n++ {
		p, ok := u.parts[n]
		if !ok {
			u.mu.Unlock()
			return errs.New(errs.Other, "complete upload of", u.Name(), fmt.Sprintf("part %d was not sent; this is a defect", n))
		}
		c := completePart{Number: n, ETag: p.etag}
		if sums {
			c.CRC64 = sumText(p.sum)
		}
		x.Parts = append(x.Parts, c)
		sum = u.c.join.After(sum, p.size) ^ p.sum
		size += p.size
	}
	u.mu.Unlock()
	body, err := xml.Marshal(x)
	if err != nil {
		return errs.Wrap("complete upload of", u.Name(), err)
	}
	q := &call{op: "complete upload of", method: http.MethodPost, bucket: u.put.Bucket, key: u.put.Key,
		query: url.Values{"uploadId": {id}}, header: http.Header{}, traffic: &u.traffic,
		body: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }, size: int64(len(body)),
		hash: hashOf(body)}
	q.header.Set("Content-Type", "application/xml")
	if sums {
		q.header.Set(trailerName, sumText(sum))
		q.header.Set("X-Amz-Checksum-Type", "FULL_OBJECT")
	}
	u.conditions(q.header)
	before := u.traffic.count().Retries
	for t := u.c.tries(); ; u.traffic.retry() {
		reply, h, err := u.c.text(ctx, q, mostError) // which tries often enough
		final := err != nil
		var etag string
		if err == nil {
			etag, err = parseComplete(reply)
		}
		if err == nil {
			if err := u.compareWhole(q.op, reply, sum); err != nil {
				return err
			}
			u.finish(h, etag, size, sum)
			return nil
		}
		var f *Fault
		if !final && !errors.As(err, &f) {
			if err = t.again(ctx, q.op, q.name(), err); err == nil {
				continue
			}
		}
		code := CodeOf(err)
		if (code == "NoSuchUpload" || code == "PreconditionFailed") && u.traffic.count().Retries > before &&
			u.isThere(ctx, size, sum, "the completion") {
			return nil // an earlier try had succeeded, and its reply was lost
		}
		if err = failure(q.op, q.name(), err); code == "" && ctx.Err() == nil {
			return &errs.Error{Kind: errs.KindOf(err), Op: q.op, Name: q.name(),
				Msg: "the answer did not come: the object may have been written, whole, or not at all", Err: err,
				Fix: "look at the object (stat) before it is written again"}
		}
		return err
	}
}

// compareWhole compares the checksum of the whole object in the reply, if there is one, with ours.
func (u *Upload) compareWhole(op string, reply []byte, sum uint64) error {
	var x struct {
		CRC64 string `xml:"ChecksumCRC64NVME"`
	}
	if xml.Unmarshal(reply, &x) != nil {
		return nil
	}
	h := http.Header{}
	h.Set(trailerName, x.CRC64)
	return u.compare(op, h, sum)
}

// isThere reports whether the object on the server is the one that was to be written.
func (u *Upload) isThere(ctx context.Context, size int64, sum uint64, what string) bool {
	i, err := u.c.head(ctx, u.put.Bucket, u.put.Key, "", &u.traffic)
	if err != nil || i.Size != size || !i.HasCRC64 || i.CRC64 != sum {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.done, u.info = true, i
	u.notes = append(u.notes, "the reply to "+what+" was lost; the object is there, with its checksum")
	return true
}

// parseComplete reads the reply to a completion. The reply can be an error although its status is 200, because the
// server has to answer before it is done.
func parseComplete(body []byte) (etag string, err error) {
	if f, ok := parseFault(body); ok {
		if f.Code == "InternalError" || f.Code == "SlowDown" || f.Code == "ServiceUnavailable" {
			return "", errs.New(errs.IO, "", "", f.Error())
		}
		f.Status = http.StatusBadRequest
		if f.Code == "PreconditionFailed" {
			f.Status = http.StatusPreconditionFailed
		}
		return "", &f
	}
	var x struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
		ETag    string   `xml:"ETag"`
	}
	if err := xml.Unmarshal(body, &x); err != nil || x.ETag == "" || len(x.ETag) > 4096 {
		return "", errs.New(errs.IO, "read reply", "", "names no ETag of the object")
	}
	return unquote(x.ETag), nil
}

// abortTime is how long an Abort may take after its caller's context has ended.
const abortTime = 10 * time.Second

// Abort removes the parts that were sent, as vfs.Upload describes. Abort runs for up to 10 seconds, even if ctx has
// ended.
func (u *Upload) Abort(ctx context.Context) error {
	u.mu.Lock()
	id, done := u.id, u.done
	u.mu.Unlock()
	if id == "" || done {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer cancel()
	q := &call{op: "abort upload of", method: http.MethodDelete, bucket: u.put.Bucket, key: u.put.Key,
		query: url.Values{"uploadId": {id}}, traffic: &u.traffic}
	_, _, err := u.c.text(ctx, q, mostError)
	if CodeOf(err) == "NoSuchUpload" {
		err = nil
	}
	if err == nil {
		u.mu.Lock()
		u.id = ""
		u.mu.Unlock()
	}
	return err
}
