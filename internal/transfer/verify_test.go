// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
	"github.com/nebulaio/nebulaio/report"
	"github.com/nebulaio/nebulaio/test/effort"
)

func sumsOf(t *testing.T, path string, block int64) *checksum.Sums {
	t.Helper()
	s, err := checksum.Compute(context.Background(), path, block, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// flip changes one bit of the file.
func flip(t *testing.T, path string, bit int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], bit/8); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << (bit % 8)
	if _, err := f.WriteAt(b[:], bit/8); err != nil {
		t.Fatal(err)
	}
}

// target is a device and a look into its memory.
type target struct {
	dev  device.Device
	read func(p device.Ptr, n int64) []byte
	idle func() // fails the test when a copy is in flight
}

func targets(t *testing.T) map[string]target {
	g := fakegpu.Build(t, fakegpu.Options{})
	onHost := func(p device.Ptr, n int64) []byte { return host.New().Map(p, n) }
	return map[string]target{
		"in place": {host.New(), onHost, func() {}},
		"staged":   {host.Staged(), onHost, func() {}},
		"gpu":      {g.Open("cuda:0"), g.Bytes, g.CheckIdle},
	}
}

// places are the targets with the place of their sums.
func places(t *testing.T) map[string]summer {
	all := map[string]summer{}
	for name, tg := range targets(t) {
		all[name] = summer{tg, VerifyHost}
		if tg.dev.Info().Kind != device.Host {
			all[name+", summed there"] = summer{tg, VerifyDevice}
		}
	}
	return all
}

// summer is a target and where what it got is summed.
type summer struct {
	target
	on VerifyOn
}

// options are those of an arrival.
func (p summer) options(a arrival) Options {
	o := a.opts
	o.VerifyOn = p.on
	return o
}

// summed fails unless the sums were made where they should have been.
func (p summer) summed(t *testing.T, v *report.Verification) {
	t.Helper()
	want, most := "host", int64(0)
	if p.on == VerifyDevice {
		if want = "device"; v.Extra > 0 {
			want = "both" // what goes nowhere cannot be summed there
		}
		most = v.Bytes - v.Extra
	}
	if v.Where != want || v.DeviceBytes != most {
		t.Errorf("summed on %s, %d bytes on the device; expected %s, %d: %+v", v.Where, v.DeviceBytes, want, most, v)
	}
}

// arrival is how the bytes come: what is done to the page cache before, and
// what is asked for.
type arrival struct {
	route report.RouteTaken
	ask   report.Route
	cold  bool
	hide  bool // the kernel does not tell what is cached
	opts  Options
}

func arrivals() map[string]arrival {
	ring, odd := small, small
	ring.IO = IOUring
	odd.MaxTransfer = 192 * units.KiB // no power of two: blocks straddle chunks
	return map[string]arrival{
		"warm":            {route: report.RouteTakenCache, ask: report.RouteAuto, opts: small},
		"warm, odd chunk": {route: report.RouteTakenCache, ask: report.RouteAuto, opts: odd},
		"cold, buffered":  {route: report.RouteTakenBuffered, ask: report.RouteBuffered, cold: true, opts: small},
		"cold, direct":    {route: report.RouteTakenDirect, ask: report.RouteDirect, cold: true, opts: small},
		"cold, io_uring":  {route: report.RouteTakenDirect, ask: report.RouteDirect, cold: true, opts: ring},
		"cold, hidden":    {ask: report.RouteAuto, cold: true, hide: true, opts: small},
	}
}

// prepared opens the file as the arrival wants to find it.
func (a arrival) prepared(t *testing.T, path string) *vfs.File {
	t.Helper()
	f, err := vfs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if a.cold {
		// What the kernel still reads ahead for a load that has failed cannot
		// be dropped; reading it all waits for that.
		warm(t, f)
		dropped(t, f)
	}
	if a.hide {
		f.ForceProbe(vfs.ProbeNone)
	}
	return f
}

// draw makes segments at odd places that do not overlap, in any order.
func draw(rng *rand.Rand, size int64, dst device.Ptr) []Segment {
	if rng.IntN(3) == 0 {
		return []Segment{{Len: size, Dst: dst}}
	}
	var segs []Segment
	for off := rng.Int64N(size/2 + 1); off < size; {
		n := min(1+rng.Int64N(90_000), size-off)
		segs = append(segs, Segment{Off: off, Len: n, Dst: dst + device.Ptr(off)})
		off += n + rng.Int64N(3)*rng.Int64N(120_000)
	}
	rng.Shuffle(len(segs), func(i, j int) { segs[i], segs[j] = segs[j], segs[i] })
	return segs
}

func touches(segs []Segment, off, n int64) bool {
	for _, s := range segs {
		if s.Len > 0 && s.Off < off+n && off < s.Off+s.Len {
			return true
		}
	}
	return false
}

// TestVerifyFindsAndNamesEveryFlippedBit flips single bits, each in a file of its own state, and loads all or parts of
// it on every device by every route. A flip in a block that is loaded from ends the load and is named; one elsewhere
// does not.
func TestVerifyFindsAndNamesEveryFlippedBit(t *testing.T) {
	effort.Slow(t)
	each := effort.Rounds{Test: 15, CI: 60}.Of(t) // flips on a device by a route
	rng := rand.New(rand.NewPCG(11, 12))
	flips, found := 0, 0
	for dname, tg := range places(t) {
		for aname, a := range arrivals() {
			t.Run(dname+"/"+aname, func(t *testing.T) {
				e := newEngine(t, tg.options(a))
				block := int64(checksum.MinBlock) << rng.IntN(7) // below and above a chunk
				size := 250_000 + rng.Int64N(300_000)
				path, want := writeFile(t, size, uint64(rng.IntN(1<<16)))
				requireDirect(t, openFile(t, path))
				sums := sumsOf(t, path, block)
				b := alloc(t, tg.dev, size)
				for range each {
					bit := rng.Int64N(8 * size)
					flip(t, path, bit)
					f := a.prepared(t, path)
					segs := draw(rng, size, b.Ptr())
					tr := start(t, e, context.Background(), Request{Device: tg.dev, Files: []*vfs.File{f}, Segments: segs,
						Route: a.ask, Cache: report.CacheBypass,
						Verify: []*checksum.Sums{sums}, Holds: func(_ int, off,
							n int64) string {
							return fmt.Sprintf("[%d+%d]", off, n)
						}})
					err := tr.Err()
					tg.idle()
					bad := bit / 8 / block
					off, n := sums.Extent(bad)
					flips++
					if !touches(segs, off, n) {
						if err != nil {
							t.Fatalf("the flipped block %d was not asked for: %v", bad, err)
						}
					} else {
						found++
						name := fmt.Sprintf("verify %s: block %d, bytes %d to %d, differs", path, bad, off, off+n)
						if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), name) ||
							!strings.Contains(err.Error(), fmt.Sprintf("it holds [%d+%d]", off, n)) ||
							!strings.Contains(errs.FixOf(err), "--checksum") {
							t.Fatalf("bit %d of block %d: %v", bit, bad, err)
						}
						if on := strings.Contains(err.Error(), "summed on cuda:0 where it had arrived"); on && tg.on == VerifyHost ||
							!on && tg.on == VerifyDevice && segs[0].Len == size {
							t.Fatalf("the error tells the wrong place: %v", err)
						}
						if tr.Report().Error == "" {
							t.Fatal("the report does not tell")
						}
					}
					f.Close()
					flip(t, path, bit)
				}
				f := a.prepared(t, path)
				defer f.Close()
				if !a.cold {
					vfstest.Hold(t, path, 0, size)
				}
				tr := start(t, e, context.Background(), Request{Device: tg.dev, Files: []*vfs.File{f},
					Segments: []Segment{{Len: size, Dst: b.Ptr()}}, Route: a.ask, Verify: []*checksum.Sums{sums}})
				if err := tr.Err(); err != nil {
					t.Fatalf("mended again: %v", err)
				}
				equal(t, tg.read(b.Ptr(), size), want)
				r := tr.Report()
				if v := r.Verify; v == nil || v.Blocks != int64(len(sums.Blocks)) || v.Bytes != size || v.Extra != 0 ||
					v.Busy <= 0 || v.Files != 1 {
					t.Errorf("report: %+v", v)
				}
				tg.summed(t, r.Verify)
				n := routeBytes(r, a.route)
				if a.route == report.RouteTakenBuffered && n > 0 {
					n += routeBytes(r, report.RouteTakenCache) // the kernel reads ahead, and may be there before the planner looks
				}
				if a.route != "" && n < size-4096 {
					t.Errorf("%d of %d bytes came by %s: %+v", n, size, a.route, r.Routes)
				}
			})
		}
	}
	if flips < 17*each || found < flips/2 {
		t.Errorf("%d flips, %d in loaded blocks", flips, found)
	}
}

// A subset needs whole blocks; what is read besides is counted apart and goes
// nowhere.
func TestVerifySubsetReadsWholeBlocksAndCountsThem(t *testing.T) {
	const block, size = 64 * units.KiB, 10*64*units.KiB + 100
	path, want := writeFile(t, size, 71)
	sums := sumsOf(t, path, block)
	for dname, tg := range places(t) {
		for aname, a := range arrivals() {
			t.Run(dname+"/"+aname, func(t *testing.T) {
				requireDirect(t, openFile(t, path))
				f := a.prepared(t, path)
				defer f.Close()
				e := newEngine(t, tg.options(a))
				b := alloc(t, tg.dev, size)
				segs := []Segment{
					{Off: 5*block - 10, Len: 20, Dst: b.Ptr()},               // blocks 4 and 5
					{Off: 5*block + 50, Len: 50, Dst: b.Ptr() + 100},         // block 5 again
					{Off: 7 * block, Len: block, Dst: b.Ptr() + 200},         // block 7, whole
					{Off: size - 1, Len: 1, Dst: b.Ptr() + 200 + block},      // the last, short block
					{Off: 9 * block, Len: 0, Dst: b.Ptr() + 200 + block + 1}, // none
				}
				tr := start(t, e, context.Background(), Request{Device: tg.dev, Files: []*vfs.File{f}, Segments: segs, Route: a.ask,
					Cache: report.CacheBypass,
					// block 0, and 5 once more
					Verify: []*checksum.Sums{sums}, Also: []Extent{{Off: 10, Len: 50}, {Off: 5 * block, Len: 1}}})
				if err := tr.Err(); err != nil {
					t.Fatal(err)
				}
				for i, s := range segs {
					if !bytes.Equal(tg.read(s.Dst, s.Len), want[s.Off:s.Off+s.Len]) {
						t.Errorf("segment %d differs", i)
					}
				}
				const loaded, checked = 20 + 50 + block + 1, 4*block + 100
				r := tr.Report()
				if v := r.Verify; v.Blocks != 5 || v.Bytes != checked || v.Extra != checked-loaded || r.Bytes != loaded {
					t.Errorf("%d bytes, %+v", r.Bytes, v)
				}
				tg.summed(t, r.Verify)
				sum := int64(0)
				for _, x := range r.Routes {
					sum += x.Bytes
				}
				if sum != loaded {
					t.Errorf("the routes add up to %d, expected %d", sum, loaded)
				}
				if done, total := tr.Progress(); done != loaded || total != loaded {
					t.Errorf("progress %d of %d", done, total)
				}
				tg.idle()
			})
		}
	}
}

func TestVerifyRefusesWhatCannotBeVerified(t *testing.T) {
	path, _ := writeFile(t, 300_000, 72)
	sums := sumsOf(t, path, 4096)
	e, d := newEngine(t, small), host.New()
	b := alloc(t, d, 600_000)
	try := func(f *vfs.File, change func(*Request)) error {
		r := Request{Device: d, Files: []*vfs.File{f}, Segments: []Segment{{Len: 100, Dst: b.Ptr()}},
			Verify: []*checksum.Sums{sums}}
		change(&r)
		_, err := e.Start(context.Background(), r)
		return err
	}
	f := openFile(t, path)
	for name, c := range map[string]struct {
		change func(*Request)
		want   string
	}{
		"overlap": {func(r *Request) { r.Segments = append(r.Segments, Segment{Off: 99, Len: 5, Dst: b.Ptr() + 200}) },
			"two segments hold byte 99"},
		"count": {func(r *Request) { r.Verify = append(r.Verify, nil) }, "sums of 2 files given, expected 1"},
		"also":  {func(r *Request) { r.Also = []Extent{{Off: 299_999, Len: 2}} }, "do not exist"},
	} {
		if err := try(f, c.change); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Truncate(path, 299_999); err != nil {
		t.Fatal(err)
	}
	if err := try(openFile(t, path), func(*Request) {}); !errs.Is(err, errs.Corrupt) ||
		!strings.Contains(err.Error(), "made of 300000 bytes, the file has 299999") {
		t.Errorf("truncated: %v", err)
	}
}

func TestVerifySomeFilesOnly(t *testing.T) {
	d, e := host.Staged(), newEngine(t, small)
	a, want := writeFile(t, 200_000, 73)
	z, _ := writeFile(t, 200_000, 74)
	sums := sumsOf(t, z, 8192)
	flip(t, a, 77) // nobody knows what this one should be
	b := alloc(t, d, 400_000)
	r := Request{Device: d, Files: []*vfs.File{openFile(t, a), openFile(t, z)}, Verify: []*checksum.Sums{nil, sums},
		Segments: []Segment{{Len: 200_000, Dst: b.Ptr()}, {File: 1, Len: 200_000, Dst: b.Ptr() + 200_000}}}
	tr := start(t, e, context.Background(), r)
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	if v := tr.Report().Verify; v.Bytes != 200_000 || v.Files != 1 || bytes.Equal(bytesOf(b)[:200_000], want) {
		t.Errorf("%+v", v)
	}
	r.Verify = nil
	tr = start(t, e, context.Background(), r)
	if err := tr.Err(); err != nil || tr.Report().Verify != nil {
		t.Errorf("off: %v %+v", err, tr.Report().Verify)
	}
	for _, s := range tr.Report().Stages {
		if s.Stage == "verify" || s.Stage == "read_extra" {
			t.Errorf("off, but stage %+v", s)
		}
	}
}

// A mismatch ends the transfer only when the copies of the good blocks before
// it are out of flight.
func TestVerifyMismatchWaitsForTheOtherCopies(t *testing.T) {
	path, _ := writeFile(t, 3*units.MiB, 75)
	sums := sumsOf(t, path, 64*units.KiB)
	for i := 1; i < len(sums.Blocks); i++ {
		flip(t, path, int64(8*(i*64*units.KiB+5))) // all but the first: whoever reads next finds one
	}
	g := fakegpu.Build(t, fakegpu.Options{})
	d, e := g.Open("cuda:0"), newEngine(t, small)
	f := openFile(t, path)
	vfstest.Hold(t, path, 0, f.Size())
	b := alloc(t, d, f.Size())
	g.Hold(0)
	r := whole(d, f, b.Ptr(), report.RouteBuffered)
	r.Verify = []*checksum.Sums{sums}
	sent := sync.OnceFunc(func() { g.Await("copies_held", 1) })
	r.Holds = func(int, int64, int64) string {
		sent() // the good block is on its way when the bad one is found
		return "nothing"
	}
	tr := start(t, e, context.Background(), r)
	waitFailed(tr)
	if ended(tr) {
		t.Error("Done is closed with copies in flight")
	}
	g.Release()
	err := tr.Err()
	g.CheckIdle()
	if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "it holds nothing") {
		t.Errorf("got %v", err)
	}
	if v := tr.Report().Verify; v == nil || v.Blocks != 1 {
		t.Errorf("report: %+v", v)
	}
}

func TestVerifyCancelled(t *testing.T) {
	path, _ := writeFile(t, 3*units.MiB, 77)
	sums := sumsOf(t, path, 64*units.KiB)
	onEachReader(t, path, func(t *testing.T, g *fakegpu.GPU, f *vfs.File, by reader) {
		d, e := g.Open("cuda:0"), newEngine(t, by.by(small))
		b := alloc(t, d, f.Size())
		g.Hold(3)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		r := whole(d, f, b.Ptr(), by.route)
		r.Verify = []*checksum.Sums{sums}
		tr := start(t, e, ctx, r)
		cancelHeld(t, g, tr, cancel)
		if err := tr.Err(); !errs.Is(err, errs.Cancelled) {
			t.Errorf("got %v", err)
		}
		g.CheckIdle()
	})
}

// Default sizes: the blocks of a warm file are judged whole, so that nothing of
// a bad one reaches the device.
func TestVerifyKeepsABadBlockOffTheDevice(t *testing.T) {
	path, want := writeFile(t, 6*units.MiB, 76)
	sums := sumsOf(t, path, checksum.DefaultBlock)
	flip(t, path, 8*(3*units.MiB+1))
	g, d := fakegpu.OpenOne(t)
	e := newEngine(t, Options{Poison: true, VerifyOn: VerifyHost})
	f := openFile(t, path)
	vfstest.Hold(t, path, 0, f.Size())
	b := alloc(t, d, f.Size())
	r := whole(d, f, b.Ptr(), report.RouteBuffered)
	r.Verify = []*checksum.Sums{sums}
	before := bytes.Clone(g.Bytes(b.Ptr()+3*units.MiB, units.MiB))
	if err := start(t, e, context.Background(), r).Err(); !errs.Is(err, errs.Corrupt) {
		t.Fatal(err)
	}
	if got := g.Bytes(b.Ptr()+3*units.MiB, units.MiB); !bytes.Equal(got, before) {
		t.Error("bytes of the bad block were copied")
	}
	if bytes.Equal(before, want[3*units.MiB:4*units.MiB]) {
		t.Error("the test cannot fail")
	}
}
