// SPDX-License-Identifier: Apache-2.0

package meters_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/meters"
	"github.com/nebulaio/nebulaio/internal/meters/fakemachine"
)

// near reports whether a is b but for rounding.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(math.Abs(a), math.Abs(b), 1) }

func open(t *testing.T, m *fakemachine.Machine, o meters.Options) *meters.Collector {
	t.Helper()
	m.Write()
	o.Root, o.Now = m.Root, m.Clock
	c, err := meters.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestRatesOfDisksAreThoseOfIostat(t *testing.T) {
	m := fakemachine.New(t)
	m.Disks["md0"] = &fakemachine.Disk{Reads: 1, Below: []string{"vda"}}
	m.Disks["loop7"] = &fakemachine.Disk{Reads: 1}
	m.Disks["unused"] = &fakemachine.Disk{}
	ceilings := &record.Ceilings{Limits: []record.Limit{{ID: record.StorageRead, On: "/dev/vda1", GBps: 0.5},
		{ID: record.StorageWrite, On: "/dev/vda1", GBps: 1}}}
	c := open(t, m, meters.Options{Ceilings: ceilings})
	if s := c.Read(t.Context()); s.Seconds != 0 || s.Disks[2].ReadRate != 0 || s.Disks[2].Reads != 1000 {
		t.Errorf("the first sample has rates: %+v", s.Disks)
	}
	d := m.Disks["vda"]
	d.Reads, d.ReadSectors, d.ReadMS = d.Reads+500, d.ReadSectors+400_000, d.ReadMS+1500
	d.Writes, d.WriteSectors, d.WriteMS = d.Writes+100, d.WriteSectors+20_000, d.WriteMS+900
	d.BusyMS, d.QueueMS, d.InFlight = d.BusyMS+1200, d.QueueMS+2400, 3
	m.Pass(2*time.Second, 0.1, 0.1, 0, 0)
	m.Write()
	s := c.Read(t.Context())
	names := []string{}
	for _, d := range s.Disks {
		names = append(names, d.Name)
	}
	if !slices.Equal(names, []string{"loop7", "md0", "vda"}) {
		t.Fatalf("disks %v, expected whole disks that were used", names)
	}
	v := s.Disks[2]
	// iostat -x: rkB/s, r/s, r_await, wkB/s, w/s, w_await, aqu-sz and %util.
	if !near(v.ReadRate, 400_000*512/2) || v.ReadIOPS != 250 || !near(v.ReadLatency, 0.003) ||
		!near(v.WriteRate, 20_000*512/2) || v.WriteIOPS != 50 || !near(v.WriteLatency, 0.009) || !near(v.Depth, 1.2) ||
		!near(v.Busy, 0.6) || v.InFlight != 3 || !near(v.Latency(), 0.004) {
		t.Errorf("%+v", v)
	}
	if !near(v.OfCeiling, 400_000*512/2/0.5e9) || v.ReadCeiling != 0.5e9 || v.WriteCeiling != 1e9 {
		t.Errorf("share of the ceiling %v of %v and %v", v.OfCeiling, v.ReadCeiling, v.WriteCeiling)
	}
	if !slices.Equal(v.Mounts, []string{"/mnt/vda1"}) || !slices.Equal(s.Disks[1].Below, []string{"vda"}) ||
		!s.Disks[0].Memory() || v.Memory() {
		t.Errorf("mounts %v, md0 is made of %v", v.Mounts, s.Disks[1].Below)
	}
	if !near(s.CPU.UserShare, 0.1) || !near(s.CPU.Busy(), 0.2) || !near(s.CPU.Busiest, 0.2) || s.CPU.Count != 2 ||
		s.CPU.Running != 3 || s.CPU.Blocked != 1 || s.Host != "fake" {
		t.Errorf("%+v", s.CPU)
	}
}

func TestCountersThatWrapOrReset(t *testing.T) {
	m := fakemachine.New(t)
	m.Disks["vda"].BusyMS, m.Disks["vda"].Reads = 1<<32-500, 1<<40
	c := open(t, m, meters.Options{})
	c.Read(t.Context())
	m.Disks["vda"].BusyMS, m.Disks["vda"].Reads = 250, 10 // the first wraps at 32 bits, the second was reset
	m.Pass(time.Second, 0, 0, 0, 0)
	m.Write()
	if d := c.Read(t.Context()).Disks[0]; !near(d.Busy, 0.75) || d.ReadIOPS != 0 {
		t.Errorf("busy %v, %v reads per second", d.Busy, d.ReadIOPS)
	}
}

func TestRatesOfNetworks(t *testing.T) {
	m := fakemachine.New(t)
	rdma := "/sys/class/infiniband/mlx5_0/ports/1"
	m.Files = map[string]string{rdma + "/counters/port_rcv_data": "1000\n", rdma + "/counters/port_xmit_data": "0\n",
		rdma + "/state": "4: ACTIVE\n", rdma + "/rate": "400 Gb/sec (4X NDR)\n"}
	m.Sent, m.Resent = 1000, 10
	c := open(t, m, meters.Options{})
	c.Read(t.Context())
	m.Networks["eth0"].Received, m.Networks["eth0"].Dropped = 625_000_000, 20
	m.Files[rdma+"/counters/port_rcv_data"] = "1000001000\n"
	m.Sent, m.Resent = 2000, 60
	m.Pass(time.Second, 0, 0, 0, 0)
	m.Write()
	s := c.Read(t.Context())
	if len(s.Networks) != 3 {
		t.Fatalf("%+v", s.Networks)
	}
	eth, lo, ib := s.Networks[0], s.Networks[1], s.Networks[2]
	if eth.ReceiveRate != 625e6 || eth.Speed != 1.25e9 || !near(eth.OfSpeed, 0.5) || eth.DropRate != 20 || eth.Virtual ||
		!eth.Up {
		t.Errorf("%+v", eth)
	}
	if !lo.Virtual || lo.Speed != 0 || lo.OfSpeed != 0 {
		t.Errorf("%+v", lo)
	}
	if ib.Name != "mlx5_0/1" || !ib.RDMA || !ib.Up || ib.ReceiveRate != 4e9 || ib.Speed != 50e9 || !near(ib.OfSpeed,
		0.08) {
		t.Errorf("%+v", ib)
	}
	if s.TCP.RetransmitRate != 50 || !near(s.TCP.RetransmitShare, 0.05) {
		t.Errorf("%+v", s.TCP)
	}
}

func TestRatesOfFileServers(t *testing.T) {
	m := fakemachine.New(t)
	nfs := func(ops, sent, bytes, queue, trip string) string {
		return "device server:/models mounted on /mnt/my\\040models with fstype nfs4 statvers=1.1\n\tage:\t5\n\tper-op statistics\n" +
			"\t READ: " + ops + " " + sent + " 0 100 " + bytes + " " + queue + " " + trip + " 9\n" +
			"\tWRITE: 0 0 0 0 0 0 0 0\ndevice x mounted on /y with fstype ext4\n"
	}
	llite, osc := "/sys/kernel/debug/lustre/llite/scratch-ffff", "/sys/kernel/debug/lustre/osc/scratch-OST0001-osc-ffff"
	lustre := func(count, sum string) string {
		return "snapshot_time 1.2 secs.nsecs\nread_bytes " + count + " samples [bytes] 4096 1048576 " + sum +
			"\nopen 5 samples [usec] 1 2 3\n"
	}
	m.Files = map[string]string{"/proc/self/mountstats": nfs("100", "100", "0", "0", "0"),
		"/sys/fs/lustre/llite/scratch-ffff/uuid": "x",
		llite + "/stats":                         lustre("10", "1000"),
		osc + "/rpc_stats":                       "read RPCs in flight:  3\nwrite RPCs in flight: 4\n"}
	c := open(t, m, meters.Options{})
	c.Read(t.Context())
	m.Files["/proc/self/mountstats"] = nfs("150", "152", "52428800", "100", "500")
	m.Files[llite+"/stats"] = lustre("30", "2001000")
	m.Pass(time.Second, 0, 0, 0, 0)
	m.Write()
	s := c.Read(t.Context())
	if len(s.NFS) != 1 || len(s.Lustre) != 1 {
		t.Fatalf("%+v %+v", s.NFS, s.Lustre)
	}
	n := s.NFS[0]
	if n.Mount != "/mnt/my models" || n.Server != "server:/models" || n.ReadIOPS != 50 || n.ReadRate != 52428800 ||
		!near(n.ReadTrip, 0.01) || !near(n.ReadQueue, 0.002) || n.RetransmissionRate != 2 {
		t.Errorf("%+v", n)
	}
	if l := s.Lustre[0]; l.Name != "scratch-ffff" || l.ReadRate != 2e6 || l.ReadIOPS != 20 || l.Waiting != 7 {
		t.Errorf("%+v", l)
	}
}

func TestRatesOfProcessesAndCaches(t *testing.T) {
	m := fakemachine.New(t)
	m.Processes[500] = &fakemachine.Process{Name: "a (b) c", Group: "/a/b", Threads: map[int]uint64{500: 0, 501: 0}}
	m.Processes[501] = &fakemachine.Process{Name: "secret", Denied: true}
	m.Processes[502] = &fakemachine.Process{Name: "idle"}
	c := open(t, m, meters.Options{})
	c.Read(t.Context())
	for range 9 {
		p := m.Processes[500]
		p.Rchar, p.ReadBytes, p.Ticks, p.Delay = p.Rchar+400e6, p.ReadBytes+100e6, p.Ticks+150, p.Delay+50
		p.Threads[500], p.Threads[501] = p.Threads[500]+90, p.Threads[501]+60
		m.Pass(time.Second, 0.5, 0, 0, 0)
		m.Write()
		s := c.Read(t.Context())
		if len(s.Processes) == 0 || s.Processes[0].PID != 500 {
			t.Fatalf("%+v", s.Processes)
		}
		p0 := s.Processes[0]
		if p0.Name != "a (b) c" || p0.ReadCallsRate != 400e6 || p0.StorageReadRate != 100e6 || !near(p0.CPU, 1.5) ||
			!near(p0.IOWait, 0.5) || p0.Threads != 2 || !near(max(p0.BusiestThread, 0.9), 0.9) ||
			p0.Command != "/usr/bin/a (b) c --flag" {
			t.Fatalf("%+v", p0)
		}
		if !near(s.Memory.HitShare, 0.75) || s.Memory.CallsRate != 400e6 {
			t.Fatalf("hits %v of %v", s.Memory.HitShare, s.Memory.CallsRate)
		}
		if slices.ContainsFunc(s.Processes, func(p meters.Process) bool { return p.PID == 2 || p.PID == 77 }) {
			t.Fatal("threads of the kernel are listed as processes")
		}
	}
	// A process that did nothing for long is seen within four samples.
	found := false
	for range 4 {
		m.Processes[502].Rchar += 1e9
		m.Pass(time.Second, 0, 0, 0, 0)
		m.Write()
		s := c.Read(t.Context())
		found = found || slices.ContainsFunc(s.Processes, func(p meters.Process) bool {
			return p.PID == 502 &&
				p.ReadCallsRate > 0
		})
	}
	if !found {
		t.Error("a process that begins to read is not seen")
	}
	// A process that has just begun counts with everything that it did.
	m.Processes[600] = &fakemachine.Process{Name: "short", Rchar: 3e9, ReadBytes: 2e9}
	delete(m.Processes, 500)
	m.Pass(time.Second, 0, 0, 0, 0)
	m.Write()
	s := c.Read(t.Context())
	if slices.ContainsFunc(s.Processes, func(p meters.Process) bool { return p.PID == 500 }) {
		t.Error("a process that has ended is still listed")
	}
	if p := s.Processes[0]; p.PID != 600 || p.ReadCallsRate != 3e9 || p.StorageReadRate != 2e9 {
		t.Errorf("a new process: %+v", p)
	}
}

func TestControlGroupsThatAreStopped(t *testing.T) {
	m := fakemachine.New(t)
	m.Processes[500] = &fakemachine.Process{Name: "job", Group: "/a/b"}
	m.Groups["/a"], m.Groups["/a/b"] = &fakemachine.Group{Max: "50000 100000"}, &fakemachine.Group{}
	m.Files = map[string]string{"/sys/fs/cgroup/a/memory.max": "1000000\n", "/sys/fs/cgroup/a/memory.current": "999000\n",
		"/sys/fs/cgroup/a/memory.events": "low 0\nhigh 3\nmax 7\n",
		"/sys/fs/cgroup/a/io.max":        "254:0 rbps=1048576 wbps=max\n",
		"/sys/fs/cgroup/a/io.pressure":   "some avg10=0 total=5\nfull avg10=0 total=100\n"}
	c := open(t, m, meters.Options{})
	c.Read(t.Context())
	g := m.Groups["/a"]
	g.Periods, g.Throttled, g.ThrottledUS, g.UsageUS = 10, 9, 500_000, 500_000
	m.Files["/sys/fs/cgroup/a/memory.events"] = "low 0\nhigh 3\nmax 27\n"
	m.Files["/sys/fs/cgroup/a/io.pressure"] = "some avg10=0 total=5\nfull avg10=0 total=250100\n"
	m.Processes[500].Ticks += 50
	m.Pass(time.Second, 0.25, 0, 0, 0)
	m.Write()
	s := c.Read(t.Context())
	if len(s.CGroups) != 2 || s.CGroups[0].Path != "/a" {
		t.Fatalf("%+v", s.CGroups)
	}
	if g := s.CGroups[0]; g.Quota != 0.5 || !near(g.ThrottledShare, 0.9) || !near(g.ThrottledRate, 0.5) || !near(g.CPU,
		0.5) ||
		g.MemoryLimit != 1000000 || g.MemoryUsed != 999000 || g.MemoryStallRate != 20 || !near(g.IOFull, 0.25) ||
		!strings.Contains(g.IOLimit, "rbps=1048576") || !slices.Equal(g.Processes, []string{"job"}) {
		t.Errorf("%+v", g)
	}
}

func TestControlGroupsOfVersion1(t *testing.T) {
	m := fakemachine.New(t)
	m.Processes[500] = &fakemachine.Process{Name: "job"}
	dir := "/sys/fs/cgroup/cpu/jobs"
	files := func(throttled, ns, used string) map[string]string {
		return map[string]string{"/proc/500/cgroup": "3:cpu,cpuacct:/jobs\n1:name=systemd:/\n", dir +
			"/cpu.cfs_quota_us": "20000\n",
			dir + "/cpu.cfs_period_us": "100000\n", dir + "/cpuacct.usage": used + "\n",
			dir + "/cpu.stat": "nr_periods 10\nnr_throttled " + throttled + "\nthrottled_time " + ns + "\n"}
	}
	c := open(t, m, meters.Options{})
	write := func(files map[string]string) {
		m.Files = files
		m.Write()
		m.Overwrite("/proc/500/cgroup", files["/proc/500/cgroup"])
	}
	write(files("0", "0", "0"))
	c.Read(t.Context())
	m.Processes[500].Ticks += 20
	m.Pass(time.Second, 0.1, 0, 0, 0)
	next := files("8", "800000000", "200000000")
	next[dir+"/cpu.stat"] = "nr_periods 20\nnr_throttled 8\nthrottled_time 800000000\n"
	write(next)
	s := c.Read(t.Context())
	if len(s.CGroups) != 1 || s.CGroups[0].Path != "/jobs" || !near(s.CGroups[0].Quota, 0.2) ||
		!near(s.CGroups[0].ThrottledShare, 0.8) || !near(s.CGroups[0].CPU, 0.2) || !near(s.CGroups[0].ThrottledRate, 0.8) {
		t.Errorf("%+v", s.CGroups)
	}
}

func TestCountersOfCuFile(t *testing.T) {
	m := fakemachine.New(t)
	text := func(state, n, mib string) string {
		return "GDS Version: 1.7.0.149\nNVFS statistics(ver: 4.0)\nIO stats: " + state + ", peer IO stats: Disabled\n" +
			"Reads\t\t\t\t: n=" + n + " ok=1 err=2 readMiB=" + mib + " io_state_err=0\n" +
			"Reads\t\t\t\t: Bandwidth(MiB/s)=0 Avg-Latency(usec)=0\nWrites\t\t\t\t: n=1 ok=1 err=0 writeMiB=1 io_state_err=0\n" +
			"Writes\t\t\t\t: Bandwidth(MiB/s)=0 Avg-Latency(usec)=0\n"
	}
	m.Files["/proc/driver/nvidia-fs/stats"] = text("Enabled", "10", "10")
	c := open(t, m, meters.Options{})
	c.Read(t.Context())
	m.Files["/proc/driver/nvidia-fs/stats"] = text("Enabled", "1034", "1034")
	m.Pass(time.Second, 0, 0, 0, 0)
	m.Write()
	if f := c.Read(t.Context()).CuFile; f == nil || f.ReadRate != 1<<30 || f.ReadIOPS != 1024 || f.Errors != 2 ||
		!f.Counted {
		t.Errorf("%+v", f)
	}
	m.Files["/proc/driver/nvidia-fs/stats"] = text("Disabled", "1034", "1034")
	m.Write()
	s := c.Read(t.Context())
	if s.CuFile.Counted || !slices.ContainsFunc(s.Missing, func(m meters.Missing) bool {
		return m.Meter == "cufile" && strings.Contains(m.Fix, "rw_stats_enabled")
	}) {
		t.Errorf("%+v, missing %+v", s.CuFile, s.Missing)
	}
}

func TestAMachineWithoutMeters(t *testing.T) {
	c, err := meters.Open(meters.Options{Root: t.TempDir(), NoGPU: errs.New(errs.Unsupported, "use NVML",
		"libnvidia-ml.so.1",
		"not there").WithFix("install it")})
	if err != nil {
		t.Fatal(err)
	}
	c.Read(t.Context())
	s := c.Read(t.Context())
	missing := map[string]string{}
	for _, m := range s.Missing {
		missing[m.Meter] = m.Reason + m.Fix
	}
	for _, name := range []string{"cpu", "pressure", "memory", "disks", "network", "nfs", "processes", "gpu"} {
		if missing[name] == "" {
			t.Errorf("%s is not said to be missing: %v", name, missing)
		}
	}
	if !strings.Contains(missing["gpu"], "not there") || !strings.Contains(missing["gpu"], "install it") {
		t.Errorf("%q", missing["gpu"])
	}
}

// TestTheRunningMachine reads the machine of the test, whatever it is.
func TestTheRunningMachine(t *testing.T) {
	c, err := meters.Open(meters.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Read(t.Context())
	s := c.Read(t.Context())
	if s.CPU.Count == 0 || s.Memory.Total == 0 || s.Seconds <= 0 || s.Own < 0 || len(s.Networks) == 0 {
		t.Errorf("%+v", s)
	}
}
