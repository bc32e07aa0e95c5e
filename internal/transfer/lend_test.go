// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/transfer/exchange"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
	"github.com/nebulaio/nebulaio/test/effort"
)

// The shared memory has one window. The file is more than twice as large, so that its load uses each slot at least
// twice. After lentCopies copies, the load has begun to pin the memory.
const (
	lentSlots  = shareWindow / exchange.Block
	lentSize   = (2*lentSlots+16)*exchange.Block + 12345
	lentCopies = lentSlots + 14
)

// lendRig has a cold file, a GPU, and another load of the file. This other load shares its memory and needs no block.
type lendRig struct {
	t      *testing.T
	f      *vfs.File
	want   []byte
	gpu    *fakegpu.GPU
	dev    device.Device
	friend *exchange.Exchange
}

func newLendRig(t *testing.T, seed uint64) *lendRig {
	t.Helper()
	path, want := writeFile(t, lentSize, seed)
	f := openFile(t, path)
	requireDirect(t, f)
	dropped(t, f)
	r := &lendRig{t: t, f: f, want: want}
	r.gpu, r.dev = fakegpu.OpenOne(t)
	in, why := vfs.NewInterest(f)
	if in == nil {
		t.Skipf("no agreement on this file system: %v", why)
	}
	t.Cleanup(in.Close)
	if err := in.Want(0, lentSize); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.friend, err = exchange.Join(in, vfs.VersionOf(f), lentSlots*exchange.Block); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.friend.Leave)
	r.friend.Done(math.MaxInt64)
	return r
}

// start begins a load of the whole file and returns after lentCopies copies. Then the GPU makes no further copy until
// it is released.
func (r *lendRig) start(e *Engine, verify []*checksum.Sums) (*Load, device.Ptr) {
	r.t.Helper()
	r.gpu.Hold(lentCopies)
	b := alloc(r.t, r.dev, lentSize)
	tr, err := e.Start(context.Background(), Request{Device: r.dev, Files: []*vfs.File{r.f}, Verify: verify,
		Segments: []Segment{{Len: lentSize, Dst: b.Ptr()}}, Parts: []Part{{Dst: b.Ptr(), Len: exchange.Block}}})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := tr.Ready(r.t.Context(), 0); err != nil {
		r.t.Fatal(err)
	}
	r.gpu.Await("copies_done", lentCopies)
	return tr, b.Ptr()
}

// pinned waits until the load has pinned the shared memory, or has failed to pin it.
func (r *lendRig) pinned(tr *Load) {
	r.t.Helper()
	l := tr.shared[0].trade.lender.Load()
	if l == nil {
		r.t.Fatal("the load does not pin the shared memory")
	}
	<-l.done
}

// finish waits for a load and compares its bytes.
func (r *lendRig) finish(e *Engine, tr *Load, at device.Ptr) report.Report {
	r.t.Helper()
	if err := tr.Err(); err != nil {
		r.t.Fatal(err)
	}
	if !bytes.Equal(r.gpu.Bytes(at, lentSize), r.want) {
		r.t.Error("the bytes differ")
	}
	rep := tr.Report()
	var n int64
	for _, route := range report.FileRoutes() {
		n += routeBytes(rep, route)
	}
	if n != lentSize {
		r.t.Errorf("the routes have %d bytes, want %d", n, int64(lentSize))
	}
	if err := e.Close(); err != nil {
		r.t.Error(err)
	}
	return rep
}

// The device copies blocks from the shared memory, also if it computes their checksums. Nothing stays pinned.
func TestTheDeviceReadsSharedMemory(t *testing.T) {
	effort.Slow(t)
	for name, on := range map[string]VerifyOn{"plain": "", "sums by the device": VerifyDevice,
		"sums by the CPU": VerifyHost} {
		t.Run(name, func(t *testing.T) {
			r := newLendRig(t, 1930)
			e := newEngine(t, Options{PoolSize: 16 * units.MiB, VerifyOn: on, Poison: true, patience: time.Hour})
			var verify []*checksum.Sums
			if on != "" {
				sums, err := checksum.Compute(t.Context(), r.f.Path(), checksum.DefaultBlock, nil)
				if err != nil {
					t.Fatal(err)
				}
				dropped(t, r.f)
				verify = []*checksum.Sums{sums}
			}
			tr, at := r.start(e, verify)
			if on != VerifyHost {
				r.pinned(tr)
			}
			r.gpu.Release()
			rep := r.finish(e, tr, at)
			copied, err := tr.shared[0].trade.lender.Load().describe()
			if on != VerifyHost && copied < 4*exchange.Block || on == VerifyHost && copied > 0 || err != nil {
				t.Errorf("the device copied %d bytes from the shared memory: %v", copied, err)
			}
			notes := strings.Join(rep.Notes, " ")
			if strings.Contains(notes, "directly from the shared memory") != (copied > 0) {
				t.Errorf("notes %q", rep.Notes)
			}
			r.gpu.CheckPinned()
			r.gpu.CheckIdle()
		})
	}
}

// Blocks that were replaced while the device copied them are read again.
func TestReplacedBlocksAreReadAgain(t *testing.T) {
	r := newLendRig(t, 1931)
	e := newEngine(t, Options{PoolSize: 16 * units.MiB, patience: time.Hour})
	tr, at := r.start(e, nil)
	// The load gives its blocks up while the GPU copies them, as if the other load had taken it for dead.
	tr.shared[0].trade.joined.Load().Done(math.MaxInt64)
	other := func(p []byte) error { clear(p); return nil }
	for k := range int64(lentSlots) {
		found, err := r.friend.Get(10*lentSlots+k, other, func() bool { return false })
		if err != nil || found != exchange.Filled {
			t.Fatalf("slot %d: %v %v", k, found, err)
		}
	}
	r.gpu.Release()
	r.finish(e, tr, at)
	r.gpu.CheckIdle()
}

// Shared memory that cannot be pinned is copied by the CPU, and the report says why.
func TestSharedMemoryThatCannotBePinned(t *testing.T) {
	r := newLendRig(t, 1932)
	e := newEngine(t, Options{PoolSize: 16 * units.MiB, patience: time.Hour})
	r.gpu.Fail("cuMemHostRegister_v2", 0, 1000, fakegpu.OutOfMemory)
	tr, at := r.start(e, nil)
	r.pinned(tr)
	r.gpu.Release()
	rep := r.finish(e, tr, at)
	for _, x := range rep.Refusals {
		if x.What != "pinned shared memory" {
			continue
		}
		if x.On != "cuda:0" || !strings.Contains(x.Reason, "shared with other processes") ||
			!strings.Contains(x.Fix, "ulimit -l") || strings.Contains(x.Fix, "buffer_pool_size") {
			t.Errorf("refusal %+v", x)
		}
		return
	}
	t.Errorf("refusals %+v", rep.Refusals)
}

// A lender that is told to stop, or that fails in the middle, unpins what it has pinned.
func TestALenderUnpins(t *testing.T) {
	r := newLendRig(t, 1933)
	r.gpu.Fail("cuMemHostRegister_v2", 3, 1, fakegpu.OutOfMemory)
	l := newLender(r.friend)
	l.pin(r.dev)
	if n := l.pinned.Load(); n != 3*lentPart || l.err == nil {
		t.Errorf("%d bytes are pinned, error %v", n, l.err)
	}
	unpinned(t, l)
	l = newLender(r.friend)
	l.stop.Store(true)
	if l.pin(r.dev); l.pinned.Load() != 0 {
		t.Error("a lender that was stopped has pinned memory")
	}
	unpinned(t, l)
	unpinned(t, nil)
	r.gpu.CheckIdle()
}

func unpinned(t *testing.T, l *lender) {
	t.Helper()
	if err := l.end(); err != nil {
		t.Error(err)
	}
}

// A lender is retired early if no copy is on its way. Later copies go another way.
func TestALenderRetires(t *testing.T) {
	r := newLendRig(t, 1934)
	l := newLender(r.friend)
	l.pin(r.dev)
	if !l.take() {
		t.Fatal("no copy may begin")
	}
	l.retire()
	if n := r.gpu.Count("registered_ranges"); n == 0 {
		t.Error("the memory of a running copy is not pinned any more")
	}
	l.give()
	l.retire()
	if n := r.gpu.Count("registered_ranges"); n != 0 {
		t.Errorf("%d ranges are pinned after the lender is retired", n)
	}
	if l.take() {
		t.Error("a copy may begin from memory that is not pinned")
	}
	unpinned(t, l)
	r.gpu.CheckIdle()
}

// In a load of two files, the memory of the first file is unpinned as soon as the load has read this file.
func TestSharedMemoryIsUnpinnedAfterItsFile(t *testing.T) {
	r, second := newLendRig(t, 1935), newLendRig(t, 1938)
	e := newEngine(t, Options{PoolSize: 16 * units.MiB, patience: time.Hour})
	r.gpu.Hold(lentCopies)
	b := alloc(t, r.dev, 2*lentSize)
	next := b.Ptr() + lentSize
	tr := start(t, e, context.Background(), Request{Device: r.dev, Files: []*vfs.File{r.f, second.f},
		Segments: []Segment{{Len: lentSize, Dst: b.Ptr()}, {File: 1, Len: lentSize, Dst: next}},
		Parts:    []Part{{Dst: b.Ptr(), Len: lentSize}}})
	r.gpu.Await("copies_done", lentCopies)
	r.pinned(tr)
	r.gpu.Release()
	if _, err := tr.Ready(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	tr.e.ending.Wait()
	l := tr.shared[0].trade.lender.Load()
	if l.take() {
		t.Error("the memory of the first file is still lent")
	}
	if copied, _ := l.describe(); copied == 0 {
		t.Error("nothing was copied directly: the test shows nothing")
	}
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(r.gpu.Bytes(b.Ptr(), lentSize), r.want) || !bytes.Equal(r.gpu.Bytes(next, lentSize), second.want) {
		t.Error("the bytes differ")
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	r.gpu.CheckIdle()
}

// Memory that the driver does not unpin stays mapped, and closing the engine reports the error.
func TestSharedMemoryThatCannotBeUnpinned(t *testing.T) {
	r := newLendRig(t, 1936)
	e, err := New(Options{PoolSize: 16 * units.MiB, patience: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	tr, at := r.start(e, nil)
	r.pinned(tr)
	mem := tr.shared[0].trade.joined.Load().Memory()
	r.gpu.Fail("cuMemHostUnregister", 0, 1, fakegpu.InvalidValue)
	r.gpu.Release()
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(r.gpu.Bytes(at, lentSize), r.want) {
		t.Error("the bytes differ")
	}
	if err := e.Close(); err == nil || !strings.Contains(err.Error(), "cuMemHostUnregister") {
		t.Errorf("closing the engine: %v", err)
	}
	var sum byte
	for i := 0; i < len(mem); i += 4096 {
		sum += mem[i] // the process ends here if the memory is not mapped any more
	}
	t.Logf("sum %d", sum)
}
