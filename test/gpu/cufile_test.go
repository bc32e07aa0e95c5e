// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/devicetest"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
	"github.com/nebulaio/nebulaio/report"
)

// refusedHere reports whether cuFile registers no file on this machine, as without udev's database.
func refusedHere(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "(5027)") || strings.Contains(err.Error(), "(5008)") ||
		strings.Contains(err.Error(), "the library was not found"))
}

// directExpected reports whether this machine has a direct route, so that compat is not the only right answer.
func directExpected() bool {
	params, _ := os.ReadFile("/proc/driver/nvidia/params")
	_, err := os.Stat("/proc/driver/nvidia-fs")
	return err == nil || bytes.Contains(params, []byte("RMForceStaticBar1=1"))
}

// TestCuFileRoutes loads a model by each interface of libcufile, compares every byte, and compares the report with
// the counters. The child process ends while cuFile is counting, which must not crash it.
func TestCuFileRoutes(t *testing.T) {
	if os.Getenv(inChild) == "" {
		needGPU(t) // before the child generates a model
		again(t, "close")
		return
	}
	path := filepath.Join(dir(t), "m.safetensors")
	generate(t, path, "qwen3-0.6b", 9, 0)
	for _, api := range []string{"sync", "async", "batch"} {
		t.Run(api, func(t *testing.T) {
			sys := open(t, nebulaio.Options{CuFile: api})
			for range 2 {
				m, err := sys.Load(t.Context(), path, nebulaio.LoadOptions{Device: "cuda:0", Route: "cufile"})
				if refusedHere(err) {
					t.Skip(err)
				}
				if err != nil {
					t.Fatal(err)
				}
				r := m.Report()
				t.Logf("%.2f GB/s, %+v, %+v, %+v, notes %q", r.GBps, r.Routes, r.CuFile, r.CuFile.Counters, r.Notes)
				verify(t, sys, m, path, 9)
				if err := m.Free(); err != nil {
					t.Error(err)
				}
				if r.CuFile == nil || string(r.CuFile.API) != api || r.CuFile.Counters == nil {
					t.Errorf("cufile %+v", r.CuFile)
				}
				if !directExpected() && (len(r.Routes) != 1 || r.Routes[0].Route != report.RouteTakenCuFileCompat ||
					r.Routes[0].Bytes != r.Bytes) {
					t.Errorf("without a direct route the report says %+v", r.Routes)
				}
			}
		})
	}
}

// TestAutoLeavesCuFileAlone checks that libcufile is not opened if no file makes a direct route plausible. A cold
// load then reports the reason.
func TestAutoLeavesCuFileAlone(t *testing.T) {
	if directExpected() {
		t.Skip("this machine may have a direct route")
	}
	sys := open(t, nebulaio.Options{BeforeCuFile: func() error { t.Error("libcufile is opened"); return nil }})
	path := filepath.Join(dir(t), "m.safetensors")
	generate(t, path, "tiny", 2, 0)
	src, err := sys.OpenSource(t.Context(), path, nebulaio.SourceOptions{Device: "cuda:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if _, err := src.DropCache(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	m, err := src.Load(t.Context(), nebulaio.SourceLoadOptions{Cache: "bypass"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	t.Logf("%v, %+v, %+v", time.Since(began), m.Report().Routes, m.Report().Refusals)
	for _, x := range m.Report().Refusals {
		if x.What == "cufile" && x.Reason != "" && x.Fix != "" {
			return
		}
	}
	for _, r := range m.Report().Routes {
		if r.Route == report.RouteTakenDirect {
			t.Error("bytes went past the page cache, and the report does not say why cuFile took no part")
		}
	}
}

// TestFilesThroughCuFile writes and reads ranges, also in streams.
func TestFilesThroughCuFile(t *testing.T) {
	if os.Getenv(inChild) == "" {
		again(t, "close")
		return
	}
	const size = 64<<20 + 12345
	dev := card(t)
	b, host := devicetest.Buffer(t, dev, size), devicetest.HostBytes(t, size)
	rand.NewChaCha8([32]byte{5}).Read(host)
	want := bytes.Clone(host)
	q := devicetest.Queue(t, dev)
	move := func(do func() error) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if err := q.Drain(); err != nil {
			t.Fatal(err)
		}
	}
	stream := q.(device.Streamer).Stream()
	sys := open(t, nebulaio.Options{})
	for _, route := range []nebulaio.Route{"auto", "direct", "buffered", "cufile"} {
		f, err := sys.OpenFile(filepath.Join(dir(t), "f"),
			nebulaio.FileOptions{Write: true, Create: true, Device: "cuda:0", Route: route})
		if err != nil {
			t.Fatal(err)
		}
		copy(host, want)
		move(func() error { return q.CopyIn(b.Ptr(), host) })
		w, err := f.StartWrite(t.Context(), nebulaio.Ptr(b.Ptr()), size, 0, nebulaio.MoveOptions{})
		if err == nil {
			err = w.Wait()
		}
		if refusedHere(err) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: written at %.2f GB/s by %+v", route, w.Report().GBps, w.Report().Routes)
		for _, inStream := range []bool{false, true} {
			clear(host)
			move(func() error { return q.CopyIn(b.Ptr(), host) })
			m, err := f.StartRead(t.Context(), nebulaio.Ptr(b.Ptr()), size, 0,
				nebulaio.MoveOptions{Stream: stream, HasStream: true, InStream: inStream})
			if err != nil {
				t.Fatal(err)
			}
			// In the order of the stream, what is queued behind it sees the bytes.
			if !inStream {
				err = m.Wait()
			}
			if err != nil {
				t.Fatal(err)
			}
			move(func() error { return q.CopyOut(host, b.Ptr()) })
			if err := m.Wait(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: in stream %v, %.2f GB/s by %+v, %+v", route, inStream, m.Report().GBps, m.Report().Routes,
				m.Report().Refusals)
			if !bytes.Equal(host, want) {
				t.Errorf("%s, in stream %v: other bytes", route, inStream)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDirectQueuesAndBatchesAreExact uses the binding as the engine does.
func TestDirectQueuesAndBatchesAreExact(t *testing.T) {
	if os.Getenv(inChild) == "" {
		again(t, "close")
		return
	}
	const size, piece = 32 << 20, 1 << 20
	dev, d := direct(t)
	name := filepath.Join(dir(t), "content")
	want := vfstest.Write(t, name, size, 6)
	f := openFile(t, d, name, unix.O_RDONLY)
	b, host, q := devicetest.Buffer(t, dev, size), devicetest.HostBytes(t, size), devicetest.Queue(t, dev)
	check := func(what string) {
		t.Helper()
		if err := q.CopyOut(host, b.Ptr()); err != nil {
			t.Fatal(err)
		}
		if err := q.Drain(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(host, want) {
			t.Errorf("%s: other bytes", what)
		}
		clear(host)
		if err := q.CopyIn(b.Ptr(), host); err != nil {
			t.Fatal(err)
		}
		if err := q.Drain(); err != nil {
			t.Fatal(err)
		}
	}
	counting := d.StartCounting()
	ops, err := hostmem.Map(size / piece * 64)
	if err != nil {
		t.Fatal(err)
	}
	defer ops.Unmap()
	var queued []*device.StreamOp
	for i := int64(0); i < size/piece; i++ {
		op, err := device.NewStreamOp(ops.Bytes()[i*64:], piece, i*piece, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.(device.StreamFile).ReadAsync(b.Ptr()+device.Ptr(i*piece), op, q.(device.Streamer).Stream()); err != nil {
			t.Fatal(err)
		}
		queued = append(queued, op)
	}
	if err := q.Drain(); err != nil {
		t.Fatal(err)
	}
	for i, op := range queued {
		if n, err := f.(device.StreamFile).Moved(op); n != piece || err != nil {
			t.Errorf("operation %d: %d, %v", i, n, err)
		}
	}
	check("streams")
	c, err := d.Counters()
	t.Logf("streams: %+v, %v, %v", c, err, counting)
	all := device.RouteOps{Total: size / piece, Posix: size / piece}
	if compatOnly(d) && (c.CountedBy != device.CountedByNebulaIO || c.Reads != all || c.ReadBytes != size) {
		t.Errorf("streams: %+v, want %+v", c, all)
	}

	batch, err := d.(device.Batcher).NewDirectBatch(16)
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < size; at += 16 * piece {
		var reads []device.DirectRead
		for i := range int64(16) {
			off := at + i*piece
			reads = append(reads, device.DirectRead{File: f, Base: b.Ptr() + device.Ptr(off), N: piece, FileOff: off,
				Cookie: uint64(i)})
		}
		if err := batch.Submit(reads); err != nil {
			t.Fatal(err)
		}
		for left := 16; left > 0; {
			done, err := batch.Wait(10 * time.Second)
			if err != nil || len(done) == 0 {
				t.Fatalf("%d left: %v", left, err)
			}
			for _, x := range done {
				if x.Err != nil || x.N != piece {
					t.Fatalf("%+v", x)
				}
			}
			left -= len(done)
		}
	}
	if err := batch.Close(); err != nil {
		t.Error(err)
	}
	check("batches")
	now, err := d.Counters()
	since := now.Minus(c)
	t.Logf("batches: %+v, %v", since, err)
	if compatOnly(d) && (since.Batch != all || since.BatchBytes != size) {
		t.Errorf("batches: %+v, want %+v", since, all)
	}
	// Now and then the library counts their bytes and not the operations.
	if !errs.Is(counting, errs.Unsupported) && since.ReadRoute() == device.RouteNone && since.BatchBytes == 0 {
		t.Error("neither level counted the batches")
	}
}
