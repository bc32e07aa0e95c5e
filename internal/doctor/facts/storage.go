// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Disk is one physical or virtual block device at the bottom of the target's device stack.
type Disk struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // kind of disk: "nvme", "virtio", "scsi" or "other"
	PCI  string `json:"pci,omitempty"`
	NUMA int    `json:"numa"` // NUMA node; -1 if unknown

	Bus  PCIDevice `json:"-"`
	Part string    `json:"-"` // the partition in use; empty if the whole disk is used
}

// Block returns the sysfs directory of a block device.
func Block(name string) string { return "/sys/class/block/" + name }

// Queue returns the path of the sysfs file with a setting of the disk's request queue.
func (d Disk) Queue(name string) string { return Block(d.Name) + "/queue/" + name }

// Fabrics reports whether the drive is an NVMe drive behind a network, which has no PCI function on this machine.
func (d Disk) Fabrics() bool { return d.Kind == "nvme" && d.PCI == "" }

// gatherDisks walks from the target's device number down to the disks.
func (f *Facts) gatherDisks() {
	real, err := f.Resolve(fmt.Sprintf("/sys/dev/block/%d:%d", f.Target.Major, f.Target.Minor))
	if err == nil {
		f.descend(path.Base(real), 0)
		return
	}
	// btrfs and others have a number of their own; their source is a device.
	if f.Mount != nil && strings.HasPrefix(f.Mount.Source, "/dev/") {
		if name := path.Base(f.Mount.Source); f.Exists(Block(name)) {
			f.descend(name, 0)
		}
	}
}

func (f *Facts) descend(name string, depth int) {
	if depth > 8 || len(f.Disks) > 64 { // deeper than people stack
		return
	}
	if under, _ := f.ReadDir(Block(name) + "/slaves"); len(under) > 0 {
		f.Stack = append(f.Stack, name)
		for _, s := range under {
			f.descend(s, depth+1)
		}
		return
	}
	real, err := f.Resolve(Block(name))
	if err != nil {
		real = Block(name)
	}
	d := Disk{Name: name, Kind: "other", NUMA: -1}
	if f.Exists(Block(name) + "/partition") {
		d.Part, d.Name = name, path.Base(path.Dir(real))
	}
	switch {
	case strings.HasPrefix(d.Name, "nvme"):
		d.Kind = "nvme"
	case strings.HasPrefix(d.Name, "vd"):
		d.Kind = "virtio"
	case strings.HasPrefix(d.Name, "sd"):
		d.Kind = "scsi"
	}
	bdf := LastBDF(real)
	if bdf == "" {
		bdf = f.multipathBDF(real)
	}
	if bdf != "" {
		d.Bus = f.PCI(bdf)
		d.PCI, d.NUMA = bdf, d.Bus.NUMA
	}
	if !slices.ContainsFunc(f.Disks, func(o Disk) bool { return o.Name == d.Name }) {
		f.Disks = append(f.Disks, d)
	}
}

// LastBDF returns the last PCI address in a sysfs path, or "" if there is none.
func LastBDF(sysPath string) string {
	last := ""
	for part := range strings.SplitSeq(sysPath, "/") {
		if IsBDF(part) {
			last = part
		}
	}
	return last
}

// multipathBDF returns the controller of a disk below a virtual subsystem. Every NVMe disk has such a subsystem if
// multipath is on.
func (f *Facts) multipathBDF(real string) string {
	for part := range strings.SplitSeq(real, "/") {
		if !strings.HasPrefix(part, "nvme-subsys") || part == "nvme-subsystem" {
			continue
		}
		for _, c := range f.Glob("/sys/class/nvme-subsystem/"+part, "nvme[0-9]*") {
			if to, err := f.Resolve("/sys/class/nvme/" + path.Base(c)); err == nil && LastBDF(to) != "" {
				return LastBDF(to)
			}
		}
	}
	return ""
}

// Controller returns the NVMe controller of a disk, such as nvme0 for nvme0n1.
func (d Disk) Controller() string {
	if i := strings.IndexByte(strings.TrimPrefix(d.Name, "nvme"), 'n'); d.Kind == "nvme" && i > 0 {
		return d.Name[:i+len("nvme")]
	}
	return d.Name
}

// Remote reports whether a file system of this type is reached over a network.
func Remote(fstype string) bool {
	switch fstype {
	case "nfs", "nfs4", "lustre", "beegfs", "wekafs", "gpfs", "cifs", "smb3", "ceph":
		return true
	}
	return false
}

// Top returns the block device that the target's file system uses, or "" if there is none.
func (f *Facts) Top() string {
	if len(f.Stack) > 0 {
		return f.Stack[0]
	}
	if len(f.Disks) > 0 {
		return f.Disks[0].Name
	}
	return ""
}

// Underneath returns the devices in Stack with a name that begins with prefix, such as md or dm.
func (f *Facts) Underneath(prefix string) []string {
	return slices.DeleteFunc(slices.Clone(f.Stack), func(n string) bool { return !strings.HasPrefix(n, prefix) })
}
