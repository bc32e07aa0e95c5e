// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/vfs"
)

// Mount is one line of /proc/self/mountinfo.
type Mount struct {
	Dev     string // major:minor of the file system
	Root    string // mounted directory within the file system
	Point   string
	FSType  string
	Source  string
	Options []string // options of this mount
	Super   []string // options of the file system
}

// Has reports whether a mount option is set, either for this mount or for the file system.
func (m *Mount) Has(option string) bool {
	_, ok := m.Value(option)
	return ok
}

// Value returns the value of a mount option, which is empty for an option without a value. The second result of Value
// is false if the option is set neither for this mount nor for the file system.
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

// ParseMountinfo parses the content of /proc/self/mountinfo. ParseMountinfo skips malformed lines.
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

// MountOf returns the mount that contains the given path, or nil if there is none. If several mounts have the same
// mount point, the last one hides the others.
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

// ParseParams parses lines of the form "Name: value", such as those of /proc/driver/nvidia/params. ParseParams
// removes quotes around values.
func ParseParams(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			out[strings.TrimSpace(k)] = strings.Trim(strings.TrimSpace(v), `"`)
		}
	}
	return out
}

// laneRate returns the rate of one PCIe lane in GB/s after encoding, for a rate in GT/s. It is 0 if PCIe does not
// have that rate.
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

// parseSpeed parses a speed such as "16.0 GT/s PCIe". It returns 0 if s is not a speed.
func parseSpeed(s string) float64 {
	n, _, ok := strings.Cut(strings.TrimSpace(s), " ")
	v, err := strconv.ParseFloat(n, 64)
	if !ok || err != nil || v < 0 || v > 1e4 {
		return 0
	}
	return v
}

// ParseVersion parses up to three leading numbers of a version such as "580.159.03" or "6.8.0-45-generic".
// ParseVersion returns 0 for each number that the version lacks.
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

// Older reports whether version a is lower than version b.
func Older(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// DriverVersion returns the version in the text of /proc/driver/nvidia/version, or "" if there is none.
func DriverVersion(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	for w := range strings.FieldsSeq(line) {
		if v := ParseVersion(w); v[0] >= 100 && strings.Contains(w, ".") {
			return w
		}
	}
	return ""
}

// BootOptions returns those words of a kernel command line that the rules use.
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

// Chosen returns the word in brackets of a list such as "none [mq-deadline] kyber". If the list s has no brackets,
// Chosen returns s itself.
func Chosen(s string) string {
	_, rest, ok := strings.Cut(s, "[")
	if !ok {
		return s
	}
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// ParseList parses a list of CPUs or NUMA nodes such as "0-3,8,10-11". ParseList skips malformed items and numbers
// above 8191.
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

// Word returns the number after name= in a list of words, such as 1048576 for rbps=1048576 in a cgroup's io.max. The
// second result of Word is false if the word is missing or its value is not a number.
func Word(words []string, name string) (int64, bool) {
	for _, w := range words {
		if v, ok := strings.CutPrefix(w, name+"="); ok {
			n, err := strconv.ParseInt(v, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
