// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// onNetwork reaches the server over HTTP.
type onNetwork struct{ s3 *s3.Client }

func newNetwork(o Options) (onNetwork, error) {
	c, err := s3.New(s3.Options{Endpoint: o.Endpoint, Region: o.Region, AccessKey: o.AccessKey, SecretKey: o.SecretKey,
		SessionToken: o.SessionToken,
		Connections:  o.Connections, CAFile: o.CAFile, InsecureTLS: o.InsecureTLS, Timeout: o.Timeout, Retries: o.Retries})
	return onNetwork{c}, err
}

func (n *onNetwork) close() error { return n.s3.Close() }

// infoOf converts the metadata that HTTP returned.
func infoOf(i s3.Info) Info {
	out := Info{Bucket: i.Bucket, Key: i.Key, Version: i.Version, Size: i.Size, ETag: i.ETag, Modified: i.Modified,
		Via: ViaHTTP}
	if i.HasCRC64 {
		out.CRC64 = crcText(i.CRC64)
	}
	return out
}

func (n *onNetwork) stat(ctx context.Context, bucket, key, version string) (Info, error) {
	i, err := n.s3.Head(ctx, bucket, key, version)
	return infoOf(i), err
}

// These marks begin a Page.Next that is not a plain key. A key may begin with any byte, so a key that begins like a
// mark also gets a mark.
const (
	tokenMark = "\x00t" // a token of HTTP follows
	keyMark   = "\x00k" // a key follows
)

// marked returns a key as the value of Page.Next.
func marked(key string) string {
	if strings.HasPrefix(key, "\x00") {
		return keyMark + key
	}
	return key
}

// afterKey returns the key after which the listing continues, or "" if l.After holds a token.
func (l List) afterKey() string {
	if strings.HasPrefix(l.After, tokenMark) {
		return ""
	}
	return strings.TrimPrefix(l.After, keyMark)
}

// circle returns the error for a listing that leads back to an earlier page.
func (l List) circle(fix string) error {
	return errs.New(errs.Corrupt, "list", urlOf(l.Bucket, l.Prefix),
		"the server's pages lead back to one that it has sent before, so the listing would never end").WithFix(fix)
}

func (n *onNetwork) list(ctx context.Context, l List) (Page, error) {
	q := s3.Listing{Bucket: l.Bucket, Prefix: l.Prefix, Delimiter: l.Delimiter, After: l.afterKey(),
		Limit: min(l.Limit, 1000)}
	on := begun()
	if next, ok := strings.CutPrefix(l.After, tokenMark); ok {
		if on, q.Token, ok = resumed(next); !ok {
			return Page{}, errs.New(errs.Invalid, "list", urlOf(l.Bucket, l.Prefix),
				fmt.Sprintf("goes on behind %.64q", l.After)).
				WithFix("give Next of the page before, unchanged")
		}
	}
	got, err := n.s3.List(ctx, q)
	if err != nil {
		return Page{}, err
	}
	p := Page{Objects: []Info{}, Prefixes: append([]string{}, got.Groups...)}
	for _, e := range got.Entries {
		p.Objects = append(p.Objects, Info{Bucket: l.Bucket, Key: e.Key, Size: e.Size, ETag: e.ETag, Modified: e.Modified,
			Via: ViaHTTP})
	}
	if got.Next != "" {
		on, ok := on.next(got)
		if !ok || got.Next == q.Token {
			return Page{}, l.circle("check that the endpoint is one of S3, and what stands between it and this client")
		}
		p.Truncated, p.Next = true, on.after(got.Next)
	}
	return p, nil
}

func (n *onNetwork) open(ctx context.Context, bucket, key string) (*vfs.File, error) {
	o, err := n.s3.Open(ctx, bucket, key, "")
	if err != nil {
		return nil, err
	}
	return o.File(), nil
}

func (n *onNetwork) readAll(ctx context.Context, bucket, key string, limit int64) ([]byte, error) {
	b, _, err := n.s3.ReadAll(ctx, bucket, key, "", limit)
	return b, err
}

// smallRead is the largest destination in bytes for which a whole object is read with one GET, without a HEAD before.
const smallRead = 256 << 10

// beginHTTP opens an object over HTTP and starts its transfer.
func (c *Client) beginHTTP(ctx context.Context, m *Move, r *Read, dev device.Device) (*under, error) {
	m.report.Via = ViaHTTP
	if r.Off == 0 && r.Size == -1 && r.DstSize <= smallRead && c.verifies(r) {
		if done, err := c.getSmall(ctx, m, r, dev); done {
			return nil, err
		}
	}
	o, err := c.network.s3.Open(ctx, r.Bucket, r.Key, r.Version)
	if err != nil {
		return nil, err
	}
	f, n, err := c.checkHTTP(r, o, dev)
	if err != nil {
		return nil, err
	}
	i := o.Info()
	m.report.Version, m.report.ETag, m.report.Size = i.Version, i.ETag, i.Size
	m.total.Store(n)
	return c.launch(ctx, m, r, c.requestHTTP(dev, r, o, f, n), dev, n, nil)
}

// checkHTTP checks a read against the object that was opened.
func (c *Client) checkHTTP(r *Read, o *s3.Object, dev device.Device) (*vfs.File, int64, error) {
	i := o.Info()
	n, err := r.extent(i.Size)
	if err == nil {
		err = r.same(i.ETag)
	}
	if err == nil {
		err = examine(dev, "read", urlOf(r.Bucket, r.Key), r.Dst, n)
	}
	if err != nil {
		return nil, 0, err
	}
	if c.opt.NoVerify || r.NoVerify {
		o.Trust()
	}
	return o.File(), n, nil
}

// requestHTTP returns the engine's request. A whole object is compared with the server's checksum. A range has no
// checksum to be compared with.
func (c *Client) requestHTTP(dev device.Device, r *Read, o *s3.Object, f *vfs.File, n int64) transfer.Request {
	req := transfer.Request{Device: dev, Files: []*vfs.File{f}, Route: r.Route, Cache: r.Cache, Stream: r.Stream,
		HasStream: r.HasStream}
	if s := c.sumsHTTP(r, o, n); s != nil {
		req.Verify = []*checksum.Sums{s}
	}
	return req
}

func (c *Client) sumsHTTP(r *Read, o *s3.Object, n int64) *checksum.Sums {
	if !c.verifies(r) || r.Off != 0 || n != o.Info().Size {
		return nil
	}
	return o.Sums()
}

// getSmall reads a whole small object with one request. It returns done false if the object is too large or the
// arguments do not fit it.
func (c *Client) getSmall(ctx context.Context, m *Move, r *Read, dev device.Device) (done bool, err error) {
	data, o, err := c.network.s3.Get(ctx, r.Bucket, r.Key, r.Version, r.DstSize)
	if errs.Is(err, errs.Invalid) {
		return false, nil
	}
	var i s3.Info
	if err == nil {
		i = o.Info()
		err = r.same(i.ETag)
	}
	if err == nil {
		err = examine(dev, "read", urlOf(r.Bucket, r.Key), r.Dst, i.Size)
	}
	if err != nil {
		return true, err
	}
	m.report.Version, m.report.ETag, m.report.Size = i.Version, i.ETag, i.Size
	m.total.Store(i.Size)
	m.opened()
	began := time.Now()
	if err := c.place(ctx, r, dev, data); err != nil {
		return true, err
	}
	m.moved.Store(i.Size)
	t := smallReport(dev, r, i.Size, time.Since(began), report.RouteTakenNetwork, "request to the server",
		"the object is small: it came with one request and was handed on from memory")
	if i.HasCRC64 {
		t.Verify = &report.Verification{Algorithm: "crc64nvme", Where: "host", Files: 1, Blocks: 1, Bytes: i.Size}
	}
	t.Notes = append(t.Notes, o.Notes()...)
	for _, s := range o.Served() {
		t.Served = &report.Served{From: s.From, AgeSeconds: s.Age, Verified: s.Verified}
	}
	m.take(t)
	m.report.Network = traffic(o.Traffic())
	c.counts.httpReads.Add(1)
	c.counts.bytesRead.Add(i.Size)
	return true, nil
}

// opensAtOnce is the number of objects of a window that are opened at the same time over HTTP.
const opensAtOnce = 16

// openHTTP opens the objects of a window over HTTP.
func (b *batch) openHTTP(ctx context.Context, w *window) error {
	type found struct {
		o   *s3.Object
		err error
	}
	all := make([]found, len(w.reads))
	slots := make(chan struct{}, opensAtOnce)
	var g sync.WaitGroup
	which := w.only
	if which == nil {
		for i := range w.reads {
			which = append(which, i)
		}
	}
	for _, i := range which {
		slots <- struct{}{}
		g.Go(func() {
			defer func() { <-slots }()
			r := &w.reads[i]
			all[i].o, all[i].err = b.c.network.s3.Open(ctx, r.Bucket, r.Key, r.Version)
		})
	}
	g.Wait()
	for _, i := range which {
		r := &w.reads[i]
		var f *vfs.File
		var n int64
		err := all[i].err
		if err == nil {
			f, n, err = b.c.checkHTTP(r, all[i].o, w.dev)
		}
		if err != nil {
			b.tell(w.first+i, func(x *report.BatchObject) { x.Error = err.Error() })
			return err
		}
		b.found(w.first+i, all[i].o.Info().ETag, all[i].o.Info().Size, n)
		w.add(f, i, r, n, b.c.sumsHTTP(r, all[i].o, n))
	}
	return nil
}

// networkReport adds up the requests, retries and connections of files that were read over HTTP.
func networkReport(files ...*vfs.File) *report.HTTP {
	n := &report.HTTP{}
	for _, f := range files {
		if k, ok := f.Remote().(vfs.Counted); ok {
			n = sumHTTP(n, traffic(k.Traffic()))
		}
	}
	return n
}

func traffic(t vfs.Traffic) *report.HTTP {
	return &report.HTTP{Requests: t.Requests, Retries: t.Retries, Connections: int(t.Connections)}
}

// sumHTTP adds the counts of two files. Files share connections, so sumHTTP takes the larger number of connections.
func sumHTTP(r, o *report.HTTP) *report.HTTP {
	if r == nil {
		return o
	}
	return &report.HTTP{Requests: r.Requests + o.Requests, Retries: r.Retries + o.Retries,
		Connections: max(r.Connections, o.Connections)}
}

// writeHTTP writes an object over HTTP.
func (c *Client) writeHTTP(ctx context.Context, m *Move, w *Write, dev device.Device) error {
	m.report.Via = ViaHTTP
	if w.Route != report.RouteAuto {
		m.report.Notes = append(m.report.Notes, "route "+string(w.Route)+
			" is one of files: over HTTP there is none to choose")
	}
	up, err := c.network.s3.NewUpload(s3.Put{Bucket: w.Bucket, Key: w.Key, ContentType: w.ContentType,
		Metadata: w.Metadata, IfMatch: w.IfMatch, IfNoneMatch: w.IfNoneMatch})
	if err != nil {
		return err
	}
	m.opened()
	t, err := c.opt.Engine.StartUpload(ctx, transfer.UploadRequest{Sources: w.Sources, To: up, Streams: w.Streams,
		Sums: w.Sums})
	if err != nil {
		return err
	}
	m.runs(t.Progress)
	err = t.Wait()
	m.take(t.Report())
	n, _ := t.Progress()
	m.runs(func() (int64, int64) { return n, n }) // replaced in one step, so that Progress counts no bytes twice
	m.report.Network = traffic(up.Traffic())
	if err != nil {
		return err
	}
	m.sums = t.Sums()
	i := up.Info()
	m.report.ETag, m.report.Version = i.ETag, i.Version
	if m.report.Save != nil {
		m.report.Save.Durable = true // the server says so
	}
	c.counts.httpWrites.Add(1)
	c.counts.bytesWritten.Add(n)
	return nil
}
