// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
	"github.com/nebulaio/nebulaio/internal/transfer"
)

// CreateOptions choose how Create makes an object or file. The zero value of CreateOptions is valid.
type CreateOptions struct {
	// System, Options, Client and ClientOptions have the same meaning as in OpenOptions.
	System        *System
	Options       Options
	Client        *Client
	ClientOptions ClientOptions
	// Device is the default device of the memory that the caller gives to WriteFrom.
	Device string
	// Route is the route to storage: RouteAuto (the default), RouteDirect or RouteBuffered.
	Route Route
	// For an object, ContentType, Metadata, IfMatch and IfNoneMatch have the same meaning as the fields of ObjectWrite
	// with these names. For a file, ContentType, Metadata, IfMatch and IfNoneMatch must be empty.
	ContentType          string
	Metadata             map[string]string
	IfMatch, IfNoneMatch string
}

// ObjectWriter writes an object or a file from device memory. Call WriteFrom for each range of the content, then
// Commit or Abort. All methods of an ObjectWriter are safe for concurrent use.
type ObjectWriter struct {
	url    string
	size   int64
	opt    CreateOptions
	by     parts
	place  place
	unmake func() error

	mu      sync.Mutex
	sources []transfer.Source
	streams map[device.Device]uint64
	ended   bool
	report  ObjectReport
}

// Create begins an object ("s3://…", "nebula://…") or a file of `size` bytes. The object or file becomes visible when
// it is committed with Commit. The caller must call Commit or Abort.
func Create(ctx context.Context, url string, size int64, o CreateOptions) (*ObjectWriter, error) {
	p, err := parseURL(url)
	if err == nil {
		err = p.object(url)
	}
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, cancelled(ctx, "create", p.String())
	}
	if size < 0 {
		return nil, errs.New(errs.Invalid, "create", p.String(), fmt.Sprintf("a size of %d; expected 0 or more", size))
	}
	if p.path != "" && size == 0 {
		return nil, errs.New(errs.Unsupported, "create", p.String(),
			"a file of no bytes is not made of device memory; expected at least one")
	}
	if p.path != "" && (o.IfMatch != "" || o.IfNoneMatch != "" || len(o.Metadata) > 0 || o.ContentType != "") {
		return nil, errs.New(errs.Invalid, "create", p.String(), "a file has no content type, metadata or conditions")
	}
	by := parts{system: o.System, options: o.Options, client: o.Client, clientOptions: o.ClientOptions}
	undo, err := by.settle("create", p)
	if err != nil {
		return nil, err
	}
	return &ObjectWriter{url: url, size: size, opt: o, by: by, place: p, unmake: undo,
		streams: map[device.Device]uint64{}}, nil
}

// URL returns the URL or path that was given to Create.
func (w *ObjectWriter) URL() string { return w.url }

// PieceOptions choose the device and the stream of one call of WriteFrom.
type PieceOptions struct {
	// Device is the device of the memory at src; empty means CreateOptions.Device.
	Device string
	// Stream is a CUDA stream of the caller and is used if HasStream is set. Commit reads the memory after the work
	// that is queued on the stream when WriteFrom is called.
	Stream    uint64
	HasStream bool
}

// WriteFrom declares that the n bytes at address src are the object's content from offset off on. Commit reads the
// memory at src, so the memory must not change before Commit has returned. Calls of WriteFrom may come in any order
// and from several devices. All calls of WriteFrom together must supply every byte of the object exactly once. If
// calls for one device name several streams, WriteFrom waits for the work on all streams but the first.
func (w *ObjectWriter) WriteFrom(ctx context.Context, src Ptr, n, off int64, o PieceOptions) error {
	if o.Device == "" {
		o.Device = w.opt.Device
	}
	if off < 0 || n < 0 || n > w.size-off || !device.Ptr(src).Holds(n) {
		return errs.New(errs.Invalid, "write", w.place.String(), fmt.Sprintf(
			"%d bytes at 0x%x for offset %d; expected an address and a range of %d bytes", n, uint64(src), off, w.size))
	}
	dev, err := w.by.system.sys.Devices.Open(ctx, o.Device)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return errs.New(errs.Closed, "write", w.place.String(), "it was committed or aborted")
	}
	if o.HasStream && dev.Info().Kind != device.Host {
		// The commit can follow one stream of a device. WriteFrom waits for the work on any other stream.
		if first, ok := w.streams[dev]; ok && first != o.Stream {
			if err := passed(dev, o.Stream); err != nil {
				return errs.Wrap("write", w.place.String(), err)
			}
		} else {
			w.streams[dev] = o.Stream
		}
	}
	w.sources = append(w.sources, transfer.Source{Off: off, Len: n, Device: dev, Ptr: device.Ptr(src)})
	return nil
}

// passed waits for the work that is queued on a stream now.
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

// Commit writes the bytes and makes the object durable and visible. After an error of Commit, nothing of the new
// object is visible. After Commit only Report may be called.
func (w *ObjectWriter) Commit(ctx context.Context) error {
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
		err = errs.New(errs.Invalid, "commit", w.place.String(),
			fmt.Sprintf("pieces of %d bytes were given, expected %d: those of the whole", have, w.size)).
			WithFix("call WriteFrom for every byte once")
	} else if w.place.path != "" {
		var t *transfer.Save
		if t, err = w.by.system.sys.Engine.StartWrite(ctx, transfer.WriteRequest{Path: w.place.path, Sources: w.sources,
			Route: w.opt.Route, Streams: w.streams}); err == nil {
			err = t.Err()
			report = ObjectReport{Op: "write", Key: w.place.path, Size: w.size, Via: "file", Report: t.Report()}
		}
	} else {
		var m *ObjectMove
		if m, err = move(w.by.client.c.StartWrite(ctx, w.request())); err == nil {
			err = m.Wait()
			report = m.Report()
		}
	}
	w.mu.Lock()
	w.report = report
	w.mu.Unlock()
	return errors.Join(err, w.unmake())
}

// request converts the write of an object to a request of the internal client.
func (w *ObjectWriter) request() client.Write {
	return client.Write{Bucket: w.place.bucket, Key: w.place.key, Route: w.opt.Route, ContentType: w.opt.ContentType,
		Metadata: w.opt.Metadata, IfMatch: w.opt.IfMatch, IfNoneMatch: w.opt.IfNoneMatch, Size: w.size, Sources: w.sources,
		Streams: w.streams}
}

// end returns true to its first caller.
func (w *ObjectWriter) end() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.ended
	w.ended = true
	return first
}

// Abort discards an object or file that was not committed. After Commit, Abort does nothing.
func (w *ObjectWriter) Abort() error {
	if !w.end() {
		return nil
	}
	return w.unmake()
}

// Report returns the report of Commit; the report is empty until Commit has returned.
func (w *ObjectWriter) Report() ObjectReport {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.report
}
