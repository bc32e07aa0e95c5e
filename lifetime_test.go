// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// closed fails the test unless err says that something was used after its end.
func closed(t *testing.T, what string, err error) {
	t.Helper()
	if !errs.Is(err, errs.Closed) || !errors.Is(err, fs.ErrClosed) {
		t.Errorf("%s: got %v, expected an error of kind closed", what, err)
	}
}

// Everything that is used after its end says so. Model.Read, Model.Save and Memory.Read used to end the process.
func TestUseAfterTheEnd(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	path, ctx := tiny(t), context.Background()
	s := open(t, nebulaio.Options{CUDALibrary: g.CUDA, NVMLLibrary: g.NVML})
	for _, device := range []string{"host", "cuda:0"} {
		m, err := s.Load(ctx, path, nebulaio.LoadOptions{Device: device})
		if err != nil {
			t.Fatal(err)
		}
		name := m.Names()[0]
		if err := errors.Join(m.Free(), m.Free()); err != nil {
			t.Error(err)
		}
		_, err = m.Read(name)
		closed(t, device+": read of a freed model", err)
		_, err = m.Save(ctx, filepath.Join(t.TempDir(), "x.safetensors"), nebulaio.SaveOptions{})
		closed(t, device+": save of a freed model", err)
		if at, ok := m.Tensor(name); !ok || at.Ptr != 0 || at.Size == 0 {
			t.Errorf("%s: a tensor of a freed model: %+v", device, at)
		}

		mem, err := s.Alloc(ctx, device, 8192)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(mem.Free(), mem.Free()); err != nil {
			t.Error(err)
		}
		closed(t, device+": read of freed memory", mem.Read(make([]byte, 1), 0))
		closed(t, device+": write of freed memory", mem.Write(make([]byte, 1), 0))
		closed(t, device+": read of no bytes of freed memory", mem.Read(nil, 0))
		if mem.Ptr() != 0 || mem.Size() != 8192 || mem.Device().ID != device {
			t.Errorf("%s: freed memory is at 0x%x with %d bytes", device, mem.Ptr(), mem.Size())
		}
	}

	src, err := s.OpenSource(ctx, path, nebulaio.SourceOptions{Device: "host"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(src.Close(), src.Close()); err != nil {
		t.Error(err)
	}
	_, err = src.Load(ctx, nebulaio.SourceLoadOptions{})
	closed(t, "load of a closed source", err)
	_, err = src.StartLoad(ctx, nil, nebulaio.StartLoadOptions{})
	closed(t, "start of a closed source", err)
	_, err = src.Select(nebulaio.SelectOptions{})
	closed(t, "selection of a closed source", err)
	_, err = src.DropCache()
	closed(t, "drop the cache of a closed source", err)
	_, err = src.Cached()
	closed(t, "look at the cache of a closed source", err)
	closed(t, "checksums of a closed source", src.StartChecksums(ctx).Wait())
	if len(src.Files()) != 1 || len(src.Tensors()) == 0 || src.Bytes() == 0 || src.Device().ID != "host" {
		t.Error("a closed source does not describe itself any more")
	}

	f, err := s.OpenFile(path, nebulaio.FileOptions{Device: "host"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	_, err = f.Size()
	closed(t, "size of a closed file", err)
	closed(t, "sync of a closed file", f.Sync())
	_, err = f.Read(ctx, 4096, 1, 0)
	closed(t, "read of a closed file", err)
	_, err = f.Write(ctx, 4096, 1, 0)
	closed(t, "write of a closed file", err)
	_, err = f.ReadAsync(ctx, 0, 4096, 1, 0)
	closed(t, "asynchronous read of a closed file", err)

	ob, err := nebulaio.Open(ctx, path, nebulaio.OpenOptions{System: s, Device: "host"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ob.Close(), ob.Close()); err != nil {
		t.Error(err)
	}
	_, err = ob.Read(ctx, 4096, 1, 0)
	closed(t, "read of a closed object", err)

	w, err := nebulaio.Create(ctx, filepath.Join(t.TempDir(), "new"), 1, nebulaio.CreateOptions{System: s, Device: "host"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Abort(), w.Abort()); err != nil {
		t.Error(err)
	}
	closed(t, "write to an aborted object", w.WriteFrom(ctx, 4096, 1, 0, nebulaio.PieceOptions{}))
	closed(t, "commit of an aborted object", w.Commit(ctx))
}

func TestUseAfterTheSystemsEnd(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	path, ctx := tiny(t), context.Background()
	for _, device := range []string{"host", "cuda:0"} {
		s, err := nebulaio.NewSystem(nebulaio.Options{CUDALibrary: g.CUDA, NVMLLibrary: g.NVML})
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.Load(ctx, path, nebulaio.LoadOptions{Device: device})
		if err != nil {
			t.Fatal(err)
		}
		mem, err := s.Alloc(ctx, device, 4096)
		if err != nil {
			t.Fatal(err)
		}
		src, err := s.OpenSource(ctx, path, nebulaio.SourceOptions{Device: device})
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.NewClient(nebulaio.ClientOptions{Endpoint: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		_, err = m.Read(m.Names()[0])
		closed(t, device+": read of a model", err)
		_, err = m.Save(ctx, filepath.Join(t.TempDir(), "x.safetensors"), nebulaio.SaveOptions{})
		closed(t, device+": save of a model", err)
		closed(t, device+": read of memory", mem.Read(make([]byte, 1), 0))
		_, err = src.Load(ctx, nebulaio.SourceLoadOptions{})
		closed(t, device+": load of a source", err)
		_, err = s.Load(ctx, path, nebulaio.LoadOptions{Device: device})
		closed(t, device+": load", err)
		_, err = s.Alloc(ctx, device, 1)
		closed(t, device+": allocate", err)
		_, err = s.OpenSource(ctx, path, nebulaio.SourceOptions{Device: device})
		closed(t, device+": open a model", err)
		_, err = s.Save(ctx, filepath.Join(t.TempDir(), "y.safetensors"),
			[]nebulaio.SaveTensor{{Name: "a", DType: "U8", Shape: []int64{1}, Bytes: []byte{1}}}, nebulaio.SaveOptions{})
		closed(t, device+": save", err)
		s.Survey()
		freed := errors.Join(m.Free(), mem.Free())
		if device == "host" && freed != nil {
			t.Errorf("host memory outlives its system: %v", freed)
		}
		if device != "host" {
			closed(t, device+": free", freed)
		}
		if err := errors.Join(src.Close(), c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		_, err = c.Stat(ctx, "b", "k", "")
		closed(t, device+": stat of a closed client", err)
		closed(t, device+": delete of a closed client", c.Delete(ctx, "b", "k"))
		_, err = c.StartRead(ctx, nebulaio.ObjectRead{Bucket: "b", Key: "k", Device: "host", Dst: 4096, DstSize: 1})
		closed(t, device+": read of a closed client", err)
	}
}

// Free waits for what reads the memory, and what comes later is refused.
func TestFreeDuringReads(t *testing.T) {
	path, ctx := tiny(t), context.Background()
	s := open(t, nebulaio.Options{})
	for range 20 {
		m, err := s.Load(ctx, path, nebulaio.LoadOptions{Device: "host"})
		if err != nil {
			t.Fatal(err)
		}
		mem, err := s.Alloc(ctx, "host", 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		name := m.Names()[0]
		want, err := m.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		out := filepath.Join(t.TempDir(), "saved.safetensors")
		for i := range 4 {
			all.Go(func() {
				for range 50 {
					got, err := m.Read(name)
					if err != nil {
						closed(t, "read while the model is freed", err)
						break
					}
					if string(got) != string(want) {
						t.Error("other bytes were read while the model is freed")
					}
				}
			})
			all.Go(func() {
				for p := make([]byte, 1<<20); ; {
					if err := mem.Read(p, 0); err != nil {
						closed(t, "read while the memory is freed", err)
						break
					}
					mem.Ptr()
				}
			})
			if i == 0 {
				all.Go(func() {
					if _, err := m.Save(ctx, out, nebulaio.SaveOptions{NoChecksums: true}); err != nil {
						closed(t, "save while the model is freed", err)
						if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
							t.Errorf("a refused save left a file: %v", err)
						}
					}
				})
			}
		}
		for range 2 {
			all.Go(func() {
				if err := errors.Join(m.Free(), mem.Free()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}
