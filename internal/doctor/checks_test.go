// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"compress/gzip"
	"os"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
)

// onNVMe is bare with further files.
func onNVMe(text string) func() *machine { return func() *machine { return bare().put(text) } }

// withFacts is bare with what NVML says of its GPU.
func withFacts(kv ...string) func() *machine {
	return func() *machine {
		m := bare().drop("/run/nvidia-persistenced")
		f := map[string]string{}
		for i := 0; i+1 < len(kv); i += 2 {
			f[kv[i]] = kv[i+1]
		}
		m.meta.Survey = &device.Survey{Devices: []device.Info{{ID: "cuda:0", PCI: "0000:3b:00.0",
			Driver: "580.95.05 (CUDA 12.4)", TotalMemory: 80 << 30, Facts: f}}}
		return m
	}
}

func withLayout(l facts.Layout) func() *machine {
	return func() *machine {
		m := bare()
		m.meta.Target.Layout = &l
		return m
	}
}

func withHealth(h facts.Health) func() *machine {
	return func() *machine {
		m := bare()
		m.meta.NVMe = map[string]facts.Health{"nvme0": h}
		return m
	}
}

func withEnv(name, value string) func() *machine {
	return func() *machine {
		m := bare()
		m.meta.CuFileEnv = map[string]string{name: value}
		return m
	}
}

func withMemlock(mount string) func() *machine {
	return func() *machine {
		m := bare().put("/proc/self/mountinfo = 30 22 0:60 / /data rw,noatime - " + mount)
		m.meta.Memlock = 64 << 10
		return m
	}
}

func withClock(c facts.Clock) func() *machine {
	return func() *machine {
		m := bare()
		m.meta.Clock = &c
		return m
	}
}

const cgroup1 = "/proc/self/cgroup = 12:blkio:/job|11:cpu,cpuacct:/job|10:memory:/job\n/sys/class/block/nvme0n1/dev " +
	"= 259:0\n"

// TestChecks gives each rule one machine and looks at its worst answer.
func TestChecks(t *testing.T) {
	for _, c := range []struct {
		name, id string
		make     func() *machine
		level    Level
		says     string // in what is observed
	}{
		{"persistence off", "gpu.persist", withFacts("persistence_mode", "0"), Warn, "is off"},
		{"persistence on", "gpu.persist", withFacts("persistence_mode", "1"), Pass, "is on"},
		{"persistence untold", "gpu.persist", withFacts(), Unknown, "does not tell"},
		{"MIG", "gpu.mig_mps", withFacts("mig_mode", "1"), Info, "MIG mode is on"},
		{"no replays", "gpu.ecc_replay", withFacts("pcie_replays", "0"), Pass, "no PCIe replays"},
		{"some replays", "gpu.ecc_replay", withFacts("pcie_replays", "7"), Info, "7 PCIe replays"},
		{"many replays", "gpu.ecc_replay", withFacts("pcie_replays", "70000"), Warn, "70000"},
		{"fatal errors", "gpu.ecc_replay", onNVMe("/sys/bus/pci/devices/0000:3a:00.0/aer_dev_fatal = TOTAL_ERR_FATAL 2"),
			Fail, "2 fatal"},
		{"small BAR1", "gpu.rebar", withFacts("bar1_total", "268435456"), Info, "256.00 MiB of 80.00 GiB"},
		{"old GPU", "gpu.arch", withFacts("compute_capability", "5.2"), Fail, "below 6.0"},
		{"libcufile of CUDA 13", "drv.cuda", withFacts("x", "1"), Warn, "older than the CUDA of libcufile.so.1.15.0"},
		{"old nvidia-fs with the proprietary driver", "drv.open",
			onNVMe(nvfs + "/proc/driver/nvidia-fs/version = version: 2.15.1\n/proc/driver/nvidia/version = NVRM version: " +
				"NVIDIA UNIX x86_64 Kernel Module  535.1.05  Release"), Info, "still takes"},
		{"forced compatibility", "cufile.json",
			onNVMe(`/etc/cufile.json = {"properties": {"force_compat_mode": true, "use_pci_p2pdma": true}}`), Fail,
			"force_compat_mode"},
		{"old libcufile", "p2p.cufile", func() *machine {
			return bare().drop("/usr/lib/x86_64-linux-gnu/libcufile.so").put("/usr/lib/x86_64-linux-gnu/libcufile.so.1.11.1 = x")
		}, Fail, "needs libcufile 1.13"},
		{"forced by the environment", "cufile.json", withEnv("CUFILE_FORCE_COMPAT_MODE", "true"), Fail,
			"force_compat_mode is true"},
		{"P2PDMA off by the environment", "p2p.cufile", withEnv("CUFILE_USE_PCIP2PDMA", "false"), Fail, "turns P2PDMA off"},
		{"P2PDMA on by the environment", "p2p.cufile", func() *machine {
			m := withEnv("CUFILE_USE_PCIP2PDMA", "1")()
			return m.drop("/etc/cufile.json")
		}, Pass, "is true"},
		{"peermem for weka", "peermem",
			onNVMe("/proc/self/mountinfo = 30 22 0:60 / /data rw,noatime - wekafs default " +
				"rw\n/sys/class/infiniband/mlx5_0/ports/1/state = 4: ACTIVE\n/proc/driver/nvidia/version = NVRM version: NVIDIA " +
				"UNIX x86_64 Kernel Module  580.95.05  Release"), Fail, "no other way"},
		{"locked memory on TCP", "lim.memlock", withMemlock("nfs4 s:/m rw,proto=tcp"), Warn, "64.00 KiB"},
		{"locked memory on RDMA", "lim.memlock", withMemlock("nfs4 s:/m rw,proto=rdma"), Fail, "RDMA pins"},
		{"module without a card", "ofed", onNVMe("/sys/module/mlx5_core/refcnt = 0"), Skip, "no Mellanox card"},
		{"card with the kernel's driver", "ofed",
			onNVMe("/sys/module/mlx5_core/refcnt = 0\n/sys/bus/pci/drivers/mlx5_core/0000:3c:00.0/x = 1"), Info,
			"the kernel's own driver on 0000:3c:00.0"},
		{"both fabrics", "ofed", onNVMe("/sys/bus/pci/drivers/mlx5_core/0000:3c:00.0/x = " +
			"1\n/var/lib/dpkg/info/mlnx-ofed-all.list = x\n/var/lib/dpkg/info/doca-ofed.list = x"), Fail, "both"},
		{"DOCA alone", "ofed", onNVMe("/sys/bus/pci/drivers/mlx5_core/0000:3c:00.0/x = 1\n/usr/bin/ofed_info = " +
			"x\n/var/lib/dpkg/info/doca-ofed.list = x\n/sys/module/mlx5_core/version = 25.01-0.6.0"), Info, "25.01"},

		{"cpuset on the GPU's node", "numa.cpuset", onNVMe("/proc/self/status = Cpus_allowed_list:	0-3"), Pass,
			"4 of the 32 CPUs of node 0"},
		{"cpuset on the other node", "numa.cpuset", onNVMe("/proc/self/status = Cpus_allowed_list:	32-63"), Warn,
			"0 of the 32"},

		{"whole file", "dio.file", withLayout(facts.Layout{Extents: 3, Hole: -1}), Pass, "3 extents"},
		{"fragmented file", "dio.file", withLayout(facts.Layout{Extents: 900, Hole: -1}), Warn, "900 extents for 1.00 GiB"},
		{"sparse file", "dio.file", withLayout(facts.Layout{Extents: 2, Hole: 1 << 20}), Warn, "a hole at 1.00 MiB"},
		{"compressed file", "dio.file", withLayout(facts.Layout{Extents: 2, Hole: -1, Flags: []string{"compressed"},
			Odd: map[string]int{"encoded": 2}}), Warn, "compressed, 2 encoded"},
		{"reflinked file", "dio.file", withLayout(facts.Layout{Extents: 2, Hole: -1, Odd: map[string]int{"shared": 2}}), Pass,
			"2 shared"},

		{"clock apart", "time.sync", withClock(facts.Clock{Synchronised: true, OffsetUS: -2e6}), Warn, "-2000000"},
		{"clock alone", "time.sync", withClock(facts.Clock{}), Info, "nothing disciplines it"},
		{"clock right", "time.sync", withClock(facts.Clock{Synchronised: true, OffsetUS: 12}), Pass, "12 µs"},

		{"cgroup v1 bytes", "cg.io", onNVMe(cgroup1 +
			"/sys/fs/cgroup/blkio/job/blkio.throttle.read_bps_device = 259:0 104857600"), Warn,
			"read_bps_device: 259:0 104857600"},
		{"cgroup v1 other disk", "cg.io", onNVMe(cgroup1 + "/sys/fs/cgroup/blkio/job/blkio.throttle.read_bps_device = 8:0 1"),
			Pass, "no I/O limit"},
		{"cgroup v1 CPU", "cg.cpu", onNVMe(cgroup1 +
			"/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us = 150000\n/sys/fs/cgroup/cpu/job/cpu.cfs_period_us = 100000"), Warn,
			"1.5 CPUs"},
		{"cgroup v1 CPU open", "cg.cpu", onNVMe(cgroup1 +
			"/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us = -1\n/sys/fs/cgroup/cpu/job/cpu.cfs_period_us = 100000"), Pass,
			"no CPU limit"},
		{"cgroup v1 memory", "cg.mem", onNVMe(cgroup1 + "/sys/fs/cgroup/memory/job/memory.limit_in_bytes = 134217728"), Warn,
			"128.00 MiB"},
		{"cgroup v1 memory open", "cg.mem", onNVMe(cgroup1 +
			"/sys/fs/cgroup/memory/job/memory.limit_in_bytes = 9223372036854771712"), Pass, "no memory limit"},
		{"cgroup v2 memory.max", "cg.mem", onNVMe("/sys/fs/cgroup/user.slice/memory.max = 134217728"), Warn, "memory.max"},
		{"cgroup v2 io on another disk", "cg.io",
			onNVMe("/sys/fs/cgroup/user.slice/io.max = 8:0 rbps=1 wbps=max riops=max wiops=max\n/sys/class/block/nvme0n1/dev " +
				"= 259:0"), Info, "not under the path"},

		{"aio nearly used up", "aio", onNVMe("/proc/sys/fs/aio-nr = 60000\n/proc/sys/fs/aio-max-nr = 65536"), Warn,
			"60000 of 65536"},
		{"ext4 without a journal", "fs.ext4.journal",
			onNVMe("/proc/self/mountinfo = 30 22 259:1 / /data rw,noatime - ext4 /dev/nvme0n1p1 " +
				"rw\n/proc/fs/ext4/nvme0n1p1/options = rw|delalloc"), Fail, "has no journal"},
		{"small FUSE reads", "fuse", onNVMe("/proc/self/mountinfo = 30 22 0:70 / /data rw,noatime - fuse.sshfs host:/x " +
			"rw,max_read=131072"), Warn, "max_read=131072"},
		{"too few queues", "blk.queues", onNVMe("/sys/class/block/nvme0n1/mq/0/x = 1\n/sys/class/block/nvme0n1/mq/1/x = 1"),
			Warn, "2 for 64"},
		{"hot drive one directory down", "nvme.temp", func() *machine {
			return bare().drop("/sys/class/nvme/nvme0/hwmon0").put("/sys/class/nvme/nvme0/hwmon/hwmon3/temp1_input = " +
				"80000\n/sys/class/nvme/nvme0/hwmon/hwmon3/temp1_max = 81850")
		}, Warn, "80 °C"},
		{"worn drive", "nvme.health", withHealth(facts.Health{Used: 95, Spare: 100, SpareThreshold: 10}), Warn,
			"95 % of its life"},
		{"drive short of spare", "nvme.health", withHealth(facts.Health{Spare: 5, SpareThreshold: 10}), Warn, "5 % spare"},
		{"drive with media errors", "nvme.health", withHealth(facts.Health{Spare: 100, MediaErrors: 1}), Warn,
			"1 media errors"},
		{"failing drive", "nvme.health", withHealth(facts.Health{Critical: 4, Spare: 100}), Fail, "critical warning 0x04"},
		{"healthy drive", "nvme.health", withHealth(facts.Health{Used: 3, Spare: 100, SpareThreshold: 10}), Pass,
			"3 % of its life"},
		{"dead controller", "nvme.health", onNVMe("/sys/class/nvme/nvme0/state = dead"), Fail, "dead"},
		{"degraded array", "md.state", onNVMe("/sys/dev/block/259:1 -> " +
			"/sys/devices/virtual/block/md0\n/sys/class/block/md0/slaves/nvme0n1/x = 1\n/sys/class/block/md0/md/level = " +
			"raid1\n/sys/class/block/md0/md/degraded = 1"), Fail, "1 members missing"},
		{"IOMMU translates on x86", "iommu",
			onNVMe("/sys/kernel/iommu_groups/0/type = DMA-FQ\n/proc/cmdline = intel_iommu=on"), Warn, "DMA-FQ"},
		{"IOMMU off on Grace", "iommu", func() *machine {
			m := bare().drop("/sys/kernel/iommu_groups").put(
				"/proc/cmdline = quiet\n/proc/driver/nvidia/gpus/0000:3b:00.0/information = Model: NVIDIA GH200 480GB")
			m.meta.Arch = "aarch64"
			return m
		}, Fail, "off"},
		{"unlisted GPU", "p2p.model", onNVMe(nvfs +
			"/proc/driver/nvidia/gpus/0000:3b:00.0/information = Model: NVIDIA RTX A6000"), Info, "not in the list"},
		{"GeForce", "gpu.arch", onNVMe("/proc/driver/nvidia/gpus/0000:3b:00.0/information = Model: NVIDIA GeForce RTX 4090"),
			Fail, "compatibility mode only"},
		{"full file system", "fs.space", func() *machine {
			m := bare()
			m.meta.Target.Available = 0
			return m
		}, Warn, "100 % used"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := look(t, c.make(), Options{GPU: 0})
			if l := levelOf(r, c.id); l != c.level {
				t.Errorf("%s is %s, want %s", c.id, l, c.level)
			}
			said := ""
			for _, f := range r.Findings {
				if f.ID == c.id {
					said += f.Observed + "\n"
				}
			}
			if !strings.Contains(said, c.says) {
				t.Errorf("%s says %q, want %q in it", c.id, said, c.says)
			}
		})
	}
}

// TestAnImageOnADiskIsNoContainer: the marker of an engine stays in an image
// that was unpacked onto a disk.
func TestAnImageOnADiskIsNoContainer(t *testing.T) {
	disk := "/proc/self/mountinfo = 22 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw"
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"marker on a whole disk": {disk + "\n/.dockerenv = x", false},
		"marker in a subdirectory": {"/proc/self/mountinfo = 22 1 259:1 /rootfs / rw - ext4 /dev/dm-3 rw\n/.dockerenv = x",
			true},
		"marker on a subvolume": {"/proc/self/mountinfo = 22 1 0:50 /sub / rw - btrfs /dev/sda1 " +
			"rw\n/run/.containerenv = x", true},
		"marker on another pool":     {"/proc/self/mountinfo = 22 1 0:50 / / rw - zfs pool/x rw\n/.dockerenv = x", true},
		"overlay without any marker": {"/proc/self/mountinfo = 22 1 0:50 / / rw - overlay overlay rw", true},
		"a pod's cgroup":             {disk + "\n/proc/self/cgroup = 0::/kubepods/besteffort/x", true},
		"nothing":                    {disk, false},
	} {
		r := look(t, bare().put(c.text), Options{GPU: 0})
		if got := strings.Contains(r.Machine.Virtualisation, "in a container"); got != c.want {
			t.Errorf("%s: %q", name, r.Machine.Virtualisation)
		}
	}
}

// TestAFaultThatStopsThePathFails goes through the routes: where the verdict is
// no, the exit code says so, and the other way round a machine whose findings
// only cost still passes.
func TestAFaultThatStopsThePathFails(t *testing.T) {
	for _, s := range situations {
		for _, p := range []Profile{Train, Infer, Checkpoint} {
			s.opt.Profile = p
			r := look(t, s.make(), s.opt)
			if r.Verdict.Direct == "no" && !r.Failed() {
				t.Errorf("%s: no direct path, and nothing is FAIL", s.name)
			}
			if c := r.Verdict.Cause; r.Verdict.Direct == "no" && (c == nil || c.Level != Fail) {
				t.Errorf("%s: the first cause is %+v, want a FAIL", s.name, c)
			}
		}
	}
}

// TestWithoutAGPUNetworksStillCost: TCP beside an idle RDMA port is slow for a
// host too.
func TestWithoutAGPUNetworksStillCost(t *testing.T) {
	m := numbered(t, "11").make().drop("/proc/driver/nvidia")
	if l := levelOf(look(t, m, Options{GPU: -1}), "nfs.proto"); l != Warn {
		t.Errorf("nfs.proto is %s without a GPU, want WARN", l)
	}
}

// TestArraysByKernel proves both sides of the kernels' limits.
func TestArraysByKernel(t *testing.T) {
	for _, c := range []struct {
		level, kernel string
		want          Level
	}{{"raid0", "6.8.0", Info}, {"raid0", "7.1.0", Info}, {"raid10", "7.1.0", Info}, {"raid10", "7.2.0", Info}} {
		m := numbered(t, "15").make().put("/sys/class/block/md127/md/level = " + c.level)
		m.meta.Kernel = c.kernel
		r := look(t, m, Options{GPU: 0})
		open := c.level == "raid0" && c.kernel >= "7.1" || c.level == "raid10" && c.kernel >= "7.2"
		if got := r.Verdict.Route == "p2pdma"; got != open || levelOf(r, "p2p.topology") != c.want {
			t.Errorf("%s on %s: route %s, p2p.topology %s", c.level, c.kernel, r.Verdict.Route, levelOf(r, "p2p.topology"))
		}
	}
}

// TestTheKernelsOwnConfigurationCounts where /boot has none.
func TestTheKernelsOwnConfigurationCounts(t *testing.T) {
	for text, want := range map[string]Level{"CONFIG_PCI_P2PDMA=y\n": Pass, "# CONFIG_PCI_P2PDMA is not set\n": Fail} {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		m := bare()
		m.meta.P2PSymbol = "permission denied"
		m.Files["/proc/config.gz"] = b.Bytes()
		if l := levelOf(look(t, m, Options{GPU: 0}), "p2p.kernel"); l != want {
			t.Errorf("%q: p2p.kernel is %s, want %s", text, l, want)
		}
		m.Files["/proc/config.gz"] = b.Bytes()[:8]
		if l := levelOf(look(t, m, Options{GPU: 0}), "p2p.kernel"); l != Unknown {
			t.Errorf("half a file: p2p.kernel is %s, want UNKNOWN", l)
		}
	}
}

// TestTheDocumentShowsWhatTheProgramSays holds the example against the golden
// file that it is from.
func TestTheDocumentShowsWhatTheProgramSays(t *testing.T) {
	doc, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile("testdata/14-h200-vm.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, example, ok := strings.Cut(string(doc), "$ nebulaio doctor /data/model.bin\n")
	example, _, ok2 := strings.Cut(example, "```")
	if !ok || !ok2 {
		t.Fatal("the document has no example")
	}
	for line := range strings.Lines(example) {
		if line != "...\n" && !strings.Contains(string(golden), line) {
			t.Errorf("the program does not say %q", line)
		}
	}
}
