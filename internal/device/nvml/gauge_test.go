// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"slices"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/nvml"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// openGauge opens the gauge of a fake library.
func openGauge(t *testing.T, without ...string) (*fakegpu.GPU, *nvml.Gauge) {
	t.Helper()
	g := fakegpu.Build(t, fakegpu.Options{NVMLWithout: without})
	l, _, err := nvml.Find(g.NVML)
	if err != nil {
		t.Fatal(err)
	}
	gauge, err := l.Gauge()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := gauge.Close(); err != nil {
			t.Error(err)
		}
		if n := g.Sessions(); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
	return g, gauge
}

func TestAGaugeReadsWhatTheDriverTells(t *testing.T) {
	g, gauge := openGauge(t)
	g.Steer(fakegpu.Meters{Busy: 87, MemoryBusy: 12, Receive: 20e9, Send: 1e9})
	all := gauge.Read()
	if len(all) != 1 {
		t.Fatalf("%d GPUs", len(all))
	}
	r := all[0]
	if r.Index != 0 || r.Model != "Fake GPU" || r.PCI != "0000ffff:a0:00.0" || r.Busy != 0.87 || r.MemoryBusy != 0.12 ||
		r.MemoryTotal != 1<<30 || r.MemoryUsed != 0 || r.Watts != 123 || r.Celsius != 45 || r.SMClock != 1980 ||
		r.LinkGen != 1 || r.LinkWidth != 16 || r.LinkGenMax != 5 || r.LinkWidthMax != 16 ||
		!slices.Equal(r.Slowed, []string{"power cap"}) {
		t.Errorf("%+v", r)
	}
	again := gauge.Read()[0]
	if !r.Counted || !again.Counted || !again.CountedAt.After(r.CountedAt) {
		t.Fatalf("not counted: %+v, then %+v", r, again)
	}
	took := again.CountedAt.Sub(r.CountedAt).Seconds()
	in, out := float64(again.Received-r.Received)/took, float64(again.Sent-r.Sent)/took
	if in < 19e9 || in > 21e9 || out < 0.95e9 || out > 1.05e9 {
		t.Errorf("%.3g and %.3g bytes per second, expected 20e9 and 1e9", in, out)
	}
}

func TestAGaugeListsTheMemoryOfProcesses(t *testing.T) {
	g, gauge := openGauge(t)
	g.Process(4711, 0, 300<<20)
	if r := gauge.Read()[0]; r.Processes[4711] != 300<<20 || r.MemoryUsed != 300<<20 {
		t.Errorf("%v, used %d", r.Processes, r.MemoryUsed)
	}
}

func TestAGaugeMeasuresWhereTheDriverDoesNotCount(t *testing.T) {
	for name, without := range map[string][]string{"old driver": {"nvmlDeviceGetFieldValues"}, "narrow counters": nil} {
		t.Run(name, func(t *testing.T) {
			g := fakegpu.Build(t, fakegpu.Options{NVMLWithout: without})
			if without == nil {
				g.NarrowCounters()
			}
			g.Steer(fakegpu.Meters{Receive: 3 << 30, Send: 1 << 30})
			l, _, err := nvml.Find(g.NVML)
			if err != nil {
				t.Fatal(err)
			}
			gauge, err := l.Gauge()
			if err != nil {
				t.Fatal(err)
			}
			defer gauge.Close()
			if r := gauge.Read()[0]; r.Counted || r.ReceiveRate != 3<<30 || r.SendRate != 1<<30 {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestAGaugeSaysWhatItDoesNotKnow(t *testing.T) {
	_, gauge := openGauge(t, "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo",
		"nvmlDeviceGetFieldValues", "nvmlDeviceGetPcieThroughput", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature",
		"nvmlDeviceGetClockInfo", "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkGeneration",
		"nvmlDeviceGetName", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetComputeRunningProcesses_v3",
		"nvmlDeviceGetCurrentClocksEventReasons")
	r := gauge.Read()[0]
	for name, v := range map[string]float64{"busy": r.Busy, "memory": r.MemoryBusy, "used": float64(r.MemoryUsed),
		"receive": r.ReceiveRate, "send": r.SendRate, "power": r.Watts, "heat": r.Celsius, "clock": r.SMClock,
		"link": float64(r.LinkGen), "best link": float64(r.LinkGenMax)} {
		if v != -1 {
			t.Errorf("%s is %v, expected -1", name, v)
		}
	}
	if r.Model != "" || r.PCI != "" || r.Processes != nil || r.Slowed != nil || r.Counted {
		t.Errorf("%+v", r)
	}
}

func TestNoGaugeWithoutAListOfGPUs(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{NVMLWithout: []string{"nvmlDeviceGetCount_v2"}})
	l, _, err := nvml.Find(g.NVML)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Gauge(); !errs.Is(err, errs.Unsupported) {
		t.Errorf("got %v", err)
	}
}
