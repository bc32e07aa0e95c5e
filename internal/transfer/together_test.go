// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// TestEverythingTogether runs loads by every route, of all and of columns, with
// and without sums, beside saves, on a pool of the least size, cancels some of
// them at any moment, and finds every byte in its place and nothing left over.
func TestEverythingTogether(t *testing.T) {
	for _, api := range apis() {
		t.Run(string(api), func(t *testing.T) {
			r := newCuRig(t, Options{PoolSize: minPoolSize, CuFile: api, Poison: true},
				fakegpu.CuFileOptions{Route: fakegpu.P2P}, DirectPath{Plausible: true})
			path, want := writeFile(t, 1*units.MiB+777, 61)
			sums, err := checksum.Compute(t.Context(), path, 64*units.KiB, nil)
			if err != nil {
				t.Fatal(err)
			}
			dir := diskDir(t)
			var all sync.WaitGroup
			for i := range 6 {
				rng := rand.New(rand.NewPCG(uint64(i), 62))
				f := openFile(t, path)
				b := alloc(t, r.dev, f.Size())
				saved, src := scattered(t, uint64(i), 300_000, r.dev, host.New())
				name := filepath.Join(dir, fmt.Sprint("f", i))
				all.Go(func() {
					for range 8 {
						ctx, cancel := context.WithCancelCause(t.Context())
						var tr moving
						var err error
						var check func()
						if i < 4 {
							req, compare := anyLoad(t, rng, r, f, b.Ptr(), sums, want)
							check = compare
							tr, err = r.e.Start(ctx, req)
						} else {
							check = func() {}
							tr, err = r.e.StartWrite(ctx, WriteRequest{Path: name, Sources: src, Checksums: rng.IntN(2) == 0})
						}
						if err != nil {
							t.Error(err)
							cancel(nil)
							return
						}
						cancelled := rng.IntN(3) == 0
						if cancelled {
							cancel(errors.New("enough"))
						}
						switch err := tr.Err(); {
						case err == nil:
							check()
						case !cancelled || !errs.Is(err, errs.Cancelled):
							t.Errorf("kind %v: %v", errs.KindOf(err), err)
						}
						cancel(nil)
					}
					if i >= 4 {
						if err := startWrite(t, r.e, t.Context(), WriteRequest{Path: name, Sources: src,
							Checksums: true}).Err(); err != nil {
							t.Error(err)
							return
						}
						checkSaved(t, name, saved)
					}
				})
			}
			all.Wait()
			onlyNames(t, dir, "f4", "f4.crc64nvme", "f5", "f5.crc64nvme")
			r.gpu.CheckIdle()
			if err := r.e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// anyLoad is some request, and what holds it against the file when it is done.
func anyLoad(t *testing.T, rng *rand.Rand, r *cuRig, f *vfs.File, dst device.Ptr, sums *checksum.Sums,
	want []byte) (Request, func()) {
	routes := []report.Route{report.RouteAuto, report.RouteBuffered, report.RouteCuFile}
	if ok, _ := f.Direct(); ok {
		routes = append(routes, report.RouteDirect)
	}
	const width, stride = 5000, 9000
	req := Request{Device: r.dev, Files: []*vfs.File{f}, Route: routes[rng.IntN(len(routes))], Gap: DefaultGap,
		Cache: report.CacheBypass}
	if req.Route != report.RouteCuFile && rng.IntN(2) == 0 {
		req.Verify = []*checksum.Sums{sums}
	}
	expected := want
	req.Segments = []Segment{{Len: f.Size(), Dst: dst}}
	if rng.IntN(2) == 0 {
		expected = nil
		for off := 100; off+width <= len(want); off += stride {
			expected = append(expected, want[off:off+width]...)
		}
		rows := int64(len(expected) / width)
		req.Segments = []Segment{{Off: 100, Len: (rows-1)*stride + width, Dst: dst, Width: width, Stride: stride}}
	}
	if rng.IntN(3) == 0 {
		_, _ = f.DropCache() // whatever then is cached, others read at the same time
	}
	return req, func() {
		if !bytes.Equal(r.gpu.Bytes(dst, int64(len(expected))), expected) {
			t.Errorf("%s of %+v: bytes differ", req.Route, req.Segments)
		}
	}
}
