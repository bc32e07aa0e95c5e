// SPDX-License-Identifier: Apache-2.0

package bottleneck_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
)

// idle is a command that does little on a machine with a disk, a network interface and a GPU; cases change it.
func idle() bottleneck.Window {
	return bottleneck.Window{Seconds: 10,
		GPUs:    []bottleneck.GPU{{Name: "GPU 0", Busy: 0.01, Active: bottleneck.Unknown, LinkGBps: 60}},
		Network: []bottleneck.Interface{{Name: "eth0", GBps: 0.001, LinkGBps: 1.25, Queued: bottleneck.Unknown}},
		Disks:   []bottleneck.Device{{Name: "nvme0n1", GBps: 0.01, Busy: 0.02, Latency: 1e-4}},
		CPU:     bottleneck.Processors{Used: 0.2, Usable: 8, Busiest: 0.1, Throttled: 0},
		Memory:  bottleneck.PageCacheState{IOPressure: 0.01},
		Waits:   &bottleneck.Waits{Looks: 100}}
}

func TestACommandIsJudged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bottleneck.Window)
		bound  bottleneck.Bound
		cause  bottleneck.Cause
		step   int
		why    string
	}{
		"nothing": {func(*bottleneck.Window) {}, bottleneck.Nothing, "", 2, "near its limit"},
		"a short command": {func(w *bottleneck.Window) { w.Waits.Looks = 3 }, bottleneck.Unclear, "", 1,
			"too short"},
		"no time at all": {func(w *bottleneck.Window) { w.Seconds = 0 }, bottleneck.Unclear, "", 1, "too short"},
		"a busy GPU":     {func(w *bottleneck.Window) { w.GPUs[0].Busy = 0.95 }, bottleneck.Compute, "", 3, "95 %"},
		"a busy GPU beside waits for storage": {func(w *bottleneck.Window) { w.GPUs[0].Busy, w.Waits.Storage = 0.95, 1 },
			bottleneck.Compute, "", 3, ""},
		"kernels that wait for other GPUs": {func(w *bottleneck.Window) {
			w.GPUs[0].Busy, w.GPUs[0].Active, w.Network[0].GBps = 1, 0.1, 0.9
		}, bottleneck.Communication, "", 4, "wait for other GPUs"},
		"small kernels without traffic": {func(w *bottleneck.Window) { w.GPUs[0].Busy, w.GPUs[0].Active = 1, 0.1 },
			bottleneck.Compute, "", 3, "only 10 % of the multiprocessors"},
		"one of two GPUs is not used": {func(w *bottleneck.Window) {
			w.GPUs = append(w.GPUs, bottleneck.GPU{Name: "GPU 1", Busy: 0.97, Active: -1})
		}, bottleneck.Compute, "", 3, "GPU 1"},
		"a full PCIe link": {func(w *bottleneck.Window) { w.GPUs[0].Busy, w.GPUs[0].PCIeGBps = 0.3, 45 },
			bottleneck.Copy, "", 5, "45.0 GB/s of 60.0 GB/s"},
		"copies that the driver counts as work of the GPU": {func(w *bottleneck.Window) {
			w.GPUs[0].Busy, w.GPUs[0].PCIeGBps = 1, 57
		}, bottleneck.Copy, "", 5, "copies included"},
		"kernels beside copies that fill the link": {func(w *bottleneck.Window) {
			w.GPUs[0].Busy, w.GPUs[0].Active, w.GPUs[0].PCIeGBps = 1, 0.9, 57
		}, bottleneck.Compute, "", 3, "100 %"},
		"slow copies, and nothing else": {func(w *bottleneck.Window) { w.GPUs[0].Busy, w.GPUs[0].PCIeGBps = 0.3, 12 },
			bottleneck.Copy, "", 5, ""},
		"slow copies beside waits for storage": {func(w *bottleneck.Window) {
			w.GPUs[0].Busy, w.GPUs[0].PCIeGBps, w.Waits.Storage = 0.3, 12, 0.8
		}, bottleneck.Storage, "", 5, ""},
		"waits for a disk": {func(w *bottleneck.Window) { w.Waits.Storage, w.Disks[0].Busy = 0.9, 0.99 },
			bottleneck.Storage, bottleneck.Disk, 5, "nvme0n1"},
		"waits for a file server": {func(w *bottleneck.Window) {
			w.Waits.Storage, w.Servers = 0.9, []bottleneck.Device{{Name: "/data", Busy: 1}}
		}, bottleneck.Storage, bottleneck.RemoteStorage, 5, "/data"},
		"waits for dirty pages": {func(w *bottleneck.Window) {
			w.Waits.Storage, w.Disks[0].Busy, w.Memory.DirtyShare, w.Memory.IOPressure = 0.9, 0.99, 1, 0.9
		}, bottleneck.Storage, bottleneck.Writeback, 5, ""},
		"waits too short to be seen": {func(w *bottleneck.Window) {
			w.Waits.Storage, w.CPU.Busiest, w.Disks[0].Busy, w.Disks[0].GBps, w.Waits.ReadGBps = 0.3, 0.36, 0.9, 0.5, 0.5
		}, bottleneck.Storage, bottleneck.Disk, 5, "in flight"},
		"the disk of another program": {func(w *bottleneck.Window) {
			w.Disks[0].Busy, w.Disks[0].GBps, w.Waits.ReadGBps = 1, 5, 0.01
		}, bottleneck.Nothing, "", 2, ""},
		"waits for the network": {func(w *bottleneck.Window) { w.Waits.Network = 0.8 }, bottleneck.Communication, "", 4,
			"80 %"},
		"a full interface": {func(w *bottleneck.Window) { w.Network[0].GBps = 1.2 }, bottleneck.Communication, "", 4,
			"eth0"},
		"a full queue": {func(w *bottleneck.Window) { w.Network[0].Queued = 0.9 }, bottleneck.Communication, "", 4,
			"queue"},
		"all processors": {func(w *bottleneck.Window) { w.CPU.Used = 7.8 }, bottleneck.CPU, "", 5, "7.8 of 8.0"},
		"all processors beside waits for storage": {func(w *bottleneck.Window) { w.CPU.Used, w.Waits.Storage = 7.8, 1 },
			bottleneck.CPU, "", 5, ""},
		"one thread": {func(w *bottleneck.Window) { w.CPU.Busiest, w.Waits.Storage = 0.97, 0.9 }, bottleneck.CPU,
			bottleneck.OneThread, 5, "97 %"},
		"one thread most of the time": {func(w *bottleneck.Window) { w.CPU.Busiest, w.Waits.Storage = 0.6, 0.4 },
			bottleneck.CPU, bottleneck.OneThread, 5, "60 %"},
		"storage most of the time": {func(w *bottleneck.Window) { w.CPU.Busiest, w.Waits.Storage = 0.4, 0.6 },
			bottleneck.Storage, "", 5, ""},
		"one thread that spins beside a GPU at work": {func(w *bottleneck.Window) { w.CPU.Busiest, w.GPUs[0].Busy = 1, 0.4 },
			bottleneck.Nothing, "", 2, ""},
		"other programs": {func(w *bottleneck.Window) { w.CPU.Starved = 0.8 }, bottleneck.CPU, bottleneck.OtherPrograms, 5,
			"80 %"},
		"other programs beside waits for the network": {
			func(w *bottleneck.Window) { w.CPU.Starved, w.Waits.Network = 0.8, 0.6 }, bottleneck.Communication, "", 4, ""},
		"a quota": {func(w *bottleneck.Window) { w.CPU.Throttled, w.CPU.Group = 0.8, "/job" }, bottleneck.CPU,
			bottleneck.Throttled, 5, "/job"},
		"copies from the page cache": {func(w *bottleneck.Window) {
			w.CPU.Used, w.CPU.Kernel, w.Memory.HitGBps = 7.8, 7, 12
		}, bottleneck.CPU, bottleneck.PageCache, 5, "12.0 GB/s come from the page cache"},
	} {
		w := idle()
		c.change(&w)
		v := bottleneck.Judge(w)
		if v.Bound != c.bound || v.Cause != c.cause || v.Step.Number != c.step || !strings.Contains(v.Why, c.why) {
			t.Errorf("%s: %s (%s), step %d, because %s", name, v.Bound, v.Cause, v.Step.Number, v.Why)
		}
		if v.Step.Title != bottleneck.Steps()[c.step-1] || v.Step.Do != v.Next[0] {
			t.Errorf("%s: the step is %+v", name, v.Step)
		}
	}
}

func TestFiguresAreFour(t *testing.T) {
	w := idle()
	w.Missing = map[string]string{bottleneck.FigureGPU: "there is no driver"}
	w.GPUs, w.CPU.Usable = nil, 0
	all := bottleneck.Judge(w).Figures
	var names []string
	for _, f := range all {
		names = append(names, f.Name)
	}
	if strings.Join(names, " ") != "gpu network storage cpu" || all[0].Text != "there is no driver" || all[0].Share >= 0 ||
		all[3].Share >= 0 {
		t.Errorf("%+v", all)
	}
}

// Whatever the meters say, a verdict has words, and no number that is none.
func TestAnyMetersHaveAVerdict(t *testing.T) {
	values := []float64{-1, 0, 0.4, 1, 1e9, math.NaN(), math.Inf(1)}
	for _, a := range values {
		for _, b := range values {
			w := idle()
			w.GPUs[0] = bottleneck.GPU{Name: "GPU 0", Busy: a, Active: b, PCIeGBps: a, LinkGBps: b}
			w.Network[0] = bottleneck.Interface{Name: "eth0", GBps: a, LinkGBps: b, Queued: a}
			w.Disks[0] = bottleneck.Device{Name: "sda", GBps: a, Busy: b, Latency: a, LimitGBps: b}
			w.CPU = bottleneck.Processors{Used: a, Usable: b, Kernel: a, Busiest: b, Throttled: a}
			w.Memory = bottleneck.PageCacheState{HitGBps: a, DirtyShare: b, IOPressure: a}
			for _, waits := range []*bottleneck.Waits{nil, {Looks: 50, Storage: a, Network: b, ReadGBps: a}} {
				w.Waits = waits
				v := bottleneck.Judge(w)
				if !slices.Contains(bottleneck.Bounds(), v.Bound) || v.Why == "" || len(v.Next) == 0 || len(v.Figures) != 4 ||
					v.Step.Number < 1 || v.Step.Number > 10 {
					t.Fatalf("%v and %v: %+v", a, b, v)
				}
			}
		}
	}
}

func TestOldWordsAreTranslated(t *testing.T) {
	for old, now := range map[string]bottleneck.Bound{"gpu-bound": bottleneck.Compute, "loader-bound": bottleneck.Storage,
		"decode-bound": bottleneck.CPU, "copy-bound": bottleneck.Copy, "no clear verdict": bottleneck.Unclear, "x": "x"} {
		if got := bottleneck.Current(old); got != now {
			t.Errorf("%s: %s, expected %s", old, got, now)
		}
	}
}

func TestMean(t *testing.T) {
	a, b := idle(), idle()
	a.Seconds, b.Seconds = 1, 3
	a.GPUs[0].Busy, b.GPUs[0].Busy = 0, 0.8
	a.GPUs[0].Active, b.GPUs[0].Active = bottleneck.Unknown, 0.5
	b.GPUs = append(b.GPUs, bottleneck.GPU{Name: "GPU 1", Busy: 1})
	a.Disks[0] = bottleneck.Device{Name: "sda", Reads: 100, Latency: 0.001, Busy: 1}
	b.Disks[0] = bottleneck.Device{Name: "sda", Reads: 300, Latency: 0.003, Busy: 0.5}
	a.CPU.Throttled, b.CPU.Throttled, b.CPU.Group = bottleneck.Unknown, bottleneck.Unknown, "/job"
	b.Missing = map[string]string{"network": "why"}
	m := bottleneck.Mean([]bottleneck.Window{a, b})
	near := func(x, y float64) bool { return math.Abs(x-y) < 1e-9 }
	d := m.Disks[0]
	if !near(m.GPUs[0].Busy, 0.6) || m.GPUs[0].Active != 0.5 || len(m.GPUs) != 2 || m.GPUs[1].Busy != 1 ||
		!near(d.Busy, 0.625) || !near(d.Reads, 250) || !near(d.Latency, (0.1+3*0.9)/4/250) || m.CPU.Throttled >= 0 ||
		m.CPU.Group != "/job" || m.Waits != nil || m.Missing["network"] != "why" || m.Seconds != 4 {
		t.Errorf("%+v", m)
	}
	if empty := bottleneck.Mean(nil); bottleneck.Judge(empty).Bound != bottleneck.Unclear {
		t.Errorf("%+v", empty)
	}
}
