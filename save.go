// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
	"github.com/nebulaio/nebulaio/internal/model"
	"github.com/nebulaio/nebulaio/report"
)

// SaveTensor describes a tensor in memory that a save writes. The elements of the tensor must be contiguous, in
// row-major order.
type SaveTensor struct {
	Name  string
	DType DType
	Shape []int64
	// Device is the device of the memory at Ptr: "host", "cuda" or "cuda:N". Tensors of one file may be on several
	// devices.
	Device string
	Ptr    Ptr
	Size   int64 // size of the tensor in bytes; must agree with DType and Shape
	// Bytes, if not nil, is the tensor's content in host memory; Device, Ptr and Size are then ignored.
	Bytes []byte
}

// SaveOptions choose how a save writes a file. The zero value of SaveOptions writes a page-aligned file with
// checksums.
type SaveOptions struct {
	// Metadata becomes the entry "__metadata__" of the file's header. If Metadata is nil, the header has no entry
	// "__metadata__".
	Metadata map[string]string
	// NoChecksums makes the save write no checksum file FILE.crc64nvme, and remove an old one. A save to a bucket
	// never writes a checksum file.
	NoChecksums bool
	// Align is the alignment in bytes of the first tensor in the file: a multiple of 8. 0 means 4096.
	Align int64
	// Route is RouteAuto (the default: O_DIRECT if the file system allows it), RouteDirect or RouteBuffered.
	Route Route
	// Streams holds the caller's CUDA streams by device, such as "cuda:0". The save reads the tensors of a device
	// after the work that is already queued on the device's stream. If a device has no entry in Streams, the save
	// reads the tensors of this device at once.
	Streams map[string]uint64
	// Client chooses the server for a save to a bucket.
	Client ClientOptions
	// Progress, if not nil, is called several times a second from one goroutine, with the bytes written so far and the
	// total number of bytes.
	Progress func(done, total int64)
}

// WriteSettings returns the size in bytes of one write of a save, and the number of writes in flight. The write size
// and the number of writes come from Options, and are smaller if the staging memory does not suffice.
func (s *System) WriteSettings() (block int64, depth int) { return s.sys.Engine.Writes() }

// SaveJob is a running save; see System.StartSave.
type SaveJob struct {
	t       saver
	path    string
	tensors int
	open    time.Duration
}

// saver is the work behind a SaveJob.
type saver interface {
	Done() <-chan struct{}
	Err() error
	Progress() (done, total int64)
	Report() report.Report
}

// StartSave begins to write tensors to a .safetensors file or an object ("s3://bucket/key") and returns at once. The
// tensors must not change until the job has ended. If ctx ends before the new file is renamed to path, the save fails
// and the old file stays.
func (s *System) StartSave(ctx context.Context, path string, tensors []SaveTensor, o SaveOptions) (*SaveJob, error) {
	if ctx.Err() != nil {
		return nil, cancelled(ctx, "save", path)
	}
	began := time.Now()
	route, err := report.ParseRoute(string(o.Route))
	if err != nil {
		return nil, err
	}
	devices := &openDevices{sys: s, op: "save", path: path}
	held := make([]model.Held, len(tensors))
	for i, t := range tensors {
		held[i] = model.Held{Name: t.Name, DType: format.DType(t.DType), Shape: t.Shape, Bytes: t.Bytes}
		if t.Bytes != nil {
			continue
		}
		d, err := devices.open(ctx, t.Device)
		if err != nil {
			return nil, errs.Wrap("save tensor", t.Name, err)
		}
		held[i].Device, held[i].Ptr, held[i].Size = d, device.Ptr(t.Ptr), t.Size
	}
	m := model.SaveOptions{Metadata: o.Metadata, Align: o.Align, Route: route, Checksums: !o.NoChecksums}
	if m.Streams, err = devices.streams(ctx, o.Streams); err != nil {
		return nil, err
	}
	var t saver
	if IsObjectURL(path) {
		t, err = s.saveObject(ctx, path, held, m, o.Client)
	} else {
		t, err = model.StartSave(ctx, s.sys.Engine, path, held, m)
	}
	if err != nil {
		return nil, err
	}
	job := &SaveJob{t: t, path: path, tensors: len(tensors), open: time.Since(began)}
	if o.Progress != nil {
		go watch(job, o.Progress)
	}
	return job, nil
}

// objectSave is a save to a bucket, with the client that was made for it.
type objectSave struct {
	*ObjectMove
	done chan struct{}
	err  error
}

func (o *objectSave) Done() <-chan struct{} { return o.done }
func (o *objectSave) Err() error {
	<-o.done
	return o.err
}

// Report returns the engine's report, with a note that says whether the bytes went through the door or by HTTP.
func (o *objectSave) Report() report.Report {
	r := o.ObjectMove.Report()
	r.Notes = append(r.Notes, "the object was written by way of "+r.Via)
	return r.Report
}

func (s *System) saveObject(ctx context.Context, url string, held []model.Held, o model.SaveOptions,
	c ClientOptions) (saver, error) {
	p, err := parseURL(url)
	if err == nil {
		err = p.object(url)
	}
	if err != nil {
		return nil, err
	}
	sources, err := model.Sources(url, held, o)
	if err != nil {
		return nil, err
	}
	if p.endpoint != "" {
		c.Endpoint = p.endpoint
	}
	to, err := s.NewClient(c)
	if err != nil {
		return nil, err
	}
	m, err := move(to.c.StartWrite(ctx, client.Write{Bucket: p.bucket, Key: p.key, Route: o.Route, Sources: sources,
		Streams: o.Streams}))
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	out := &objectSave{ObjectMove: m, done: make(chan struct{})}
	go func() {
		out.err = errors.Join(m.Wait(), to.Close())
		close(out.done)
	}()
	return out, nil
}

// Done returns a channel that is closed when the save has ended and no longer reads the tensors.
func (s *SaveJob) Done() <-chan struct{} { return s.t.Done() }

// Wait blocks until the save has ended and returns the save's error. After a successful save the file is complete and
// durable at its path.
func (s *SaveJob) Wait() error { return s.t.Err() }

// Progress returns the number of bytes written so far, and the total number of bytes to write.
func (s *SaveJob) Progress() (done, total int64) { return s.t.Progress() }

// Report blocks until the save has ended and returns its report.
func (s *SaveJob) Report() ModelReport {
	return ModelReport{Report: s.t.Report(), Path: s.path, Tensors: s.tensors, OpenSeconds: s.open.Seconds()}
}

// Save writes tensors to a .safetensors file or an object. After a successful save the file is complete and durable,
// with its checksums in FILE.crc64nvme. After a failed save the old file is unchanged. During the save, readers of the
// path see the complete old file or the complete new one. Save returns a report even if the save failed.
func (s *System) Save(ctx context.Context, path string, tensors []SaveTensor, o SaveOptions) (ModelReport, error) {
	progress := o.Progress
	o.Progress = nil // Save makes the last call of Progress before it returns
	job, err := s.StartSave(ctx, path, tensors, o)
	if err != nil {
		return ModelReport{}, err
	}
	watch(job, progress)
	return job.Report(), job.Wait()
}

// Save writes the model's tensors to one .safetensors file or object; see System.Save. The model stays loaded after
// Save. If o.Metadata is nil, the file gets the model's metadata. After Free, Save fails with kind Closed.
func (m *Model) Save(ctx context.Context, path string, o SaveOptions) (ModelReport, error) {
	leave, err := m.use("save", path)
	if err != nil {
		return ModelReport{}, err
	}
	defer leave()
	tensors := make([]SaveTensor, 0, len(m.names))
	for _, name := range m.names {
		t := m.tensors[name]
		tensors = append(tensors, SaveTensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Device: m.dev.Info().ID,
			Ptr: t.Ptr, Size: t.Size})
	}
	if o.Metadata == nil {
		o.Metadata = m.metadata
	}
	return (&System{sys: m.sys}).Save(ctx, path, tensors, o)
}
