// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/server"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// crowd is a rig whose door allows few handles, with a client and an object that needs a handle.
type crowd struct {
	*rig
	c    *Client
	data []byte
}

func newCrowd(t *testing.T, gpu bool, handles int) *crowd {
	r := newRig(t, gpu, func(r *rig) { r.limits = server.Limits{Handles: handles} })
	x := &crowd{r, r.client(), content(3, 100000)}
	r.put("k", x.data)
	return x
}

// start starts a batch of n reads of the object to memory of a device.
func (x *crowd) start(ctx context.Context, mem *memory, id string, n int) *Move {
	x.t.Helper()
	reads := make([]Read, n)
	for i := range reads {
		reads[i] = Read{Bucket: "b", Key: "k", Size: -1, Device: id, Dst: mem.ptr() + device.Ptr(i*len(x.data)),
			DstSize: int64(len(x.data))}
	}
	m, err := x.c.StartReadMany(ctx, reads)
	if err != nil {
		x.t.Fatal(err)
	}
	return m
}

// succeeds waits for a batch of n reads, which must bring all bytes.
func (x *crowd) succeeds(m *Move, mem *memory, n int) {
	x.t.Helper()
	if err := m.Wait(); err != nil {
		x.t.Error(err)
		return
	}
	if !bytes.Equal(mem.get(n*len(x.data)), bytes.Repeat(x.data, n)) {
		x.t.Error("other bytes came")
	}
	rep := m.Report()
	for i, o := range rep.Objects {
		if o.Error != "" || o.Bytes != int64(len(x.data)) {
			x.t.Errorf("object %d: %+v", i, o)
		}
	}
	if want := int64(n * len(x.data)); rep.Size != want || rep.Bytes != want {
		x.t.Errorf("%d of %d bytes are reported, expected %d", rep.Bytes, rep.Size, want)
	}
}

// over checks that no handle and no token is left.
func (x *crowd) over() {
	x.t.Helper()
	x.trace()
	if a, b, c := len(x.c.windows), len(x.c.reads), len(x.c.again); a+b+c > 0 {
		x.t.Errorf("%d, %d and %d tokens are left", a, b, c)
	}
}

// TestBatchesShareFewHandles: batches whose windows do not fit the server's limit at the same time all succeed.
func TestBatchesShareFewHandles(t *testing.T) {
	for _, handles := range []int{windowSize, windowSize + 8, 5 * windowSize} {
		x := newCrowd(t, false, handles)
		const n = 5*windowSize + 3
		together(3, func(int) {
			mem := x.alloc("host", n*len(x.data))
			x.succeeds(x.start(t.Context(), mem, "host", n), mem, n)
		})
		x.over()
	}
}

// TestAWindowThatCannotFit: a window for which the server has no room fails with the server's error, although nothing
// else of the client ends. A file that stays open is not waited for.
func TestAWindowThatCannotFit(t *testing.T) {
	x := newCrowd(t, false, windowSize)
	f, err := x.c.OpenFile(t.Context(), "b", "k", "", "host")
	if err != nil {
		t.Fatal(err)
	}
	mem := x.alloc("host", 3*windowSize*len(x.data))
	for _, n := range []int{windowSize, 3 * windowSize} {
		m := x.start(t.Context(), mem, "host", n)
		err := m.Wait()
		if codeOf(err) != wire.CodeTooManyHandles || !strings.Contains(errs.FixOf(err), "gpudirect.max_handles") {
			t.Errorf("%d reads: %v", n, err)
		}
		named := 0
		for _, o := range m.Report().Objects {
			if strings.Contains(o.Error, "objects are open by this access key") {
				named++
			}
		}
		if named == 0 {
			t.Errorf("%d reads: no object has the error", n)
		}
	}
	x.succeeds(x.start(t.Context(), mem, "host", windowSize-1), mem, windowSize-1)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	x.over()
}

// TestAWindowWaitsForRoom: a refused window waits for windows and reads of its client, and ends if it is cancelled.
func TestAWindowWaitsForRoom(t *testing.T) {
	x := newCrowd(t, true, windowSize)
	waits := func() bool { return len(x.c.again) == 1 }
	held, mem := x.alloc("cuda:0", windowSize*len(x.data)), x.alloc("host", windowSize*len(x.data))
	for _, first := range []string{"batch", "read"} {
		x.gpu.Hold(0)
		var before *Move
		used := int64(windowSize)
		if first == "batch" {
			before = x.start(t.Context(), held, "cuda:0", windowSize)
		} else {
			var err error
			used = 1
			if before, err = x.c.StartRead(t.Context(), Read{Bucket: "b", Key: "k", Size: -1, Device: "cuda:0",
				Dst: held.ptr(), DstSize: int64(len(x.data))}); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the handles are in use", func() bool { return x.door.Stats().Handles == used })
		ctx, cancel := context.WithCancel(t.Context())
		m := x.start(ctx, mem, "host", windowSize)
		eventually(t, "a window waits", waits)
		cancel()
		if err := m.Wait(); !errs.Is(err, errs.Cancelled) {
			t.Errorf("cancelled behind a %s: %v", first, err)
		}
		m = x.start(t.Context(), mem, "host", windowSize)
		eventually(t, "another window waits", waits)
		x.gpu.Release()
		if err := before.Wait(); err != nil {
			t.Error(err)
		}
		x.succeeds(m, mem, windowSize)
		x.over()
	}
}
