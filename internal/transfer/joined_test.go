// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
	"github.com/nebulaio/nebulaio/report"
)

// strewn is a request for pieces of files in random order, one behind the other in the destination.
type strewn struct {
	Request
	want  []byte
	paths []string
}

const (
	strewnFiles = 3
	strewnEach  = 100 // pieces of a file
)

// newStrewn makes files in the page cache and a request for all their pieces.
func newStrewn(t *testing.T, d device.Device, piece func(*rand.Rand) int64) *strewn {
	t.Helper()
	rng, dir := rand.New(rand.NewPCG(4, 2)), t.TempDir()
	s := &strewn{Request: Request{Device: d, Route: report.RouteBuffered, Cache: report.CacheKeep}}
	var contents [][]byte
	for i := range strewnFiles {
		var b []byte
		for range strewnEach {
			n := piece(rng)
			s.Segments = append(s.Segments, Segment{File: i, Off: int64(len(b)), Len: n})
			part := make([]byte, n)
			for k := range part {
				part[k] = byte(rng.Uint32())
			}
			b = append(b, part...)
		}
		path := filepath.Join(dir, string(rune('a'+i)))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := vfs.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		vfstest.Hold(t, path, 0, int64(len(b)))
		s.Files, s.paths, contents = append(s.Files, f), append(s.paths, path), append(contents, b)
		sums := &checksum.Sums{Size: int64(len(b)), Block: 1 << 20}
		for off := 0; off < len(b); off += 1 << 20 {
			sums.Blocks = append(sums.Blocks, checksum.Of(b[off:min(off+1<<20, len(b))]))
		}
		s.Verify = append(s.Verify, sums)
	}
	rng.Shuffle(len(s.Segments), func(i, j int) { s.Segments[i], s.Segments[j] = s.Segments[j], s.Segments[i] })
	for _, x := range s.Segments {
		s.want = append(s.want, contents[x.File][x.Off:x.Off+x.Len]...)
	}
	buf, err := d.Alloc(int64(len(s.want)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { buf.Free() })
	at := buf.Ptr()
	for i := range s.Segments {
		s.Segments[i].Dst = at
		at += device.Ptr(s.Segments[i].Len)
	}
	return s
}

func smallPieces(rng *rand.Rand) int64 { return 1 + rng.Int64N(20_000) }

// TestSmallNeighboursShareACopy reads pieces from many places, with and without checksums.
func TestSmallNeighboursShareACopy(t *testing.T) {
	for _, verified := range []bool{false, true} {
		g, d := fakegpu.OpenOne(t)
		s := newStrewn(t, d, smallPieces)
		if !verified {
			s.Verify = nil
		}
		e := newEngine(t, Options{Workers: 2})
		before := g.Count("copies_queued")
		l, err := e.Start(t.Context(), s.Request)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		if got := g.Bytes(s.Segments[0].Dst, int64(len(s.want))); !bytes.Equal(got, s.want) {
			t.Error("the bytes in the destination are not those of the files")
		}
		if n := g.Count("copies_queued") - before; n > int64(len(s.Segments))/2 {
			t.Errorf("%d copies for %d pieces", n, len(s.Segments))
		}
		r := l.Report()
		if len(r.Routes) != 1 || r.Routes[0].Route != report.RouteTakenCache || r.Routes[0].Bytes != int64(len(s.want)) {
			t.Errorf("routes %+v, expected %d bytes from the page cache", r.Routes, len(s.want))
		}
		if verified && (r.Verify == nil || r.Verify.Bytes != int64(len(s.want))) {
			t.Errorf("verified %+v, expected %d bytes", r.Verify, len(s.want))
		}
	}
}

// TestJoinedChunksFailTogether damages a file, fails a copy, and makes a file too short.
func TestJoinedChunksFailTogether(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*testing.T, *fakegpu.GPU, *strewn)
		says  string
	}{
		"damage": {func(t *testing.T, _ *fakegpu.GPU, s *strewn) {
			b, err := os.ReadFile(s.paths[1])
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 1
			if err := os.WriteFile(s.paths[1], b, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "checksum"},
		"copy": {func(_ *testing.T, g *fakegpu.GPU, s *strewn) {
			s.Verify = nil
			g.FailCopy(2, 700, false)
		}, "copy"},
		"short": {func(t *testing.T, _ *fakegpu.GPU, s *strewn) {
			s.Verify = nil
			if err := os.Truncate(s.paths[2], 100); err != nil {
				t.Fatal(err)
			}
		}, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			g, d := fakegpu.OpenOne(t)
			s := newStrewn(t, d, smallPieces)
			e := newEngine(t, Options{Workers: 2})
			c.spoil(t, g, s)
			l, err := e.Start(t.Context(), s.Request)
			if err == nil {
				err = l.Err()
			}
			if err == nil || !strings.Contains(errs.MessageOf(err), c.says) {
				t.Errorf("%v, expected an error about %q", err, c.says)
			}
		})
	}
}

// TestPiecesThatDoNotFollowEachOther keeps gaps in the destination.
func TestPiecesThatDoNotFollowEachOther(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	s := newStrewn(t, d, func(*rand.Rand) int64 { return 4096 })
	s.Verify = nil
	half := s.Segments[:0]
	for i, x := range s.Segments {
		if i%3 != 1 {
			half = append(half, x)
		}
	}
	s.Segments = half
	first := s.Segments[0].Dst
	for i := range g.Bytes(first, int64(len(s.want))) {
		g.Bytes(first, int64(len(s.want)))[i] = 0xEE
	}
	e := newEngine(t, Options{Workers: 2})
	l, err := e.Start(t.Context(), s.Request)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	got := g.Bytes(first, int64(len(s.want)))
	for i := 0; i < len(got); i += 4096 {
		want := s.want[i : i+4096]
		if i/4096%3 == 1 {
			want = bytes.Repeat([]byte{0xEE}, 4096)
		}
		if !bytes.Equal(got[i:i+4096], want) {
			t.Fatalf("piece %d is wrong", i/4096)
		}
	}
}
