// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"strconv"
	"strings"
)

// mount is one line of mountinfo.
type mount struct {
	dev, root, point  string
	fstype, source    string
	options, superOps []string
}

// has says that an option is set, in the mount's own or the file system's list.
func (m *mount) has(option string) bool {
	_, ok := m.value(option)
	return ok
}

func (m *mount) value(option string) (string, bool) {
	for _, list := range [][]string{m.superOps, m.options} {
		for _, o := range list {
			if k, v, _ := strings.Cut(o, "="); k == option {
				return v, true
			}
		}
	}
	return "", false
}

// parseMountinfo reads /proc/self/mountinfo; lines that break its form are left
// out.
func parseMountinfo(text string) []mount {
	var all []mount
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(strings.TrimRight(line, "\n"), " - ")
		a, b := strings.Fields(left), strings.Fields(right)
		if !ok || len(a) < 6 || len(b) < 2 {
			continue
		}
		m := mount{dev: a[2], root: unescape(a[3]), point: unescape(a[4]), options: strings.Split(a[5], ","), fstype: b[0], source: unescape(b[1])}
		if len(b) > 2 {
			m.superOps = strings.Split(b[2], ",")
		}
		all = append(all, m)
	}
	return all
}

// unescape undoes the kernel's \040 for blanks in mount points.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountOf finds the mount that a path is on: of the longest mount point above
// it the last one, which hides those before it.
func mountOf(all []mount, name string) *mount {
	var best *mount
	for i := range all {
		p := strings.TrimSuffix(all[i].point, "/")
		if name != p && !strings.HasPrefix(name, p+"/") {
			continue
		}
		if best == nil || len(all[i].point) >= len(best.point) {
			best = &all[i]
		}
	}
	return best
}

// parseCuFile reads a cufile.json, whose comments JSON does not know.
func parseCuFile(text []byte) (map[string]any, error) {
	var v map[string]any
	err := json.Unmarshal(stripComments(text), &v)
	return v, err
}

// stripComments blanks // and /* */ comments outside of strings.
func stripComments(in []byte) []byte {
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); {
		switch {
		case in[i] == '"':
			j := i + 1
			for j < len(in) && in[j] != '"' {
				if in[j] == '\\' {
					j++
				}
				j++
			}
			j = min(j+1, len(in))
			out = append(out, in[i:j]...)
			i = j
		case in[i] == '/' && i+1 < len(in) && in[i+1] == '/':
			for i < len(in) && in[i] != '\n' {
				i++
			}
		case in[i] == '/' && i+1 < len(in) && in[i+1] == '*':
			i += 2
			for i < len(in) && !(in[i] == '*' && i+1 < len(in) && in[i+1] == '/') {
				i++
			}
			i = min(i+2, len(in))
		default:
			out = append(out, in[i])
			i++
		}
	}
	return out
}

// lookup follows a dotted name through nested objects.
func lookup(v map[string]any, name string) (any, bool) {
	var at any = v
	for part := range strings.SplitSeq(name, ".") {
		m, ok := at.(map[string]any)
		if !ok {
			return nil, false
		}
		if at, ok = m[part]; !ok {
			return nil, false
		}
	}
	return at, true
}

// parseParams reads "Name: value" lines, such as /proc/driver/nvidia/params
// and a GPU's information file; quotes around values go.
func parseParams(text string) map[string]string {
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

// parseVersion reads up to three leading numbers of "580.159.03" or
// "6.8.0-45-generic"; what is missing is 0.
func parseVersion(s string) (v [3]int) {
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

func older(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// driverVersion finds the version in the words of /proc/driver/nvidia/version.
func driverVersion(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	for w := range strings.FieldsSeq(line) {
		if v := parseVersion(w); v[0] >= 100 && strings.Contains(w, ".") {
			return w
		}
	}
	return ""
}

// bootOptions are the words of a kernel command line that the rules look at.
func bootOptions(text string) []string {
	var out []string
	for w := range strings.FieldsSeq(text) {
		k, _, _ := strings.Cut(w, "=")
		switch k {
		case "iommu", "intel_iommu", "amd_iommu", "iommu.passthrough", "arm-smmu.disable_bypass", "pci", "nokaslr", "nvme_core.multipath", "transparent_hugepage":
			out = append(out, w)
		}
	}
	return out
}
