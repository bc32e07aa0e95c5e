// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/units"
)

// suite is shaped as what "bench all" finds: names that differ at their end,
// sweeps of runs with one name, a limit that was measured too low, and a
// training-shaped run that hardly ever waits.
func suite() *record.File {
	f := h200()
	f.Command = []string{"nebulaio", "bench", "all", "/data/bench"}
	f.Runs, f.Sweeps, f.Notes = nil, nil, nil
	read := func(name, memory, pattern string, block int64, workers int, warm bool, gbps float64) int {
		s := coldRead(block, workers)
		s.Memory, s.Pattern, s.Route = memory, pattern, "auto"
		r := runOf(name+", "+pattern+", "+units.Bytes(block), s, 8*gibi, gbps)
		if warm {
			r.Settings.Cache, r.Settings.Route = "warm", "buffered"
			r = cached(r, record.H2DPageable, "pageable host memory to cuda:0", 8.3)
		} else {
			r = stored(r)
		}
		f.Runs = append(f.Runs, r)
		return len(f.Runs) - 1
	}
	for _, m := range []struct{ name, memory string }{{"storage to host memory", "host"},
		{"storage to device, pageable", "pageable"}, {"storage to device, pinned", "pinned"}} {
		read(m.name, m.memory, "sequential", mebi, 8, false, 3.1)
		read(m.name, m.memory, "sequential", mebi, 8, true, 10.2)
	}
	read("storage to host memory", "host", "random", 4096, 8, false, 0.74)
	read("storage to device, by the engine", "engine", "sequential", mebi, 10, false, 4.32)
	workers := record.Sweep{ID: "workers", Question: "How many workers are worth using?", Axis: "workers", Unit: "count",
		Answer: "4 workers reach 4.28 GB/s."}
	for _, series := range []string{"from storage", "from the page cache"} {
		for i, rate := range []float64{2.2, 3.9, 4.28, 4.3, 3.8} {
			at := read("storage to host memory", "host", "sequential", mebi, 1<<i, series != "from storage", rate)
			workers.Points = append(workers.Points, record.SweepPoint{Series: series, X: float64(int(1) << i),
				Label: fmt.Sprint(1 << i), Run: at})
		}
	}
	ahead := record.Sweep{ID: "prefetch", Question: "How many batches ahead keep the device busy?", Axis: "batches ahead",
		Unit: "count", Answer: "1 is enough."}
	for i, au := range []float64{0.556, 0.9999, 0.9999} {
		at := read(fmt.Sprintf("training, %d batches ahead", i), "pinned", "random", mebi, 4, false, 1.36+float64(min(i, 1)))
		r := &f.Runs[at]
		r.Share, r.Latency, r.Settings.IO, r.Settings.Prefetch = nil, nil, "train", i
		ahead.Points = append(ahead.Points, record.SweepPoint{Series: "training", X: float64(i), Label: fmt.Sprint(i),
			Run: at, AU: au})
	}
	f.Sweeps = []record.Sweep{workers, ahead}
	t := training().Train
	t.Workload, t.WantedAU, t.AU, t.Bound = "custom", 0, 0.9999, string(bottleneck.Compute)
	t.Target, t.Isolated, t.Copy, t.Idle, t.IdleP99 = 0.02, 0.00965, 0.000617, 1.27e-6, 1.28e-6
	t.Why, t.Next = "steps take 20.0 ms and wait 1 µs", []string{"nothing: the loader keeps up"}
	at := 0.0
	for i := range t.Trace {
		t.Trace[i] = record.StepAt{Ready: at, Begin: at + 1.27e-6, End: at + 0.02}
		at += 0.02
	}
	f.Train = t
	return f
}
