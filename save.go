// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/model"
	"github.com/nebulaio/nebulaio/report"
)

// SaveTensor is a tensor in memory that is to be saved. Its elements lie one
// after the other in row-major order.
type SaveTensor struct {
	Name  string
	DType DType
	Shape []int64
	// Device is where Ptr points: "host", "cuda" or "cuda:N". Tensors of one
	// file may lie on several devices.
	Device string
	Ptr    Ptr
	Size   int64 // in bytes; must be what DType and Shape say
	// Bytes, if not nil, is the tensor itself in host memory; Device, Ptr and
	// Size are then not read.
	Bytes []byte
}

// SaveOptions choose how a file is written; the zero value is a page-aligned
// file with checksums.
type SaveOptions struct {
	// Metadata is the file's "__metadata__"; nil writes none.
	Metadata map[string]string
	// NoChecksums leaves FILE.crc64nvme out, and removes one that is there: it
	// is not of the new file.
	NoChecksums bool
	// Align is the alignment of the first data byte, a multiple of 8; default 4096.
	Align int64
	// Route is auto (past the page cache where the file system allows it),
	// direct (an error where it does not) or buffered.
	Route Route
	// Streams are, by device ("cuda:0"), the CUDA streams whose queued work may
	// still write the tensors: they are read after it. Without one, the tensors
	// on that device are read at once.
	Streams map[string]uint64
	// Client says, for a file that is saved to a bucket, which server and as whom.
	Client ClientOptions
	// Progress, if not nil, is called several times a second from one goroutine
	// with the bytes written and in all.
	Progress func(done, total int64)
}

// Writes is the size of one write of a save and how many are in flight: what
// Options ask for, as far as the staging memory goes.
func (s *System) Writes() (block int64, depth int) { return s.sys.Engine.Writes() }

// Saving is a save under way.
type Saving struct {
	t       saver
	path    string
	tensors int
	open    time.Duration
}

// saver is what runs behind a Saving.
type saver interface {
	Done() <-chan struct{}
	Err() error
	Progress() (done, total int64)
	Report() report.Report
}

// StartSave begins to write tensors to a .safetensors file, or to an object
// ("s3://bucket/key"), which gets no FILE.crc64nvme beside it: the server keeps
// sums of its own. It returns at once.
// The tensors belong to the save, and do not change, until it has ended.
// Cancelling is done through ctx; until the file has its name that leaves
// everything as it was.
func (s *System) StartSave(ctx context.Context, path string, tensors []SaveTensor, o SaveOptions) (*Saving, error) {
	if ctx.Err() != nil {
		return nil, errs.Wrap("save", path, context.Cause(ctx))
	}
	began := time.Now()
	route, err := report.ParseRoute(string(o.Route))
	if err != nil {
		return nil, err
	}
	devices := map[string]device.Device{}
	open := func(id string) (device.Device, error) {
		if d, ok := devices[id]; ok {
			return d, nil
		}
		if id == "" || id == "auto" {
			return nil, errs.New(errs.Invalid, "save", path, "a tensor's device is \""+id+"\"; expected host, cuda or cuda:N")
		}
		d, err := s.sys.Devices.Open(ctx, id)
		devices[id] = d
		return d, err
	}
	held := make([]model.Held, len(tensors))
	for i, t := range tensors {
		held[i] = model.Held{Name: t.Name, DType: t.DType, Shape: t.Shape, Bytes: t.Bytes}
		if t.Bytes != nil {
			continue
		}
		d, err := open(t.Device)
		if err != nil {
			return nil, errs.Wrap("save tensor", t.Name, err)
		}
		held[i].Device, held[i].Ptr, held[i].Size = d, t.Ptr, t.Size
	}
	m := model.SaveOptions{Metadata: o.Metadata, Align: o.Align, Route: route, Checksums: !o.NoChecksums, Streams: map[device.Device]uint64{}}
	for id, stream := range o.Streams {
		d, err := open(id)
		if err != nil {
			return nil, err
		}
		if other, ok := m.Streams[d]; ok && other != stream {
			return nil, errs.New(errs.Invalid, "save", path, fmt.Sprintf("%s has two streams, %d and %d, by two names; expected one", d.Info().ID, min(other, stream), max(other, stream)))
		}
		m.Streams[d] = stream
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
	return &Saving{t: t, path: path, tensors: len(tensors), open: time.Since(began)}, nil
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

// Report is the engine's, with the way that was taken.
func (o *objectSave) Report() report.Report {
	r := o.ObjectMove.Report()
	r.Notes = append(r.Notes, "the object was written by way of "+r.Via)
	return r.Report
}

func (s *System) saveObject(ctx context.Context, url string, held []model.Held, o model.SaveOptions, c ClientOptions) (saver, error) {
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
	m, err := to.StartWrite(ctx, ObjectWrite{Bucket: p.bucket, Key: p.key, Route: o.Route, Sources: sources, Streams: o.Streams})
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

// Done is closed when the save has ended and nothing reads the tensors any more.
func (s *Saving) Done() <-chan struct{} { return s.t.Done() }

// Wait blocks until the save has ended and returns its error. Without one the
// file has its name and is durable.
func (s *Saving) Wait() error { return s.t.Err() }

// Progress is the bytes written so far, and in all.
func (s *Saving) Progress() (done, total int64) { return s.t.Progress() }

// Report tells how the save went; it blocks until Done.
func (s *Saving) Report() Report {
	return Report{Report: s.t.Report(), Path: s.path, Tensors: s.tensors, OpenSeconds: s.open.Seconds()}
}

// Save writes tensors to a .safetensors file. When it returns without an error
// the file is whole, durable and in place, with FILE.crc64nvme beside it; else
// what was there before is as it was. A reader at any time finds the old file or
// the new one. The report is returned with an error too.
func (s *System) Save(ctx context.Context, path string, tensors []SaveTensor, o SaveOptions) (Report, error) {
	sv, err := s.StartSave(ctx, path, tensors, o)
	if err != nil {
		return Report{}, err
	}
	watch(sv, o.Progress)
	return sv.Report(), sv.Wait()
}

// Save writes the model's tensors to one .safetensors file; see System.Save.
// The model stays loaded. Its metadata is kept where o names none. After Free it fails with kind Closed.
func (m *Model) Save(ctx context.Context, path string, o SaveOptions) (Report, error) {
	leave, err := m.use("save", path)
	if err != nil {
		return Report{}, err
	}
	defer leave()
	tensors := make([]SaveTensor, 0, len(m.names))
	for _, name := range m.names {
		t := m.tensors[name]
		tensors = append(tensors, SaveTensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Device: m.dev.Info().ID, Ptr: t.Ptr, Size: t.Size})
	}
	if o.Metadata == nil {
		o.Metadata = m.metadata
	}
	return (&System{sys: m.sys}).Save(ctx, path, tensors, o)
}
