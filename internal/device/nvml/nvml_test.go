// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"maps"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/nvml"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestDescribeAddsWhatTheLibraryKnows(t *testing.T) {
	all := map[string]string{"kept": "1", "pcie_link": "gen 1 x16", "pcie_link_max": "gen 5 x16",
		"bar1_total":       "274877906944",
		"persistence_mode": "1", "pcie_replays": "7", "mig_mode": "0", "compute_capability": "9.0"}
	without := func(keys ...string) map[string]string {
		m := maps.Clone(all)
		for _, k := range keys {
			delete(m, k)
		}
		return m
	}
	none := map[string]string{"kept": "1"}
	for _, c := range []struct {
		name    string
		missing []string
		pci     string
		want    map[string]string
		driver  string
	}{
		{"everything", nil, "0000ffff:a0:00.0", all, "999.1.2 (CUDA 13.0)"},
		{"no bus address", nil, "", none, "999.1.2 (CUDA 13.0)"},
		{"unknown bus address", nil, "nonsense", none, "999.1.2 (CUDA 13.0)"},
		{"no BAR1", []string{"nvmlDeviceGetBAR1MemoryInfo"}, "0000ffff:a0:00.0", without("bar1_total"),
			"999.1.2 (CUDA 13.0)"},
		{"no link width", []string{"nvmlDeviceGetCurrPcieLinkWidth"}, "0000ffff:a0:00.0", without("pcie_link"),
			"999.1.2 (CUDA 13.0)"},
		{"no modes", []string{"nvmlDeviceGetPersistenceMode", "nvmlDeviceGetMigMode"}, "0000ffff:a0:00.0",
			without("persistence_mode", "mig_mode"), "999.1.2 (CUDA 13.0)"},
		{"no replays and capability", []string{"nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetCudaComputeCapability"},
			"0000ffff:a0:00.0", without("pcie_replays", "compute_capability"), "999.1.2 (CUDA 13.0)"},
		{"no handles", []string{"nvmlDeviceGetHandleByPciBusId_v2"}, "0000ffff:a0:00.0", none, "999.1.2 (CUDA 13.0)"},
		{"no release", []string{"nvmlSystemGetDriverVersion"}, "0000ffff:a0:00.0", all, "CUDA 13.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := fakegpu.Build(t, fakegpu.Options{NVMLWithout: c.missing})
			l, f, err := nvml.Find(g.NVML)
			if err != nil || !f.Found || f.Name != g.NVML {
				t.Fatalf("%+v %v", f, err)
			}
			info := device.Info{PCI: c.pci, Driver: "CUDA 13.0", Facts: map[string]string{"kept": "1"}}
			l.Describe(&info)
			if !maps.Equal(info.Facts, c.want) || info.Driver != c.driver {
				t.Errorf("%v, driver %q", info.Facts, info.Driver)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if n := g.Sessions(); n != 0 {
				t.Errorf("%d sessions are left", n)
			}
			if err := l.Close(); !errs.Is(err, errs.Device) {
				t.Errorf("closing twice: %v", err)
			}
		})
	}
}
