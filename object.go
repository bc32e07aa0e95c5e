// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
)

// OpenOptions choose how an object or file is opened; the zero value suits.
type OpenOptions struct {
	// System is what the bytes are moved with; nil makes one that lives as long as
	// the object, with Options.
	System  *System
	Options Options
	// Client is the server's, for s3:// names; nil makes one of ClientOptions that
	// lives as long as the object.
	Client        *Client
	ClientOptions ClientOptions
	// Version of the object; empty: the current one.
	Version string
	// Device is where memory lies that reads do not say otherwise of; Route is theirs too.
	Device string
	Route  Route
}

// settle makes what the options leave to be made; undo gives it back.
func (o *OpenOptions) settle(p place) (undo func() error, err error) {
	undo = func() error { return nil }
	if o.Client != nil {
		if p.endpoint != "" && p.endpoint != o.Client.opt.Endpoint {
			return nil, errs.New(errs.Invalid, "open", p.String(), fmt.Sprintf("lies at %s, the client given is one of %s", p.endpoint, o.Client.opt.Endpoint))
		}
		o.System = o.Client.sys
	}
	if o.System == nil {
		s, err := NewSystem(o.Options)
		if err != nil {
			return nil, err
		}
		o.System, undo = s, s.Close
	}
	if p.path == "" && o.Client == nil {
		if p.endpoint != "" {
			o.ClientOptions.Endpoint = p.endpoint
		}
		c, err := o.System.NewClient(o.ClientOptions)
		if err != nil {
			return nil, errors.Join(err, undo())
		}
		rest := undo
		o.Client, undo = c, func() error { return errors.Join(c.Close(), rest()) }
	}
	return undo, nil
}

// Object is an object or a file, opened for reading. Its methods are safe for
// concurrent use.
type Object struct {
	url    string
	opt    OpenOptions
	file   *File // nil: an object
	place  place
	info   ObjectInfo
	unmake func() error

	mu     sync.Mutex
	last   *ObjectMove
	closed bool
}

// Open opens an object ("s3://bucket/key", with the endpoint of the options or
// the environment; "nebula://host:port/bucket/key"; "nebulas://…" by TLS) or a
// file (anything else) for reading into device memory. What is read is always of
// the version that was found here. The caller closes it.
func Open(ctx context.Context, url string, o OpenOptions) (*Object, error) {
	p, err := parseURL(url)
	if err == nil {
		err = p.object(url)
	}
	if err != nil {
		return nil, err
	}
	undo, err := o.settle(p)
	if err != nil {
		return nil, err
	}
	ob := &Object{url: url, opt: o, place: p, unmake: undo}
	if p.path != "" {
		ob.file, err = o.System.OpenFile(p.path, FileOptions{Device: o.Device, Route: o.Route})
		if err == nil {
			ob.info.Size, err = ob.file.Size()
		}
	} else {
		ob.info, err = o.Client.Stat(ctx, p.bucket, p.key, o.Version)
	}
	if err != nil {
		return nil, errors.Join(err, ob.Close())
	}
	return ob, nil
}

// URL is the name under which it was opened.
func (ob *Object) URL() string { return ob.url }

// Size is its length when it was opened.
func (ob *Object) Size() int64 { return ob.info.Size }

// ETag is the object's; empty for a file.
func (ob *Object) ETag() string { return ob.info.ETag }

// Version is the object's; empty for a file and in a bucket without versions.
func (ob *Object) Version() string { return ob.info.Version }

// StartRead begins to read up to n bytes at off to dst and returns at once.
// Fewer, as the report tells at the end, mean that the object ended. After Close it fails with kind Closed.
func (ob *Object) StartRead(ctx context.Context, dst Ptr, n, off int64, o MoveOptions) (*ObjectMove, error) {
	ob.mu.Lock()
	closed := ob.closed
	ob.mu.Unlock()
	if closed {
		return nil, errs.New(errs.Closed, "read", ob.place.String(), "the object is closed")
	}
	if ob.file != nil {
		m, err := ob.file.StartRead(ctx, dst, n, off, o)
		if err != nil {
			return nil, err
		}
		return ob.keep(&ObjectMove{run: fileMove{m, ob.info.Size}}), nil
	}
	if n < 0 || off < 0 {
		return nil, errs.New(errs.Invalid, "read", ob.place.String(), fmt.Sprintf("%d bytes at offset %d; expected 0 or more of both", n, off))
	}
	if o.Device == "" {
		o.Device = ob.opt.Device
	}
	if o.Route == "" {
		o.Route = ob.opt.Route
	}
	off = min(off, ob.info.Size) // behind it there is nothing, as in a file
	m, err := ob.opt.Client.StartRead(ctx, ObjectRead{Bucket: ob.place.bucket, Key: ob.place.key, Version: ob.info.Version, IfETag: ob.info.ETag,
		Off: off, Size: max(0, min(n, ob.info.Size-off)), Dst: dst, DstSize: n, Device: o.Device, Route: o.Route, Stream: o.Stream, HasStream: o.HasStream})
	if err != nil {
		return nil, err
	}
	return ob.keep(m), nil
}

func (ob *Object) keep(m *ObjectMove) *ObjectMove {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	ob.last = m
	return m
}

// Read reads up to n bytes at off to dst and returns how many there were.
func (ob *Object) Read(ctx context.Context, dst Ptr, n, off int64) (int64, error) {
	m, err := ob.StartRead(ctx, dst, n, off, MoveOptions{})
	if err != nil {
		return 0, err
	}
	err = m.Wait()
	n, _ = m.Progress()
	return n, err
}

// Report tells how the read that was started last went; it blocks until that has ended.
func (ob *Object) Report() ObjectReport {
	ob.mu.Lock()
	m := ob.last
	ob.mu.Unlock()
	if m == nil {
		return ObjectReport{Op: "read", Bucket: ob.place.bucket, Key: ob.place.key, Size: ob.info.Size, ETag: ob.info.ETag, Version: ob.info.Version}
	}
	return m.Report()
}

// Close waits for reads of a file that run and lets go of what Open has made. A second call does nothing.
func (ob *Object) Close() error {
	ob.mu.Lock()
	again := ob.closed
	ob.closed = true
	ob.mu.Unlock()
	if again {
		return nil
	}
	var err error
	if ob.file != nil {
		err = ob.file.Close()
	}
	return errors.Join(err, ob.unmake())
}

// fileMove is a move of a file as one of an object.
type fileMove struct {
	*Move
	size int64
}

// Report is the move's, with the path for a key.
func (m fileMove) Report() ObjectReport {
	r := m.Move.Report()
	return ObjectReport{Op: r.Op, Key: r.Path, Size: m.size, Via: "file", Report: r.Report}
}

// CreateOptions choose how an object or file is made.
type CreateOptions struct {
	OpenOptions
	ContentType          string
	Metadata             map[string]string
	IfMatch, IfNoneMatch string
}

// NewObject is an object or file that is being made of device memory.
type NewObject struct {
	url    string
	size   int64
	opt    CreateOptions
	place  place
	unmake func() error

	mu      sync.Mutex
	sources []transfer.Source
	streams map[device.Device]uint64
	ended   bool
	report  ObjectReport
}

// Create begins an object ("s3://…", "nebula://…") or a file of size bytes.
// Nothing is visible before Commit. The caller commits or aborts it.
func Create(ctx context.Context, url string, size int64, o CreateOptions) (*NewObject, error) {
	p, err := parseURL(url)
	if err == nil {
		err = p.object(url)
	}
	if err != nil {
		return nil, err
	}
	if size < 0 {
		return nil, errs.New(errs.Invalid, "create", p.String(), fmt.Sprintf("a size of %d; expected 0 or more", size))
	}
	if p.path != "" && size == 0 {
		return nil, errs.New(errs.Unsupported, "create", p.String(), "a file of no bytes is not made of device memory; expected at least one")
	}
	if p.path != "" && (o.IfMatch != "" || o.IfNoneMatch != "" || len(o.Metadata) > 0 || o.ContentType != "") {
		return nil, errs.New(errs.Invalid, "create", p.String(), "a file has no content type, metadata or conditions")
	}
	undo, err := o.settle(p)
	if err != nil {
		return nil, err
	}
	return &NewObject{url: url, size: size, opt: o, place: p, unmake: undo, streams: map[device.Device]uint64{}}, nil
}

// WriteFrom says that n bytes at src become those from off on. The memory
// belongs to the object, and does not change, until Commit has returned: the bytes
// are moved then. Pieces may come in any order and lie on several devices;
// together they must make up the whole object. Pieces of one device that come
// after several streams are waited for here, but for those of the first.
func (w *NewObject) WriteFrom(ctx context.Context, src Ptr, n, off int64, o MoveOptions) error {
	if o.Device == "" {
		o.Device = w.opt.Device
	}
	if off < 0 || n < 0 || n > w.size-off || !src.Holds(n) {
		return errs.New(errs.Invalid, "write", w.place.String(), fmt.Sprintf("%d bytes at 0x%x for offset %d; expected an address and a range of %d bytes", n, uint64(src), off, w.size))
	}
	dev, err := w.opt.System.sys.Devices.Open(ctx, o.Device)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return errs.New(errs.Closed, "write", w.place.String(), "it was committed or aborted")
	}
	if o.HasStream && dev.Info().Kind != device.Host {
		// The commit can follow one stream of a device; what is queued on another is waited for here.
		if first, ok := w.streams[dev]; ok && first != o.Stream {
			if err := passed(dev, o.Stream); err != nil {
				return errs.Wrap("write", w.place.String(), err)
			}
		} else {
			w.streams[dev] = o.Stream
		}
	}
	w.sources = append(w.sources, transfer.Source{Off: off, Len: n, Device: dev, Ptr: src})
	return nil
}

// passed returns when what is queued on a stream now has been done.
func passed(dev device.Device, stream uint64) error {
	q, err := dev.NewQueue()
	if err != nil {
		return err
	}
	if err = q.After(stream); err == nil {
		err = q.Drain()
	}
	return errors.Join(err, q.Close())
}

// Commit moves the bytes and makes the object durable and visible, all or
// nothing. Afterwards only Report can be called.
func (w *NewObject) Commit(ctx context.Context) error {
	if !w.end() {
		return errs.New(errs.Closed, "commit", w.place.String(), "it was committed or aborted")
	}
	var err error
	var have int64
	var report ObjectReport
	for _, s := range w.sources {
		have += s.Len
	}
	if have != w.size {
		err = errs.New(errs.Invalid, "commit", w.place.String(), fmt.Sprintf("pieces of %d bytes were given, expected %d: those of the whole", have, w.size)).WithFix("call WriteFrom for every byte once")
	} else if w.place.path != "" {
		var t *transfer.Save
		if t, err = w.opt.System.sys.Engine.StartWrite(ctx, transfer.WriteRequest{Path: w.place.path, Sources: w.sources, Route: w.opt.Route, Streams: w.streams}); err == nil {
			err = t.Err()
			report = ObjectReport{Op: "write", Key: w.place.path, Size: w.size, Via: "file", Report: t.Report()}
		}
	} else {
		var m *ObjectMove
		if m, err = w.opt.Client.StartWrite(ctx, ObjectWrite{Bucket: w.place.bucket, Key: w.place.key, Route: w.opt.Route, ContentType: w.opt.ContentType,
			Metadata: w.opt.Metadata, IfMatch: w.opt.IfMatch, IfNoneMatch: w.opt.IfNoneMatch, Size: w.size, Sources: w.sources, Streams: w.streams}); err == nil {
			err = m.Wait()
			report = m.Report()
		}
	}
	w.mu.Lock()
	w.report = report
	w.mu.Unlock()
	return errors.Join(err, w.unmake())
}

// end tells the first caller that it is the one to end the object.
func (w *NewObject) end() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.ended
	w.ended = true
	return first
}

// Abort lets go of an object that was not committed; nothing of it exists.
func (w *NewObject) Abort() error {
	if !w.end() {
		return nil
	}
	return w.unmake()
}

// Report tells how the commit went; it is empty until Commit has returned.
func (w *NewObject) Report() ObjectReport {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.report
}
