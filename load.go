// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
	"github.com/nebulaio/nebulaio/internal/model"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
)

// LoadOptions choose the tensors, the device and the route of System.Load.
type LoadOptions struct {
	// Device, Tensors, Slices, Shards, Lenient and Client have the same meaning as in SourceOptions.
	Device  string
	Tensors []string
	Slices  []Slice
	Shards  []Shard
	Lenient bool
	Client  ClientOptions
	// Route, Cache, Verify and Progress have the same meaning as in SourceLoadOptions.
	Route    Route
	Cache    CachePolicy
	Verify   bool
	Progress func(done, total int64)
}

// source returns the options for OpenSource.
func (o LoadOptions) source() SourceOptions {
	return SourceOptions{Device: o.Device, Tensors: o.Tensors, Slices: o.Slices, Shards: o.Shards, Lenient: o.Lenient,
		Client: o.Client}
}

// load returns the options for Source.Load.
func (o LoadOptions) load() SourceLoadOptions {
	return SourceLoadOptions{Route: o.Route, Cache: o.Cache, Verify: o.Verify, Progress: o.Progress}
}

// Load opens a model, allocates device memory for its tensors and fills the memory. After a failed load no memory
// stays allocated. The caller frees the model with Model.Free.
func (s *System) Load(ctx context.Context, path string, o LoadOptions) (*Model, error) {
	src, err := s.OpenSource(ctx, path, o.source())
	if err != nil {
		return nil, err
	}
	defer src.Close()
	return src.Load(ctx, o.load())
}

// SourceLoadOptions choose the route, the cache policy and the verification of Source.Load.
type SourceLoadOptions struct {
	// Route and Cache choose the route and the cache policy; empty means RouteAuto and CacheAuto.
	Route Route
	Cache CachePolicy
	// If Verify is set, the load compares blocks of the files with their checksums: every block with bytes of a chosen
	// tensor or of a header. The checksums of a local FILE are in FILE.crc64nvme; saves and Source.StartChecksums
	// write the checksum file. For objects read through a server's door, the server supplies the checksums. A wrong
	// block or a damaged checksum file fails the load with kind Corrupt. A missing checksum file fails the load with
	// kind NotFound.
	Verify bool
	// Progress, if not nil, is called several times a second from one goroutine, with the bytes delivered so far and
	// the total number of bytes.
	Progress func(done, total int64)
}

// Destination is device memory of the caller that receives one file of a Source.
type Destination struct {
	Ptr  Ptr
	Size int64
}

// StartLoadOptions choose the route, cache policy, verification and stream of Source.StartLoad.
type StartLoadOptions struct {
	// Route, Cache and Verify have the same meaning as in SourceLoadOptions.
	Route  Route
	Cache  CachePolicy
	Verify bool
	// Stream is a CUDA stream of the caller and is used if HasStream is set. Copies begin after the work that is
	// already queued on the stream.
	Stream    uint64
	HasStream bool
}

// model converts the options to those of the internal model.
func (o StartLoadOptions) model() model.LoadOptions {
	return model.LoadOptions{Route: o.Route, Cache: o.Cache, Stream: o.Stream, HasStream: o.HasStream, Verify: o.Verify}
}

// StartLoad begins to fill dst, which has one destination for each file of the source, and returns at once. Until the
// job has ended, the caller must not use the destinations or close the source.
func (s *Source) StartLoad(ctx context.Context, dst []Destination, o StartLoadOptions) (*LoadJob, error) {
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
		ds[i] = model.Destination{Ptr: device.Ptr(d.Ptr), Size: d.Size}
	}
	o.Route, o.Cache = route, cache
	t, err := s.model.Start(ctx, s.sys.Engine, s.dev, ds, o.model())
	if err != nil {
		return nil, err
	}
	return &LoadJob{t: t, model: s.model, tree: s.tree, refused: s.refused}, nil
}

// LoadJob is a running load; see Source.StartLoad.
type LoadJob struct {
	t     *transfer.Load
	model *model.Model
	alloc time.Duration

	refused []report.Refusal
	tree    *client.Tree // nil if the model is in files of this machine
	counted sync.Once
}

// Done returns a channel that is closed when the load has ended and the caller may use the destinations.
func (l *LoadJob) Done() <-chan struct{} { return l.t.Done() }

// Wait blocks until the load has ended and returns the load's error.
func (l *LoadJob) Wait() error {
	err := l.t.Err()
	l.counted.Do(func() {
		if l.tree != nil {
			r := l.t.Report()
			l.tree.Count(&r)
		}
	})
	return err
}

// Ready waits until more than `known` tensors are complete, and returns the number n of complete tensors. The result n
// means that the first n of Source.Tensors are complete. The load does not change a complete tensor any more, even if
// the load fails later. If Verify is set, the checksums of a complete tensor have been compared.
//
// If no more tensors will be complete, Ready returns the load's error, or nil if the load succeeded. If ctx ends while
// Ready waits, err is of kind Cancelled and the load goes on. A change of a file during the load is reported only by
// Wait.
func (l *LoadJob) Ready(ctx context.Context, known int) (n int, err error) {
	return l.t.Ready(ctx, known)
}

// Progress returns the number of bytes delivered so far, and the total number of bytes to deliver.
func (l *LoadJob) Progress() (done, total int64) { return l.t.Progress() }

// Report blocks until the load has ended and returns its report.
func (l *LoadJob) Report() ModelReport {
	r := ModelReport{Report: l.t.Report(), Path: l.model.Path, Tensors: len(l.model.Tensors),
		OpenSeconds: l.model.OpenTime.Seconds(), AllocSeconds: l.alloc.Seconds()}
	r.Refusals = append(append([]report.Refusal{}, l.refused...), r.Refusals...)
	r.Via = "file"
	for _, f := range r.Files {
		if f.Via != "" && r.Via != "http" {
			r.Via = f.Via
		}
	}
	return r
}

// Load allocates memory on the source's device, fills the memory with the tensors and returns the model. The caller
// frees the model with Model.Free.
func (s *Source) Load(ctx context.Context, o SourceLoadOptions) (*Model, error) {
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
		dst = append(dst, Destination{Ptr: Ptr(b.Ptr()), Size: b.Size()})
	}
	alloc := time.Since(began)
	l, err := s.StartLoad(ctx, dst, StartLoadOptions{Route: o.Route, Cache: o.Cache, Verify: o.Verify})
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
		m.tensors[t.Name] = Tensor{Name: t.Name, DType: DType(t.DType), Shape: t.Shape, Size: t.Size,
			Ptr: dst[t.File].Ptr + Ptr(t.At)}
	}
	ok = true
	return m, nil
}

// progressEvery is the interval of Progress calls: short enough for a smooth display and too long to cost time.
const progressEvery = 100 * time.Millisecond

// job is a load or a save under way.
type job interface {
	Done() <-chan struct{}
	Progress() (done, total int64)
}

// watch calls f several times a second until the job has ended, and once more at the end.
func watch(l job, f func(done, total int64)) {
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
