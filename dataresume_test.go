// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/test/effort"
)

// folder writes loose files with the text of their numbers, and returns their folder.
func folder(t *testing.T, files int) string {
	t.Helper()
	dir := t.TempDir()
	for n := range files {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(1000+n)+".txt"), []byte(text(n, "file")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// take reads `most` batches of one rank and returns their samples and the state after them.
func take(t *testing.T, d *nebulaio.Data, o nebulaio.LoaderOptions, most int) ([]int64, *nebulaio.LoaderState) {
	t.Helper()
	l, err := d.NewLoader(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	var seen []int64
	state := o.State
	for range most {
		b, err := l.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		seen, state = append(seen, b.Samples...), &b.State
		b.Free()
	}
	return seen, state
}

// TestAJobResumesWithOtherRanks stops a job 200 times at random places: it runs with one rank, then with four, then
// with three. Each sample of the epoch is read exactly once, and the order does not depend on the stops.
func TestAJobResumesWithOtherRanks(t *testing.T) {
	effort.Slow(t)
	const samples = 96
	d := openData(t, nebulaio.DataOptions{}, folder(t, samples))
	rng := rand.New(rand.NewPCG(1, 6))
	for stop := range (effort.Rounds{Test: 50, CI: 200}).Of(t) {
		o := nebulaio.LoaderOptions{Batch: 1 + rng.Int64N(5), Seed: rng.Uint64(), Epochs: 1, Tail: "short",
			Shuffle: []string{"full", "blocks", "stored"}[stop%3]}
		if o.Shuffle == "blocks" {
			o.ShuffleBlock, o.ShuffleWindow = 8, 3
		}
		var state *nebulaio.LoaderState
		var seen []int64
		left := int64(samples)
		for _, world := range []int{1, 4, 3} {
			o.Batch = 1 + rng.Int64N(5)
			steps := int(rng.Int64N((left-1)/(o.Batch*int64(world)) + 1)) // not to the end of the epoch
			if world == 3 {
				steps = samples
			}
			at := state
			for rank := range world {
				o.Rank, o.World, o.State = rank, world, at
				got, after := take(t, d, o, steps)
				seen = append(seen, got...)
				if rank == 0 || after != nil && (state == nil || after.Position > state.Position) {
					state = after
				}
				if steps < samples && at != nil && after.Position != at.Position+int64(steps)*o.Batch*int64(world) {
					t.Fatalf("stop %d: position %d after %d steps of %d x %d from %d", stop, after.Position, steps, world,
						o.Batch, at.Position)
				}
			}
			left = int64(samples - len(seen))
		}
		slices.Sort(seen)
		for i, n := range seen {
			if int64(i) != n {
				t.Fatalf("stop %d: sample %d is in place %d of %d", stop, n, i, len(seen))
			}
		}
		if len(seen) != samples {
			t.Fatalf("stop %d: %d samples, expected %d", stop, len(seen), samples)
		}
	}
}

// TestMemoryIsReusedAfterTheStream keeps a batch in use by a stream of the caller: its memory is not used for other
// batches before the stream has passed, and is used afterwards.
func TestMemoryIsReusedAfterTheStream(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	sys := open(t, nebulaio.Options{CUDALibrary: g.CUDA, NVMLLibrary: g.NVML, BufferPoolSize: 16 << 20})
	d, err := sys.OpenData(t.Context(), []string{folder(t, 64)}, nebulaio.DataOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const ahead = 64 << 20 // so much that the loader keeps all memory that comes back
	l, err := d.NewLoader(t.Context(), nebulaio.LoaderOptions{Batch: 2, Device: "cuda:0", Ahead: ahead})
	if err != nil {
		t.Fatal(err)
	}
	next := func() *nebulaio.DataBatch {
		t.Helper()
		b, err := l.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range b.Samples {
			if got, err := b.Read(0, i); err != nil || string(got) != text(int(n), "file") {
				t.Fatalf("sample %d: %q, %v", n, got, err)
			}
		}
		return b
	}
	user := g.Thread(0)
	stream := user.NewStream()
	g.HoldStream(stream, true)
	held := next()
	at, size := held.Columns[0].Ptr, held.Columns[0].Size
	mem := device.Ptr(at)
	written := hostMemory(t, sys, size)
	user.Copy(stream, mem, written) // work of the caller on the memory of the batch
	held.FreeAfter(stream)
	for range 40 {
		b := next()
		if b.Columns[0].Ptr == at {
			t.Fatal("the memory is used again before the stream has passed")
		}
		b.Free()
	}
	g.HoldStream(stream, false)
	user.DestroyStream(stream) // waits for the copy
	user.Leave()
	again := false
	var kept []*nebulaio.DataBatch
	for range 400 { // not freed at once: what was freed first is used again last
		b := next()
		kept = append(kept, b)
		if again = b.Columns[0].Ptr == at; again {
			break
		}
	}
	for _, b := range kept {
		b.FreeAfter(0)
	}
	if !again {
		t.Error("the memory is never used again")
	}
	if err := errors.Join(l.Close(), d.Close(), sys.Close()); err != nil {
		t.Fatal(err)
	}
	g.CheckIdle()
}

// hostMemory returns memory outside of the Go heap.
func hostMemory(t *testing.T, sys *nebulaio.System, n int64) []byte {
	t.Helper()
	m, err := sys.Alloc(t.Context(), "host", n)
	if err != nil {
		t.Fatal(err)
	}
	p := uintptr(m.Ptr())
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), n)
}
