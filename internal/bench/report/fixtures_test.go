// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/units"
)

const (
	gibi = int64(units.GiB)
	mebi = int64(units.MiB)
)

// wobble is noise that is the same each time.
func wobble(i int) float64 { return math.Sin(float64(i)*12.9898) * math.Cos(float64(i)*4.1414) }

func h200Machine() record.Machine {
	return record.Machine{
		Kernel: "6.8.0-60-generic", Arch: "amd64", CPU: "Intel Xeon Platinum 8480C", CPUs: 16, Memory: 128 * gibi,
		Device: record.Device{ID: "cuda:0", Kind: "cuda", Model: "NVIDIA H200", Driver: "570.86.15", PCI: "0000:0f:00.0",
			Memory: 139 * gibi},
		Storage: []record.Storage{{Path: "/data/bench", FS: "ext4", Source: "/dev/nvme0n1p1", Block: "nvme0n1",
			Model: "SAMSUNG MZQL23T8HCLS", Firmware: "GDC5602Q", Direct: true}},
	}
}

func h200Ceilings() *record.Ceilings {
	l := func(id, name, on string, v float64, how string) record.Limit {
		return record.Limit{ID: id, Name: name, On: on, GBps: v, Rounds: []float64{v * 0.994, v, v * 1.003}, How: how}
	}
	return &record.Ceilings{
		Schema: 1, Version: "0.3.0", Measured: time.Date(2026, 11, 15, 3, 58, 2, 0, time.UTC), Machine: h200Machine(),
		Limits: []record.Limit{
			l(record.MemoryCopy, "memory copy, 16 threads", "", 142.6, "1 GiB a thread"),
			l(record.PageCache, "page cache read", "/dev/nvme0n1p1", 61.0, "pread of 4 MiB"),
			l(record.H2DPinned, "pinned host memory to cuda:0", "cuda:0", 55.4, "64 MiB copies on one stream"),
			l(record.D2HPinned, "cuda:0 to pinned host memory", "cuda:0", 54.9, "64 MiB copies on one stream"),
			l(record.H2DPageable, "pageable host memory to cuda:0", "cuda:0", 8.3, "64 MiB copies"),
			l(record.StorageRead, "storage read", "/dev/nvme0n1p1", 4.0, "O_DIRECT, 1 MiB, 64 in flight"),
			l(record.StorageWrite, "storage write", "/dev/nvme0n1p1", 2.1, "O_DIRECT, 1 MiB, 64 in flight"),
		},
	}
}

func latencyAround(p50 float64, n int64) *record.Latency {
	l := &record.Latency{Min: p50 * 0.6, Mean: p50 * 1.07, P50: p50, P90: p50 * 1.35, P99: p50 * 2.2, P999: p50 * 5.1,
		Max: p50 * 9.7}
	for i := range 40 {
		at := p50 * 0.6 * math.Pow(9.7/0.6, float64(i+1)/40)
		x := math.Log(at / p50)
		width := 0.14
		if x > 0 {
			width = 0.3
		}
		c := int64(float64(n) * 0.24 * (math.Exp(-x*x/(2*width*width)) + 0.01*math.Exp(-math.Abs(x-1.3)*2)))
		l.Buckets = append(l.Buckets, record.Bucket{UpTo: at, Count: c})
	}
	return l
}

// runOf makes a run whose parts agree with one another.
func runOf(name string, s record.Settings, bytes int64, gbps float64) record.Run {
	secs := float64(bytes) / gbps / 1e9
	r := record.Run{
		Name: name, Settings: s, Bytes: bytes, Seconds: secs, GBps: gbps,
		First: &record.Done{Seconds: secs * 0.962, Bytes: int64(float64(bytes) * 0.982), GBps: gbps * 0.982 / 0.962},
		Last:  record.Done{Seconds: secs, Bytes: bytes, GBps: gbps},
		CPU:   record.CPU{User: secs * 0.11, System: secs * 0.83, PerGiB: secs * 0.94 / (float64(bytes) / float64(gibi))},
	}
	if s.BlockSize > 0 {
		r.Ops = bytes / s.BlockSize
		r.IOPS = float64(r.Ops) / secs
		inFlight := float64(max(s.Workers, 1) * max(s.QueueDepth, 1))
		r.Latency = latencyAround(inFlight/r.IOPS/1.07, r.Ops)
	}
	for i := range 24 {
		v := gbps * (1 + 0.02*wobble(i+len(name)))
		if i == 0 {
			v *= 0.82
		}
		r.Series = append(r.Series, record.Point{At: secs * float64(i+1) / 24, GBps: v})
	}
	return r
}

func coldRead(block int64, workers int) record.Settings {
	return record.Settings{
		Op: "read", Route: "direct", Memory: "pinned", Pattern: "sequential", BlockSize: block, Workers: workers,
		QueueDepth: 4,
		IO:         "pread", Paths: []string{"/data/bench"}, Files: 8, FileSize: 4 * gibi, Cache: "cold", Seed: 1,
		Limit: "bytes",
	}
}

func stored(r record.Run) record.Run {
	r.Routes = []record.Route{{Route: "direct", Bytes: r.Bytes}}
	r.Proof = "O_DIRECT descriptors, and the block device counted the same bytes"
	r.Storage = &record.Disk{Devices: []string{"nvme0n1"}, Read: r.Bytes + 3*mebi, Written: mebi}
	r.Cache = &record.Cache{Dataset: 32 * gibi, Memory: 128 * gibi, Before: 0, After: 0, Probe: "cachestat",
		Verdict: "storage",
		Why:     "nothing was resident before, and the disk read every byte"}
	r.Share = &record.Share{Of: record.StorageRead, Name: "storage read", Ceiling: 4.0, Ratio: r.GBps / 4.0}
	return r
}

func cached(r record.Run, of, name string, ceiling float64) record.Run {
	r.Routes = []record.Route{{Route: "page_cache", Bytes: r.Bytes}}
	r.Proof = "cachestat before each read"
	r.Cache = &record.Cache{Dataset: 32 * gibi, Memory: 128 * gibi, Before: 32 * gibi, After: 32 * gibi,
		Probe: "cachestat", Verdict: "memory",
		Why: "all of the dataset was in the page cache"}
	r.Share = &record.Share{Of: of, Name: name, Ceiling: ceiling, Ratio: r.GBps / ceiling}
	return r
}

// h200 is a whole evening on a GPU machine: routes, memories and sweeps.
func h200() *record.File {
	f := &record.File{
		Schema: record.Schema, Tool: record.Tool, Version: "0.3.0",
		Command: []string{"nebulaio", "bench", "suite", "--dir", "/data/bench", "--gpu", "0", "--size", "32GiB", "--html",
			"report.html"},
		Started: time.Date(2026, 11, 15, 4, 12, 9, 0,
			time.UTC), Seconds: 312.4, Machine: h200Machine(), Ceilings: h200Ceilings(),
	}
	cold := stored(runOf("direct to cuda:0, pinned", coldRead(mebi, 8), 32*gibi, 3.88))
	cold.Verify = &record.Verify{Bytes: 32 * gibi, Where: "device memory, copied back"}
	cold.Passes = []record.Pass{{Bytes: 32 * gibi, Seconds: 8.86, GBps: 3.88},
		{Bytes: 32 * gibi, Seconds: 8.91, GBps: 3.86}, {Bytes: 32 * gibi, Seconds: 8.83, GBps: 3.89}}
	cold.Refusals = []record.Refusal{{What: "GPUDirect Storage",
		Reason: "nvidia-fs is not loaded and the kernel offers no P2PDMA for nvme0n1",
		Fix:    "nebulaio doctor /data/bench shows the steps"}}
	cold.Stable = &record.Stable{Reached: true, Window: 8, Spread: 0.017, Wanted: 0.03}

	warmSet := record.Settings{Op: "read", Route: "auto", Memory: "engine", Pattern: "sequential", BlockSize: 4 * mebi,
		Workers: 12, IO: "engine",
		Paths: []string{"/data/bench"}, Files: 8, FileSize: 4 * gibi, Cache: "warm", Seed: 1, Limit: "bytes"}
	warm := cached(runOf("engine to cuda:0, warm", warmSet, 32*gibi, 52.3), record.H2DPinned,
		"pinned host memory to cuda:0", 55.4)
	warm.Latency = nil
	pageSet := warmSet
	pageSet.Memory, pageSet.Route, pageSet.IO, pageSet.QueueDepth = "pageable", "buffered", "pread", 1
	pageable := cached(runOf("buffered to cuda:0, pageable, warm", pageSet, 32*gibi, 8.04), record.H2DPageable,
		"pageable host memory to cuda:0", 8.3)
	copySet := record.Settings{Op: "copy", Memory: "pinned", BlockSize: 64 * mebi, Workers: 1, QueueDepth: 2,
		Limit: "time"}
	copied := runOf("copy, pinned to cuda:0", copySet, 256*gibi, 55.2)
	copied.Routes = []record.Route{{Route: "memory", Bytes: copied.Bytes}}
	copied.Proof = "no file took part"
	copied.Share = &record.Share{Of: record.H2DPinned, Name: "pinned host memory to cuda:0", Ceiling: 55.4,
		Ratio: 55.2 / 55.4}
	autoSet := warmSet
	autoSet.Cache = "cold"
	half := stored(runOf("engine to cuda:0, asked cold", autoSet, 32*gibi, 6.92))
	half.Latency = nil
	half.Routes = []record.Route{{Route: "page_cache", Bytes: 14 * gibi}, {Route: "direct", Bytes: 18 * gibi}}
	half.Cache.Before, half.Cache.After, half.Cache.Verdict = 14*gibi, 14*gibi, "both"
	half.Cache.Why = "another process kept 14 GiB of the dataset in the page cache"
	half.Storage.Read = 18 * gibi
	half.Share = &record.Share{Of: record.H2DPinned, Name: "pinned host memory to cuda:0", Ceiling: 55.4,
		Ratio: 6.92 / 55.4}
	half.Notes = []string{"the page cache could not be emptied: not root"}
	f.Runs = []record.Run{cold, warm, pageable, copied, half}

	block := record.Sweep{ID: "block-size", Question: "Which read size does this storage want?", Axis: "read size",
		Unit:   "bytes",
		Answer: "512 KiB reaches 0.95 of the limit; larger reads gain nothing and wait longer."}
	for _, series := range []string{"direct", "buffered"} {
		for i, rate := range []float64{0.62, 1.31, 2.24, 3.32, 3.79, 3.88, 3.90, 3.89} {
			b := int64(16*units.KiB) << i
			s := coldRead(b, 8)
			if series == "buffered" {
				s.Route, rate = "buffered", rate*(0.52+0.04*float64(i))
			}
			r := stored(runOf(series+", "+size(b), s, 8*gibi, rate))
			if series == "buffered" {
				r.Routes[0].Route = "buffered"
			}
			block.Points = append(block.Points, record.SweepPoint{Series: series, X: float64(b), Label: size(b),
				Run: len(f.Runs)})
			f.Runs = append(f.Runs, r)
		}
	}
	memory := record.Sweep{ID: "memory", Question: "What does host memory cost on the way to the GPU?", Axis: "memory",
		Unit:   "",
		Answer: "Pageable memory costs a factor of 6.5; the engine's staging is within 6 % of pinned copies."}
	for _, m := range []struct {
		name string
		run  int
	}{{"pageable", 2}, {"engine", 1}, {"pinned copy", 3}} {
		memory.Points = append(memory.Points, record.SweepPoint{Label: m.name, Run: m.run})
	}
	workers := record.Sweep{ID: "workers", Question: "How many workers fill the disk?", Axis: "workers", Unit: "count",
		Answer: "4 workers are enough (0.94 of the limit); beyond 8 only latency grows."}
	for i, rate := range []float64{1.24, 2.31, 3.76, 3.88, 3.89, 3.87} {
		n := 1 << i
		workers.Points = append(workers.Points, record.SweepPoint{X: float64(n), Label: fmt.Sprint(n), Run: len(f.Runs)})
		f.Runs = append(f.Runs, stored(runOf(plural(n, "worker"), coldRead(mebi, n), 8*gibi, rate)))
	}
	f.Sweeps = []record.Sweep{block, workers, memory}
	f.Notes = []string{"the GPU was not used by others meanwhile"}
	return f
}

// hostOnly has no GPU, no limits, and a kernel that hides its cache.
func hostOnly() *record.File {
	m := record.Machine{Kernel: "5.15.0-1062-aws", Arch: "arm64", CPU: "Neoverse-N1", CPUs: 4, Memory: 16 * gibi,
		Device:  record.Device{ID: "host", Kind: "host", Model: "host memory"},
		Storage: []record.Storage{{Path: "/mnt/nfs", FS: "nfs4", Source: "server:/export"}}}
	s := record.Settings{Op: "read", Route: "direct", Memory: "host", Pattern: "random", BlockSize: 4096, Workers: 4,
		QueueDepth: 32, IO: "uring",
		Paths: []string{"/mnt/nfs/file"}, Files: 1, FileSize: 2 * gibi, Cache: "as-is", Seed: 7, Limit: "time"}
	r := runOf("random 4 KiB reads", s, 2*gibi, 0.0834)
	r.Routes = []record.Route{{Route: "unknown", Bytes: r.Bytes}}
	r.Proof = "the file system hides it"
	r.Cache = &record.Cache{Dataset: 2 * gibi, Memory: 16 * gibi, Before: -1, After: -1, Verdict: "",
		Why: "neither cachestat nor mincore answers here"}
	r.Refusals = []record.Refusal{{What: "direct reads", Reason: "the server refused O_DIRECT"}}
	return &record.File{Schema: record.Schema, Tool: record.Tool, Version: "0.3.0",
		Command: []string{"nebulaio", "bench", "run", "/mnt/nfs/file"},
		Started: time.Date(2026, 11, 14, 22, 1, 0, 0, time.UTC), Seconds: 27.1, Machine: m, Runs: []record.Run{r}}
}

func training() *record.File {
	f := h200()
	f.Runs, f.Sweeps, f.Notes = nil, nil, nil
	f.Command = []string{"nebulaio", "bench", "train", "/data/unet3d", "--workload", "unet3d", "--memory", "pinned"}
	t := &record.Train{
		Workload: "unet3d", Step: "spin kernel on cuda:0", StepSeconds: 0.323, Batch: 7, SampleBytes: 146_600_628,
		BatchBytes: 7 * 146_600_628,
		Memory:     "pinned", Route: "direct", Pattern: "random", Workers: 4, Prefetch: 2, Steps: 60, Warmup: 2,
		AU: 0.872, WantedAU: 0.9, SamplesPerSec: 18.9, GBps: 2.77, Seconds: 22.2,
		Isolated: 0.365, Copy: 0.0187, Target: 0.3231, Idle: 0.0473, IdleP99: 0.131, Timing: "device events",
		Bound: string(bottleneck.Storage), Why: "the loader alone needs 365 ms a batch, the step 323 ms",
		Next: []string{"8 workers instead of 4: storage read is at 0.70 of its limit",
			"read sizes of 1 MiB instead of 256 KiB", "a second NVMe drive: the limit itself allows 0.96 AU"},
	}
	t.Routes = []record.Route{{Route: "direct", Bytes: 62 * 7 * 146_600_628}}
	t.Proof = "O_DIRECT descriptors, and the block device counted the same bytes"
	t.Cache = &record.Cache{Dataset: 640 * gibi, Memory: 128 * gibi, Probe: "cachestat", Verdict: "storage",
		Why: "the dataset is five times the memory"}
	at := 0.4
	for i := range 60 {
		gap := 0.0473 * (1 + 0.8*wobble(i))
		if i%17 == 11 {
			gap = 0.131
		}
		begin := at + gap
		t.Trace = append(t.Trace, record.StepAt{Ready: begin - 0.0004, Begin: begin, End: begin + 0.3231})
		at = begin + 0.3231
	}
	f.Train = t
	return f
}

// stopped was interrupted in its second run, which went another way than asked.
func stopped() *record.File {
	f := h200()
	a := f.Runs[0]
	b := runOf("direct to cuda:0, 64 KiB", coldRead(64*units.KiB, 8), 3*gibi, 2.2)
	b = stored(b)
	b.Routes = []record.Route{{Route: "direct", Bytes: 2 * gibi}, {Route: "buffered", Bytes: gibi}}
	b.Interrupted = true
	b.Stable = &record.Stable{Reached: false, Window: 8, Spread: 0.21, Wanted: 0.03}
	f.Runs, f.Sweeps, f.Interrupted, f.Notes = []record.Run{a, b}, nil, true, nil
	return f
}

// wrong read something else than was written.
func wrong() *record.File {
	f := h200()
	r := f.Runs[0]
	r.Verify = &record.Verify{Bytes: 32 * gibi, Mismatches: 3, First: "/data/bench/f3 at 1073741824",
		Where: "device memory, copied back"}
	f.Runs, f.Sweeps, f.Notes = []record.Run{r}, nil, nil
	return f
}

// hostile holds what a page or a terminal would obey.
func hostile() *record.File {
	f := h200()
	const evil = `</title></style></svg><script>alert(1)</script>"'&\x1b[31m` + "\x1b[31m\x00\u202e"
	f.Command = []string{"nebulaio", evil}
	f.Version, f.Notes = evil, []string{evil}
	f.Machine.CPU, f.Machine.Kernel, f.Machine.Device.Model, f.Machine.Storage[0].Path = evil, evil, evil, evil
	for i := range f.Runs {
		r := &f.Runs[i]
		r.Name, r.Proof, r.Notes = evil, evil, []string{evil}
		r.Settings.Route, r.Settings.Paths = evil, []string{evil}
		r.Routes = append(r.Routes, record.Route{Route: evil, Bytes: 1})
		r.Refusals = []record.Refusal{{What: evil, Reason: evil, Fix: "javascript:" + evil}}
		if r.Share != nil {
			r.Share.Name = evil
		}
		if r.Cache != nil {
			r.Cache.Why, r.Cache.Probe = evil, evil
		}
	}
	for i := range f.Sweeps {
		s := &f.Sweeps[i]
		s.ID, s.Question, s.Answer, s.Axis = evil, evil, evil, evil
		for j := range s.Points {
			s.Points[j].Label += evil
			s.Points[j].Series += evil
		}
	}
	for i := range f.Ceilings.Limits {
		f.Ceilings.Limits[i].Name, f.Ceilings.Limits[i].How = evil, evil
	}
	f.Train = training().Train
	f.Train.Workload, f.Train.Why, f.Train.Next, f.Train.Bound = evil, evil, []string{evil}, evil
	return f
}
