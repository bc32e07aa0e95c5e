// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/transfer/exchange"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

const sharedSize = 20*units.MiB + 12345

// otherLoad announces a load of n bytes of f at off that does not move on, until the test ends.
func otherLoad(t *testing.T, f *vfs.File, off, n int64) {
	t.Helper()
	i, why := vfs.NewInterest(f)
	if i == nil {
		t.Skipf("no agreement on this file system: %v", why)
	}
	t.Cleanup(i.Close)
	if err := i.Want(off, n); err != nil {
		t.Fatal(err)
	}
}

// coldFile returns a file that is not in the page cache, and its content.
func coldFile(t *testing.T, seed uint64) (*vfs.File, []byte) {
	t.Helper()
	path, want := writeFile(t, sharedSize, seed)
	f := openFile(t, path)
	requireDirect(t, f)
	dropped(t, f)
	return f, want
}

// TestLoadsShareTheirReads loads a cold file twice while another load wants it: once from the disk, once from the page
// cache.
func TestLoadsShareTheirReads(t *testing.T) {
	for name, o := range engines() {
		for dev, d := range devices() {
			t.Run(name+"/"+dev, func(t *testing.T) {
				f, want := coldFile(t, 1901)
				otherLoad(t, f, 0, sharedSize)
				e := newEngine(t, o)
				for k := range 2 {
					got, r := load(t, e, d, f, report.RouteAuto, report.CacheAuto)
					if !bytes.Equal(got, want) {
						t.Fatal("the bytes differ")
					}
					direct, buffered := routeBytes(r, report.RouteTakenDirect), routeBytes(r, report.RouteTakenBuffered)
					few, all := buffered <= units.MiB, buffered >= sharedSize-units.MiB
					if direct > 0 || k == 0 && !all || k == 1 && !few {
						t.Errorf("load %d: %d bytes direct and %d buffered of %d", k, direct, buffered, int64(sharedSize))
					}
				}
			})
		}
	}
}

// TestSharingIsReported checks the entry of a file that another load reads, and of a file that none reads.
func TestSharingIsReported(t *testing.T) {
	f, _ := coldFile(t, 1902)
	e := newEngine(t, Options{})
	_, r := load(t, e, host.New(), f, report.RouteAuto, report.CacheAuto)
	if s := r.Files[0].Shared; s != nil || routeBytes(r, report.RouteTakenDirect) < sharedSize-units.MiB {
		t.Fatalf("alone: sharing %+v, routes %+v", s, r.Routes)
	}
	dropped(t, f)
	otherLoad(t, f, 0, 8*units.MiB)
	_, r = load(t, e, host.New(), f, report.RouteAuto, report.CacheAuto)
	s := r.Files[0].Shared
	if s == nil || !slices.Equal(s.Processes, []int{os.Getpid()}) || len(r.Notes) == 0 {
		t.Fatalf("sharing %+v, notes %q, want process %d", s, r.Notes, os.Getpid())
	}
	if s.DiskBytes != 8*units.MiB || s.CacheBytes != 0 || s.DirectBytes != routeBytes(r, report.RouteTakenDirect) ||
		s.DirectBytes < sharedSize-9*units.MiB {
		t.Errorf("sharing %+v, want %d bytes for all and the rest direct", s, int64(8*units.MiB))
	}
}

// TestOthersKeepTheirRoutes checks that a load which may not use the page cache, or need not, does not share.
func TestOthersKeepTheirRoutes(t *testing.T) {
	f, _ := coldFile(t, 1903)
	otherLoad(t, f, 0, sharedSize)
	e := newEngine(t, Options{})
	for _, x := range []struct {
		route report.Route
		cache report.CachePolicy
	}{{report.RouteAuto, report.CacheBypass}, {report.RouteDirect, report.CacheAuto}} {
		_, r := load(t, e, host.New(), f, x.route, x.cache)
		if routeBytes(r, report.RouteTakenDirect) < sharedSize-units.MiB || r.Files[0].Shared != nil {
			t.Errorf("%s %s: routes %+v, sharing %+v", x.route, x.cache, r.Routes, r.Files[0].Shared)
		}
		dropped(t, f)
	}
}

// TestSharedReadsOfManyKinds loads parts, verified and with an unknown page cache, while another load wants the file.
func TestSharedReadsOfManyKinds(t *testing.T) {
	f, want := coldFile(t, 1904)
	sums, err := checksum.Compute(t.Context(), f.Path(), checksum.DefaultBlock, nil)
	if err != nil {
		t.Fatal(err)
	}
	otherLoad(t, f, 0, sharedSize)
	hidden := openFile(t, f.Path())
	hidden.ForceProbe(vfs.ProbeNone)
	rng := rand.New(rand.NewPCG(19, 4))
	for name, file := range map[string]*vfs.File{"known": f, "unknown": hidden} {
		for _, verify := range [][]*checksum.Sums{nil, {sums}} {
			for dev, d := range devices() {
				dropped(t, f)
				b := alloc(t, d, 2*sharedSize)
				segs := drawSegments(rng, sharedSize, 3*units.MiB, b.Ptr(), 100_000)
				e := newEngine(t, Options{PoolSize: 4 * units.MiB})
				tr, err := e.Start(context.Background(), Request{Device: d, Files: []*vfs.File{file}, Segments: segs,
					Gap: DefaultGap, Verify: verify})
				if err == nil {
					err = tr.Err()
				}
				if err != nil {
					t.Fatalf("%s %s: %v", name, dev, err)
				}
				got := bytesOf(b)
				for _, s := range segs {
					if at := int64(s.Dst - b.Ptr()); !bytes.Equal(got[at:at+s.Len], want[s.Off:s.Off+s.Len]) {
						t.Fatalf("%s %s: the bytes at %d differ", name, dev, s.Off)
					}
				}
				if n := routeBytes(tr.Report(), report.RouteTakenDirect); n > 0 {
					t.Errorf("%s %s: %d bytes went past the page cache", name, dev, n)
				}
			}
		}
	}
}

// TestWantsAreFew checks that the announced ranges cover all segments, and are at most 128.
func TestWantsAreFew(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 5))
	for range 200 {
		var l Load
		for range rng.IntN(2000) {
			l.req.Segments = append(l.req.Segments, Segment{File: rng.IntN(2), Off: rng.Int64N(1 << 36),
				Len: rng.Int64N(1 << uint(1+rng.IntN(28)))})
		}
		got := l.wants(1)
		if len(got) > mostWants {
			t.Fatalf("%d ranges", len(got))
		}
		end := int64(math.MinInt64)
		for _, x := range got {
			if x.Off-end < plan.LeafSize && end > 0 {
				t.Fatalf("range %+v begins less than %d after %d", x, int64(plan.LeafSize), end)
			}
			end = x.Off + x.Len
		}
		for _, s := range l.req.Segments {
			if s.File == 1 && s.Len > 0 && !slices.ContainsFunc(got, func(x Extent) bool {
				return x.Off <= s.Off && s.Off+s.Len <= x.Off+x.Len
			}) {
				t.Fatalf("segment %+v is in no range", s)
			}
		}
	}
}

// TestLoadsBeginAtDifferentBlocks takes a queue of two windows in the order of a load that begins at block 96 of 128.
func TestLoadsBeginAtDifferentBlocks(t *testing.T) {
	x := &sharing{block: 512 * units.KiB}
	l := &Load{shared: []*sharing{x}}
	var queue []plan.Chunk
	for off := int64(0); off < 2*shareWindow; off += x.block {
		queue = append(queue, plan.Chunk{Off: off, Len: x.block})
	}
	var got []int64
	for k := 0; len(queue) > 0; queue = queue[1:] {
		if k++; k == 2 {
			x.shift.Store(96) // another load came
		}
		l.reorder(queue)
		got = append(got, queue[0].Off/x.block)
	}
	want := []int64{0}
	for _, r := range [][2]int64{{96, 128}, {1, 96}, {224, 256}, {128, 224}} {
		for b := r[0]; b < r[1]; b++ {
			want = append(want, b)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("order %v", got)
	}
}

// TestLoadsTakeWholeBlocks checks that a load which begins elsewhere in the window takes all chunks of a block at once.
func TestLoadsTakeWholeBlocks(t *testing.T) {
	x := &sharing{block: 512 * units.KiB}
	x.shift.Store(40)
	x.met.Store(true)
	l := &Load{shared: []*sharing{x}, port: &port{}, e: &loads{lane: &lane{opts: tuned{Options: Options{
		MaxTransfer: DefaultMaxTransfer}}}}}
	var queue []plan.Chunk
	for off := int64(0); off < 2*shareWindow; off += x.block {
		queue = append(queue, plan.Chunk{Off: off, Len: x.block, Dst: device.Ptr(off)})
	}
	blocks := 0
	for ; len(queue) > 0; blocks++ {
		l.reorder(queue)
		n := l.run(queue)
		if queue[0].Off%exchange.Block != 0 || int64(n) != exchange.Block/x.block {
			t.Fatalf("%d chunks at %d are taken together", n, queue[0].Off)
		}
		queue = queue[n:]
	}
	if blocks != int(2*shareWindow/exchange.Block) {
		t.Errorf("%d blocks", blocks)
	}
}
