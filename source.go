// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/model"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
)

// Source is a model whose headers have been read: what it holds and where each
// tensor would lie. It can be loaded any number of times, into memory of the
// caller or of its own.
type Source struct {
	sys   *boot.System
	dev   device.Device
	model *model.Model
	// refused is what opening the device already gave up.
	refused []report.Refusal
	// owned is the client that was made for this source; nil where the caller has one.
	owned *Client
}

// SourceFile is one file of a model and the memory it needs.
type SourceFile struct {
	Path      string `json:"path"`
	Size      int64  `json:"size"`       // of the file
	DestSize  int64  `json:"dest_size"`  // bytes of device memory
	DestAlign int64  `json:"dest_align"` // alignment the destination should have
}

// TensorInfo is one tensor and its place.
type TensorInfo struct {
	Name  string  `json:"name"`
	DType DType   `json:"dtype"`
	Shape []int64 `json:"shape"`
	// Whole is the tensor's own shape and Start the first index taken of each
	// dimension, where a part of it was chosen.
	Whole  []int64 `json:"whole_shape,omitempty"`
	Start  []int64 `json:"start,omitempty"`
	File   int     `json:"file"`   // index into the files
	Offset int64   `json:"offset"` // in the destination of that file
	Size   int64   `json:"size"`
}

// Select makes another source of the same open files, whose headers are not read
// again: for another choice of tensors. Device and Lenient are those of s, and
// must not be given. The selection is closed before s.
func (s *Source) Select(o ModelOptions) (*Source, error) {
	if o.Device != "" || o.Lenient || len(o.More) > 0 {
		return nil, errs.New(errs.Invalid, "select tensors", s.model.Path, "device, lenient and more are given when the model is opened")
	}
	m, err := s.model.Select(o.layout(s.dev))
	if err != nil {
		return nil, err
	}
	return &Source{sys: s.sys, dev: s.dev, model: m, refused: s.refused}, nil
}

// Device describes where the source would be loaded to.
func (s *Source) Device() DeviceInfo { return s.dev.Info() }

// Files lists the model's files in order.
func (s *Source) Files() []SourceFile {
	out := make([]SourceFile, len(s.model.Files))
	for i, f := range s.model.Files {
		l := s.model.Layouts[i]
		out[i] = SourceFile{Path: f.Path, Size: f.Size, DestSize: l.Size, DestAlign: l.Align}
	}
	return out
}

// Header is what a file of a model says of itself.
type Header = format.File

// Headers are those of the files, in order. They are not changed.
func (s *Source) Headers() []*Header { return s.model.Files }

// Index is the name of the index of a sharded model; empty where there is none.
func (s *Source) Index() string { return s.model.Index }

// Tensors lists the chosen tensors in order of file and offset.
func (s *Source) Tensors() []TensorInfo {
	out := make([]TensorInfo, len(s.model.Tensors))
	for i, t := range s.model.Tensors {
		out[i] = TensorInfo{Name: t.Name, DType: t.DType, Shape: t.Shape, Whole: t.Whole, Start: t.Start, File: t.File, Offset: t.At, Size: t.Size}
	}
	return out
}

// Metadata merges the files' __metadata__; the first file to name a key wins.
func (s *Source) Metadata() map[string]string {
	out := map[string]string{}
	for _, f := range s.model.Files {
		for k, v := range f.Metadata {
			if _, ok := out[k]; !ok {
				out[k] = v
			}
		}
	}
	return out
}

// Bytes is the sum of the sizes of what was chosen.
func (s *Source) Bytes() int64 { return s.model.Bytes() }

// DropCache asks the kernel to forget the files' clean pages and returns how
// many bytes it kept.
func (s *Source) DropCache() (left int64, err error) { return s.model.DropCache() }

// Cached is how many bytes of the files are in the page cache.
func (s *Source) Cached() (int64, error) { return s.model.Cached() }

// Close closes the files. No load of the source may be running.
func (s *Source) Close() error {
	err := s.model.Close()
	if err == nil && s.owned != nil {
		err = s.owned.Close()
	}
	return err
}

// Destination is memory of the caller on the source's device.
type Destination struct {
	Ptr  Ptr
	Size int64
}

// StartOptions choose how a load into the caller's memory goes.
type StartOptions struct {
	Route Route
	Cache CachePolicy
	// Stream, with HasStream, is the caller's CUDA stream whose queued work
	// may still use the destinations; copies begin after it.
	Stream    uint64
	HasStream bool
	// Verify checks the files against their checksums; see LoadOptions.
	Verify bool
}

// Start begins to fill dst, one destination per file, and returns at once. The
// destinations and the source belong to the load until it has ended.
func (s *Source) Start(ctx context.Context, dst []Destination, o StartOptions) (*Loading, error) {
	route, err := report.ParseRoute(string(o.Route))
	if err != nil {
		return nil, err
	}
	cache, err := report.ParseCachePolicy(string(o.Cache))
	if err != nil {
		return nil, err
	}
	ds := make([]model.Destination, len(dst))
	for i, d := range dst {
		ds[i] = model.Destination{Ptr: d.Ptr, Size: d.Size}
	}
	t, err := s.model.Start(ctx, s.sys.Engine, s.dev, ds, model.LoadOptions{Route: route, Cache: cache, Stream: o.Stream, HasStream: o.HasStream, Verify: o.Verify})
	if err != nil {
		return nil, err
	}
	return &Loading{t: t, model: s.model, refused: s.refused}, nil
}

// Loading is a load under way.
type Loading struct {
	t     *transfer.Load
	model *model.Model
	alloc time.Duration

	refused []report.Refusal
}

// Done is closed when the load has ended and nothing is queued into the
// destinations any more.
func (l *Loading) Done() <-chan struct{} { return l.t.Done() }

// Wait blocks until the load has ended and returns its error. Cancelling a
// load is done through the context given to Start.
func (l *Loading) Wait() error { return l.t.Err() }

// Ready waits until more than known tensors, counted in the order of
// Source.Tensors, are final in the destinations, or until the load has ended,
// and tells how many are. They stay as they are, however the load ends. With
// Verify a tensor is ready when every block that holds a byte of it or of its
// file's header has been found to be right. When nothing beyond known will come,
// err is the load's: nil after a success. When ctx ends first, it is of kind
// Cancelled and the load goes on. That no file changed while it was read is known
// only at the end: see Wait.
func (l *Loading) Ready(ctx context.Context, known int) (n int, err error) {
	return l.t.Ready(ctx, known)
}

// Progress is the bytes delivered so far, and in all.
func (l *Loading) Progress() (done, total int64) { return l.t.Progress() }

// Report tells how the load went; it blocks until Done.
func (l *Loading) Report() Report {
	r := Report{Report: l.t.Report(), Path: l.model.Path, Tensors: len(l.model.Tensors),
		OpenSeconds: l.model.OpenTime.Seconds(), AllocSeconds: l.alloc.Seconds()}
	r.Refusals = append(append([]report.Refusal{}, l.refused...), r.Refusals...)
	return r
}

// Report says which path every byte took and where the time went.
type Report struct {
	Path    string `json:"path"`
	Tensors int    `json:"tensors"`
	// OpenSeconds is reading and checking headers, AllocSeconds taking device
	// memory (0 when the caller brought it); neither is part of Seconds.
	OpenSeconds  float64 `json:"open_seconds"`
	AllocSeconds float64 `json:"alloc_seconds"`
	report.Report
}

// Load takes memory on the device, fills it and returns the model.
func (s *Source) Load(ctx context.Context, o LoadOptions) (*Model, error) {
	if err := s.sys.Enter("load", s.model.Path); err != nil {
		return nil, err
	}
	defer s.sys.Leave()
	m := &Model{sys: s.sys, dev: s.dev, tensors: map[string]Tensor{}}
	if metadata := s.Metadata(); len(metadata) > 0 {
		m.metadata = metadata
	}
	ok := false
	defer func() {
		if !ok {
			_ = m.Free()
		}
	}()
	began := time.Now()
	var dst []Destination
	for _, l := range s.model.Layouts {
		if l.Size == 0 {
			dst = append(dst, Destination{})
			m.bufs = append(m.bufs, nil)
			continue
		}
		b, err := s.dev.Alloc(l.Size)
		if err != nil {
			return nil, errs.Wrap("load", s.model.Path, err)
		}
		m.bufs = append(m.bufs, b)
		dst = append(dst, Destination{Ptr: b.Ptr(), Size: b.Size()})
	}
	alloc := time.Since(began)
	l, err := s.Start(ctx, dst, StartOptions{Route: o.Route, Cache: o.Cache, Verify: o.Verify})
	if err != nil {
		return nil, err
	}
	l.alloc = alloc
	watch(l, o.Progress)
	m.report = l.Report()
	if err := l.Wait(); err != nil {
		return nil, err
	}
	for _, t := range s.model.Tensors {
		m.names = append(m.names, t.Name)
		m.tensors[t.Name] = Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Size: t.Size, Ptr: dst[t.File].Ptr + Ptr(t.At)}
	}
	ok = true
	return m, nil
}

// progressEvery is often enough for a smooth line and rare enough to cost nothing.
const progressEvery = 100 * time.Millisecond

// underWay is a load or a save.
type underWay interface {
	Done() <-chan struct{}
	Progress() (done, total int64)
}

// watch calls f until the work has ended, and once more then.
func watch(l underWay, f func(done, total int64)) {
	if f == nil {
		<-l.Done()
		return
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.Done():
			f(l.Progress())
			return
		case <-tick.C:
			f(l.Progress())
		}
	}
}

// Model is a loaded model: tensors in device memory. All methods are safe for concurrent use, also with Free.
type Model struct {
	sys      *boot.System
	dev      device.Device
	bufs     []device.Buffer
	names    []string
	tensors  map[string]Tensor
	metadata map[string]string // nil: the files have none
	report   Report
	life     lifetime
}

// Tensor is one array in device memory; it lives until Model.Free.
type Tensor struct {
	Name  string
	DType DType
	Shape []int64
	Ptr   Ptr
	Size  int64
}

// Names lists the tensors in order of file and offset.
func (m *Model) Names() []string { return m.names }

// Tensor finds a tensor by name. After Free its Ptr is 0.
func (m *Model) Tensor(name string) (Tensor, bool) {
	t, ok := m.tensors[name]
	if !m.life.alive() {
		t.Ptr = 0
	}
	return t, ok
}

// Report tells how the load went.
func (m *Model) Report() Report { return m.report }

// use counts a user of the device memory in; the caller calls leave at the end.
func (m *Model) use(op, name string) (leave func(), err error) {
	if err := m.life.enter(op, name, "the model was freed"); err != nil {
		return nil, err
	}
	if err := m.sys.Enter(op, name); err != nil {
		m.life.leave()
		return nil, err
	}
	return func() {
		m.sys.Leave()
		m.life.leave()
	}, nil
}

// Read copies a tensor's bytes back to host memory, for checks and examples. After Free it fails with kind Closed.
func (m *Model) Read(name string) ([]byte, error) {
	leave, err := m.use("read tensor", name)
	if err != nil {
		return nil, err
	}
	defer leave()
	t, ok := m.tensors[name]
	if !ok {
		return nil, errs.New(errs.NotFound, "read tensor", fmt.Sprintf("%q", name), "is not in the model")
	}
	out := make([]byte, t.Size)
	q, err := m.dev.NewQueue()
	if err != nil {
		return nil, err
	}
	defer q.Close()
	if t.Size == 0 {
		return out, nil
	}
	if err := q.CopyOut(out, t.Ptr); err != nil {
		return nil, errs.Wrap("read tensor", name, err)
	}
	return out, errs.Wrap("read tensor", name, q.Drain())
}

// Free gives the device memory back. It waits for Read and Save, so neither their Progress nor anything they wait for
// may call it. Addresses of tensors are not used afterwards, and the system is still open. A second call does nothing.
func (m *Model) Free() error {
	return m.life.end(func() error {
		var first error
		for _, b := range m.bufs {
			if b == nil {
				continue
			}
			if err := free(m.sys, m.dev, b); err != nil && first == nil {
				first = err
			}
		}
		m.bufs = nil
		return first
	})
}
