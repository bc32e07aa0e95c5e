// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/report"
)

// OpenOptions choose how Open opens an object or file. The zero value of OpenOptions is valid.
type OpenOptions struct {
	// System is the System that moves the bytes. If System is nil, Open makes a System from Options and Object.Close
	// closes it. System and Options cannot both be set.
	System  *System
	Options Options
	// Client is the client of the server that has the object; the client's System moves the bytes. If Client is nil,
	// Open makes a client from ClientOptions and Object.Close closes it. Client and ClientOptions cannot both be set.
	Client        *Client
	ClientOptions ClientOptions
	// Version is the version of the object; empty means the current version. For a file, Version must be empty.
	Version string
	// Device and Route are the default device and route for reads of the object; MoveOptions can replace them for one
	// read.
	Device string
	Route  Route
}

// parts are the system and the client that move the bytes of an object.
type parts struct {
	system        *System
	options       Options
	client        *Client
	clientOptions ClientOptions
}

// settle makes the System and the Client if the caller gave none. undo closes only the System and Client that settle
// made.
func (m *parts) settle(op string, p place) (undo func() error, err error) {
	bad := func(why string) (func() error, error) {
		return nil, errs.New(errs.Invalid, op, p.String(), why)
	}
	undo = func() error { return nil }
	if m.client != nil {
		switch {
		case p.endpoint != "" && p.endpoint != m.client.opt.Endpoint:
			return bad(fmt.Sprintf("lies at %s, the client given is one of %s", p.endpoint, m.client.opt.Endpoint))
		case m.clientOptions != ClientOptions{}:
			return bad("Client and ClientOptions are given; expected one of them")
		case m.system != nil && m.system.sys != m.client.sys.sys:
			return bad("the System given is not that of the Client given; expected the Client alone")
		}
		m.system = m.client.sys
	}
	if m.system != nil && !reflect.ValueOf(m.options).IsZero() {
		return bad("Options are given beside a System or a Client, which has its own; expected one of them")
	}
	if m.system == nil {
		s, err := NewSystem(m.options)
		if err != nil {
			return nil, err
		}
		m.system, undo = s, s.Close
	}
	if p.path == "" && m.client == nil {
		if p.endpoint != "" {
			m.clientOptions.Endpoint = p.endpoint
		}
		c, err := m.system.NewClient(m.clientOptions)
		if err != nil {
			return nil, errors.Join(err, undo())
		}
		rest := undo
		m.client, undo = c, func() error { return errors.Join(c.Close(), rest()) }
	}
	return undo, nil
}

// Object is an object or a file that is open for reading. All methods of an Object are safe for concurrent use.
type Object struct {
	url    string
	opt    OpenOptions
	client *Client
	file   *File // nil for an object
	place  place
	info   ObjectInfo
	unmake func() error

	mu     sync.Mutex
	last   *ObjectMove
	closed bool
}

// Open opens an object or a file for reading into device memory. The URL of an object has one of three forms:
// "s3://bucket/key", "nebula://host:port/bucket/key", or, with TLS, "nebulas://host:port/bucket/key". The server of an
// "s3" URL is chosen by the options or by environment variables; see ClientOptions. Open treats any text that is not
// the URL of an object as the path of a file. All reads return the version of the object that Open found. The caller
// closes the object.
func Open(ctx context.Context, url string, o OpenOptions) (*Object, error) {
	p, err := parseURL(url)
	if err == nil {
		err = p.object(url)
	}
	if err != nil {
		return nil, err
	}
	if p.path != "" && o.Version != "" {
		return nil, errs.New(errs.Invalid, "open", p.String(), "a version is given, and a file has none")
	}
	by := parts{system: o.System, options: o.Options, client: o.Client, clientOptions: o.ClientOptions}
	undo, err := by.settle("open", p)
	if err != nil {
		return nil, err
	}
	ob := &Object{url: url, opt: o, client: by.client, place: p, unmake: undo}
	if p.path != "" {
		ob.file, err = by.system.OpenFile(p.path, FileOptions{Device: o.Device, Route: o.Route})
		if err == nil {
			ob.info.Size, err = ob.file.Size()
		}
	} else {
		ob.info, err = by.client.Stat(ctx, p.bucket, p.key, o.Version)
	}
	if err != nil {
		return nil, errors.Join(err, ob.Close())
	}
	return ob, nil
}

// URL returns the URL or path that was given to Open.
func (ob *Object) URL() string { return ob.url }

// Size returns the length in bytes that the object had when it was opened.
func (ob *Object) Size() int64 { return ob.info.Size }

// ETag returns the object's ETag, or "" for a file.
func (ob *Object) ETag() string { return ob.info.ETag }

// Version returns the object's version, or "" for a file or an object in a bucket without versioning.
func (ob *Object) Version() string { return ob.info.Version }

// StartRead begins to read up to n bytes at offset off into dst and returns at once. If the object ends within the
// range, fewer than n bytes are read. After Close, StartRead fails with kind Closed.
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
		return nil, errs.New(errs.Invalid, "read", ob.place.String(),
			fmt.Sprintf("%d bytes at offset %d; expected 0 or more of both", n, off))
	}
	if o.Device == "" {
		o.Device = ob.opt.Device
	}
	if o.Route == "" {
		o.Route = ob.opt.Route
	}
	off = min(off, ob.info.Size) // a read behind the end reads nothing, as in a file
	m, err := ob.client.StartRead(ctx, ObjectRead{Bucket: ob.place.bucket, Key: ob.place.key, Version: ob.info.Version,
		IfETag: ob.info.ETag, Off: off, Size: max(0, min(n, ob.info.Size-off)), Dst: dst, DstSize: n, Device: o.Device,
		Route: o.Route, Stream: o.Stream, HasStream: o.HasStream})
	if err != nil {
		return nil, err
	}
	if o.InStream {
		// libcufile cannot read objects. StartRead waits for the read here, so that later work on the stream finds
		// the bytes.
		m.refused = []report.Refusal{{What: "cufile", On: ob.place.String(),
			Reason: "objects are not read in the order of a stream", Fix: "none needed: the read was made at once"}}
		<-m.Done()
	}
	return ob.keep(m), nil
}

func (ob *Object) keep(m *ObjectMove) *ObjectMove {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	ob.last = m
	return m
}

// Read reads up to n bytes at offset off into dst and returns the number of bytes read.
func (ob *Object) Read(ctx context.Context, dst Ptr, n, off int64) (int64, error) {
	m, err := ob.StartRead(ctx, dst, n, off, MoveOptions{})
	if err != nil {
		return 0, err
	}
	err = m.Wait()
	n, _ = m.Progress()
	return n, err
}

// Report blocks until the latest read has ended and returns the report of the latest read.
func (ob *Object) Report() ObjectReport {
	ob.mu.Lock()
	m := ob.last
	ob.mu.Unlock()
	if m == nil {
		return ObjectReport{Op: "read", Bucket: ob.place.bucket, Key: ob.place.key, Size: ob.info.Size,
			ETag: ob.info.ETag, Version: ob.info.Version}
	}
	return m.Report()
}

// Close closes the object, and the System and Client that Open made. For a file, Close first waits for running reads.
// A second call of Close does nothing.
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

// fileMove adapts a move of a file to the interface of an object's move.
type fileMove struct {
	*Move
	size int64
}

// Report returns the report of the read as an object report, with the path of the file as the key.
func (m fileMove) Report() ObjectReport {
	r := m.Move.Report()
	return ObjectReport{Op: r.Op, Key: r.Path, Size: m.size, Via: "file", Report: r.Report}
}
