// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
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

// Info describes one version of an object.
type Info struct {
	Bucket, Key string
	Version     string // empty where the server names none
	ETag        string // without its quotes
	Size        int64
	Modified    time.Time
	ContentType string
	Metadata    map[string]string // x-amz-meta-…, without the prefix, in lower case
	// CRC64 is the CRC-64/NVME of the whole content, where HasCRC64.
	CRC64    uint64
	HasCRC64 bool

	kept kept
}

// infoOf reads what a reply says of an object of size bytes.
func infoOf(bucket, key string, h http.Header, size int64) Info {
	i := Info{Bucket: bucket, Key: key, Size: size, Version: h.Get("x-amz-version-id"), ETag: unquote(h.Get("ETag")),
		ContentType: h.Get("Content-Type")}
	if i.Version == "null" {
		i.Version = ""
	}
	i.Modified, _ = http.ParseTime(h.Get("Last-Modified"))
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

// Head describes an object; an empty version is the current one. Kind NotFound, Permission.
func (c *Client) Head(ctx context.Context, bucket, key, version string) (Info, error) {
	return c.head(ctx, bucket, key, version, nil)
}

func (c *Client) head(ctx context.Context, bucket, key, version string, tr *traffic) (Info, error) {
	if err := checkName(bucket, key); err != nil {
		return Info{}, err
	}
	q := &call{op: "look at", method: http.MethodHead, bucket: bucket, key: key, query: versioned(version), traffic: tr,
		header: http.Header{"X-Amz-Checksum-Mode": {"ENABLED"}}}
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

// Object is one version of an object, read in ranges: a vfs.Remote.
type Object struct {
	c       *Client
	info    Info
	traffic traffic

	mu      sync.Mutex
	notes   map[string]int // how often each was noted
	content *content       // nil: nothing is compared here
	trusted bool           // nobody wants it compared
}

// Open looks at an object and holds its readers to the version it is now.
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

// Info describes the version.
func (o *Object) Info() Info { return o.info }

// Parallel is how many connections carry the object at once.
func (o *Object) Parallel() int { return o.c.o.Connections }

// Traffic is what was asked for the object so far.
func (o *Object) Traffic() vfs.Traffic { return o.traffic.count() }

// File is the object as a file that is read over the network.
func (o *Object) File() *vfs.File {
	return vfs.NewRemote(URL(o.info.Bucket, o.info.Key), o.info.Size, o)
}

// Sums is what a reader of the whole object compares it with: its one sum that
// the server keeps, as a block of all bytes; nil where it keeps none of this
// kind. Who asks for it compares: the object itself does not any more. It is asked for before the first Fetch.
func (o *Object) Sums() *checksum.Sums {
	if !o.info.HasCRC64 || o.info.Size == 0 {
		return nil
	}
	o.content = nil
	return &checksum.Sums{Size: o.info.Size, Block: o.info.Size, Blocks: []uint64{o.info.CRC64}}
}

// Trust lets what is read go without a comparison, for a caller that wants
// none. It is called before the first Fetch.
func (o *Object) Trust() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.content, o.trusted = nil, true
}

// Notes tell what a report should: how often reads had to be taken up again,
// and what no checksum stands for.
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

// mostNotes bounds the causes that are told apart.
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

// Fetch asks for n bytes from off; see vfs.Remote.
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

// ReadAll reads a whole object of at most limit bytes with one request, and
// compares it with the checksum that the server sends along.
func (c *Client) ReadAll(ctx context.Context, bucket, key, version string, limit int64) ([]byte, Info, error) {
	data, o, err := c.Get(ctx, bucket, key, version, limit)
	if err != nil {
		return nil, Info{}, err
	}
	return data, o.info, nil
}

// Get is ReadAll with the object, which tells what it cost and what was compared.
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
	o.content = newContent(o.info.kept, o.info.Size, c.join)
	r := &reader{ctx: ctx, o: o, end: o.info.Size, tries: t, body: resp.Body}
	defer r.Close()
	data := make([]byte, o.info.Size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, nil, err
	}
	return data, o, nil
}
