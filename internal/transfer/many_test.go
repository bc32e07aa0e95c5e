// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	"github.com/nebulaio/nebulaio/report"
)

// manyFiles makes n files of size bytes and a request that moves them, one
// behind the other, to where dst says.
func manyFiles(tb testing.TB, d device.Device, n int, size int64) (Request, []byte) {
	tb.Helper()
	dir := tb.TempDir()
	all := make([]byte, int64(n)*size)
	rand.NewChaCha8([32]byte{3}).Read(all)
	buf, err := d.Alloc(int64(len(all)))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { buf.Free() })
	r := Request{Device: d, Cache: report.CacheBypass}
	for i := range n {
		path := filepath.Join(dir, fmt.Sprint(i))
		part := all[int64(i)*size:][:size]
		if err := os.WriteFile(path, part, 0o600); err != nil {
			tb.Fatal(err)
		}
		f, err := vfs.Open(path)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { f.Close() })
		r.Files = append(r.Files, f)
		r.Segments = append(r.Segments, Segment{File: i, Len: size, Dst: buf.Ptr() + device.Ptr(int64(i)*size)})
		sums := &checksum.Sums{Size: size, Block: 1 << 20}
		for off := int64(0); off < size; off += 1 << 20 {
			sums.Blocks = append(sums.Blocks, checksum.Of(part[off:min(off+1<<20, size)]))
		}
		r.Verify = append(r.Verify, sums)
	}
	return r, all
}

// Many small files in one transfer, and in several at once, each byte to its place.
func TestManyFilesAtOnce(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	for name, d := range map[string]device.Device{"host": host.New(), "gpu": g.Open("cuda:0")} {
		for _, verify := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, verify), func(t *testing.T) {
				e := newEngine(t, small)
				const each, transfers = 40, 4
				r, want := manyFiles(t, d, each*transfers, 70_001)
				var wg sync.WaitGroup
				for i := range transfers {
					q := r.part(i*each, (i+1)*each)
					if !verify {
						q.Verify = nil
					}
					wg.Go(func() {
						tr, err := e.Start(context.Background(), q)
						if err != nil {
							t.Error(err)
							return
						}
						if err := tr.Err(); err != nil {
							t.Error(err)
						}
						if rep := tr.Report(); len(rep.Files) != each || rep.Bytes != each*70_001 || verify && rep.Verify.Blocks != each {
							t.Errorf("%d files, %d bytes, verified %+v", len(rep.Files), rep.Bytes, rep.Verify)
						}
					})
				}
				wg.Wait()
				if !bytes.Equal(g.Bytes(r.Segments[0].Dst, int64(len(want))), want) {
					t.Fatal("bytes differ")
				}
				// One bad block among many files is named, and ends its transfer.
				if verify {
					r.Verify[17].Blocks[0]++
					if err := start(t, e, context.Background(), r).Err(); !errs.Is(err, errs.Corrupt) ||
						!strings.Contains(err.Error(), r.Files[17].Path()) {
						t.Errorf("a block that differs: %v", err)
					}
				}
			})
		}
	}
	g.CheckIdle()
}

// part is the request for the files from lo to hi.
func (r Request) part(lo, hi int) Request {
	q := Request{Device: r.Device, Cache: r.Cache, Files: r.Files[lo:hi], Verify: r.Verify[lo:hi]}
	for k, s := range r.Segments[lo:hi] {
		s.File = k
		q.Segments = append(q.Segments, s)
	}
	return q
}

func benchMany(b *testing.B, d device.Device, n int, size int64, transfers int, verify bool) {
	e, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	r, _ := manyFiles(b, d, n, size)
	b.Cleanup(func() { e.Close() })
	b.SetBytes(int64(n) * size)
	b.ReportAllocs()
	per := n / transfers
	for b.Loop() {
		var wg sync.WaitGroup
		for i := range transfers {
			wg.Go(func() {
				q := r.part(i*per, (i+1)*per)
				if !verify {
					q.Verify = nil
				}
				tr, err := e.Start(context.Background(), q)
				if err != nil {
					b.Error(err)
					return
				}
				if err := tr.Err(); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

// What is paid for each file: small ones, so that the bytes themselves cost nothing.
func BenchmarkManyFiles(b *testing.B) {
	g := fakegpu.Build(b, fakegpu.Options{})
	gpu := g.Open("cuda:0")
	for _, c := range []struct {
		name      string
		dev       device.Device
		size      int64
		transfers int
		verify    bool
	}{
		{"host/4KiB", host.New(), 4 * units.KiB, 1, false},
		{"host/4KiB/verify", host.New(), 4 * units.KiB, 1, true},
		{"host/4KiB/8 together", host.New(), 4 * units.KiB, 8, true},
		{"gpu/4KiB", gpu, 4 * units.KiB, 1, false},
		{"gpu/4KiB/verify", gpu, 4 * units.KiB, 1, true},
		{"gpu/4KiB/8 together", gpu, 4 * units.KiB, 8, true},
		{"gpu/256KiB/verify", gpu, 256 * units.KiB, 1, true},
	} {
		b.Run(c.name, func(b *testing.B) { benchMany(b, c.dev, 512, c.size, c.transfers, c.verify) })
	}
}

// What is paid once for each transfer.
func BenchmarkOneFile(b *testing.B) {
	g := fakegpu.Build(b, fakegpu.Options{})
	gpu := g.Open("cuda:0")
	for name, d := range map[string]device.Device{"host": host.New(), "gpu": gpu} {
		b.Run(name, func(b *testing.B) { benchMany(b, d, 1, 4*units.KiB, 1, true) })
	}
}
