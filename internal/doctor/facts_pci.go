// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/binary"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// pciDevice is one function on the bus with its way up.
type pciDevice struct {
	bdf   string
	root  string   // pci0000:00
	chain []string // bridges from the root port down, then the device itself
	numa  int      // -1 unknown
	known bool     // the bus lists it
}

// isBDF knows 0000:3b:00.0 and nothing else: addresses end up in commands.
func isBDF(s string) bool {
	addr, fn, ok := strings.Cut(s, ".")
	return ok && len(fn) == 1 && strings.Count(addr, ":") == 2 && strings.Trim(addr, "0123456789abcdef:") == "" && strings.Trim(fn, "01234567") == ""
}

func pciDir(bdf string) string { return "/sys/bus/pci/devices/" + bdf }

func (f *facts) pci(bdf string) pciDevice {
	d := pciDevice{bdf: bdf, numa: -1}
	real, err := f.t.Resolve(pciDir(bdf))
	if err != nil {
		return d
	}
	d.known = true
	for part := range strings.SplitSeq(real, "/") {
		switch {
		case isBDF(part):
			d.chain = append(d.chain, part)
		case strings.HasPrefix(part, "pci") && d.root == "":
			d.root = part
		}
	}
	if n, ok := f.integer(path.Join(pciDir(bdf), "numa_node")); ok {
		d.numa = int(n)
	}
	return d
}

// link is one PCIe link as it runs and as it could.
type link struct {
	bdf                string
	speed, maxSpeed    float64 // GT/s
	width, maxWidth    int
	now, best          float64 // GB/s
	speedText, maxText string
}

func (f *facts) link(bdf string) (link, bool) {
	dir := pciDir(bdf)
	l := link{bdf: bdf}
	l.speedText, _ = f.text(dir + "/current_link_speed")
	l.maxText, _ = f.text(dir + "/max_link_speed")
	l.speed, l.maxSpeed = parseSpeed(l.speedText), parseSpeed(l.maxText)
	w, _ := f.integer(dir + "/current_link_width")
	m, _ := f.integer(dir + "/max_link_width")
	l.width, l.maxWidth = int(w), int(m)
	l.now, l.best = laneRate(l.speed)*float64(w), laneRate(l.maxSpeed)*float64(m)
	// 255 and 0 are what functions without a link of their own report.
	return l, l.now > 0 && l.best > 0 && l.width <= 32 && l.maxWidth <= 32
}

func (l link) String() string {
	return fmt.Sprintf("%s x%d of %s x%d", short(l.speedText), l.width, short(l.maxText), l.maxWidth)
}

func short(speed string) string { return strings.TrimSuffix(speed, " PCIe") }

// distance is how far apart two functions are, in the words of nvidia-smi topo.
func distance(a, b pciDevice) string {
	switch {
	case !a.known || !b.known || a.root == "" || b.root == "":
		return ""
	case a.chain[0] == b.chain[0] && len(a.chain) > 1 && len(b.chain) > 1:
		return "PIX/PXB"
	case a.root == b.root:
		return "PHB"
	case a.numa < 0 || b.numa < 0:
		return ""
	case a.numa == b.numa:
		return "NODE"
	}
	return "SYS"
}

// config is a function's configuration space; only root sees more than its
// first 64 bytes.
func (f *facts) config(bdf string) []byte {
	b, err := f.t.ReadFile(pciDir(bdf) + "/config")
	if err != nil {
		return nil
	}
	return b
}

// capability finds a capability of the first 256 bytes, 0 where there is none.
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

// extended finds an extended capability, 0 where there is none.
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

// payload reads largest payload supported and set, and largest read request.
func payload(c []byte) (can, set, read int, ok bool) {
	at := capability(c, 0x10)
	if at == 0 {
		return 0, 0, 0, false
	}
	ctl := binary.LittleEndian.Uint16(c[at+8:])
	return 128 << (c[at+4] & 7), 128 << (ctl >> 5 & 7), 128 << (ctl >> 12 & 7), true
}

// acs reads the redirect bits of a bridge's access control; ok is false where
// the configuration space is hidden.
func acs(c []byte) (ctl uint16, ok bool) {
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

// barSize reads the size of a function's region n from its resource file.
func (f *facts) barSize(bdf string, n int) int64 {
	s, _ := f.text(pciDir(bdf) + "/resource")
	lines := strings.Split(s, "\n")
	if n >= len(lines) {
		return 0
	}
	w := strings.Fields(lines[n])
	if len(w) < 2 {
		return 0
	}
	from, err1 := strconv.ParseUint(w[0], 0, 64)
	to, err2 := strconv.ParseUint(w[1], 0, 64)
	if err1 != nil || err2 != nil || to <= from || to-from > 1<<50 {
		return 0
	}
	return int64(to - from + 1)
}
