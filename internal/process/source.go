// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// source reads an image through the engine, from a file or an object.
type source struct {
	ctx context.Context
	ob  *nebulaio.Object

	mu     sync.Mutex
	routes Routes
}

func openPlace(ctx context.Context, p Place, sys *nebulaio.System) (*source, error) {
	o := nebulaio.OpenOptions{System: sys, Device: "host"}
	if p.folder == "" {
		o.ClientOptions = p.client
	}
	ob, err := nebulaio.Open(ctx, p.String(), o)
	if errs.Is(err, errs.NotFound) {
		return nil, &errs.Error{Kind: errs.NotFound, Op: "restore from", Name: p.String(), Msg: "there is no image", Err: err,
			Fix: "name the folder or object of a dump"}
	}
	if err != nil {
		return nil, err
	}
	return &source{ctx: ctx, ob: ob, routes: Routes{}}, nil
}

// Size returns the length of the image in bytes.
func (s *source) Size() int64 { return s.ob.Size() }

// Name returns the path or URL of the image.
func (s *source) Name() string { return s.ob.URL() }

// ReadAt reads a part of the image.
func (s *source) ReadAt(p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	m, err := s.ob.StartRead(s.ctx, nebulaio.Ptr(uintptr(unsafe.Pointer(&p[0]))), int64(len(p)), off,
		nebulaio.MoveOptions{Device: "host"})
	if err != nil {
		return 0, err
	}
	err = m.Wait()
	runtime.KeepAlive(p) // the engine knows only its address
	n, _ := m.Progress()
	s.count(m.Report())
	if err == nil && n < int64(len(p)) {
		err = io.EOF
	}
	return int(n), err
}

func (s *source) count(r nebulaio.ObjectReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, route := range r.Routes {
		s.routes[string(route.Route)] += route.Bytes
	}
}

// Routes returns the bytes that were read, by route.
func (s *source) Routes() Routes { return s.routes }

// Close closes the image.
func (s *source) Close() error { return errors.Join(s.ob.Close()) }
