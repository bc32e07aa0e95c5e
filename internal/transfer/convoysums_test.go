// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"slices"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/devicetest"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
)

// newSummed is newWaiting with a checksum for each seat. The sums of the first mostFlying seats start alone, and those
// of the others together with the sums of their batch.
func newSummed(t *testing.T, arrange func(g *fakegpu.GPU)) *waiting {
	t.Helper()
	w := newWaiting(t, nil, func(*fakegpu.GPU) {}, func(w *waiting, i int) {
		if i == 0 {
			arrange(w.g)
		}
		w.all[i].sum = device.SumStart{Sum: devicetest.Sum(t, w.v.queue, seatSize/device.SumTile),
			Ptr: w.dst + device.Ptr(i*seatSize), N: seatSize, First: device.SumTile, Size: device.SumTile}
	})
	w.g.HoldSums()
	w.g.Release()
	return w
}

// checkSums checks that the sums of all seats are right, except that of the given seat, which fails.
func (w *waiting) checkSums(t *testing.T, bad int) {
	t.Helper()
	for i := range w.all {
		s := &w.all[i]
		err := errors.Join(w.added[i], s.Wait(), s.WaitSum())
		if (err != nil) != (i == bad) {
			t.Errorf("seat %d: %v", i, err)
		}
		if err != nil {
			continue
		}
		var want []uint64
		for part := range slices.Chunk(w.mem[i*seatSize:][:seatSize], device.SumTile) {
			want = append(want, checksum.Of(part))
		}
		if !slices.Equal(s.sum.Sum.Tiles(), want) {
			t.Errorf("seat %d has other sums", i)
		}
	}
}

func TestSumsOfABatchStartTogether(t *testing.T) {
	w := newSummed(t, func(*fakegpu.GPU) {})
	for i := range w.all {
		if err := w.all[i].Wait(); err != nil {
			t.Fatal(err)
		}
		if done, err := w.all[i].SumDone(); done || err != nil {
			t.Errorf("seat %d: the sum is done: %v, %v", i, done, err)
		}
		if together := w.all[i].batch.Load().sums != nil; together != (i >= mostFlying && i < seats-1) {
			t.Errorf("seat %d: the sum started together: %v", i, together)
		}
	}
	w.g.ReleaseSums()
	w.checkSums(t, -1)
}

// TestSumsThatAreRefusedTogetherStartAlone refuses one kernel of a batch once: all sums start at the second attempt.
func TestSumsThatAreRefusedTogetherStartAlone(t *testing.T) {
	w := newSummed(t, func(g *fakegpu.GPU) { g.Fail("cuLaunchKernel", mostFlying+1, 1, fakegpu.InvalidValue) })
	w.g.ReleaseSums()
	w.checkSums(t, -1)
}

// TestARefusedSumFailsAlone refuses one sum, also when it starts alone.
func TestARefusedSumFailsAlone(t *testing.T) {
	w := newSummed(t, func(g *fakegpu.GPU) { g.Fail("cuLaunchKernel", mostFlying, 2, fakegpu.InvalidValue) })
	w.g.ReleaseSums()
	w.checkSums(t, mostFlying)
}

// TestAKernelThatFaults fails the seats of its batch, and leaves nothing running.
func TestAKernelThatFaults(t *testing.T) {
	w := newSummed(t, func(g *fakegpu.GPU) { g.FailSum(mostFlying+2, fakegpu.LaunchFailed, false) })
	w.g.ReleaseSums()
	failed := 0
	for i := range w.all {
		if errors.Join(w.added[i], w.all[i].Wait(), w.all[i].WaitSum()) != nil {
			failed++
		}
	}
	if failed == 0 {
		t.Error("no seat failed")
	}
	w.g.CheckIdle()
}
