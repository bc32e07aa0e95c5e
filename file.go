// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// FileOptions choose how System.OpenFile opens a file. The zero value of FileOptions opens the file for reading only.
type FileOptions struct {
	// Write opens the file for reading and writing.
	Write bool
	// Create makes the file if it does not exist. Create requires Write.
	Create bool
	// Truncate removes the old content of the file when the file is opened. Truncate requires Write.
	Truncate bool
	// Device is the default device for reads and writes: "auto" (the default), "host", "cuda" or "cuda:N".
	Device string
	// Route is the default route for reads and writes; empty means RouteAuto.
	Route Route
}

// File is an open file for reads into device memory and writes from device memory, at any offset. All methods of a
// File are safe for concurrent use. Writes to a File are not atomic, and survive a crash only after Sync.
type File struct {
	sys    *boot.System
	opt    FileOptions
	target *transfer.Target

	mu     sync.Mutex
	closed bool
	moves  []*Move // moves that may still run
}

// OpenFile opens a local file. The caller must close the file before it closes the System.
func (s *System) OpenFile(path string, o FileOptions) (*File, error) {
	if _, err := report.ParseRoute(string(o.Route)); err != nil {
		return nil, err
	}
	e, err := vfs.OpenEditable(path, vfs.Access{Write: o.Write, Create: o.Create, Truncate: o.Truncate})
	if err != nil {
		return nil, err
	}
	return &File{sys: s.sys, opt: o, target: s.sys.Engine.NewTarget(e)}, nil
}

// Path returns the path that was given to OpenFile.
func (f *File) Path() string { return f.target.Path() }

// Size returns the current length of the file in bytes.
func (f *File) Size() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, f.gone("look at")
	}
	return f.target.Size()
}

// Sync flushes the file to storage: writes that ended before Sync survive a crash.
func (f *File) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return f.gone("sync")
	}
	return f.target.Sync()
}

// MoveOptions choose the device, route and stream of one read or write.
type MoveOptions struct {
	// If Device or Route is not empty, it replaces the default that was set when the file or object was opened.
	Device string
	Route  Route
	// Stream is a CUDA stream of the caller and is used if HasStream is set. The read or write begins after the work
	// that is already queued on the stream.
	Stream    uint64
	HasStream bool
	// InStream queues the read or write on Stream through libcufile. Work that is queued on the stream after the read
	// or write sees its result. If libcufile cannot queue on the stream, the Start method returns after the read or
	// write has ended, and the report gives the reason.
	InStream bool
}

// StartRead begins to read up to n bytes at offset off into dst and returns at once. If the file ends within the
// range, fewer than n bytes are read; Move.Progress returns the number of bytes read. A change of the file during the
// read is not detected. The caller must not use the memory at dst until the read has ended.
func (f *File) StartRead(ctx context.Context, dst Ptr, n, off int64, o MoveOptions) (*Move, error) {
	return f.start(ctx, transfer.Range{Mem: device.Ptr(dst), Off: off, Len: n}, false, o)
}

// StartWrite begins to write n bytes at src to offset off of the file and returns at once. A write beyond the end of
// the file makes the file longer. The memory at src must not change until the write has ended.
func (f *File) StartWrite(ctx context.Context, src Ptr, n, off int64, o MoveOptions) (*Move, error) {
	return f.start(ctx, transfer.Range{Mem: device.Ptr(src), Off: off, Len: n}, true, o)
}

// Read reads up to n bytes at offset off into dst and returns the number of bytes read.
func (f *File) Read(ctx context.Context, dst Ptr, n, off int64) (int64, error) {
	return moved(f.StartRead(ctx, dst, n, off, MoveOptions{}))
}

// Write writes n bytes at src to offset off of the file and returns the number of bytes written.
func (f *File) Write(ctx context.Context, src Ptr, n, off int64) (int64, error) {
	return moved(f.StartWrite(ctx, src, n, off, MoveOptions{}))
}

// ReadAsync queues a read of up to n bytes on the caller's CUDA stream; see MoveOptions.InStream.
func (f *File) ReadAsync(ctx context.Context, stream uint64, dst Ptr, n, off int64) (*Move, error) {
	return f.StartRead(ctx, dst, n, off, MoveOptions{Stream: stream, HasStream: true, InStream: true})
}

// WriteAsync queues a write of n bytes on the caller's CUDA stream; see MoveOptions.InStream.
func (f *File) WriteAsync(ctx context.Context, stream uint64, src Ptr, n, off int64) (*Move, error) {
	return f.StartWrite(ctx, src, n, off, MoveOptions{Stream: stream, HasStream: true, InStream: true})
}

func moved(m *Move, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	err = m.Wait()
	n, _ := m.Progress()
	return n, err
}

func (f *File) gone(op string) error {
	return errs.New(errs.Closed, op, f.Path(), "the file is closed")
}

// start checks the options, opens the device and starts a move.
func (f *File) start(ctx context.Context, r transfer.Range, write bool, o MoveOptions) (*Move, error) {
	op := "read"
	if write {
		op = "write"
	}
	if o.Device == "" {
		o.Device = f.opt.Device
	}
	if o.Route == "" {
		o.Route = f.opt.Route
	}
	route, err := report.ParseRoute(string(o.Route))
	if err != nil {
		return nil, err
	}
	dev, err := f.sys.Devices.Open(ctx, o.Device)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, f.gone(op)
	}
	m := &Move{path: f.Path(), op: op, begun: make(chan struct{})}
	f.moves = append(slices.DeleteFunc(f.moves, (*Move).ended), m)
	f.mu.Unlock()
	defer close(m.begun)
	if o.InStream && (route == report.RouteAuto || route == report.RouteCuFile) && r.Len > 0 {
		s, refused, err := f.sys.Engine.StartInStream(ctx, transfer.StreamRequest{
			Device: dev, Target: f.target, Range: r, Write: write, Stream: o.Stream, Route: route})
		if err != nil {
			return nil, err
		}
		if s != nil {
			m.run = s
			return m, nil
		}
		m.refused = []report.Refusal{*refused}
	}
	if write {
		p, err := f.sys.Engine.StartPut(ctx, transfer.PutRequest{Device: dev, Target: f.target, Range: r, Route: route,
			Stream: o.Stream, HasStream: o.HasStream})
		if err != nil {
			return nil, err
		}
		m.run = p
	} else if m.run, err = f.read(ctx, dev, r, route, o); err != nil {
		m.run = nil
		return nil, err
	}
	if o.InStream {
		<-m.run.Done() // later work on the stream must find it done
	}
	return m, nil
}

// reading is a transfer that closes its source at its end.
type reading struct {
	*transfer.Load
	done   chan struct{}
	err    error
	report report.Report
}

func (r *reading) Done() <-chan struct{} { return r.done }
func (r *reading) Wait() error {
	<-r.done
	return errors.Join(r.Err(), r.err)
}

// Report waits for the end of the read and returns its report, which was made before the file was closed.
func (r *reading) Report() report.Report {
	<-r.done
	return r.report
}

// read starts a transfer of the part of the range that the file has.
func (f *File) read(ctx context.Context, dev device.Device, r transfer.Range, route Route, o MoveOptions) (mover,
	error) {
	if r.Off < 0 || r.Len < 0 || !r.Mem.Holds(r.Len) {
		return nil, errs.New(errs.Invalid, "read", f.Path(), fmt.Sprintf(
			"%d bytes at offset %d to 0x%x; expected an address, and offset and length of 0 or more", r.Len, r.Off,
			uint64(r.Mem)))
	}
	src, err := f.target.Source()
	if err != nil {
		return nil, err
	}
	// A range across the end of the file is shortened; a range behind the end is empty.
	n := max(0, min(r.Len, src.Size()-r.Off))
	req := transfer.Request{Device: dev, Files: []*vfs.File{src}, Route: route, Live: true,
		Stream: o.Stream, HasStream: o.HasStream}
	if n > 0 {
		req.Segments = []transfer.Segment{{Off: r.Off, Len: n, Dst: r.Mem}}
	}
	if n == 0 {
		req.Route = report.RouteAuto // there is nothing to route
	}
	t, err := f.sys.Engine.Start(ctx, req)
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	g := &reading{Load: t, done: make(chan struct{})}
	go func() {
		<-t.Done()
		g.report = t.Report()
		g.err = src.Close()
		close(g.done)
	}()
	return g, nil
}

// Close waits for running reads and writes and closes the file. A second call of Close does nothing.
func (f *File) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	moves := f.moves
	f.moves = nil
	f.mu.Unlock()
	for _, m := range moves {
		if <-m.begun; m.run != nil {
			<-m.run.Done()
		}
	}
	return f.target.Close()
}

// mover is the work behind a Move.
type mover interface {
	Done() <-chan struct{}
	Wait() error
	Progress() (done, total int64)
	Report() report.Report
}

// Move is a running read or write of a file. The context that was given to the Start method cancels a Move. A Move
// that is queued on a CUDA stream cannot be cancelled.
type Move struct {
	path, op string
	begun    chan struct{} // closed when run is settled
	run      mover         // nil if the move did not start
	refused  []report.Refusal
}

func (m *Move) ended() bool {
	select {
	case <-m.begun:
	default:
		return false
	}
	if m.run == nil {
		return true
	}
	select {
	case <-m.run.Done():
		return true
	default:
		return false
	}
}

// Done returns a channel that is closed when the read or write has ended and the caller may use the memory again.
func (m *Move) Done() <-chan struct{} { return m.run.Done() }

// Wait blocks until the read or write has ended and returns its error.
func (m *Move) Wait() error { return m.run.Wait() }

// Progress returns the number of bytes moved so far, and the total number of bytes to move.
func (m *Move) Progress() (done, total int64) { return m.run.Progress() }

// Report blocks until the read or write has ended and returns its report.
func (m *Move) Report() MoveReport {
	r := MoveReport{Path: m.path, Op: m.op, Report: m.run.Report()}
	r.Refusals = append(append([]report.Refusal{}, m.refused...), r.Refusals...)
	return r
}
