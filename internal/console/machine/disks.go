// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/console/rates"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
)

// Disk is the state of one disk.
type Disk struct {
	Name        string        `json:"name"`
	Model       string        `json:"model"`
	Kind        string        `json:"kind"` // "nvme", "virtio", "scsi" or "other"
	Size        int64         `json:"size"`
	Mounts      []string      `json:"mounts"`
	Temperature *float64      `json:"temperature"` // degrees Celsius
	Firmware    string        `json:"firmware"`
	Transport   string        `json:"transport"`
	NUMA        int           `json:"numa"` // -1 if it is not known
	Rotational  bool          `json:"rotational"`
	ReadOnly    bool          `json:"read_only"`
	Health      *facts.Health `json:"health"` // of an NVMe drive under a diagnosed path, if the server may read it

	controller string
}

// blockDir has the whole disks, without partitions.
const blockDir = "/sys/block/"

// mostDisks is the largest number of disks that are listed.
const mostDisks = 256

// Disks lists the disks of a machine, without loop devices, memory disks and devices that are made of others.
func Disks(t facts.Tree) []Disk {
	all := []Disk{}
	names, err := t.ReadDir("/sys/block")
	if err != nil {
		return all
	}
	mounts := mountsByDevice(t)
	for _, name := range names {
		if isDisk(name) && len(all) < mostDisks {
			all = append(all, readDisk(t, name, mounts))
		}
	}
	return all
}

func readDisk(t facts.Tree, name string, mounts map[string][]string) Disk {
	dir := blockDir + name
	d := Disk{Name: name, Kind: kindOf(name), Model: text(t, dir+"/device/model"), Mounts: []string{}, NUMA: -1,
		Size: number(t, dir+"/size") * 512, Rotational: number(t, dir+"/queue/rotational") == 1,
		ReadOnly: number(t, dir+"/ro") == 1, Firmware: text(t, dir+"/device/firmware_rev")}
	if d.Firmware == "" {
		d.Firmware = text(t, dir+"/device/rev")
	}
	if n, err := strconv.Atoi(text(t, dir+"/device/numa_node")); err == nil {
		d.NUMA = n
	}
	if d.Kind == "nvme" {
		d.controller = facts.Disk{Name: name, Kind: "nvme"}.Controller()
		d.Transport = text(t, "/sys/class/nvme/"+d.controller+"/transport")
		d.Temperature = temperature(t, dir+"/device", "/sys/class/nvme/"+d.controller)
	}
	d.Mounts = append(d.Mounts, mounts[text(t, dir+"/dev")]...)
	entries, err := t.ReadDir(dir)
	if err != nil {
		return d
	}
	for _, partition := range entries {
		if strings.HasPrefix(partition, name) {
			d.Mounts = append(d.Mounts, mounts[text(t, dir+"/"+partition+"/dev")]...)
		}
	}
	return d
}

func isDisk(name string) bool {
	for _, prefix := range []string{"loop", "ram", "zram", "dm-", "md", "sr", "fd"} {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return true
}

func kindOf(name string) string {
	switch {
	case strings.HasPrefix(name, "nvme"):
		return "nvme"
	case strings.HasPrefix(name, "vd"):
		return "virtio"
	case strings.HasPrefix(name, "sd"):
		return "scsi"
	}
	return "other"
}

// mostMounts is the largest number of mount points of one device that are listed.
const mostMounts = 8

// mountsByDevice returns the mount points by the number of the device, such as "259:1".
func mountsByDevice(t facts.Tree) map[string][]string {
	all := map[string][]string{}
	b, err := t.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return all
	}
	for _, m := range facts.ParseMountinfo(string(b)) {
		if len(all[m.Dev]) < mostMounts {
			all[m.Dev] = append(all[m.Dev], m.Point)
		}
	}
	return all
}

// temperature returns the first temperature of a device in one of the directories, or nil.
func temperature(t facts.Tree, dirs ...string) *float64 {
	for _, dir := range dirs {
		names, err := t.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, name := range names {
			if !strings.HasPrefix(name, "hwmon") {
				continue
			}
			if n, err := strconv.ParseInt(text(t, path.Join(dir, name, "temp1_input")), 10, 64); err == nil {
				c := float64(n) / 1000
				return &c
			}
		}
	}
	return nil
}

func text(t facts.Tree, name string) string {
	b, err := t.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func number(t facts.Tree, name string) int64 {
	n, err := strconv.ParseInt(text(t, name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// diskCounters returns the counters of all disks since boot.
func diskCounters(t facts.Tree) []rates.Disk {
	b, err := t.ReadFile("/proc/diskstats")
	if err != nil {
		return nil
	}
	return parseDiskstats(string(b), func(name string) bool { return t.Exists(blockDir + name) })
}

// parseDiskstats reads the lines of /proc/diskstats for which whole returns true. Partitions would count twice.
func parseDiskstats(stats string, whole func(name string) bool) []rates.Disk {
	var all []rates.Disk
	for line := range strings.Lines(stats) {
		f := strings.Fields(line)
		if len(f) < 13 || !isDisk(f[2]) || !whole(f[2]) || len(all) == mostDisks {
			continue
		}
		var n [3]int64
		bad := false
		for i, at := range []int{5, 9, 12} { // sectors read, sectors written, milliseconds of I/O
			v, err := strconv.ParseInt(f[at], 10, 64)
			bad = bad || err != nil || v < 0 || v > 1<<50
			n[i] = v
		}
		if !bad {
			all = append(all, rates.Disk{Name: f[2], Read: n[0] * 512, Written: n[1] * 512,
				Busy: time.Duration(min(n[2], 1<<40)) * time.Millisecond})
		}
	}
	return all
}
