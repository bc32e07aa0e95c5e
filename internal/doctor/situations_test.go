// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
)

var update = flag.Bool("update", false, "write the golden files anew")

const nvfs = `
/proc/driver/nvidia-fs/version = version: 2.26.6
/dev/nvidia-fs0 = x
/dev/nvidia-fs1 = x
`

// situation is a machine that somebody brings, with the answer needed first.
type situation struct {
	name   string
	make   func() *machine
	opt    Options
	direct string
	cause  string // id of the first cause, or of what costs most
	fix    string // in its fix, now or at boot
	fails  bool
}

var situations = []situation{
	{name: "01-small-vm", make: smallVM, opt: Options{GPU: -1}, direct: "none"},
	{name: "02-gpu-vm-virtio", make: gpuVM, opt: Options{GPU: -1}, direct: "no", cause: "blk.peer",
		fix: "NVMe disk of its own", fails: true},
	{name: "03-p2pdma-ready", make: bare, opt: Options{GPU: 0}, direct: "yes"},
	{name: "04-nvme-not-registered", make: func() *machine {
		return bare().drop("/etc/cufile.json").put(nvfs + `
/proc/driver/nvidia-fs/modules = rpcrdma: 1.0
/proc/driver/nvidia/params = RegistryDwords: ""
/sys/module/nvme_core/parameters/multipath = Y`)
	}, opt: Options{GPU: 0}, direct: "no", cause: "nvfs.modules", fix: "DOCA", fails: true},
	{name: "05-ext4-data-not-explicit", make: func() *machine {
		return bare().put(`/proc/self/mountinfo = 22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw|30 22 259:1 / /data rw,noatime - ext4 /dev/nvme0n1p1 rw,stripe=32
/proc/fs/ext4/nvme0n1p1/options = rw|data=ordered|stripe=32`)
	}, opt: Options{GPU: 0}, direct: "no", cause: "fs.ext4.journal",
		fix: "umount /data && mount -o data=ordered /dev/nvme0n1p1 /data", fails: true},
	{name: "06-container-without-udev", make: func() *machine {
		return bare().drop("/run/udev").put(`/.dockerenv = x
/proc/self/mountinfo = 22 1 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/a,upperdir=/b,workdir=/c|30 22 259:1 / /data rw,noatime - xfs /dev/nvme0n1p1 rw,attr2,inode64`)
	}, opt: Options{GPU: 0}, direct: "no", cause: "ct.udev", fix: "-v /run/udev:/run/udev:ro", fails: true},
	{name: "07-overlay", make: func() *machine {
		m := bare().put(
			`/proc/self/mountinfo = 22 1 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/a,upperdir=/b,workdir=/c`)
		m.meta.Target.Major, m.meta.Target.Minor = 0, 50
		return m
	}, opt: Options{GPU: 0}, direct: "no", cause: "fs.type", fix: "bind-mount", fails: true},
	{name: "08-cross-socket", make: func() *machine {
		m := bare().put("/proc/driver/nvidia/gpus/0000:d8:00.0/information = Model: NVIDIA H100 80GB HBM3")
		m.function("0000:d8:00.0", "/sys/devices/pci0000:d7/0000:d7:01.0/0000:d8:00.0", 1, "32.0 GT/s PCIe", 16)
		m.put("/sys/bus/pci/devices/0000:d8:00.0/resource = 0x0 0xffffff 0x1|0x200000000000 0x201fffffffff 0x2")
		m.Links[facts.PCIDir("0000:d7:01.0")] = "/sys/devices/pci0000:d7/0000:d7:01.0"
		m.Files[facts.PCIDir("0000:d7:01.0")+"/config"] = bridge(0)
		return m
	}, opt: Options{GPU: 1}, direct: "yes", cause: "topo.pair", fix: "--gpu 0"},
	{name: "09-nvme-link-halved", make: func() *machine {
		return bare().put("/sys/bus/pci/devices/0000:3a:00.0/current_link_width = 2")
	}, opt: Options{GPU: 0}, direct: "yes", cause: "pcie.link.nvme", fix: "reseat the drive", fails: true},
	{name: "10-acs-on", make: func() *machine {
		m := bare()
		m.Files[facts.PCIDir("0000:39:01.0")+"/config"] = bridge(0x1d)
		return m
	}, opt: Options{GPU: 0}, direct: "unproven", cause: "pcie.acs", fix: "setpci -s 0000:39:01.0 ECAP_ACS+6.w=0000"},
	{name: "11-nfs-tcp-small-rsize", make: func() *machine {
		m := bare().put(nvfs + `
/proc/driver/nvidia-fs/modules = nvme: 1.0|rpcrdma: 1.0
/proc/self/mountinfo = 22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw|30 22 0:60 / /data rw,noatime - nfs4 store:/models rw,vers=4.2,rsize=65536,wsize=65536,proto=tcp,hard
/sys/class/infiniband/mlx5_0/ports/1/state = 4: ACTIVE
/sys/module/nvidia_peermem/refcnt = 0
/sys/class/bdi/0:60/read_ahead_kb = 128
/sys/class/net/eth0 -> /sys/devices/pci0000:37/0000:37:01.0/0000:38:00.0/0000:39:03.0/0000:3c:00.0/net/eth0
/sys/class/net/eth0/operstate = up
/sys/class/net/eth0/speed = 100000
/sys/class/net/eth0/mtu = 1500
/proc/interrupts =            CPU0       CPU1|  98:   90000     10000   IR-PCI-MSIX 0-edge      eth0-0|  99:   1   2   IR-PCI-MSIX 1-edge      nvme0q1
/proc/sys/net/core/rmem_max = 212992
/proc/sys/net/core/wmem_max = 212992
/proc/sys/net/ipv4/tcp_rmem = 4096	131072	6291456
/proc/sys/net/ipv4/tcp_wmem = 4096	16384	134217728
/proc/sys/sunrpc/tcp_max_slot_table_entries = 2
/proc/self/mountstats = device store:/models mounted on /data with fstype nfs4 statvers=1.1|	READ: 100000 100500 0 1 2 3 4 5 6||device x mounted on /y with fstype ext4`)
		m.meta.Target.Major, m.meta.Target.Minor = 0, 60
		return m
	}, opt: Options{GPU: 0}, direct: "no", cause: "nfs.proto", fix: "proto=rdma,port=20049", fails: true},
	{name: "12-memlock-64k", make: func() *machine {
		m := bare()
		m.meta.UID, m.meta.Memlock = 1000, 64<<10
		return m
	}, opt: Options{GPU: 0}, direct: "yes", cause: "lim.memlock", fix: "ulimit -l unlimited"},
	{name: "13-grace-iommu-passthrough", make: func() *machine {
		m := bare().put(`/proc/cmdline = iommu.passthrough=1
/proc/driver/nvidia/gpus/0000:3b:00.0/information = Model: NVIDIA GH200 480GB`)
		m.meta.Arch = "aarch64"
		return m
	}, opt: Options{GPU: 0}, direct: "no", cause: "iommu", fix: "iommu.passthrough=0", fails: true},
	// A real machine: an H200 passed through to a guest whose disk is virtio and
	// whose root file system was unpacked from a container image. A tar, because
	// names with colons keep a module from being downloaded.
	{name: "14-h200-vm", make: func() *machine { return captured("h200-vm.tar") }, opt: Options{GPU: -1}, direct: "no",
		cause: "blk.peer", fix: "NVMe disk of its own", fails: true},
	{name: "21-h200-vm-proved", make: func() *machine { return captured("h200-vm-proved.tar") }, opt: Options{GPU: -1},
		direct: "no", cause: "blk.peer", fix: "NVMe disk of its own", fails: true},
	{name: "15-md-small-chunk-resync", make: func() *machine {
		m := bare().put(`
/proc/self/mountinfo = 22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw|30 22 9:127 / /data rw,noatime - xfs /dev/md127 rw,attr2,inode64,sunit=1024,swidth=2048
/sys/dev/block/9:127 -> /sys/devices/virtual/block/md127
/sys/class/block/md127 -> /sys/devices/virtual/block/md127
/sys/class/block/md127/slaves/nvme0n1/x = 1
/sys/class/block/md127/slaves/nvme1n1/x = 1
/sys/class/block/md127/md/level = raid10
/sys/class/block/md127/md/chunk_size = 65536
/sys/class/block/md127/md/raid_disks = 2
/sys/class/block/md127/md/degraded = 0
/sys/class/block/md127/md/sync_action = resync
/sys/class/block/md127/md/sync_completed = 1024 / 3750748848
/sys/class/block/md127/queue/read_ahead_kb = 4096
/sys/class/block/nvme1n1 -> /sys/devices/pci0000:37/0000:37:01.0/0000:38:00.0/0000:39:03.0/0000:3d:00.0/nvme/nvme1/nvme1n1
/sys/class/block/nvme1n1/queue/scheduler = [none] mq-deadline
/run/udev/data/b9:127 = E:ID_FS_USAGE=filesystem|E:ID_FS_TYPE=xfs`)
		m.function("0000:3d:00.0", "/sys/devices/pci0000:37/0000:37:01.0/0000:38:00.0/0000:39:03.0/0000:3d:00.0", 0,
			"32.0 GT/s PCIe", 4)
		m.Links[facts.PCIDir("0000:39:03.0")] = "/sys/devices/pci0000:37/0000:37:01.0/0000:38:00.0/0000:39:03.0"
		m.Files[facts.PCIDir("0000:39:03.0")+"/config"] = bridge(0)
		m.meta.Target.Major, m.meta.Target.Minor = 9, 127
		return m
	}, opt: Options{GPU: 0}, direct: "no", cause: "nvfs.loaded", fix: "apt-get install -y nvidia-gds", fails: true},
	{name: "16-lustre-one-stripe", make: func() *machine {
		m := bare().put(nvfs + `
/proc/driver/nvidia-fs/version = version: 2.28.4
/proc/driver/nvidia-fs/modules = lnet: 1.0
/proc/self/mountinfo = 22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw|30 22 0:60 / /data rw,noatime - lustre 10.0.0.1@o2ib:/scratch rw,flock
/sys/fs/lustre/osc/scratch-OST0000-osc-ff01/max_rpcs_in_flight = 8
/sys/fs/lustre/osc/scratch-OST0000-osc-ff01/max_pages_per_rpc = 1024
/sys/fs/lustre/osc/scratch-OST0000-osc-ff01/kbytestotal = 1000000
/sys/fs/lustre/osc/scratch-OST0000-osc-ff01/kbytesavail = 50000
/sys/fs/lustre/osc/scratch-OST0001-osc-ff01/max_rpcs_in_flight = 8
/sys/fs/lustre/osc/scratch-OST0001-osc-ff01/max_pages_per_rpc = 1024
/sys/fs/lustre/osc/scratch-OST0001-osc-ff01/kbytestotal = 1000000
/sys/fs/lustre/osc/scratch-OST0001-osc-ff01/kbytesavail = 500000
/sys/class/infiniband/mlx5_0/ports/1/state = 4: ACTIVE
/sys/module/nvidia_peermem/refcnt = 0`)
		m.meta.Target.Major, m.meta.Target.Minor, m.meta.Target.Size, m.meta.Target.Allocated = 0, 60, 4<<30, 4<<30
		m.meta.Target.Stripe = &facts.Stripe{Count: 1, Size: 1 << 20}
		return m
	}, opt: Options{GPU: 0}, direct: "yes", cause: "lustre", fix: "lfs setstripe -c -1"},
	{name: "17-cgroup-io-max", make: func() *machine {
		return bare().put(`
/proc/self/cgroup = 0::/kubepods.slice/pod1
/sys/fs/cgroup/kubepods.slice/pod1/io.max = 259:0 rbps=524288000 wbps=max riops=max wiops=max
/sys/fs/cgroup/kubepods.slice/pod1/cpu.max = 200000 100000
/sys/class/block/nvme0n1/dev = 259:0`)
	}, opt: Options{GPU: 0}, direct: "yes", cause: "cg.io", fix: "/sys/fs/cgroup/kubepods.slice/pod1/io.max"},
	{name: "18-proprietary-driver", make: func() *machine {
		return bare().put("/proc/driver/nvidia/version = NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  " +
			"Release Build")
	}, opt: Options{GPU: 0}, direct: "no", cause: "drv.open", fix: "open one", fails: true},
	{name: "19-efs", make: func() *machine {
		m := bare().put(`
/proc/self/mountinfo = 22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw|30 22 0:60 / /data rw,noatime - nfs4 fs-0123.efs.eu-west-1.amazonaws.com:/ rw,vers=4.1,rsize=262144,wsize=1048576,proto=tcp,hard,addr=10.0.0.9
/sys/class/bdi/0:60/read_ahead_kb = 15380`)
		m.meta.Target.Major, m.meta.Target.Minor = 0, 60
		return m
	}, opt: Options{GPU: 0}, direct: "no", cause: "nfs.proto", fix: "local NVMe", fails: true},
	{name: "20-grace-iommu-off", make: func() *machine {
		m := bare().drop("/sys/kernel/iommu_groups").put(`/proc/cmdline = quiet
/proc/driver/nvidia/gpus/0000:3b:00.0/information = Model: NVIDIA GH200 480GB`)
		m.meta.Arch = "aarch64"
		return m
	}, opt: Options{GPU: 0}, direct: "no", cause: "iommu", fix: "SMMU on in the firmware", fails: true},
}

func look(t *testing.T, m *machine, o Options) *Result {
	t.Helper()
	r, err := Diagnose(m.Record, m.meta, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSituations(t *testing.T) {
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			r := look(t, s.make(), s.opt)
			if r.Verdict.Direct != s.direct || r.Failed() != s.fails {
				t.Errorf("direct %q, failed %v; want %q, %v", r.Verdict.Direct, r.Failed(), s.direct, s.fails)
			}
			switch c := r.Verdict.Cause; {
			case c == nil && s.cause != "":
				t.Errorf("no cause, want %s", s.cause)
			case c != nil && (c.ID != s.cause || !strings.Contains(c.FixNow+"\n"+c.FixBoot, s.fix)):
				t.Errorf("cause %s with the fix %q, %q; want %s with %q", c.ID, c.FixNow, c.FixBoot, s.cause, s.fix)
			}
			var b bytes.Buffer
			WriteText(&b, r, false)
			golden(t, s.name+".txt", b.Bytes())
			b.Reset()
			WriteFixScript(&b, r)
			golden(t, s.name+".sh", b.Bytes())
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (run with -update to accept)\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// numbered is the situation whose name begins with number.
func numbered(t *testing.T, number string) situation {
	t.Helper()
	for _, s := range situations {
		if strings.HasPrefix(s.name, number) {
			return s
		}
	}
	t.Fatalf("there is no situation %s", number)
	return situation{}
}
