// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/test/closing"
)

// disk opens files of a directory and counts the descriptors that are open there.
type disk struct {
	dir    string
	most   int       // most descriptors at the start of an Open
	before func(int) // called before the n-th Open
	calls  int
	fail   map[string]error
}

func (d *disk) Open(_ context.Context, names []string, verify bool) ([]Opened, []error) {
	if d.before != nil {
		d.before(d.calls)
	}
	d.calls++
	out, fails := make([]Opened, len(names)), make([]error, len(names))
	for i, name := range names {
		if fails[i] = d.fail[name]; fails[i] != nil {
			continue
		}
		if out[i].File, fails[i] = vfs.Open(name); fails[i] == nil && verify {
			out[i].Sums, fails[i] = checksum.Read(name, out[i].File.Size())
		}
	}
	d.most = max(d.most, d.open())
	return out, fails
}

// open returns the number of descriptors of files in the directory.
func (d *disk) open() (n int) {
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, d.dir) {
			n++
		}
	}
	return n
}

// bench is an engine with memory of the host.
type bench struct {
	e   *transfer.Engine
	dev device.Device
	mem []byte
	at  device.Ptr
}

func newBench(t *testing.T, size int) *bench {
	t.Helper()
	e, err := transfer.New(transfer.Options{})
	b := &bench{e: closing.AtEnd(t, e, err), dev: host.New(), mem: make([]byte, size)}
	var pin runtime.Pinner
	pin.Pin(&b.mem[0])
	t.Cleanup(pin.Unpin)
	b.at = device.Ptr(uintptr(unsafe.Pointer(&b.mem[0])))
	return b
}

// files writes count files whose content says their number.
func files(t *testing.T, count int) (dir string, names []string) {
	t.Helper()
	dir = t.TempDir()
	for i := range count {
		name := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(name, fmt.Appendf(nil, "%08d", i), 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return dir, names
}

// each returns a segment of all 8 bytes of each file.
func (b *bench) each(names []string) (all []Segment) {
	for i := range names {
		all = append(all, Segment{Segment: transfer.Segment{File: i, Len: 8, Dst: b.at + device.Ptr(8*i)}})
	}
	return all
}

// TestManyFilesAreOpenedInTurn: a job of many files has few of them open.
func TestManyFilesAreOpenedInTurn(t *testing.T) {
	const count = 700
	dir, names := files(t, count)
	b, d := newBench(t, 8*count), &disk{dir: dir}
	j, err := Start(t.Context(), b.e, Request{Device: b.dev, Files: names, Segments: b.each(names), Opener: d})
	if err == nil {
		err = j.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range count {
		if got := string(b.mem[8*i : 8*i+8]); got != fmt.Sprintf("%08d", i) {
			t.Fatalf("file %d: %q", i, got)
		}
	}
	if limit := 2 * windowsOpen * windowSize(); d.most > limit || d.most == 0 || d.open() != 0 {
		t.Errorf("%d descriptors were open, expected at most %d; %d are left", d.most, limit, d.open())
	}
	r, opening := j.Report()
	if done, total := j.Progress(); done != 8*count || total != 8*count || r.Bytes != done || len(r.Files) != count ||
		r.Wanted != done || opening <= 0 || d.calls < 2 {
		t.Errorf("%d of %d; %d files in %d windows: %+v", done, total, len(r.Files), d.calls, r)
	}
}

// TestACancelledJobEnds: after a cancellation no window is begun, and no file is open.
func TestACancelledJobEnds(t *testing.T) {
	const count = 700
	dir, names := files(t, count)
	b := newBench(t, 8*count)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the user's reason")
	d := &disk{dir: dir, before: func(n int) {
		if n == 2 {
			cancel(why)
		}
	}}
	j, err := Start(ctx, b.e, Request{Device: b.dev, Files: names, Segments: b.each(names), Opener: d})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Wait(); !errs.Is(err, errs.Cancelled) || !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	if r, _ := j.Report(); d.calls != 3 || d.open() != 0 || r.Error == "" {
		t.Errorf("%d windows were opened, %d descriptors are left, %q", d.calls, d.open(), r.Error)
	}
}

// TestTheFirstFailureEndsTheJob: the error is that of the file, not the cancellation that follows from it.
func TestTheFirstFailureEndsTheJob(t *testing.T) {
	const count = 300
	dir, names := files(t, count)
	b := newBench(t, 8*count)
	lost := errs.New(errs.IO, "open", names[100], "the disk is gone")
	d := &disk{dir: dir, fail: map[string]error{names[100]: lost}}
	j, err := Start(t.Context(), b.e, Request{Device: b.dev, Files: names, Segments: b.each(names), Opener: d})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Wait(); !errors.Is(err, lost) || d.open() != 0 {
		t.Errorf("%v, %d descriptors are left", err, d.open())
	}
	if err := os.Truncate(names[7], 3); err != nil {
		t.Fatal(err)
	}
	j, err = Start(t.Context(), b.e, Request{Device: b.dev, Files: names[:9], Segments: b.each(names[:9]), Opener: d})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Wait(); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "segment 7 of "+names[7]) ||
		!strings.Contains(err.Error(), "the file has 3 bytes") || d.open() != 0 {
		t.Errorf("%v, %d descriptors are left", err, d.open())
	}
}

// TestPartsOfAVerifiedFileDoNotOverlap holds what the engine asks of a verified file, and keeps every segment.
func TestPartsOfAVerifiedFileDoNotOverlap(t *testing.T) {
	seg := func(file int, off, n int64) Segment {
		return Segment{Segment: transfer.Segment{File: file, Off: off, Len: n}}
	}
	r := Request{Files: []string{"a", "none", "b"}, Segments: []Segment{seg(2, 5, 5), seg(0, 0, 10), seg(0, 5, 10),
		seg(0, 10, 1), seg(0, 0, 0), seg(0, 6, 1), seg(2, 0, 5)}}
	for verify, want := range map[bool]int{false: 2, true: 4} {
		r.Verify = verify
		parts := r.parts()
		if len(parts) != want {
			t.Errorf("verify %v: %d parts, expected %d: %+v", verify, len(parts), want, parts)
		}
		count := 0
		for _, p := range parts {
			end := int64(0)
			for k, s := range p.segs {
				count++
				if verify && s.Off < end || k > 0 && s.Off < p.segs[k-1].Off || r.Files[s.File] != p.name ||
					r.Segments[p.at[k]] != s {
					t.Errorf("verify %v: %+v", verify, p)
				}
				end = s.Off + s.Len
			}
		}
		if count != len(r.Segments) {
			t.Errorf("verify %v: %d segments are left of %d", verify, count, len(r.Segments))
		}
	}
}

// TestADamagedBlockNamesItsSegments: only those with a wanted byte in the block, and not all of many.
func TestADamagedBlockNamesItsSegments(t *testing.T) {
	w := &window{parts: []part{{}}}
	add := func(off, n, width, stride int64, label string) {
		p := &w.parts[0]
		p.at = append(p.at, len(p.segs))
		p.segs = append(p.segs, Segment{Label: label, Segment: transfer.Segment{Off: off, Len: n, Width: width,
			Stride: stride}})
	}
	add(0, 10, 0, 0, "a")
	add(10, 0, 0, 0, "empty")
	add(10, 100, 1, 50, "rows")
	add(110, 10, 0, 0, "")
	for _, n := range []string{"b", "c", "d"} {
		add(120, 0, 0, 0, n)
		add(120+int64(len(w.parts[0].segs)), 1, 0, 0, n)
	}
	for _, c := range []struct {
		off, n int64
		want   string
	}{
		{0, 1, `tensor "a"`}, {5, 6, `tensor "a", tensor "rows"`}, {11, 20, "no segment"}, {60, 1, `tensor "rows"`},
		{100, 15, "segment 3"}, {0, 500, `tensor "a", tensor "rows", segment 3, 3 more`}, {500, 5, "no segment"},
	} {
		if got := w.holds(0, c.off, c.n); got != c.want {
			t.Errorf("%d bytes at %d: %s, expected %s", c.n, c.off, got, c.want)
		}
	}
}

// FuzzSegments holds that a request is refused or delivers what a plain reading of its segments gives.
func FuzzSegments(f *testing.F) {
	content := make([]byte, 3<<12)
	for i := range content {
		content[i] = byte(i*7 + i>>8)
	}
	name := filepath.Join(f.TempDir(), "a")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		f.Fatal(err)
	}
	sums := &checksum.Sums{Size: int64(len(content)), Block: checksum.MinBlock}
	for i := int64(0); i < 3; i++ {
		off, n := sums.Extent(i)
		sums.Blocks = append(sums.Blocks, checksum.Of(content[off:off+n]))
	}
	if _, err := sums.Write(name); err != nil {
		f.Fatal(err)
	}
	f.Add(0, int64(0), int64(100), int64(0), int64(0), 0, int64(50), int64(100), true)
	f.Add(0, int64(5000), int64(7000), int64(3), int64(10), 0, int64(4095), int64(2), true)
	f.Add(1, int64(-1), int64(1<<62), int64(-3), int64(10), 0, int64(1<<62), int64(1<<62), false)
	f.Fuzz(func(t *testing.T, file int, off, n, width, stride int64, file2 int, off2, n2 int64, verify bool) {
		b := newBench(t, 2*len(content))
		all := []Segment{{Segment: transfer.Segment{File: file, Off: off, Len: n, Width: width, Stride: stride, Dst: b.at}},
			{Segment: transfer.Segment{File: file2, Off: off2, Len: n2, Dst: b.at + device.Ptr(len(content))}}}
		j, err := Start(t.Context(), b.e, Request{Device: b.dev, Files: []string{name}, Segments: all, Opener: &disk{},
			Verify: verify})
		if err == nil {
			err = j.Wait()
		}
		if err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Errorf("%+v: %v", all, err)
			}
			return
		}
		for k, s := range all {
			var want []byte
			for i := range s.Len {
				if s.Stride == 0 || i%s.Stride < s.Width {
					want = append(want, content[s.Off+i])
				}
			}
			if got := b.mem[k*len(content):]; !bytes.Equal(got[:len(want)], want) {
				t.Errorf("%+v differs", s)
			}
		}
	})
}
