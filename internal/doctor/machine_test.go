// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/binary"
	"path/filepath"
	"strings"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
)

// machine is a made-up machine: files, links and what files cannot tell.
type machine struct {
	*facts.Record
	meta facts.Meta
}

// put writes files from "path = content" lines; "path -> target" is a link. In
// content, | stands for a new line.
func (m *machine) put(text string) *machine {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, to, ok := strings.Cut(line, " -> "); ok {
			m.Links[name] = to
		} else if name, content, ok := strings.Cut(line, " = "); ok {
			m.Files[name] = []byte(strings.ReplaceAll(content, "|", "\n") + "\n")
		}
	}
	return m
}

func (m *machine) drop(prefix string) *machine {
	for p := range m.Files {
		if strings.HasPrefix(p, prefix) {
			delete(m.Files, p)
		}
	}
	for p := range m.Links {
		if strings.HasPrefix(p, prefix) {
			delete(m.Links, p)
		}
	}
	return m
}

// captured is a machine that was captured, with what names it taken out.
func captured(name string) *machine {
	tree, meta, err := facts.Load(filepath.Join("testdata", name))
	if err != nil {
		panic(err) // the test's own data is broken
	}
	return &machine{Record: tree.(*facts.Record), meta: meta}
}

const openDriver = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"

// smallVM is two CPUs, a virtio disk and no GPU.
func smallVM() *machine {
	m := &machine{Record: facts.NewRecord(), meta: facts.Meta{Kernel: "6.8.0-45-generic", Arch: "x86_64", CPUs: 2,
		UID: 1000, P2PSymbol: "no", IOUring: "ok",
		Memlock: -1, NoFile: 1 << 20, SHM: 8 << 30,
		Target: &facts.Target{Path: "/data/model.safetensors", Major: 254, Minor: 0, Size: 1 << 30, Allocated: 1 << 30,
			Total: 100 << 30, Available: 50 << 30,
			DirectMem: 512, DirectOffset: 512, DirectRead: "ok"}}}
	return m.put(`
/proc/cpuinfo = flags : fpu vme hypervisor
/proc/cmdline = root=/dev/vda1 quiet
/proc/self/mountinfo = 22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
/proc/self/cgroup = 0::/
/proc/meminfo = MemTotal: 8000000 kB|SwapTotal: 0 kB|SwapFree: 0 kB
/proc/sys/vm/dirty_ratio = 20
/proc/sys/vm/dirty_background_ratio = 10
/proc/sys/vm/dirty_bytes = 0
/proc/sys/vm/max_map_count = 1048576
/proc/pressure/io = some avg10=0.00 avg60=0.00 avg300=0.00 total=1
/sys/devices/system/node/node0/cpulist = 0-1
/sys/dev/block/254:0 -> /sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda
/sys/class/block/vda -> /sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda
/sys/bus/pci/devices/0000:00:02.0 -> /sys/devices/pci0000:00/0000:00:02.0
/sys/devices/pci0000:00/0000:00:02.0/class = 0x010000
/sys/devices/pci0000:00/0000:00:02.0/numa_node = -1
/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/queue/scheduler = [none] mq-deadline
/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/queue/read_ahead_kb = 4096
/sys/kernel/mm/transparent_hugepage/enabled = always [madvise] never
/sys/kernel/mm/transparent_hugepage/defrag = always defer [madvise] never
`)
}

// gpuVM is a virtual machine with an H200 and a virtio disk.
func gpuVM() *machine {
	return smallVM().put(`
/proc/driver/nvidia/version = ` + openDriver + `
/proc/driver/nvidia/params = RegistryDwords: ""
/proc/driver/nvidia/gpus/0000:8d:00.0/information = Model: 		 NVIDIA H200|Bus Location: 	 0000:8d:00.0
/sys/bus/pci/devices/0000:8d:00.0 -> /sys/devices/pci0000:8d/0000:8d:00.0
/sys/devices/pci0000:8d/0000:8d:00.0/class = 0x030200
/sys/devices/pci0000:8d/0000:8d:00.0/vendor = 0x10de
/sys/devices/pci0000:8d/0000:8d:00.0/numa_node = 0
/sys/devices/pci0000:8d/0000:8d:00.0/resource = 0x0 0xffffff 0x1|0x200000000000 0x203fffffffff 0x2
/usr/lib/x86_64-linux-gnu/libcufile.so.0 = x
/run/udev/data/b254:0 = E:ID_FS_USAGE=filesystem|E:ID_FS_TYPE=ext4
`)
}

// bare is a two-socket server on which P2PDMA is ready: H100 and NVMe behind
// one switch of the first socket.
func bare() *machine {
	m := &machine{Record: facts.NewRecord(), meta: facts.Meta{Kernel: "6.8.0-45-generic", Arch: "x86_64", CPUs: 64, UID: 0,
		P2PSymbol: "yes", IOUring: "ok",
		Memlock: -1, NoFile: 1 << 20, SHM: 500 << 30,
		Target: &facts.Target{Path: "/data/model.safetensors", Major: 259, Minor: 1, Size: 1 << 30, Allocated: 1 << 30,
			Total: 100 << 30, Available: 50 << 30,
			DirectMem: 4, DirectOffset: 512, DirectRead: "ok"}}}
	m.put(`
/proc/cpuinfo = flags : fpu vme
/proc/cmdline = root=/dev/sda1 iommu=pt
/proc/self/mountinfo = 22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw|30 22 259:1 / /data rw,noatime - xfs /dev/nvme0n1p1 rw,attr2,inode64
/proc/self/cgroup = 0::/user.slice
/proc/meminfo = MemTotal: 1000000000 kB|SwapTotal: 0 kB|SwapFree: 0 kB
/proc/sys/vm/max_map_count = 1048576
/proc/driver/nvidia/version = ` + openDriver + `
/proc/driver/nvidia/params = EnableMSI: 1|RegistryDwords: "RMForceStaticBar1=1;RmForceDisableIomapWC=1;"
/proc/driver/nvidia/gpus/0000:3b:00.0/information = Model: 		 NVIDIA H100 80GB HBM3|Bus Location: 	 0000:3b:00.0
/run/nvidia-persistenced/socket = x
/etc/cufile.json = // written by hand|{ "properties": { "use_pci_p2pdma": true, // on|"allow_compat_mode": false, "gds_rdma_write_support": true } }
/usr/lib/x86_64-linux-gnu/libcufile.so.1.15.0 = x
/usr/lib/x86_64-linux-gnu/libnuma.so.1 = x
/usr/lib/x86_64-linux-gnu/libcufile_rdma.so.1 = x
/usr/lib/x86_64-linux-gnu/libmlx5.so.1 = x
/run/udev/data/b259:1 = E:ID_FS_USAGE=filesystem|E:ID_FS_TYPE=xfs
/sys/devices/system/node/node0/cpulist = 0-31
/sys/devices/system/node/node1/cpulist = 32-63
/sys/kernel/iommu_groups/0/type = identity
/sys/module/nvme_core/parameters/multipath = N
/sys/dev/block/259:1 -> /sys/devices/pci0000:37/0000:37:01.0/0000:38:00.0/0000:39:01.0/0000:3a:00.0/nvme/nvme0/nvme0n1/nvme0n1p1
/sys/class/block/nvme0n1 -> /sys/devices/pci0000:37/0000:37:01.0/0000:38:00.0/0000:39:01.0/0000:3a:00.0/nvme/nvme0/nvme0n1
/sys/class/block/nvme0n1p1 -> /sys/devices/pci0000:37/0000:37:01.0/0000:38:00.0/0000:39:01.0/0000:3a:00.0/nvme/nvme0/nvme0n1/nvme0n1p1
/sys/class/block/nvme0n1p1/partition = 1
/sys/class/block/nvme0n1p1/start = 2048
/sys/class/block/nvme0n1/queue/scheduler = [none] mq-deadline
/sys/class/block/nvme0n1/queue/read_ahead_kb = 4096
/sys/class/block/nvme0n1/queue/max_sectors_kb = 1024
/sys/class/block/nvme0n1/queue/max_hw_sectors_kb = 2048
/sys/class/nvme/nvme0/hwmon0/temp1_input = 41850
/sys/class/nvme/nvme0/hwmon0/temp1_max = 81850
`)
	m.function("0000:3a:00.0", "/sys/devices/pci0000:37/0000:37:01.0/0000:38:00.0/0000:39:01.0/0000:3a:00.0", 0,
		"32.0 GT/s PCIe", 4)
	m.function("0000:3b:00.0", "/sys/devices/pci0000:37/0000:37:01.0/0000:38:00.0/0000:39:02.0/0000:3b:00.0", 0,
		"32.0 GT/s PCIe", 16)
	for _, b := range []string{"0000:37:01.0", "0000:37:01.0/0000:38:00.0", "0000:37:01.0/0000:38:00.0/0000:39:01.0",
		"0000:37:01.0/0000:38:00.0/0000:39:02.0"} {
		bdf := b[strings.LastIndex(b, "/")+1:]
		m.Links[facts.PCIDir(bdf)] = "/sys/devices/pci0000:37/" + b
		m.Files[facts.PCIDir(bdf)+"/config"] = bridge(0)
	}
	m.put("/sys/bus/pci/devices/0000:3b:00.0/resource = 0x0 0xffffff 0x1|0x200000000000 0x201fffffffff 0x2")
	return m
}

// function adds a PCI function whose link runs at its best.
func (m *machine) function(bdf, real string, node int, speed string, width int) {
	m.Links[facts.PCIDir(bdf)] = real
	n, w := string(rune('0'+node)), strings.TrimLeft(string([]byte{byte('0' + width/10), byte('0' + width%10)}), "0")
	for name, v := range map[string]string{"numa_node": n, "current_link_speed": speed, "max_link_speed": speed,
		"current_link_width": w, "max_link_width": w} {
		m.Files[facts.PCIDir(bdf)+"/"+name] = []byte(v + "\n")
	}
}

// bridge is a configuration space with an ACS capability set to ctl.
func bridge(ctl uint16) []byte {
	c := make([]byte, 4096)
	binary.LittleEndian.PutUint32(c[0x100:], 0x00010001|0x140<<20) // AER, next at 0x140
	binary.LittleEndian.PutUint32(c[0x140:], 0x0001000d)
	binary.LittleEndian.PutUint16(c[0x146:], ctl)
	return c
}
