// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
	"github.com/nebulaio/nebulaio/test/effort"
)

// cacheRanges reads ranges of a file into the page cache. Readahead is off, so no other page enters the page cache.
func cacheRanges(t *testing.T, path string, ranges []Extent) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM); err != nil {
		t.Fatal(err)
	}
	for _, r := range ranges {
		if _, err := f.ReadAt(make([]byte, r.Len), r.Off); err != nil {
			t.Fatal(err)
		}
	}
}

// somePages returns a random choice of the whole pages of a file. Each page is chosen with the given probability.
func somePages(rng *rand.Rand, size int64, probability float64) (some []Extent) {
	for at := int64(0); at+4096 <= size; at += 4096 {
		if rng.Float64() < probability {
			some = append(some, Extent{Off: at, Len: 4096})
		}
	}
	return some
}

// TestRowsOfWhichSomeAreCached loads the part of each row that one rank wants. If the part is in the page cache, the
// load must read it from there, even if no other byte of the file is cached. The load must read all other bytes with
// O_DIRECT.
func TestRowsOfWhichSomeAreCached(t *testing.T) {
	effort.Slow(t)
	const size, width, stride, first = 6 * units.MiB, 4096, 4 * 4096, 4096
	path, data := writeFile(t, size, 2401)
	rowsAt := func(at int64) (all []Extent) {
		for ; at < size; at += stride {
			all = append(all, Extent{Off: at, Len: width})
		}
		return all
	}
	some := somePages(rand.New(rand.NewPCG(24, 1)), size, 0.67)
	for name, c := range map[string]struct {
		cached []Extent
		hits   bool // every wanted byte comes from the page cache
		misses bool // none does
	}{
		"none":         {nil, false, true},
		"all":          {[]Extent{{Len: size}}, true, false},
		"the part":     {rowsAt(first), true, false},
		"another part": {rowsAt(first + width), false, true},
		"some pages":   {some, false, false},
	} {
		for _, gap := range []int64{4096, DefaultGap} {
			for dname, tg := range targets(t) {
				t.Run(fmt.Sprintf("%s/%d/%s", name, gap, dname), func(t *testing.T) {
					f := openFile(t, path)
					requireDirect(t, f)
					dropped(t, f)
					cacheRanges(t, path, c.cached)
					sum := int64(0)
					for _, r := range c.cached {
						sum += r.Len
					}
					if n, known := f.CachedBytes(0, size); !known || n != sum {
						t.Skipf("%d bytes are in the page cache, expected %d", n, sum)
					}
					b := alloc(t, tg.dev, size)
					s := Segment{Off: first, Len: size - first, Width: width, Stride: stride, Dst: b.Ptr()}
					e := newEngine(t, Options{PoolSize: 16 * units.MiB})
					tr := start(t, e, context.Background(), Request{Device: tg.dev, Files: []*vfs.File{f},
						Segments: []Segment{s}, Gap: gap, Cache: report.CacheBypass})
					if err := tr.Err(); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(tg.read(b.Ptr(), s.Wanted()), take(data, s)) {
						t.Fatal("the bytes differ")
					}
					tg.idle()
					checkReadReport(t, tr, s.Wanted())
					r := tr.Report()
					hit, missed := routeBytes(r, report.RouteTakenCache), routeBytes(r, report.RouteTakenBuffered)
					if c.hits != (hit == s.Wanted()) || c.misses != (hit == 0) || (c.hits || c.misses) && missed > 0 {
						t.Errorf("%d of %d bytes came from the page cache, and %d through it", hit, s.Wanted(), missed)
					}
					if (gap == 4096 || c.hits) && r.Read != s.Wanted() {
						t.Errorf("%d bytes were read, expected the %d that are wanted", r.Read, s.Wanted())
					}
				})
			}
		}
	}
}

// TestWovenSegmentsOfWhichSomePagesAreCached loads random segments of all kinds while random pages of the file are in
// the page cache.
func TestWovenSegmentsOfWhichSomePagesAreCached(t *testing.T) {
	const size = 900_001
	rounds := effort.Rounds{Test: 3, CI: 12}.Of(t)
	rng := rand.New(rand.NewPCG(24, 2))
	for dname, tg := range targets(t) {
		t.Run(dname, func(t *testing.T) {
			path, data := writeFile(t, size, rng.Uint64())
			e := newEngine(t, Options{PoolSize: 16 * units.MiB})
			b := alloc(t, tg.dev, 2*size)
			for round := range rounds {
				f := openFile(t, path)
				dropped(t, f)
				cacheRanges(t, path, somePages(rng, size, rng.Float64()))
				req := Request{Device: tg.dev, Files: []*vfs.File{f}, Segments: drawWoven(rng, size, b.Ptr()),
					Cache: report.CacheBypass, Gap: rng.Int64N(5) * DefaultGap / 4}
				if round%3 == 2 {
					req.Cache = report.CacheKeep
				}
				loadWoven(t, e, tg, b, req, data)
			}
		})
	}
}
