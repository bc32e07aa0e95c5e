// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/test/effort"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// take is what a segment wants of a file, found byte by byte.
func take(data []byte, s Segment) []byte {
	var out []byte
	for i := range s.Len {
		if s.Stride == 0 || i%s.Stride < s.Width {
			out = append(out, data[s.Off+i])
		}
	}
	return out
}

// drawWoven makes plain and strided segments in order of offset, near to each
// other and far apart, with places behind each other or not.
func drawWoven(rng *rand.Rand, size int64, dst device.Ptr) []Segment {
	var segs []Segment
	at := dst + device.Ptr(rng.IntN(5000))
	for off := rng.Int64N(size / 4); off < size; {
		s := Segment{Off: off, Len: min(1+rng.Int64N(1+rng.Int64N(300_000)), size-off), Dst: at}
		switch rng.IntN(3) {
		case 0:
			s.Stride = 1 + rng.Int64N(1+rng.Int64N(20_000))
			s.Width = 1 + rng.Int64N(s.Stride)
		case 1: // rows that are read one by one
			s.Width = 1 + rng.Int64N(5000)
			s.Stride = s.Width + DefaultGap + rng.Int64N(3) - 1
		}
		segs = append(segs, s)
		at += device.Ptr(s.Wanted() + rng.Int64N(2)*rng.Int64N(5000))
		off += s.Len + rng.Int64N(2)*rng.Int64N(1+rng.Int64N(200_000))
	}
	return segs
}

// TestWovenSegmentsArriveByEveryRoute draws segments of all kinds and holds the
// destinations against a slicer that goes byte by byte, on every device, by
// every route, verified or not.
func TestWovenSegmentsArriveByEveryRoute(t *testing.T) {
	const size = 900_001
	rounds := effort.Rounds{Test: 2, CI: 6}.Of(t)
	rng := rand.New(rand.NewPCG(21, 22))
	for dname, tg := range targets(t) {
		for aname, a := range arrivals() {
			t.Run(dname+"/"+aname, func(t *testing.T) {
				path, data := writeFile(t, size, uint64(rng.IntN(1<<16)))
				requireDirect(t, openFile(t, path))
				e := newEngine(t, a.opts)
				b := alloc(t, tg.dev, 2*size)
				for round := range rounds {
					f := a.prepared(t, path)
					req := Request{Device: tg.dev, Files: []*vfs.File{f}, Segments: drawWoven(rng, size, b.Ptr()), Route: a.ask,
						Cache: report.CacheBypass, Gap: rng.Int64N(3) * DefaultGap / 2}
					if round%2 == 1 {
						req.Verify = []*checksum.Sums{sumsOf(t, path, int64(checksum.MinBlock)<<rng.IntN(6))}
					}
					loadWoven(t, e, tg, b, req, data)
					f.Close()
				}
			})
		}
	}
}

// loadWoven loads the segments of a request into b. It compares all of b with what take finds in data.
func loadWoven(t *testing.T, e *Engine, tg target, b device.Buffer, req Request, data []byte) {
	t.Helper()
	want := slices.Clone(tg.read(b.Ptr(), b.Size()))
	tr := start(t, e, context.Background(), req)
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	var wanted int64
	for _, s := range req.Segments {
		wanted += int64(copy(want[s.Dst-b.Ptr():], take(data, s)))
	}
	if got := tg.read(b.Ptr(), b.Size()); !bytes.Equal(got, want) {
		t.Fatalf("the destination differs; gap %d, segments %+v", req.Gap, req.Segments)
	}
	tg.idle()
	checkReadReport(t, tr, wanted)
}

// checkReadReport holds the sums of a report against each other.
func checkReadReport(t *testing.T, tr *Load, wanted int64) {
	t.Helper()
	r := tr.Report()
	if done, total := tr.Progress(); done != wanted || total != wanted || r.Bytes != wanted || r.Wanted != wanted {
		t.Fatalf("%d of %d bytes, %d and %d in the report, expected %d", done, total, r.Bytes, r.Wanted, wanted)
	}
	sum := int64(0)
	for _, x := range r.Routes {
		sum += x.Bytes
	}
	if r.Verify != nil {
		sum += r.Verify.Extra
	}
	if r.Read < max(sum, wanted) || wanted > 0 && r.Amplification != float64(r.Read)/float64(wanted) {
		t.Fatalf("%d bytes by routes and for sums, %d wanted, %d read, amplification %v", sum, wanted, r.Read,
			r.Amplification)
	}
}

// runsOf lists what is read for segments.
func runsOf(d device.Device, segs ...Segment) []string {
	r := &Request{Device: d, Segments: segs, Gap: DefaultGap}
	var out []string
	for x := range r.runs() {
		kind := "plain"
		if x.Weave != nil {
			kind = fmt.Sprintf("%d woven", len(x.Weave.Segs))
		}
		out = append(out, fmt.Sprintf("%d+%d %s", x.Off, x.Len, kind))
	}
	return out
}

func TestGapsBelowTheLimitAreReadThrough(t *testing.T) {
	const g = DefaultGap
	gpu, place := host.Staged(), host.New()
	for _, c := range []struct {
		name string
		dev  device.Device
		segs []Segment
		want []string
	}{
		{"one byte less than the limit", gpu, []Segment{{Len: 10}, {Off: 10 + g - 1, Len: 10}},
			[]string{fmt.Sprintf("0+%d 2 woven", g+19)}},
		{"the limit", gpu, []Segment{{Len: 10}, {Off: 10 + g, Len: 10}},
			[]string{"0+10 plain", fmt.Sprintf("%d+10 plain", 10+g)}},
		{"no gap", gpu, []Segment{{Len: 10}, {Off: 10, Len: 10}}, []string{"0+20 2 woven"}},
		{"another file", gpu, []Segment{{Len: 10}, {File: 1, Off: 20, Len: 10}}, []string{"0+10 plain", "20+10 plain"}},
		{"out of order", gpu, []Segment{{Off: 20, Len: 10}, {Len: 10}}, []string{"20+10 plain", "0+10 plain"}},
		{"overlapping", gpu, []Segment{{Len: 10}, {Off: 9, Len: 10}}, []string{"0+10 plain", "9+10 plain"}},
		{"three", gpu, []Segment{{Len: 10}, {Off: 11, Len: 10}, {Off: 22, Len: 10}}, []string{"0+32 3 woven"}},
		{"nothing", gpu, []Segment{{Len: 0}, {Off: 5, Len: 0}}, nil},
		{"long ones on a GPU", gpu, []Segment{{Len: plan.StorageBlock}, {Off: plan.StorageBlock + 1, Len: plan.StorageBlock}},
			[]string{fmt.Sprintf("0+%d 2 woven", 2*plan.StorageBlock+1)}},
		{"long ones are read into place", place, []Segment{{Len: plan.StorageBlock}, {Off: plan.StorageBlock + 1, Len: 5}},
			[]string{fmt.Sprintf("0+%d plain", plan.StorageBlock), fmt.Sprintf("%d+5 plain", plan.StorageBlock+1)}},
		{"short ones are not", place, []Segment{{Len: 10}, {Off: 15, Len: 10}}, []string{"0+25 2 woven"}},
		{"near rows", gpu, []Segment{{Len: 2*(g+9) + 10, Width: 10, Stride: g + 9}},
			[]string{fmt.Sprintf("0+%d 1 woven", 2*(g+9)+10)}},
		{"far rows", gpu, []Segment{{Len: 2*(g+10) + 10, Width: 10, Stride: g + 10}},
			[]string{"0+10 plain", fmt.Sprintf("%d+10 plain", g+10), fmt.Sprintf("%d+10 plain", 2*(g+10))}},
		{"rows without gaps", gpu, []Segment{{Len: 30, Width: 10, Stride: 10}}, []string{"0+30 plain"}},
		{"one row", gpu, []Segment{{Len: 10, Width: 10, Stride: 1 << 20}}, []string{"0+10 plain"}},
		{"rows and a neighbour", place, []Segment{{Len: 25, Width: 5, Stride: 10}, {Off: 30, Len: 5}},
			[]string{"0+35 2 woven"}},
	} {
		if got := runsOf(c.dev, c.segs...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, expected %q", c.name, got, c.want)
		}
	}
}

// What is read is what the plan says: a gap below the limit, not one above it,
// and whole blocks of direct reads.
func TestReadBytesTellWhatWasRead(t *testing.T) {
	const size = 4 * units.MiB
	path, data := writeFile(t, size, 91)
	for _, c := range []struct {
		name string
		segs []Segment
		// bytes that are read through the page cache, and past it
		cached, direct int64
	}{
		{"near rows", []Segment{{Len: size, Width: 1024, Stride: 4096}}, size - 3072, size - 3072}, // without the last gap
		{"rows below the limit", []Segment{{Len: size, Width: 1024, Stride: 8192}}, size / 8, size - 7168},
		{"rows above it", []Segment{{Len: size, Width: 1024, Stride: 128 * units.KiB}}, size / 128, size / 128},
		{"a small gap", []Segment{{Off: 100, Len: 50}, {Off: 1150, Len: 50}}, 1100, 1100},
		{"a large one", []Segment{{Off: 100, Len: 50}, {Off: 150 + DefaultGap, Len: 50}}, 100, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := openFile(t, path)
			requireDirect(t, f)
			e := newEngine(t, Options{})
			for _, route := range []report.Route{report.RouteBuffered, report.RouteDirect} {
				d := host.Staged()
				b := alloc(t, d, size)
				var wanted int64
				segs := slices.Clone(c.segs)
				for i := range segs {
					segs[i].Dst = b.Ptr() + device.Ptr(wanted)
					wanted += segs[i].Wanted()
				}
				tr := start(t, e, context.Background(), Request{Device: d, Files: []*vfs.File{f}, Segments: segs, Gap: DefaultGap,
					Route: route})
				if err := tr.Err(); err != nil {
					t.Fatal(err)
				}
				for _, s := range segs {
					equal(t, bytesOf(b)[s.Dst-b.Ptr():][:s.Wanted()], take(data, s))
				}
				checkReadReport(t, tr, wanted)
				read := tr.Report().Read
				// A gap at the end of a chunk is left out, so that large runs
				// come to a little less; direct reads are whole pages.
				want := c.cached
				if route == report.RouteDirect {
					want = c.direct
				}
				least := want
				if want > units.MiB {
					least -= want / 64
				}
				if route == report.RouteBuffered && (read > want || read < least) {
					t.Errorf("%d bytes were read, expected %d", read, want)
				}
				if route == report.RouteDirect && (read%4096 != 0 || read < least || read > want+int64(len(data))/128*4) {
					t.Errorf("%d bytes were read past the page cache, of %d", read, want)
				}
			}
		})
	}
}

// A flipped bit is found in every block that holds a wanted byte, also where
// the bit itself is not wanted.
func TestVerifyFindsFlipsInSlices(t *testing.T) {
	const block, size = 4096, 50 * 4096
	flips := effort.Rounds{Test: 3, CI: 12}.Of(t)
	rng := rand.New(rand.NewPCG(31, 32))
	for dname, tg := range targets(t) {
		for aname, a := range arrivals() {
			t.Run(dname+"/"+aname, func(t *testing.T) {
				path, _ := writeFile(t, size, 92)
				requireDirect(t, openFile(t, path))
				sums := sumsOf(t, path, block)
				e := newEngine(t, a.opts)
				b := alloc(t, tg.dev, size)
				segs := []Segment{{Off: 3 * block, Len: 20 * block, Width: 100, Stride: 700, Dst: b.Ptr()},
					{Off: 25 * block, Len: 10, Dst: b.Ptr() + 50_000}, {Off: 45 * block, Len: 8000, Dst: b.Ptr() + 60_000}}
				for range flips {
					bit := rng.Int64N(8 * size)
					flip(t, path, bit)
					f := a.prepared(t, path)
					tr := start(t, e, context.Background(), Request{Device: tg.dev, Files: []*vfs.File{f}, Segments: segs,
						Gap: DefaultGap, Route: a.ask, Cache: report.CacheBypass, Verify: []*checksum.Sums{sums}})
					err := tr.Err()
					tg.idle()
					flip(t, path, bit)
					f.Close()
					bad := bit / 8 / block
					// The gaps between the segments are below the limit on the
					// second, above it on the third.
					read := bad >= 3 && bad < 26 || bad >= 45 && bad < 47
					if named := errs.Is(err, errs.Corrupt) && strings.Contains(err.Error(),
						fmt.Sprintf("block %d,", bad)); named != read || !read && err != nil {
						t.Fatalf("a flip in block %d: %v", bad, err)
					}
				}
			})
		}
	}
}

// A copy in the middle of a woven chunk fails: those before it are waited for.
func TestGPUACopyOfAWovenChunkFails(t *testing.T) {
	path, _ := writeFile(t, 300_000, 93)
	for _, skip := range []int{0, 1, 5, 20} {
		t.Run(fmt.Sprint(skip), func(t *testing.T) {
			g, d := fakegpu.OpenOne(t)
			e := newEngine(t, small)
			f := openFile(t, path)
			b := alloc(t, d, 600_000)
			var segs []Segment
			for off := int64(0); off+2000 < f.Size(); off += 3000 {
				segs = append(segs, Segment{Off: off, Len: 2000, Dst: b.Ptr() + device.Ptr(2*off)})
			}
			g.Fail(fakegpu.CopyToDevice, skip, 1000, fakegpu.LaunchFailed)
			tr := start(t, e, context.Background(), Request{Device: d, Files: []*vfs.File{f}, Segments: segs, Gap: DefaultGap,
				Route: report.RouteBuffered})
			if err := tr.Err(); !errs.Is(err, errs.Device) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v", err)
			}
			if n := g.Count("copies_in_flight"); n != 0 {
				t.Errorf("Done is closed with %d copies in flight", n)
			}
			g.CheckIdle()
		})
	}
}

func TestStridesThatMakeNoSense(t *testing.T) {
	path, _ := writeFile(t, 10_000, 94)
	f, e, d := openFile(t, path), newEngine(t, small), host.Staged()
	for _, s := range []Segment{{Len: 10, Width: 5}, {Len: 10, Stride: 5}, {Len: 10, Width: 6, Stride: 5},
		{Len: 10, Width: -1, Stride: 5}, {Len: 10, Width: -1, Stride: -1}, {Len: 10, Width: 1, Stride: -1}} {
		if _, err := e.Start(context.Background(), Request{Device: d, Files: []*vfs.File{f},
			Segments: []Segment{s}}); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "out of every") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// TestGPUSegmentsOfAChunkThatCannotBeQueued: a chunk of several segments is several copies. Where a later one cannot be
// queued, the transfer ends only when the earlier ones have ended.
func TestGPUSegmentsOfAChunkThatCannotBeQueued(t *testing.T) {
	path, want := writeFile(t, 2*units.MiB, 29)
	const size, gap = 20_000, 3_000
	onEachReader(t, path, func(t *testing.T, g *fakegpu.GPU, f *vfs.File, by reader) {
		for _, skip := range []int{-1, 0, 1, 2, 7, 40} {
			x := newFailing(t, g, f, by)
			req := Request{Device: x.d, Files: []*vfs.File{f}, Gap: DefaultGap, Route: by.route}
			for off := int64(0); off+size <= f.Size(); off += size + gap {
				req.Segments = append(req.Segments, Segment{Off: off, Len: size, Dst: x.b.Ptr() + device.Ptr(off)})
			}
			if skip >= 0 {
				g.Fail(fakegpu.CopyToDevice, skip, 1000, fakegpu.LaunchFailed)
			}
			x.tr = start(t, x.e, context.Background(), req)
			if skip >= 0 {
				x.checkNamed(t, "cuMemcpy")
			} else if err := x.tr.Err(); err != nil {
				t.Fatal(err)
			}
			x.checkOver(t)
			for i := 0; skip < 0 && i < len(req.Segments); i++ {
				s := req.Segments[i]
				if !bytes.Equal(g.Bytes(s.Dst, size), want[s.Off:s.Off+size]) {
					t.Fatalf("segment %d differs", i)
				}
			}
		}
	})
}
