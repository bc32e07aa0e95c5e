// SPDX-License-Identifier: Apache-2.0

package train

import (
	"errors"
	"sync"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// routes adds up bytes by the route that they took.
type routes struct {
	mu    sync.Mutex
	bytes map[report.RouteTaken]int64
}

func (r *routes) add(way report.RouteTaken, n int64) {
	if n == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes == nil {
		r.bytes = map[report.RouteTaken]int64{}
	}
	r.bytes[way] += n
}

func (r *routes) list() []record.Route {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []record.Route{}
	for _, way := range report.FileRoutes() {
		if n := r.bytes[way]; n > 0 {
			out = append(out, record.Route{Route: string(way), Bytes: n})
		}
	}
	return out
}

// readSample fills dst, which has room for a stride, with the sample at off. Route auto reads a sample from the page
// cache if the whole sample is cached. Otherwise it reads past the page cache, if the file allows that.
func (p *plan) readSample(f *vfs.File, off int64, dst []byte, took *routes) error {
	if p.route == report.RouteDirect || p.route == report.RouteAuto && p.pastCache(f, off) {
		err := f.ReadDirect(dst, off, int(min(int64(len(dst)), f.Size()-off)))
		if err == nil {
			// The page cache is not asked behind each sample: what may fall back is not proven.
			route := report.RouteTakenDirect
			if !f.Storage().Proves() {
				route = report.RouteTakenDirectUnproven
			}
			took.add(route, p.SampleBytes)
			return nil
		}
		if !errors.Is(err, vfs.ErrDirectRefused) {
			return err
		}
		if p.route == report.RouteDirect {
			return errs.New(errs.Unsupported, "read past the page cache", f.Path(), "the file system refused an aligned read").
				WithFix("use route buffered or auto")
		}
	}
	b, err := f.ReadBuffered(dst[:p.SampleBytes], off)
	if err != nil {
		return err
	}
	took.add(report.RouteTakenCache, b.Cached)
	if missed := report.RouteTakenBuffered; b.Missed > 0 {
		if f.Storage().Hidden != "" {
			missed = report.RouteTakenBufferedUnproven
		}
		took.add(missed, b.Missed)
	}
	return nil
}

func (p *plan) pastCache(f *vfs.File, off int64) bool {
	if ok, _ := f.Direct(); !ok || p.stride%max(f.Align().Offset, 1) != 0 {
		return false
	}
	r, err := f.Residency(off, p.SampleBytes)
	return err == nil && r.Cached < p.SampleBytes && r.Dirty <= 0
}

// drop drops the data set from the page cache.
func (p *plan) drop() (left int64, err error) {
	for _, f := range p.Files {
		n, err := f.DropCache()
		if err != nil {
			return left, err
		}
		left += n
	}
	return left, nil
}
