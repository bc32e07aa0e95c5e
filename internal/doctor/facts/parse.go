// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/vfs"
)

// Mount is one line of mountinfo.
type Mount struct {
	Dev     string // major:minor of the file system
	Root    string // the directory of the file system that is mounted
	Point   string
	FSType  string
	Source  string
	Options []string // of this mount
	Super   []string // of the file system
}

// Has reports whether an option is set, in the mount's own or the file system's list.
func (m *Mount) Has(option string) bool {
	_, ok := m.Value(option)
	return ok
}

// Value is what an option is set to, empty for one without a value; false where
// the option is in neither list.
func (m *Mount) Value(option string) (string, bool) {
	for _, list := range [][]string{m.Super, m.Options} {
		for _, o := range list {
			if k, v, _ := strings.Cut(o, "="); k == option {
				return v, true
			}
		}
	}
	return "", false
}

// ParseMountinfo reads /proc/self/mountinfo; lines that break its form are left
// out.
func ParseMountinfo(text string) []Mount {
	var all []Mount
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(strings.TrimRight(line, "\n"), " - ")
		a, b := strings.Fields(left), strings.Fields(right)
		if !ok || len(a) < 6 || len(b) < 2 {
			continue
		}
		m := Mount{Dev: a[2], Root: vfs.UnescapeMount(a[3]), Point: vfs.UnescapeMount(a[4]),
			Options: strings.Split(a[5], ","), FSType: b[0], Source: vfs.UnescapeMount(b[1])}
		if len(b) > 2 {
			m.Super = strings.Split(b[2], ",")
		}
		all = append(all, m)
	}
	return all
}

// MountOf finds the mount that a path is on: of the longest mount point above
// it the last one, which hides those before it. Nil if there is none.
func MountOf(all []Mount, name string) *Mount {
	var best *Mount
	for i := range all {
		p := strings.TrimSuffix(all[i].Point, "/")
		if name != p && !strings.HasPrefix(name, p+"/") {
			continue
		}
		if best == nil || len(all[i].Point) >= len(best.Point) {
			best = &all[i]
		}
	}
	return best
}

// ParseParams reads "Name: value" lines, such as /proc/driver/nvidia/params
// and a GPU's information file; quotes around values go.
func ParseParams(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			out[strings.TrimSpace(k)] = strings.Trim(strings.TrimSpace(v), `"`)
		}
	}
	return out
}

// laneRate is the GB/s of one PCIe lane after encoding, by its rate in GT/s; 0
// for a rate that PCIe does not have.
func laneRate(gts float64) float64 {
	switch gts {
	case 2.5:
		return .25
	case 5:
		return .5
	case 8:
		return .985
	case 16:
		return 1.97
	case 32:
		return 3.94
	case 64:
		return 7.6
	}
	return 0
}

// parseSpeed reads "16.0 GT/s PCIe"; 0 means that it is none.
func parseSpeed(s string) float64 {
	n, _, ok := strings.Cut(strings.TrimSpace(s), " ")
	v, err := strconv.ParseFloat(n, 64)
	if !ok || err != nil || v < 0 || v > 1e4 {
		return 0
	}
	return v
}

// ParseVersion reads up to three leading numbers of "580.159.03" or
// "6.8.0-45-generic"; what is missing is 0.
func ParseVersion(s string) (v [3]int) {
	for i := range v {
		n := 0
		for n < len(s) && s[n] >= '0' && s[n] <= '9' && n < 9 {
			n++
		}
		if n == 0 {
			return v
		}
		v[i], _ = strconv.Atoi(s[:n])
		if s = s[n:]; s == "" || s[0] != '.' {
			return v
		}
		s = s[1:]
	}
	return v
}

// Older reports whether version a comes before b.
func Older(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// DriverVersion finds the version in the words of /proc/driver/nvidia/version;
// empty if there is none.
func DriverVersion(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	for w := range strings.FieldsSeq(line) {
		if v := ParseVersion(w); v[0] >= 100 && strings.Contains(w, ".") {
			return w
		}
	}
	return ""
}

// BootOptions are the words of a kernel command line that the rules look at.
func BootOptions(text string) []string {
	var out []string
	for w := range strings.FieldsSeq(text) {
		k, _, _ := strings.Cut(w, "=")
		switch k {
		case "iommu", "intel_iommu", "amd_iommu", "iommu.passthrough", "arm-smmu.disable_bypass", "pci", "nokaslr",
			"nvme_core.multipath", "transparent_hugepage":
			out = append(out, w)
		}
	}
	return out
}

// Chosen is the word in brackets of "none [mq-deadline] kyber"; all of it where
// there are none.
func Chosen(s string) string {
	_, rest, ok := strings.Cut(s, "[")
	if !ok {
		return s
	}
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// ParseList reads a list of CPUs or nodes such as "0-3,8,10-11"; numbers above
// 8191 and parts that break the form are left out.
func ParseList(s string) []int {
	const most = 1 << 13
	var out []int
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		from, to, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		b := a
		if ranged && err == nil {
			b, err = strconv.Atoi(to)
		}
		if err != nil || a < 0 || b >= most {
			continue
		}
		for i := a; i <= b && len(out) < most; i++ {
			out = append(out, i)
		}
	}
	return out
}

// Word returns the number after name= in a list of words, such as rbps=1048576
// of a cgroup's io.max; false if it is missing or no number.
func Word(words []string, name string) (int64, bool) {
	for _, w := range words {
		if v, ok := strings.CutPrefix(w, name+"="); ok {
			n, err := strconv.ParseInt(v, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
