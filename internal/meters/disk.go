// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"bytes"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/vfs"
)

// sector is the unit of the sizes in /proc/diskstats, whatever the sectors of the disk are.
const sector = 512

// mostDisks bounds the block devices that are read.
const mostDisks = 4096

// parseDiskstats parses /proc/diskstats. Lines with fewer than 14 columns are skipped. The numbers of a device are in
// the map, as "major:minor".
func parseDiskstats(b []byte) (disks []Disk, numbers map[string]string) {
	numbers = map[string]string{}
	for line := range bytes.Lines(b) {
		var major, minor, name []byte
		rest := line
		for _, to := range []*[]byte{&major, &minor, &name} {
			rest = bytes.TrimLeft(rest, " \t")
			*to, rest, _ = bytes.Cut(rest, []byte(" "))
		}
		var n [11]uint64
		if len(name) == 0 || counts(rest, n[:]) < len(n) || n[2] > 1<<54 || n[6] > 1<<54 || len(disks) >= mostDisks {
			continue
		}
		disks = append(disks, Disk{Name: string(name), Reads: n[0], ReadBytes: n[2] * sector, ReadMS: n[3],
			Writes: n[4], WriteBytes: n[6] * sector, WriteMS: n[7], InFlight: n[8], BusyMS: n[9], QueueMS: n[10]})
		numbers[string(major)+":"+string(minor)] = string(name)
	}
	return disks, numbers
}

// since computes the rates of the disk from its counters before. The arithmetic is that of iostat -x.
func (d *Disk) since(before Disk, seconds float64) {
	if seconds <= 0 {
		return
	}
	d.ReadRate = per(d.ReadBytes, before.ReadBytes, seconds)
	d.WriteRate = per(d.WriteBytes, before.WriteBytes, seconds)
	d.ReadIOPS, d.WriteIOPS = per(d.Reads, before.Reads, seconds), per(d.Writes, before.Writes, seconds)
	d.ReadLatency = part(float64(grown(d.ReadMS, before.ReadMS))/1e3, float64(grown(d.Reads, before.Reads)))
	d.WriteLatency = part(float64(grown(d.WriteMS, before.WriteMS))/1e3, float64(grown(d.Writes, before.Writes)))
	d.Depth = per(d.QueueMS, before.QueueMS, seconds) / 1e3
	d.Busy = min(per(d.BusyMS, before.BusyMS, seconds)/1e3, 1)
	d.OfCeiling = max(part(d.ReadRate, d.ReadCeiling), part(d.WriteRate, d.WriteCeiling))
}

// Latency returns the mean seconds of the completed reads and writes together.
func (d *Disk) Latency() float64 {
	return part(d.ReadLatency*d.ReadIOPS+d.WriteLatency*d.WriteIOPS, d.ReadIOPS+d.WriteIOPS)
}

// Memory reports whether the device is made of memory or of a file, so that its requests reach no disk of their own.
func (d *Disk) Memory() bool {
	for _, kind := range []string{"loop", "ram", "zram"} {
		if rest, ok := strings.CutPrefix(d.Name, kind); ok && strings.Trim(rest, "0123456789") == "" {
			return true
		}
	}
	return false
}

// shape is what seldom changes about the disks of a machine.
type shape struct {
	whole  map[string]bool     // false for a partition
	of     map[string]string   // the whole disk of a partition
	below  map[string][]string // disks under a device
	spins  map[string]bool
	mounts map[string][]string // mount points by whole disk
	// Ceilings by whole disk, in bytes per second.
	readCeiling, writeCeiling map[string]float64
}

// readDisks reads the requests of all whole disks that were ever used.
func (c *Collector) readDisks(s *Sample) {
	b, err := c.files.read("/proc/diskstats")
	if err != nil {
		s.miss("disks", err)
		return
	}
	all, numbers := parseDiskstats(b)
	if c.shape == nil || c.reads%shapeEvery == 0 || slices.ContainsFunc(all, c.shape.lacks) {
		c.shape = c.readShape(all, numbers)
	}
	before := c.disks
	c.disks = map[string]Disk{}
	s.Disks = []Disk{}
	for _, d := range all {
		if !c.shape.whole[d.Name] || d.Reads+d.Writes == 0 {
			continue
		}
		d.Below, d.Mounts, d.Rotational = c.shape.below[d.Name], c.shape.mounts[d.Name], c.shape.spins[d.Name]
		d.ReadCeiling, d.WriteCeiling = c.shape.readCeiling[d.Name], c.shape.writeCeiling[d.Name]
		if old, ok := before[d.Name]; ok {
			d.since(old, s.Seconds)
		}
		c.disks[d.Name] = d
		s.Disks = append(s.Disks, d)
	}
	slices.SortFunc(s.Disks, func(a, b Disk) int { return strings.Compare(a.Name, b.Name) })
}

// shapeEvery is the number of samples after which mounts and kinds of disks are read again.
const shapeEvery = 10

// lacks reports whether a disk has come since the shape was read.
func (sh *shape) lacks(d Disk) bool {
	_, ok := sh.whole[d.Name]
	return !ok
}

func (c *Collector) readShape(disks []Disk, numbers map[string]string) *shape {
	sh := &shape{whole: map[string]bool{}, of: map[string]string{}, below: map[string][]string{}, spins: map[string]bool{},
		mounts: map[string][]string{}, readCeiling: map[string]float64{}, writeCeiling: map[string]float64{}}
	blocks, err := c.files.names("/sys/block")
	for _, d := range disks {
		sh.whole[d.Name] = err != nil || slices.Contains(blocks, sysName(d.Name))
		if !sh.whole[d.Name] {
			sh.of[d.Name] = c.wholeOf(d.Name, blocks)
			continue
		}
		dir := "/sys/block/" + sysName(d.Name)
		sh.spins[d.Name] = c.files.text(dir+"/queue/rotational") == "1"
		if under, err := c.files.names(dir + "/slaves"); err == nil && len(under) > 0 {
			slices.Sort(under)
			sh.below[d.Name] = under[:min(len(under), 64)]
		}
	}
	mounts, err := c.files.read("/proc/self/mountinfo")
	if err != nil {
		return sh
	}
	for _, m := range parseMounts(mounts) {
		name, ok := numbers[m.device]
		if !ok { // btrfs and others have numbers of their own, but name their disk
			name = base(m.source)
		}
		if whole, ok := sh.of[name]; ok {
			name = whole
		}
		if !sh.whole[name] {
			continue
		}
		if list := sh.mounts[name]; len(list) < 8 && !slices.Contains(list, m.point) {
			sh.mounts[name] = append(list, m.point)
		}
		c.ceilings.disk(sh, name, m.source)
	}
	return sh
}

// sysName is the name of a device in sysfs, which has '!' in place of '/'.
func sysName(name string) string { return strings.ReplaceAll(name, "/", "!") }

// wholeOf returns the disk of a partition: the one in whose directory sysfs lists the partition.
func (c *Collector) wholeOf(partition string, blocks []string) string {
	for _, disk := range blocks {
		if strings.HasPrefix(partition, disk) {
			if _, ok := c.files.number("/sys/block/" + disk + "/" + sysName(partition) + "/partition"); ok {
				return disk
			}
		}
	}
	return ""
}

// mount is one line of /proc/self/mountinfo.
type mount struct{ device, point, kind, source string }

// parseMounts parses /proc/self/mountinfo. Lines that are cut short are skipped.
func parseMounts(b []byte) (out []mount) {
	for line := range bytes.Lines(b) {
		left, right, ok := bytes.Cut(line, []byte(" - "))
		l, r := bytes.Fields(left), bytes.Fields(right)
		if !ok || len(l) < 5 || len(r) < 2 || len(out) >= 1<<14 {
			continue
		}
		out = append(out, mount{device: string(l[2]), point: vfs.UnescapeMount(string(l[4])), kind: string(r[0]),
			source: vfs.UnescapeMount(string(r[1]))})
	}
	return out
}
