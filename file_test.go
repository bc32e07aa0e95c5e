// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/report"
	"github.com/nebulaio/nebulaio/test/closing"
	"github.com/nebulaio/nebulaio/test/effort"
)

// place is a system and memory on one of its devices that the test can look at.
type place struct {
	sys    *nebulaio.System
	device string
	mem    []byte
	ptr    nebulaio.Ptr
	gpu    *fakegpu.GPU
	cufile *fakegpu.CuFile
}

const placeSize = 6 << 20

// places are host memory, and a fake GPU with a fake libcufile.
func places(t *testing.T) map[string]*place {
	t.Helper()
	t.Setenv("CUFILE_LOGFILE_PATH", filepath.Join(t.TempDir(), "cufile.log"))
	g := fakegpu.Build(t, fakegpu.Options{})
	c := g.BuildCuFile(fakegpu.CuFileOptions{})
	out := map[string]*place{
		"host": {device: "host", sys: newSystem(t, nebulaio.Options{Devices: "off"})},
		"cuda": {device: "cuda:0", sys: newSystem(t, nebulaio.Options{Devices: "require", CUDALibrary: g.CUDA,
			NVMLLibrary: g.NVML, CuFileLibrary: c.Path}), gpu: g, cufile: c},
	}
	for _, p := range out {
		r, err := hostmem.Map(placeSize)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Unmap() })
		p.mem = r.Bytes()[:placeSize]
		p.ptr = nebulaio.Ptr(g.Pointer(p.mem))
		g.Adopt(p.mem, 0)
	}
	return out
}

func newSystem(t *testing.T, o nebulaio.Options) *nebulaio.System {
	t.Helper()
	s, err := nebulaio.NewSystem(o)
	return closing.AtEnd(t, s, err)
}

func openFile(t *testing.T, p *place, path string, o nebulaio.FileOptions) *nebulaio.File {
	t.Helper()
	o.Device = p.device
	f, err := p.sys.OpenFile(path, o)
	return closing.AtEnd(t, f, err)
}

func fill(p []byte, seed byte) { rand.NewChaCha8([32]byte{seed}).Read(p) }

// TestFileAgainstAModel makes random moves of every route and keeps what the
// file should hold beside it.
func TestFileAgainstAModel(t *testing.T) {
	effort.Slow(t)
	moves := effort.Rounds{Test: 12, CI: 30}.Of(t)
	for name, p := range places(t) {
		for _, route := range []nebulaio.Route{"auto", "buffered", "direct", "cufile"} {
			if name == "host" && route == "cufile" {
				continue
			}
			t.Run(name+"/"+string(route), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(7, 8))
				path := filepath.Join(t.TempDir(), "f")
				f := openFile(t, p, path, nebulaio.FileOptions{Write: true, Create: true, Route: route})
				if route == "direct" {
					if _, err := f.Write(t.Context(), p.ptr, 1, 0); errs.Is(err, errs.Unsupported) {
						t.Skip(err)
					}
				}
				var model []byte
				if size, _ := f.Size(); size > 0 {
					model = make([]byte, size)
					copy(model, p.mem[:1])
				}
				for i := range moves {
					n, off, at := rng.Int64N(placeSize/2)+1, rng.Int64N(placeSize/2), rng.Int64N(placeSize/2)
					if i%3 == 0 {
						n, off, at = n&^4095, off&^4095, at&^4095
					}
					if i%2 == 0 {
						fill(p.mem, byte(i))
						if got, err := f.Write(t.Context(), p.ptr+nebulaio.Ptr(at), n, off); got != n || err != nil {
							t.Fatalf("write %d at %d: %d, %v", n, off, got, err)
						}
						if end := off + n; int64(len(model)) < end {
							model = append(model, make([]byte, end-int64(len(model)))...)
						}
						copy(model[off:], p.mem[at:at+n])
						continue
					}
					clear(p.mem)
					want := max(0, min(n, int64(len(model))-off))
					got, err := f.Read(t.Context(), p.ptr+nebulaio.Ptr(at), n, off)
					if got != want || err != nil {
						t.Fatalf("read %d at %d of %d: %d, %v", n, off, len(model), got, err)
					}
					if !bytes.Equal(p.mem[at:at+got], model[off:off+got]) ||
						bytes.ContainsFunc(p.mem[at+got:], func(r rune) bool { return r != 0 }) {
						t.Fatalf("read %d at %d: other bytes, or more than asked for", n, off)
					}
				}
				if err := f.Sync(); err != nil {
					t.Error(err)
				}
				if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, model) {
					t.Errorf("the file differs: %d bytes, expected %d (%v)", len(now), len(model), err)
				}
			})
		}
		if p.gpu != nil {
			p.gpu.CheckIdle()
		}
	}
}

func TestFileTellsItsRoutes(t *testing.T) {
	all := places(t)
	p := all["cuda"]
	path := filepath.Join(t.TempDir(), "f")
	f := openFile(t, p, path, nebulaio.FileOptions{Write: true, Create: true})
	fill(p.mem, 1)
	for _, c := range []struct {
		route nebulaio.Route
		write bool
		want  report.RouteTaken
	}{{"buffered", true, "buffered"}, {"direct", true, "direct"}, {"cufile", true, "cufile_compat"},
		{"cufile", false, "cufile_compat"}, {"direct", false, "direct"}} {
		start := f.StartRead
		if c.write {
			start = f.StartWrite
		}
		m, err := start(t.Context(), p.ptr, placeSize, 0, nebulaio.MoveOptions{Route: c.route})
		if err == nil {
			err = m.Wait()
		}
		if c.route == "direct" && errs.Is(err, errs.Unsupported) {
			continue // a file system without it
		}
		if err != nil {
			t.Fatal(err)
		}
		r := m.Report()
		if len(r.Routes) != 1 || r.Routes[0].Route != c.want || r.Routes[0].Bytes != placeSize || r.Path != path ||
			r.Device.ID != "cuda:0" {
			t.Errorf("%s: %s %+v", c.route, r.Op, r.Routes)
		}
		if c.route == "cufile" && (r.CuFile == nil || r.CuFile.Counters == nil) {
			t.Errorf("%+v", r.CuFile)
		}
		direction, io := "load", "pread"
		if c.write {
			direction, io = "save", "pwrite"
		}
		if c.route == "cufile" {
			io = "unused"
		}
		if r.Direction != direction || r.Engine.IO != io {
			t.Errorf("%s %s: direction %q by %q, expected %q by %q", c.route, r.Op, r.Direction, r.Engine.IO, direction, io)
		}
	}
}

// TestFileOfNothing: where nothing was written nothing set the pace.
func TestFileOfNothing(t *testing.T) {
	p := places(t)["cuda"]
	f := openFile(t, p, filepath.Join(t.TempDir(), "f"),
		nebulaio.FileOptions{Write: true, Create: true, Route: "buffered"})
	for _, n := range []int64{0, 1} {
		m, err := f.StartWrite(t.Context(), p.ptr, n, 0, nebulaio.MoveOptions{})
		if err == nil {
			err = m.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
		if r := m.Report(); r.Bytes != n || (r.Limiting == "none") != (n == 0) || len(r.Routes) != int(n) {
			t.Errorf("%d bytes: %q, %+v", n, r.Limiting, r.Routes)
		}
	}
}

func TestFileInStream(t *testing.T) {
	all := places(t)
	p := all["cuda"]
	path := filepath.Join(t.TempDir(), "f")
	f := openFile(t, p, path, nebulaio.FileOptions{Write: true, Create: true, Route: "cufile"})
	foreign := p.gpu.Thread(0)
	defer foreign.Leave()
	stream := foreign.NewStream()
	defer foreign.DestroyStream(stream)
	fill(p.mem, 3)
	want := bytes.Clone(p.mem)
	w, err := f.WriteAsync(t.Context(), stream, p.ptr, placeSize, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(); err != nil {
		t.Fatal(err)
	}
	clear(p.mem)
	r, err := f.ReadAsync(t.Context(), stream, p.ptr, placeSize, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(); err != nil {
		t.Fatal(err)
	}
	if n, _ := r.Progress(); n != placeSize-4096 || !bytes.Equal(p.mem[:n], want[4096:]) {
		t.Errorf("%d bytes, or other ones", n)
	}
	if rep := r.Report(); rep.CuFile == nil || rep.CuFile.API != "async" || rep.Routes[0].Route != "cufile_compat" {
		t.Errorf("%+v %+v", rep.CuFile, rep.Routes)
	}
	// Without libcufile it has happened by the return, and says why.
	auto, err := f.StartRead(t.Context(), p.ptr, 4096, 0,
		nebulaio.MoveOptions{Route: "auto", Stream: stream, HasStream: true, InStream: true})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-auto.Done():
	default:
		t.Error("the move is not done")
	}
	if rep := auto.Report(); len(rep.Refusals) == 0 || rep.Refusals[0].What != "cufile" ||
		!bytes.Equal(p.mem[:4096], want[:4096]) {
		t.Errorf("%+v", rep.Refusals)
	}
	p.cufile.Fail("cuFileReadAsync", 0, 1, 5038)
	if _, err := f.ReadAsync(t.Context(), stream, p.ptr, 10, 0); !errs.Is(err, errs.Unsupported) {
		t.Error(err)
	}
}

func TestFileRefusals(t *testing.T) {
	p := places(t)["host"]
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]nebulaio.FileOptions{"no/such": {}, ".": {}, "f": {Truncate: true},
		"g": {Write: true}} {
		if f, err := p.sys.OpenFile(filepath.Join(dir, name), o); err == nil {
			t.Errorf("%s %+v was opened", name, o)
			f.Close()
		}
	}
	f := openFile(t, p, path, nebulaio.FileOptions{})
	if _, err := f.Write(t.Context(), p.ptr, 1, 0); !errs.Is(err, errs.Permission) {
		t.Error(err)
	}
	for _, c := range [][2]int64{{-1, 0}, {1, -1}} {
		if _, err := f.Read(t.Context(), p.ptr, c[0], c[1]); !errs.Is(err, errs.Invalid) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if _, err := f.StartRead(t.Context(), p.ptr, 1, 0, nebulaio.MoveOptions{Route: "fast"}); !errs.Is(err, errs.Invalid) {
		t.Error(err)
	}
	if _, err := f.StartRead(t.Context(), p.ptr, 1, 0, nebulaio.MoveOptions{Device: "cuda:0"}); !errs.Is(err,
		errs.NotFound) {
		t.Error(err)
	}
	m, err := f.StartRead(t.Context(), p.ptr, 1, 0, nebulaio.MoveOptions{Route: "cufile"})
	if err == nil {
		err = m.Wait()
	}
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "no GPU") {
		t.Error(err)
	}
	if n, err := f.Read(t.Context(), p.ptr, 100, 10); n != 0 || err != nil {
		t.Errorf("at the end: %d, %v", n, err)
	}
	// Replaced under its name it stays what was opened.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Read(t.Context(), p.ptr, 100, 3); n != 7 || err != nil || string(p.mem[:7]) != "3456789" {
		t.Errorf("%d, %v, %q", n, err, p.mem[:7])
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Read(t.Context(), p.ptr, 1, 0); !errs.Is(err, errs.Closed) {
		t.Error(err)
	}
	if err := f.Sync(); !errs.Is(err, errs.Closed) {
		t.Error(err)
	}
	if _, err := f.Size(); !errs.Is(err, errs.Closed) {
		t.Error(err)
	}
}

// TestFileMovesAtOnce: many moves of one file, some cancelled, and a close that
// waits for the rest.
func TestFileMovesAtOnce(t *testing.T) {
	for name, p := range places(t) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			f := openFile(t, p, path, nebulaio.FileOptions{Write: true, Create: true, Truncate: true})
			fill(p.mem, 9)
			want := bytes.Clone(p.mem)
			const parts = 8
			var wg sync.WaitGroup
			for i := range int64(parts) {
				wg.Go(func() {
					const n = placeSize / parts
					if got, err := f.Write(t.Context(), p.ptr+nebulaio.Ptr(i*n), n, i*n); got != n || err != nil {
						t.Errorf("part %d: %d, %v", i, got, err)
					}
				})
			}
			wg.Wait()
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, want) {
				t.Fatalf("the file differs (%v)", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			m, err := f.StartWrite(ctx, p.ptr, placeSize, 0, nebulaio.MoveOptions{})
			if err == nil {
				err = m.Wait()
			}
			if !errs.Is(err, errs.Cancelled) {
				t.Errorf("cancelled: %v", err)
			}
			for range 4 {
				if _, err := f.StartRead(t.Context(), p.ptr, placeSize, 0, nebulaio.MoveOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if !bytes.Equal(p.mem, want) {
				t.Error("the file was closed under a read")
			}
		})
	}
}
