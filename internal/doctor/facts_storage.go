// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// disk is a block device at the bottom of the target's stack.
type disk struct {
	Disk
	pci  pciDevice
	part string // the partition that is used, empty where the whole disk is
}

// block is the sysfs directory of a block device.
func block(name string) string { return "/sys/class/block/" + name }

func (d disk) queue(name string) string { return block(d.Name) + "/queue/" + name }

// fabrics says that the drive is behind a network: no PCI function is its own.
func (d disk) fabrics() bool { return d.Kind == "nvme" && d.PCI == "" }

// gatherDisks walks from the target's device number to the disks.
func (f *facts) gatherDisks() {
	real, err := f.t.Resolve(fmt.Sprintf("/sys/dev/block/%d:%d", f.Target.Major, f.Target.Minor))
	if err == nil {
		f.descend(path.Base(real), 0)
		return
	}
	// btrfs and others have a number of their own; their source is a device.
	if f.mount != nil && strings.HasPrefix(f.mount.source, "/dev/") {
		if name := path.Base(f.mount.source); f.t.Exists(block(name)) {
			f.descend(name, 0)
		}
	}
}

func (f *facts) descend(name string, depth int) {
	if depth > 8 || len(f.disks) > 64 { // deeper than people stack
		return
	}
	if under, _ := f.t.ReadDir(block(name) + "/slaves"); len(under) > 0 {
		f.stack = append(f.stack, name)
		for _, s := range under {
			f.descend(s, depth+1)
		}
		return
	}
	real, err := f.t.Resolve(block(name))
	if err != nil {
		real = block(name)
	}
	d := disk{Disk: Disk{Name: name, Kind: "other", NUMA: -1}}
	if f.t.Exists(block(name) + "/partition") {
		d.part, d.Name = name, path.Base(path.Dir(real))
	}
	switch {
	case strings.HasPrefix(d.Name, "nvme"):
		d.Kind = "nvme"
	case strings.HasPrefix(d.Name, "vd"):
		d.Kind = "virtio"
	case strings.HasPrefix(d.Name, "sd"):
		d.Kind = "scsi"
	}
	bdf := lastBDF(real)
	if bdf == "" {
		bdf = f.multipathBDF(real)
	}
	if bdf != "" {
		d.pci = f.pci(bdf)
		d.PCI, d.NUMA = bdf, d.pci.numa
	}
	if !slices.ContainsFunc(f.disks, func(o disk) bool { return o.Name == d.Name }) {
		f.disks = append(f.disks, d)
	}
}

func lastBDF(sysPath string) string {
	last := ""
	for part := range strings.SplitSeq(sysPath, "/") {
		if isBDF(part) {
			last = part
		}
	}
	return last
}

// multipathBDF finds the controller behind a disk that hangs below a virtual
// subsystem, as every NVMe disk does with multipath on.
func (f *facts) multipathBDF(real string) string {
	for part := range strings.SplitSeq(real, "/") {
		if !strings.HasPrefix(part, "nvme-subsys") || part == "nvme-subsystem" {
			continue
		}
		for _, c := range glob(f.t, "/sys/class/nvme-subsystem/"+part, "nvme[0-9]*") {
			if to, err := f.t.Resolve("/sys/class/nvme/" + path.Base(c)); err == nil && lastBDF(to) != "" {
				return lastBDF(to)
			}
		}
	}
	return ""
}

// controller is the NVMe controller of a disk: nvme0 of nvme0n1.
func (d disk) controller() string {
	if i := strings.IndexByte(strings.TrimPrefix(d.Name, "nvme"), 'n'); d.Kind == "nvme" && i > 0 {
		return d.Name[:i+len("nvme")]
	}
	return d.Name
}

// remote says that a file system lives behind a network.
func remote(fstype string) bool {
	switch fstype {
	case "nfs", "nfs4", "lustre", "beegfs", "wekafs", "gpfs", "cifs", "smb3", "ceph":
		return true
	}
	return false
}

// top is the block device that the file system sees.
func (f *facts) top() string {
	if len(f.stack) > 0 {
		return f.stack[0]
	}
	if len(f.disks) > 0 {
		return f.disks[0].Name
	}
	return ""
}

// underneath are the names of md or dm devices on the way, by prefix.
func (f *facts) underneath(prefix string) []string {
	return slices.DeleteFunc(slices.Clone(f.stack), func(n string) bool { return !strings.HasPrefix(n, prefix) })
}
