// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/verify"
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

// drawParts cuts [0, size) into parts of all sizes, empty ones among them.
func drawParts(rng *rand.Rand, file int, size int64, dst device.Ptr) []Part {
	var parts []Part
	for at := int64(0); at < size; {
		n := rng.Int64N(1 << rng.IntN(18))
		if rng.IntN(5) == 0 {
			n = 0
		}
		n = min(n, size-at)
		parts = append(parts, Part{File: file, Dst: dst + device.Ptr(at), Len: n})
		at += n
	}
	return parts
}

// TestReadinessIsWhatEveryByteSays brings pieces and blocks in random order and
// asks each byte after each of them.
func TestReadinessIsWhatEveryByteSays(t *testing.T) {
	path, _ := writeFile(t, 9000, 71)
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := Request{Files: []*vfs.File{openFile(t, path), openFile(t, path)}, Verify: make([]*checksum.Sums, 2)}
		const size = 9000
		base := []device.Ptr{0x100000, 0x80000}
		type event struct {
			file   int
			off, n int64
			sum    bool // a block is right, else bytes arrive
		}
		var events []event
		for f := range r.Files {
			r.Parts = append(r.Parts, drawParts(rng, f, size, base[f])...)
			for off := int64(0); off < size; {
				n := min(1+rng.Int64N(3000), size-off)
				events = append(events, event{f, off, n, false})
				off += n
			}
			if rng.IntN(2) == 0 {
				r.Verify[f] = &checksum.Sums{Block: 1 << (9 + rng.IntN(5)), Size: size}
				r.Also = append(r.Also, Extent{File: f, Len: rng.Int64N(3000)})
				for off := int64(0); off < size; off += r.Verify[f].Block {
					events = append(events, event{f, off, min(r.Verify[f].Block, size-off), true})
				}
			}
		}
		rng.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		y, err := newReadiness(&r)
		if err != nil {
			t.Fatal(err)
		}
		var here, right [2][size]bool
		for f, s := range r.Verify {
			for i := range right[f] {
				right[f][i] = s == nil
			}
		}
		expect := func() int {
			for i, p := range r.Parts {
				for _, x := range r.Also {
					for b := range x.Len {
						if p.File == x.File && !right[x.File][b] {
							return i
						}
					}
				}
				for b := range p.Len {
					if at := int64(p.Dst-base[p.File]) + b; !here[p.File][at] || !right[p.File][at] {
						return i
					}
				}
			}
			return len(r.Parts)
		}
		for k, e := range events {
			for b := e.off; b < e.off+e.n; b++ {
				if e.sum {
					right[e.file][b] = true
				} else {
					here[e.file][b] = true
				}
			}
			if e.sum {
				y.right(verify.Block{File: e.file, Index: e.off / r.Verify[e.file].Block})
			} else {
				y.landed(plan.Chunk{File: e.file, Off: e.off, Len: e.n, Dst: base[e.file] + device.Ptr(e.off)})
			}
			if n, _ := y.look(-1); n != expect() {
				t.Fatalf("seed %d, after %d events: %d parts ready, expected %d of %d", seed, k+1, n, expect(), len(r.Parts))
			}
		}
		if y.ready != len(r.Parts) || len(y.waiting) > 0 {
			t.Fatalf("seed %d: %d of %d ready at the end, %d blocks waiting", seed, y.ready, len(r.Parts), len(y.waiting))
		}
	}
}

func TestReadinessRefusesPartsThatOverlap(t *testing.T) {
	path, _ := writeFile(t, 100, 72)
	f := openFile(t, path)
	e := newEngine(t, small)
	b := alloc(t, host.New(), 100)
	for _, parts := range [][]Part{
		{{Dst: b.Ptr(), Len: 50}, {Dst: b.Ptr() + 49, Len: 10}},
		{{Dst: b.Ptr(), Len: -1}},
		{{File: 1, Dst: b.Ptr(), Len: 1}},
	} {
		r := whole(host.New(), f, b.Ptr(), report.RouteAuto)
		r.Parts = parts
		if _, err := e.Start(context.Background(), r); !errs.Is(err, errs.Invalid) {
			t.Errorf("%v: %v", parts, err)
		}
	}
}

// follow waits for parts until the transfer has ended and checks each when it is
// ready; it returns how many were.
func follow(t *testing.T, tr *Load, tg target, base device.Ptr, want []byte) (int, error) {
	t.Helper()
	known := 0
	for {
		n, err := tr.Ready(context.Background(), known)
		if n < known {
			t.Fatalf("%d parts are ready after %d were", n, known)
		}
		for _, p := range tr.req.Parts[known:n] {
			if !bytes.Equal(tg.read(p.Dst, p.Len), want[p.Dst-base:][:p.Len]) {
				t.Fatalf("part of %d bytes at %d is ready and not right", p.Len, p.Dst-base)
			}
		}
		if err != nil || n == known {
			return n, err
		}
		known = n
	}
}

// drawFile writes a file of a random size that can be read with O_DIRECT.
func drawFile(t *testing.T, rng *rand.Rand, seed uint64) (path string, size int64, content []byte) {
	t.Helper()
	size = 300_000 + rng.Int64N(400_000)
	path, content = writeFile(t, size, seed)
	requireDirect(t, openFile(t, path))
	return path, size, content
}

// onEachArrival runs a test for every device and every way that bytes come, each with an engine of its own.
func onEachArrival(t *testing.T, run func(t *testing.T, tg target, a arrival, e *Engine)) {
	t.Helper()
	for dname, tg := range targets(t) {
		for aname, a := range arrivals() {
			t.Run(dname+"/"+aname, func(t *testing.T) { run(t, tg, a, newEngine(t, a.opts)) })
		}
	}
}

// TestReadyPartsAreFinal follows loads on every device by every route, verified
// or not, of good and damaged files: what is ready is right at that moment, and
// of a damaged file nothing is ready that shares a block with the damage.
func TestReadyPartsAreFinal(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	rounds := effort.Rounds{Test: 3, CI: 12}.Of(t)
	onEachArrival(t, func(t *testing.T, tg target, a arrival, e *Engine) {
		for round := range rounds {
			path, size, want := drawFile(t, rng, uint64(100+round))
			b := alloc(t, tg.dev, size)
			r := Request{Device: tg.dev, Route: a.ask, Cache: report.CacheBypass,
				Segments: []Segment{{Len: size, Dst: b.Ptr()}},
				Parts:    drawParts(rng, 0, size, b.Ptr())}
			bad, block := int64(-1), int64(checksum.MinBlock)<<rng.IntN(7)
			if round%3 > 0 {
				r.Verify = []*checksum.Sums{sumsOf(t, path, block)}
				r.Also = []Extent{{Len: 100}}
			}
			if round%3 == 2 {
				bad = rng.Int64N(size)
				flip(t, path, 8*bad)
			}
			f := a.prepared(t, path)
			r.Files = []*vfs.File{f}
			tr := start(t, e, context.Background(), r)
			n, err := follow(t, tr, tg, b.Ptr(), want)
			if bad < 0 && (err != nil || n != len(r.Parts)) {
				t.Fatalf("%d of %d parts: %v", n, len(r.Parts), err)
			}
			if bad >= 0 && !errs.Is(err, errs.Corrupt) {
				t.Fatalf("a flipped bit: %v", err)
			}
			for _, p := range r.Parts[:n] {
				lo, hi := int64(p.Dst-b.Ptr())/block, (int64(p.Dst-b.Ptr())+p.Len-1)/block
				if k := bad / block; bad >= 0 && p.Len > 0 && (lo <= k && k <= hi || k == 0) {
					t.Fatalf("block %d is damaged, and a part over blocks %d to %d was called ready", k, lo, hi)
				}
			}
			<-tr.Done()
			tg.idle()
			f.Close()
		}
	})
}

// TestReadyBeforeTheEnd holds the later copies back: what came before is ready,
// stays ready when the transfer is cancelled, and the error comes after it.
func TestReadyBeforeTheEnd(t *testing.T) {
	path, want := writeFile(t, 3*units.MiB, 73)
	onEachReader(t, path, func(t *testing.T, g *fakegpu.GPU, f *vfs.File, by reader) {
		o := by.by(small)
		o.Workers, o.QueueDepth = 1, 1
		d := g.Open("cuda:0")
		e := newEngine(t, o)
		b := alloc(t, d, f.Size())
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		r := whole(d, f, b.Ptr(), by.route)
		for at := int64(0); at < f.Size(); at += 1024 {
			r.Parts = append(r.Parts, Part{Dst: b.Ptr() + device.Ptr(at), Len: 1024})
		}
		g.Hold(4)
		tr := start(t, e, ctx, r)
		n, err := tr.Ready(context.Background(), 0)
		if err != nil || n == 0 || n == len(r.Parts) || ended(tr) {
			t.Fatalf("%d of %d parts are ready: %v", n, len(r.Parts), err)
		}
		g.Await("copies_held", 1)
		for { // what has come is known; nothing more will come while copies are held
			over, stop := context.WithCancel(context.Background())
			stop()
			more, err := tr.Ready(over, n)
			if more == n {
				if !errs.Is(err, errs.Cancelled) || !errors.Is(err, context.Canceled) {
					t.Fatalf("nothing is ready: %v", err)
				}
				break
			}
			n = more
		}
		equal(t, g.Bytes(b.Ptr(), int64(n)*1024), want[:n*1024])
		cancel()
		waitFailed(tr)
		g.Release()
		<-tr.Done()
		last, err := tr.Ready(context.Background(), len(r.Parts))
		if !errs.Is(err, errs.Cancelled) || last < n || last == len(r.Parts) {
			t.Errorf("after the end %d parts are ready, %d were: %v", last, n, err)
		}
		equal(t, g.Bytes(b.Ptr(), int64(last)*1024), want[:last*1024])
	})
}

// TestReadyPartsOfStridedSegments follows loads of columns: chunks are packed,
// and their bytes belong to blocks of the file by where they came from.
func TestReadyPartsOfStridedSegments(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 11))
	rounds := effort.Rounds{Test: 2, CI: 8}.Of(t)
	onEachArrival(t, func(t *testing.T, tg target, a arrival, e *Engine) {
		for round := range rounds {
			path, size, content := drawFile(t, rng, uint64(300+round))
			var segs []Segment
			var want []byte
			for off := rng.Int64N(5000); off < size; off += rng.Int64N(3000) {
				stride := 1 + rng.Int64N(9000)
				width := 1 + rng.Int64N(stride)
				s := Segment{Off: off, Len: min(size-off, (rng.Int64N(20))*stride+width), Width: width, Stride: stride,
					Dst: device.Ptr(len(want))}
				packed := make([]byte, s.Wanted())
				s.Pack(packed, content[s.Off:s.Off+s.Len], s.Off)
				want = append(want, packed...)
				segs = append(segs, s)
				off += s.Len
			}
			b := alloc(t, tg.dev, int64(len(want)))
			for i := range segs {
				segs[i].Dst += b.Ptr()
			}
			r := Request{Device: tg.dev, Route: a.ask, Cache: report.CacheBypass, Segments: segs, Gap: DefaultGap,
				Parts: drawParts(rng, 0, int64(len(want)), b.Ptr())}
			if round%2 == 1 {
				r.Verify = []*checksum.Sums{sumsOf(t, path, int64(checksum.MinBlock)<<rng.IntN(5))}
				r.Also = []Extent{{Len: 100}}
			}
			f := a.prepared(t, path)
			r.Files = []*vfs.File{f}
			tr := start(t, e, context.Background(), r)
			if n, err := follow(t, tr, tg, b.Ptr(), want); err != nil || n != len(r.Parts) {
				t.Fatalf("%d of %d parts: %v", n, len(r.Parts), err)
			}
			<-tr.Done()
			tg.idle()
			f.Close()
		}
	})
}
