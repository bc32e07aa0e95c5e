// SPDX-License-Identifier: Apache-2.0

package meters_test

import (
	"testing"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/meters"
)

// calm is a machine with every kind of device, on which little happens.
func calm() *meters.Sample {
	return &meters.Sample{Seconds: 1,
		CPU:      meters.CPU{Count: 4, UserShare: 0.05, SystemShare: 0.02, IdleShare: 0.93},
		Memory:   meters.Memory{DirtyBackground: 1e9, DirtyLimit: 2e9, Dirty: 1e7, HitShare: -1},
		Pressure: meters.Pressure{CPUSome: 0.01, IOSome: 0.01},
		Disks: []meters.Disk{{Name: "nvme0n1", ReadRate: 1e6, Busy: 0.01},
			{Name: "md0", Below: []string{"nvme0n1"}, Busy: 1}},
		Networks: []meters.Network{{Name: "lo", Up: true, ReceiveRate: 9e9, Speed: 1e9},
			{Name: "eth0", Up: true, Speed: 1.25e9}},
		GPUs:    []meters.GPU{{Busy: 0.01, LinkRate: 60e9}},
		CGroups: []meters.CGroup{{Path: "/job", Quota: 2}},
		NFS:     []meters.NFS{{Mount: "/data"}}, Lustre: []meters.Lustre{{Name: "scratch"}}}
}

// Each situation of the machine has its own verdict.
func TestSituationsHaveTheirVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*meters.Sample)
		bound    bottleneck.Bound
		cause    bottleneck.Cause
		resource string
	}{
		"nothing": {func(*meters.Sample) {}, bottleneck.Nothing, "", ""},
		"a disk that threads wait for": {func(s *meters.Sample) {
			s.Disks[0].Busy, s.Disks[0].ReadRate, s.Disks[0].ReadIOPS, s.Disks[0].ReadLatency = 0.99, 2e8, 5e4, 2e-5
			s.Pressure.IOSome = 0.95
		}, bottleneck.Storage, bottleneck.Disk, "nvme0n1"},
		"a disk at its ceiling": {func(s *meters.Sample) {
			s.Disks[0].Busy, s.Disks[0].ReadRate, s.Disks[0].OfCeiling = 0.99, 6e9, 0.97
		}, bottleneck.Storage, bottleneck.Disk, "nvme0n1"},
		"a busy disk that nobody waits for": {func(s *meters.Sample) { s.Disks[0].Busy = 0.99 }, bottleneck.Nothing, "", ""},
		"a slow file server": {func(s *meters.Sample) {
			s.NFS[0].ReadIOPS, s.NFS[0].ReadTrip, s.Pressure.IOSome = 100, 0.01, 0.9
		}, bottleneck.Storage, bottleneck.RemoteStorage, "/data"},
		"a slow parallel file system": {func(s *meters.Sample) { s.Lustre[0].Waiting, s.Pressure.IOSome = 4, 0.9 },
			bottleneck.Storage, bottleneck.RemoteStorage, "scratch"},
		"processors that copy from the page cache": {func(s *meters.Sample) {
			s.CPU.SystemShare, s.CPU.UserShare, s.CPU.IdleShare = 0.9, 0.08, 0.02
			s.Memory.CallsRate, s.Memory.HitShare = 8e9, 0.99
		}, bottleneck.CPU, bottleneck.PageCache, ""},
		"one thread that copies from the page cache": {func(s *meters.Sample) {
			s.CPU.SystemShare, s.Memory.CallsRate, s.Memory.HitShare = 0.25, 6e9, 1
			s.Processes = []meters.Process{{PID: 1, BusiestThread: 0.99}}
		}, bottleneck.CPU, bottleneck.PageCache, ""},
		"one thread that computes, which is no limit of the machine": {func(s *meters.Sample) {
			s.CPU.UserShare = 0.25
			s.Processes = []meters.Process{{PID: 1, BusiestThread: 0.99}}
		}, bottleneck.Nothing, "", ""},
		"busy processors": {func(s *meters.Sample) { s.CPU.UserShare, s.CPU.IdleShare = 0.97, 0.01 },
			bottleneck.CPU, "", ""},
		"a PCIe link": {func(s *meters.Sample) { s.GPUs[0].ReceiveRate, s.GPUs[0].Busy = 52e9, 0.2 },
			bottleneck.Copy, "", "GPU 0"},
		"a PCIe link at its measured ceiling": {func(s *meters.Sample) {
			s.GPUs[0].ReceiveRate, s.GPUs[0].ReceiveCeiling = 12e9, 13e9
		}, bottleneck.Copy, "", "GPU 0"},
		"a network interface": {func(s *meters.Sample) { s.Networks[1].SendRate = 1.2e9 },
			bottleneck.Communication, "", "eth0"},
		"a busy GPU beside busy processors": {func(s *meters.Sample) { s.GPUs[0].Busy, s.CPU.UserShare = 0.98, 0.95 },
			bottleneck.Compute, "", "GPU 0"},
		"a control group without quota left": {func(s *meters.Sample) {
			s.CPU.UserShare, s.CGroups[0].ThrottledShare, s.CGroups[0].ThrottledRate = 0.5, 0.9, 0.5
		}, bottleneck.CPU, bottleneck.Throttled, "/job"},
		"a control group without quota left on busy processors": {func(s *meters.Sample) {
			s.CPU.UserShare, s.CGroups[0].ThrottledShare, s.CGroups[0].ThrottledRate = 0.97, 0.9, 0.5
		}, bottleneck.CPU, bottleneck.Throttled, "/job"},
		"writers that wait for dirty pages": {func(s *meters.Sample) {
			s.Memory.Dirty, s.Memory.Writeback, s.Memory.WrittenRate, s.Pressure.IOSome = 1.2e9, 2e8, 4e8, 0.8
			s.Disks[0].Busy, s.Disks[0].WriteRate = 0.99, 4e8
		}, bottleneck.Storage, bottleneck.Writeback, "nvme0n1"},
		"dirty pages without a waiting writer": {func(s *meters.Sample) { s.Memory.Dirty = 1.4e9 },
			bottleneck.Nothing, "", ""},
	} {
		s := calm()
		c.change(s)
		v := bottleneck.Judge(s.Window())
		if v.Bound != c.bound || v.Cause != c.cause || v.Resource != c.resource {
			t.Errorf("%s: %s (%s) of %q: %s", name, v.Bound, v.Cause, v.Resource, v.Why)
		}
		if len(v.Figures) != 4 || len(v.Next) == 0 || v.Step.Number == 0 || v.Why == "" {
			t.Errorf("%s: the verdict is not whole: %+v", name, v)
		}
	}
}

func TestAMissingMeterIsAMissingFigure(t *testing.T) {
	s := calm()
	s.GPUs = nil
	s.Missing = []meters.Missing{{Meter: "gpu", Reason: "libnvidia-ml.so.1 was not found"},
		{Meter: "lustre", Reason: "none"}}
	f := bottleneck.Judge(s.Window()).Figures[0]
	if f.Share >= 0 || f.Text != "libnvidia-ml.so.1 was not found" {
		t.Errorf("%+v", f)
	}
}
