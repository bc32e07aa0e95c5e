// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/binary"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// PCIDevice is one PCI function, with the bridges above it.
type PCIDevice struct {
	BDF   string
	Root  string   // root of the bus, such as pci0000:00
	Chain []string // addresses of the bridges from the root port down, then of the device itself
	NUMA  int      // NUMA node; -1 if unknown
	Known bool     // true if sysfs lists the device
}

// IsBDF reports whether s is a PCI address such as 0000:3b:00.0. IsBDF is strict, because PCI addresses are inserted
// into shell commands.
func IsBDF(s string) bool {
	addr, fn, ok := strings.Cut(s, ".")
	return ok && len(fn) == 1 && strings.Count(addr, ":") == 2 && strings.Trim(addr, "0123456789abcdef:") == "" &&
		strings.Trim(fn, "01234567") == ""
}

// PCIDir returns the sysfs directory of a PCI function.
func PCIDir(bdf string) string { return "/sys/bus/pci/devices/" + bdf }

// PCI returns the PCI function with address bdf. PCIDevice.Known is false if sysfs does not list the function.
func (f *Facts) PCI(bdf string) PCIDevice {
	d := PCIDevice{BDF: bdf, NUMA: -1}
	real, err := f.Resolve(PCIDir(bdf))
	if err != nil {
		return d
	}
	d.Known = true
	for part := range strings.SplitSeq(real, "/") {
		switch {
		case IsBDF(part):
			d.Chain = append(d.Chain, part)
		case strings.HasPrefix(part, "pci") && d.Root == "":
			d.Root = part
		}
	}
	if n, ok := f.Integer(path.Join(PCIDir(bdf), "numa_node")); ok {
		d.NUMA = int(n)
	}
	return d
}

// Link describes a PCIe link with its current and its best speed and width.
type Link struct {
	BDF             string
	Speed, MaxSpeed float64 // GT/s per lane
	Width, MaxWidth int
	Now, Best       float64 // current and best bandwidth of the link in GB/s

	speedText, maxText string
}

// Link returns the PCIe link of a PCI function. The second result of Link is false if the function has no link of its
// own, as in many virtual machines.
func (f *Facts) Link(bdf string) (Link, bool) {
	dir := PCIDir(bdf)
	l := Link{BDF: bdf}
	l.speedText, _ = f.Text(dir + "/current_link_speed")
	l.maxText, _ = f.Text(dir + "/max_link_speed")
	l.Speed, l.MaxSpeed = parseSpeed(l.speedText), parseSpeed(l.maxText)
	w, _ := f.Integer(dir + "/current_link_width")
	m, _ := f.Integer(dir + "/max_link_width")
	l.Width, l.MaxWidth = int(w), int(m)
	l.Now, l.Best = laneRate(l.Speed)*float64(w), laneRate(l.MaxSpeed)*float64(m)
	// 255 and 0 are what functions without a link of their own report.
	return l, l.Now > 0 && l.Best > 0 && l.Width <= 32 && l.MaxWidth <= 32
}

// String returns the current and the best speed and width of the link, such as "16.0 GT/s x4 of 32.0 GT/s x16".
func (l Link) String() string {
	return fmt.Sprintf("%s x%d of %s x%d", short(l.speedText), l.Width, short(l.maxText), l.MaxWidth)
}

func short(speed string) string { return strings.TrimSuffix(speed, " PCIe") }

// Distance returns how far apart two PCI functions are, in the terms of nvidia-smi topo (PIX, PHB, NODE, SYS).
// Distance returns "" if sysfs does not show the position of a function.
func Distance(a, b PCIDevice) string {
	switch {
	case !a.Known || !b.Known || a.Root == "" || b.Root == "":
		return ""
	case a.Chain[0] == b.Chain[0] && len(a.Chain) > 1 && len(b.Chain) > 1:
		return "PIX/PXB"
	case a.Root == b.Root:
		return "PHB"
	case a.NUMA < 0 || b.NUMA < 0:
		return ""
	case a.NUMA == b.NUMA:
		return "NODE"
	}
	return "SYS"
}

// Config returns the configuration space of a PCI device function, or nil if it cannot be read. Users other than root
// see only the first 64 bytes of the configuration space.
func (f *Facts) Config(bdf string) []byte {
	b, err := f.ReadFile(PCIDir(bdf) + "/config")
	if err != nil {
		return nil
	}
	return b
}

// capability returns the offset of a capability in the first 256 bytes, or 0 if there is none.
func capability(c []byte, id byte) int {
	if len(c) < 256 {
		return 0
	}
	at := int(c[0x34]) &^ 3
	for range 48 { // a list that loops ends here
		if at < 0x40 || at+20 > 256 {
			return 0
		}
		if c[at] == id {
			return at
		}
		at = int(c[at+1]) &^ 3
	}
	return 0
}

// extended returns the offset of an extended capability, or 0 if there is none.
func extended(c []byte, id uint16) int {
	at := 0x100
	for range 1024 {
		if at < 0x100 || at+8 > len(c) {
			return 0
		}
		h := binary.LittleEndian.Uint32(c[at:])
		if uint16(h) == id {
			return at
		}
		at = int(h>>20) &^ 3
	}
	return 0
}

// Payload returns three PCIe sizes in bytes: the largest supported payload, the configured payload, and the largest
// read request. The result ok is false if the function has no PCIe capability.
func Payload(c []byte) (can, set, read int, ok bool) {
	at := capability(c, 0x10)
	if at == 0 {
		return 0, 0, 0, false
	}
	ctl := binary.LittleEndian.Uint16(c[at+8:])
	return 128 << (c[at+4] & 7), 128 << (ctl >> 5 & 7), 128 << (ctl >> 12 & 7), true
}

// ACS returns the ACS bits of a bridge that redirect traffic between peers. The result ok is false if the
// configuration space cannot be read.
func ACS(c []byte) (ctl uint16, ok bool) {
	if len(c) < 4096 {
		return 0, false
	}
	at := extended(c, 0x000d)
	if at == 0 {
		return 0, true
	}
	// P2P request redirect, completion redirect, upstream forwarding, egress
	// control send peers through the root complex.
	return binary.LittleEndian.Uint16(c[at+6:]) & 0x3c, true
}

// BAR1 returns the size in bytes of the diagnosed GPU's BAR1, the window through which other devices reach its
// memory. BAR1 prefers the size that the driver reports to that on the PCI bus; 0 means unknown.
func (f *Facts) BAR1() int64 {
	if f.GPU == nil {
		return 0
	}
	if v, ok := f.GPUFact("bar1_total"); ok {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n > 0 {
			return n
		}
	}
	s, _ := f.Text(PCIDir(f.GPU.PCI) + "/resource")
	return secondRegion(s)
}

// secondRegion returns the size of the second memory region of a resource file. It is on line 1 or 2, because the
// first region takes one register or two.
func secondRegion(text string) int64 {
	const ioPorts = 0x100
	seen := 0
	for i, line := range strings.Split(text, "\n") {
		w := strings.Fields(line)
		if i >= 6 || len(w) < 2 {
			break
		}
		from, err1 := strconv.ParseUint(w[0], 0, 64)
		to, err2 := strconv.ParseUint(w[1], 0, 64)
		if err1 != nil || err2 != nil || to <= from || to-from > 1<<50 {
			continue
		}
		if len(w) > 2 {
			if flags, err := strconv.ParseUint(w[2], 0, 64); err == nil && flags&ioPorts != 0 {
				continue
			}
		}
		if seen++; seen == 2 {
			return int64(to - from + 1)
		}
	}
	return 0
}

// SamePCI reports whether two PCI addresses are equal, even if one domain has four digits and the other eight.
func SamePCI(a, b string) bool {
	short := func(s string) string {
		s = strings.ToLower(s)
		if d, rest, ok := strings.Cut(s, ":"); ok && strings.Count(s, ":") == 2 {
			return strings.TrimLeft(d, "0") + ":" + rest
		}
		return s
	}
	return a != "" && short(a) == short(b)
}

// AER returns an error counter of a PCI function since boot. The parameter kind is the kind of error: fatal, nonfatal
// or correctable. The second result of AER is false if the kernel keeps no counter for this kind of error.
func (f *Facts) AER(bdf, kind string) (int64, bool) {
	s, st := f.Text(PCIDir(bdf) + "/aer_dev_" + kind)
	if st != There {
		return 0, false
	}
	for line := range strings.Lines(s) {
		if w := strings.Fields(line); len(w) == 2 && strings.HasPrefix(w[0], "TOTAL_ERR") {
			n, err := strconv.ParseInt(w[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
