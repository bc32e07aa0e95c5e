// SPDX-License-Identifier: Apache-2.0

// Package abi implements the functions of the C library libnebulaio.so in Go: handles, options as JSON and status
// codes. The exported C functions in capi only convert their arguments and call package abi, so the logic is tested
// as ordinary Go.
package abi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Version is the ABI version of the C library, NEBULAIO_ABI_VERSION in nebulaio.h.
const Version = 6

// Running is NEBULAIO_RUNNING, the status code of a wait that timed out while the job was still running. The status
// code of success is 0, and the status codes of errors are the numbers of errs.Kind.
const Running int32 = -1

// Status returns the status code of the C library for err, or 0 if err is nil.
func Status(err error) int32 { return int32(errs.KindOf(err)) }

// Table maps the handles of the C library to Go objects. The zero value of Table is ready for use.
type Table struct {
	mu   sync.Mutex
	next uint64
	objs map[uint64]any
}

func (t *Table) put(obj any) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.objs == nil {
		t.objs = map[uint64]any{}
	}
	t.next++
	t.objs[t.next] = obj
	return t.next
}

func get[T any](t *Table, h uint64, want string) (T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	obj, ok := t.objs[h].(T)
	if !ok {
		return obj, errs.New(errs.Closed, "use handle", fmt.Sprint(h), "is not an open "+want)
	}
	return obj, nil
}

// OpenSystem is nebulaio_system_open.
func (t *Table) OpenSystem(options string) (uint64, error) {
	o, err := systemOptions(options)
	if err != nil {
		return 0, err
	}
	boot.OwnRuntime()
	s, err := nebulaio.NewSystem(o)
	if err != nil {
		return 0, err
	}
	return t.put(s), nil
}

// Devices is nebulaio_devices.
func (t *Table) Devices(system uint64) ([]byte, error) {
	s, err := get[*nebulaio.System](t, system, "system")
	if err != nil {
		return nil, err
	}
	return json.Marshal(s.Survey())
}

type modelOptions struct {
	Device  string         `json:"device"`
	Tensors []string       `json:"tensors"`
	Slices  []sliceOptions `json:"slices"`
	Shards  []shardOptions `json:"shards"`
	Lenient bool           `json:"lenient"`
	More    []string       `json:"more"`
	Names   []string       `json:"names"`
	Files   []int          `json:"files"`
}

// source returns the options of a model that is opened as path.
func (o *modelOptions) source(path string) (nebulaio.SourceOptions, error) {
	if o.Files != nil || o.Names != nil {
		return nebulaio.SourceOptions{}, errs.New(errs.Invalid, "open model", path,
			"files and names can be chosen from a model that is open, not when it is opened")
	}
	ss, hs, err := o.parts()
	return nebulaio.SourceOptions{Device: o.Device, Tensors: o.Tensors, Slices: ss, Shards: hs, Lenient: o.Lenient,
		More: o.More}, err
}

// selection returns the options of a selection from an open model.
func (o *modelOptions) selection() (nebulaio.SelectOptions, error) {
	if o.Device != "" || o.Lenient || len(o.More) > 0 {
		return nebulaio.SelectOptions{}, errs.New(errs.Invalid, "select tensors", "",
			"device, lenient and more are given when the model is opened")
	}
	ss, hs, err := o.parts()
	return nebulaio.SelectOptions{Tensors: o.Tensors, Slices: ss, Shards: hs, Names: o.Names, Files: o.Files}, err
}

// source is a model handle. Its description is rendered once, because callers ask for its length first.
type source struct {
	*nebulaio.Source
	once   sync.Once
	text   []byte
	err    error
	places places
}

// OpenModel is nebulaio_model_open.
func (t *Table) OpenModel(system uint64, path, options string) (uint64, error) {
	s, err := get[*nebulaio.System](t, system, "system")
	if err != nil {
		return 0, err
	}
	var o modelOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	mo, err := o.source(path)
	if err != nil {
		return 0, err
	}
	src, err := s.OpenSource(context.Background(), path, mo)
	if err != nil {
		return 0, err
	}
	return t.put(&source{Source: src}), nil
}

type files struct {
	Device string                `json:"device"`
	Files  []nebulaio.SourceFile `json:"files"`
}

// Files is nebulaio_model_files.
func (t *Table) Files(model uint64) ([]byte, error) {
	s, err := get[*source](t, model, "model")
	if err != nil {
		return nil, err
	}
	return json.Marshal(files{Device: s.Device().ID, Files: s.Files()})
}

type description struct {
	files
	Tensors  []nebulaio.TensorInfo `json:"tensors"`
	Metadata map[string]string     `json:"metadata"`
}

// Describe is nebulaio_model_describe.
func (t *Table) Describe(model uint64) ([]byte, error) {
	s, err := get[*source](t, model, "model")
	if err != nil {
		return nil, err
	}
	s.once.Do(func() {
		s.text, s.err = json.Marshal(description{files: files{Device: s.Device().ID, Files: s.Files()}, Tensors: s.Tensors(),
			Metadata: s.Metadata()})
	})
	return s.text, s.err
}

type loadOptions struct {
	Route nebulaio.Route       `json:"route"`
	Cache nebulaio.CachePolicy `json:"cache"`
	// Verify checks the files against their checksums.
	Verify bool `json:"verify"`
}

// StartLoad is nebulaio_load_start.
func (t *Table) StartLoad(model uint64, dst []nebulaio.Destination, stream uint64, options string) (uint64, error) {
	s, err := get[*source](t, model, "model")
	if err != nil {
		return 0, err
	}
	var o loadOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	l, err := s.StartLoad(ctx, dst, nebulaio.StartLoadOptions{Route: o.Route, Cache: o.Cache, Stream: stream,
		HasStream: true, Verify: o.Verify})
	if err != nil {
		cancel(nil)
		return 0, err
	}
	return t.put(&job{work: l, report: func() any { return l.Report() }, cancel: cancel}), nil
}

// Release is nebulaio_release. If a system or model is still in use, Release fails, and the handle stays open.
func (t *Table) Release(h uint64) error {
	t.mu.Lock()
	obj := t.objs[h]
	t.mu.Unlock()
	switch o := obj.(type) {
	case *source, *nebulaio.System:
		err := o.(io.Closer).Close()
		if errs.Is(err, errs.Invalid) {
			return err
		}
		if gone := t.remove(h); gone != nil {
			return gone
		}
		return err
	case *job:
		if w, ok := o.work.(*opening); ok {
			if err := w.closeData(o.cancel); err != nil {
				return err
			}
			return t.remove(h)
		}
	}
	// If two threads release the same handle, only one of them closes its object.
	if err := t.remove(h); err != nil {
		return err
	}
	switch o := obj.(type) {
	case *job:
		o.cancel(context.Canceled)
		<-o.Done()
	case *queue:
		close(o.gone)
	case io.Closer:
		return o.Close()
	}
	return nil
}

// remove removes a handle from the table.
func (t *Table) remove(h uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.objs[h]; !ok {
		return errs.New(errs.Closed, "release handle", fmt.Sprint(h), "is not an open handle")
	}
	delete(t.objs, h)
	return nil
}
