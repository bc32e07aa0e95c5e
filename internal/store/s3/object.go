// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/plain"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// Info describes one version of an object.
type Info struct {
	Bucket, Key string
	Version     string // version ID; empty if the server names none
	ETag        string // without its quotes
	Size        int64
	Modified    time.Time
	ContentType string
	Metadata    map[string]string // values of the x-amz-meta-… headers; names are in lower case and without the prefix
	// CRC64 is the CRC-64/NVME of the whole content; valid if HasCRC64 is set.
	CRC64    uint64
	HasCRC64 bool

	kept   kept
	full   bool // the server says that kept is of the whole content
	opaque bool // the ETag is not the MD5 of the content
}

// infoOf reads the description of an object of size bytes from the headers of a reply.
func infoOf(bucket, key string, h http.Header, size int64) Info {
	i := Info{Bucket: bucket, Key: key, Size: size, Version: h.Get("x-amz-version-id"), ETag: unquote(h.Get("ETag")),
		ContentType: h.Get("Content-Type")}
	if i.Version == "null" {
		i.Version = ""
	}
	i.opaque = opaqueTag(h)
	i.Modified, _ = http.ParseTime(h.Get("Last-Modified"))
	i.full = strings.EqualFold(h.Get("x-amz-checksum-type"), "FULL_OBJECT")
	if i.kept = keptOf(h); i.kept.algorithm == "crc64nvme" {
		i.CRC64, i.HasCRC64 = i.kept.sum, true
	}
	for k, v := range h {
		if name, ok := strings.CutPrefix(strings.ToLower(k), "x-amz-meta-"); ok && len(v) > 0 {
			if i.Metadata == nil {
				i.Metadata = map[string]string{}
			}
			i.Metadata[name] = v[0]
		}
	}
	return i
}

func unquote(etag string) string { return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`) }

func versioned(version string) url.Values {
	if version == "" {
		return nil
	}
	return url.Values{"versionId": {version}}
}

// Head returns the description of an object; an empty version means the current one. Head fails with kind NotFound if
// the object does not exist, and with kind Permission if access is denied.
func (c *Client) Head(ctx context.Context, bucket, key, version string) (Info, error) {
	return c.head(ctx, bucket, key, version, nil)
}

func (c *Client) head(ctx context.Context, bucket, key, version string, tr *traffic) (Info, error) {
	if err := checkName(bucket, key); err != nil {
		return Info{}, err
	}
	q := &call{op: "look at", method: http.MethodHead, bucket: bucket, key: key, query: versioned(version), traffic: tr,
		connected: c.measure,
		header:    http.Header{"X-Amz-Checksum-Mode": {"ENABLED"}}}
	resp, err := c.do(ctx, q, c.tries())
	if err != nil {
		return Info{}, err
	}
	resp.Body.Close()
	if resp.ContentLength < 0 {
		return Info{}, errs.New(errs.Unsupported, q.op, q.name(), "the server does not say how large it is")
	}
	i := infoOf(bucket, key, resp.Header, resp.ContentLength)
	if i.Version == "" {
		i.Version = version
	}
	return i, nil
}

func checkName(bucket, key string) error {
	if bucket == "" || strings.ContainsAny(bucket, "/?#") {
		return errs.New(errs.Invalid, "name object", strconv.Quote(bucket), "is no bucket; expected a name without slashes")
	}
	if key == "" || len(key) > 1024 {
		return errs.New(errs.Invalid, "name object", URL(bucket, key),
			fmt.Sprintf("has a key of %d bytes; expected 1 to 1024", len(key)))
	}
	return nil
}

// Object is one version of an S3 object that is read in ranges. Object implements vfs.Remote.
type Object struct {
	c       *Client
	info    Info
	traffic traffic

	mu      sync.Mutex
	notes   map[string]int // how often each cause was noted
	content *content       // nil: Object compares nothing itself
	trusted bool           // the caller wants no comparison
	served  []vfs.Served   // how replies were served, each once
	ahead   int            // bytes that the kernel may receive ahead of a reader; 0: as many as it likes
}

// Open requests the description of an object and returns an Object for it. All reads of the Object return the version
// that Open found, even if the object is replaced later.
func (c *Client) Open(ctx context.Context, bucket, key, version string) (*Object, error) {
	o := &Object{c: c, notes: map[string]int{}}
	var err error
	o.info, err = c.head(ctx, bucket, key, version, &o.traffic)
	if err != nil {
		return nil, err
	}
	o.content = newContent(o.info.kept, o.info.Size, c.join)
	return o, nil
}

// Info returns the description of the object's version.
func (o *Object) Info() Info { return o.info }

// Parallel returns the number of concurrent connections for one object.
func (o *Object) Parallel() int { return o.c.o.Connections }

// Traffic returns the requests, retries and connections for the object so far.
func (o *Object) Traffic() vfs.Traffic { return o.traffic.count() }

// File returns the object as a file that is read over the network.
func (o *Object) File() *vfs.File {
	return vfs.NewRemote(URL(o.info.Bucket, o.info.Key), o.info.Size, o)
}

// Sums returns the server's CRC-64/NVME of the whole object, as the checksum of a single block that covers all bytes.
// Sums returns nil if the server has no CRC-64/NVME of the object. After Sums has returned a checksum, the caller must
// compare the content, because the Object no longer does. Sums must be called before the first Fetch.
func (o *Object) Sums() *checksum.Sums {
	if !o.info.HasCRC64 || o.info.Size == 0 {
		return nil
	}
	o.content = nil
	return &checksum.Sums{Size: o.info.Size, Block: o.info.Size, Blocks: []uint64{o.info.CRC64}}
}

// Trust turns off the comparison of content with its checksum. Trust must be called before the first Fetch.
func (o *Object) Trust() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.content, o.trusted = nil, true
}

// Notes returns remarks for the report: how often reads were resumed and why, and which content no checksum covers.
func (o *Object) Notes() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []string
	for what, n := range o.notes {
		out = append(out, fmt.Sprintf("%s: read again %d times because %s", URL(o.info.Bucket, o.info.Key), n, what))
	}
	switch {
	case o.content != nil:
		out = append(out, URL(o.info.Bucket, o.info.Key)+": "+o.content.note())
	case o.trusted:
	case o.info.kept.algorithm == "" && o.info.Size > 0:
		out = append(out, URL(o.info.Bucket, o.info.Key)+
			": the server offers no checksum of the content to compare with (an ETag is not compared)")
	}
	if o.info.ETag == "" {
		out = append(out, URL(o.info.Bucket, o.info.Key)+
			": the server names no ETag: a change between two reads would not be seen")
	}
	return out
}

// Served returns the different ways in which the server got the bytes of replies so far, as vfs.Sourced describes.
func (o *Object) Served() []vfs.Served {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.served)
}

// mostServed limits the number of different ways that are kept.
const mostServed = 64

// tell records how a reply was served. Only servers that keep objects of other servers tell it.
func (o *Object) tell(h http.Header) {
	s := vfs.Served{From: plain.Text(h.Get("x-nebulaio-cache")), Verified: plain.Text(h.Get("x-nebulaio-verified"))}
	if s.From == "" {
		return
	}
	s.Age, _ = strconv.ParseInt(h.Get("x-nebulaio-cache-age"), 10, 64)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.served, s) && len(o.served) < mostServed {
		o.served = append(o.served, s)
	}
}

// mostNotes limits the number of distinct causes.
const mostNotes = 8

func (o *Object) note(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	what := "connections failed"
	if code := CodeOf(err); code != "" {
		what = "the server said " + code
	}
	if _, ok := o.notes[what]; ok || len(o.notes) < mostNotes {
		o.notes[what]++
	}
}

// Fetch requests n bytes from off, as vfs.Remote describes.
func (o *Object) Fetch(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	if off < 0 || n < 0 || n > o.info.Size-off {
		return nil, errs.New(errs.Invalid, "get", URL(o.info.Bucket, o.info.Key),
			fmt.Sprintf("bytes %d to %d were asked for, it has %d", off, off+n, o.info.Size))
	}
	r := &reader{ctx: ctx, o: o, first: off, off: off, end: off + n, tries: o.c.tries()}
	if n == 0 {
		return r, nil
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

// ReadAll reads a whole object of at most limit bytes with one request. ReadAll compares the content with the
// checksum that the server sends in the reply.
func (c *Client) ReadAll(ctx context.Context, bucket, key, version string, limit int64) ([]byte, Info, error) {
	data, o, err := c.Get(ctx, bucket, key, version, limit)
	if err != nil {
		return nil, Info{}, err
	}
	return data, o.info, nil
}

// Get does the same as ReadAll and also returns the Object, for its Traffic and Notes.
func (c *Client) Get(ctx context.Context, bucket, key, version string, limit int64) ([]byte, *Object, error) {
	if err := checkName(bucket, key); err != nil {
		return nil, nil, err
	}
	o := &Object{c: c, notes: map[string]int{}}
	t := c.tries()
	q := &call{op: "get", method: http.MethodGet, bucket: bucket, key: key, query: versioned(version), traffic: &o.traffic,
		header: http.Header{"X-Amz-Checksum-Mode": {"ENABLED"}}}
	resp, err := c.do(ctx, q, t)
	if err != nil {
		return nil, nil, err
	}
	if resp.ContentLength < 0 || resp.ContentLength > limit {
		resp.Body.Close()
		return nil, nil, errs.New(errs.Invalid, "get", q.name(),
			fmt.Sprintf("has %d bytes, expected at most %d", resp.ContentLength, limit))
	}
	o.info = infoOf(bucket, key, resp.Header, resp.ContentLength)
	o.tell(resp.Header)
	o.content = newContent(o.info.kept, o.info.Size, c.join)
	r := &reader{ctx: ctx, o: o, end: o.info.Size, tries: t, body: resp.Body}
	defer r.Close()
	data := make([]byte, o.info.Size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, nil, err
	}
	return data, o, nil
}

// Delete removes an object. A missing object is no error, as S3 defines it. In a bucket with versions, Delete hides
// the object and keeps its versions.
func (c *Client) Delete(ctx context.Context, bucket, key string) error {
	if err := checkName(bucket, key); err != nil {
		return err
	}
	_, _, err := c.text(ctx, &call{op: "delete", method: http.MethodDelete, bucket: bucket, key: key}, mostError)
	return err
}
