// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/model"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
)

// LoadOptions choose what System.Load loads, where to, and how.
type LoadOptions struct {
	// Device, Tensors, Slices, Shards, Lenient and Client are as in SourceOptions.
	Device  string
	Tensors []string
	Slices  []Slice
	Shards  []Shard
	Lenient bool
	Client  ClientOptions
	// Route, Cache, Verify and Progress are as in SourceLoadOptions.
	Route    Route
	Cache    CachePolicy
	Verify   bool
	Progress func(done, total int64)
}

// source returns the options that concern opening.
func (o LoadOptions) source() SourceOptions {
	return SourceOptions{Device: o.Device, Tensors: o.Tensors, Slices: o.Slices, Shards: o.Shards, Lenient: o.Lenient,
		Client: o.Client}
}

// load returns the options that concern the transfer.
func (o LoadOptions) load() SourceLoadOptions {
	return SourceLoadOptions{Route: o.Route, Cache: o.Cache, Verify: o.Verify, Progress: o.Progress}
}

// Load opens a model, takes memory for it on the device and fills that memory. After an error nothing is left behind.
// The caller frees the model.
func (s *System) Load(ctx context.Context, path string, o LoadOptions) (*Model, error) {
	src, err := s.OpenSource(ctx, path, o.source())
	if err != nil {
		return nil, err
	}
	defer src.Close()
	return src.Load(ctx, o.load())
}

// SourceLoadOptions choose how Source.Load loads.
type SourceLoadOptions struct {
	// Route and Cache default to auto.
	Route Route
	Cache CachePolicy
	// Verify compares every block that holds a byte of a chosen tensor or of a header with its checksum. Files have
	// their checksums in FILE.crc64nvme beside them, which Source.StartChecksums and saves write. Objects that come
	// through a server's door have those of the server. A wrong block or a damaged checksum file is an error of kind
	// Corrupt, a missing checksum file of kind NotFound.
	Verify bool
	// Progress, if not nil, is called several times a second from one goroutine, with the bytes delivered and in all.
	Progress func(done, total int64)
}

// Destination is memory of the caller on the source's device.
type Destination struct {
	Ptr  Ptr
	Size int64
}

// StartLoadOptions choose how a load into the caller's memory goes.
type StartLoadOptions struct {
	// Route, Cache and Verify are as in SourceLoadOptions.
	Route  Route
	Cache  CachePolicy
	Verify bool
	// Stream, with HasStream, is the caller's CUDA stream. Copies begin after the work that is queued on it now.
	Stream    uint64
	HasStream bool
}

// model returns the options as the model takes them.
func (o StartLoadOptions) model() model.LoadOptions {
	return model.LoadOptions{Route: o.Route, Cache: o.Cache, Stream: o.Stream, HasStream: o.HasStream, Verify: o.Verify}
}

// StartLoad begins to fill dst, one destination for each file, and returns at once. The destinations and the source
// belong to the job until it has ended.
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
	return &LoadJob{t: t, model: s.model, refused: s.refused}, nil
}

// LoadJob is a load under way.
type LoadJob struct {
	t     *transfer.Load
	model *model.Model
	alloc time.Duration

	refused []report.Refusal
}

// Done is closed when the load has ended and the destinations are the caller's again.
func (l *LoadJob) Done() <-chan struct{} { return l.t.Done() }

// Wait blocks until the load has ended and returns its error.
func (l *LoadJob) Wait() error { return l.t.Err() }

// Ready waits until more than known tensors are complete, and returns how many are. Tensors count in the order of
// Source.Tensors. A complete tensor stays as it is, however the load ends. With Verify, its blocks have been compared.
//
// If no more tensors will come, err is that of the load: nil after success. If ctx ends first, err is of kind
// Cancelled, and the load goes on. Whether a file changed during the load is known only at its end; see Wait.
func (l *LoadJob) Ready(ctx context.Context, known int) (n int, err error) {
	return l.t.Ready(ctx, known)
}

// Progress returns the bytes delivered so far, and in all.
func (l *LoadJob) Progress() (done, total int64) { return l.t.Progress() }

// Report says how the load went. It blocks until the load has ended.
func (l *LoadJob) Report() ModelReport {
	r := ModelReport{Report: l.t.Report(), Path: l.model.Path, Tensors: len(l.model.Tensors),
		OpenSeconds: l.model.OpenTime.Seconds(), AllocSeconds: l.alloc.Seconds()}
	r.Refusals = append(append([]report.Refusal{}, l.refused...), r.Refusals...)
	return r
}

// Load takes memory on the source's device, fills it and returns the model. The caller frees the model.
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

// progressEvery is short enough for a smooth display and long enough to cost nothing.
const progressEvery = 100 * time.Millisecond

// job is a load or a save under way.
type job interface {
	Done() <-chan struct{}
	Progress() (done, total int64)
}

// watch calls f several times a second until the job has ended, and once more then.
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
