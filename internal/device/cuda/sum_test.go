// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/devicetest"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// tilesOf is what a sum of data should have come to.
func tilesOf(data []byte, first, size int64) (out []uint64) {
	for n := first; len(data) > 0; n = size {
		n = min(n, int64(len(data)))
		out = append(out, checksum.Of(data[:n]))
		data = data[n:]
	}
	return out
}

func same(t *testing.T, got, want []uint64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d tiles, expected %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("tile %d: %016x, expected %016x", i, got[i], want[i])
		}
	}
}

// Several goroutines copy and sum on one queue at once, each with a sum of its own.
func TestSumsAreOfWhatWasCopiedBefore(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	q := devicetest.Queue(t, d)
	const room = 300_000
	var group sync.WaitGroup
	for w := range 6 {
		b, mem := devicetest.Buffer(t, d, room), devicetest.HostBytes(t, room)
		sum, mark := devicetest.Sum(t, q, 100), devicetest.Mark(t, q)
		rng := rand.New(rand.NewPCG(uint64(w), 7))
		group.Go(func() {
			for range 40 {
				at, size := rng.Int64N(64), int64(4096)<<rng.IntN(5)
				n := 1 + rng.Int64N(room-at)
				first := 1 + rng.Int64N(size)
				for i := range mem {
					mem[i] = byte(rng.Uint32())
				}
				err := errors.Join(q.CopyIn(b.Ptr()+device.Ptr(at), mem[:n]), mark.Record(),
					sum.Start(mark, b.Ptr()+device.Ptr(at), n, first, size), sum.Wait())
				if err != nil {
					t.Error(err)
					return
				}
				same(t, sum.Tiles(), tilesOf(mem[:n], first, size))
				if done, err := sum.Done(); !done || err != nil {
					t.Errorf("waited for, and done is %v, %v", done, err)
				}
			}
		})
	}
	group.Wait()
	if n := g.Count("modules"); n != 1 {
		t.Errorf("%d modules were loaded, expected one", n)
	}
	g.CheckIdle()
}

func TestSumsWaitForTheirCopiesAndHoldNoOtherUp(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	q, b, mem := devicetest.Queue(t, d), devicetest.Buffer(t, d, 8192), devicetest.HostBytes(t, 8192)
	copy(mem, "what is copied")
	sum, mark, later := devicetest.Sum(t, q, 1), devicetest.Mark(t, q), devicetest.Mark(t, q)
	must(t, sum.Wait()) // never started
	g.Hold(0)
	g.HoldSums()
	must(t, errors.Join(q.CopyIn(b.Ptr(), mem[:4096]), mark.Record(), sum.Start(mark, b.Ptr(), 4096, 4096, 4096)))
	g.Await("waiting_for_event", 1)
	if done, err := sum.Done(); done || err != nil {
		t.Errorf("done is %v, %v before the copy", done, err)
	}
	g.Release()
	g.Await("sums_held", 1)
	must(t, errors.Join(q.CopyIn(b.Ptr()+4096, mem[4096:]), later.Record(), later.Wait()))
	if done, err := sum.Done(); done || err != nil {
		t.Errorf("done is %v, %v while it is held", done, err)
	}
	g.ReleaseSums()
	must(t, sum.Wait())
	same(t, sum.Tiles(), tilesOf(mem[:4096], 4096, 4096))
	g.CheckIdle()
}

func TestSumsRefuseWhatDoesNotFit(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	d, other := g.Open("cuda:0"), g.Open("cuda:1")
	q, b := devicetest.Queue(t, d), devicetest.Buffer(t, d, 8192)
	sum, mark, others := devicetest.Sum(t, q, 2), devicetest.Mark(t, q), devicetest.Mark(t, devicetest.Queue(t, other))
	hq, err := host.New().NewQueue()
	must(t, err)
	defer hq.Close()
	for name, try := range map[string]func() error{
		"no bytes":          func() error { return sum.Start(mark, b.Ptr(), 0, 1, 1) },
		"no first":          func() error { return sum.Start(mark, b.Ptr(), 8, 0, 1) },
		"a large first":     func() error { return sum.Start(mark, b.Ptr(), 8, 8, 4) },
		"a large tile":      func() error { return sum.Start(mark, b.Ptr(), 8, 8, 2*device.SumTile) },
		"address 0":         func() error { return sum.Start(mark, 0, 8, 8, 8) },
		"too many":          func() error { return sum.Start(mark, b.Ptr(), 12, 4, 4) },
		"another device":    func() error { return sum.Start(others, b.Ptr(), 8, 8, 8) },
		"host":              func() error { return sum.Start(devicetest.Mark(t, hq), b.Ptr(), 8, 8, 8) },
		"room for none":     func() error { _, err := q.(device.Summer).NewSum(0); return err },
		"room for too many": func() error { _, err := q.(device.Summer).NewSum(1 << 20); return err },
	} {
		if err := try(); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := g.Count("sums_queued"); n != 0 {
		t.Errorf("%d sums were queued", n)
	}
}

func TestADriverWithoutSumsSaysWhy(t *testing.T) {
	for _, missing := range []string{"cuMemHostGetDevicePointer_v2", "cuModuleLoadData", "cuLaunchKernel"} {
		g := fakegpu.Build(t, fakegpu.Options{Without: []string{missing}})
		q := devicetest.Queue(t, g.Open("cuda:0"))
		if _, err := q.(device.Summer).NewSum(1); !errs.Is(err, errs.Unsupported) ||
			!strings.Contains(err.Error(), missing) || errs.FixOf(err) == "" {
			t.Errorf("without %s: %v", missing, err)
		}
	}
	g := fakegpu.Build(t, fakegpu.Options{})
	q := devicetest.Queue(t, g.Open("cuda:0"))
	for _, fn := range []string{"cuModuleLoadData", "cuStreamCreate", "cuMemHostRegister_v2",
		"cuMemHostGetDevicePointer_v2", "cuEventCreate"} {
		g.Fail(fn, 0, 1, fakegpu.OutOfMemory)
		if _, err := q.(device.Summer).NewSum(1); err == nil || !strings.Contains(err.Error(), "cuda:0") {
			t.Errorf("%s fails: %v", fn, err)
		}
	}
	must(t, devicetest.Sum(t, q, 1).Wait())
}

func TestAFailedSumIsOutOfTheWay(t *testing.T) {
	for _, sticky := range []bool{false, true} {
		g, d := fakegpu.OpenOne(t)
		q, b := devicetest.Queue(t, d), devicetest.Buffer(t, d, 4096)
		sum, mark := devicetest.Sum(t, q, 1), devicetest.Mark(t, q)
		g.FailSum(1, fakegpu.LaunchFailed, sticky)
		g.HoldSums() // else a dead context refuses the record already
		must(t, sum.Start(mark, b.Ptr(), 4096, 4096, 4096))
		g.ReleaseSums()
		if err := sum.Wait(); !errs.Is(err, errs.Device) || !strings.Contains(err.Error(), "CUDA_ERROR_LAUNCH_FAILED") {
			t.Errorf("sticky %v: %v", sticky, err)
		}
		g.CheckIdle()
	}
	for _, fn := range []string{"cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent"} {
		g, d := fakegpu.OpenOne(t)
		q, b := devicetest.Queue(t, d), devicetest.Buffer(t, d, 4096)
		sum, mark := devicetest.Sum(t, q, 1), devicetest.Mark(t, q)
		must(t, mark.Record())
		g.Fail(fn, 0, 1, fakegpu.LaunchFailed)
		if err := sum.Start(mark, b.Ptr(), 4096, 4096, 4096); !errs.Is(err, errs.Device) ||
			!strings.Contains(err.Error(), strings.TrimSuffix(fn, "_v2")) {
			t.Errorf("%s: %v", fn, err)
		}
		if n := g.Count("sums_in_flight"); n != 0 {
			t.Errorf("%s: %d sums are in flight", fn, n)
		}
	}
}

func TestClosingAQueueFreesItsSums(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	q, err := d.NewQueue()
	must(t, err)
	for range 40 { // more than a slab holds
		s, err := q.(device.Summer).NewSum(1025)
		must(t, err)
		must(t, s.Close())
	}
	must(t, errors.Join(q.Close(), d.Close()))
	g.CheckFreed()
}
