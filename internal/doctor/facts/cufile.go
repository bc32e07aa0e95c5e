// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"strings"
)

// CuFile is the content of the cufile.json that libcufile would use on the machine.
type CuFile struct {
	Path   string // path of cufile.json; empty if there is none
	Values map[string]any
	Err    error // reason why cufile.json cannot be used; nil if it can
}

// Value returns the cuFile setting with a dotted name, such as "profile.cufile_stats", and whether it is set.
func (c *CuFile) Value(name string) (any, bool) { return lookup(c.Values, name) }

// Boolean returns a cuFile setting that is true or false. The result named set is false if the setting is missing or
// not a boolean.
func (c *CuFile) Boolean(name string) (v, set bool) {
	x, ok := lookup(c.Values, name)
	b, isBool := x.(bool)
	return b, ok && isBool
}

// Number returns a cuFile setting that is a number, and false if the setting is missing or not a number.
func (c *CuFile) Number(name string) (float64, bool) {
	x, _ := lookup(c.Values, name)
	n, ok := x.(float64)
	return n, ok
}

func (f *Facts) gatherCuFile() {
	for _, p := range []string{f.CuFileJSON, "/etc/cufile.json", "/usr/local/cuda/gds/cufile.json"} {
		if p == "" {
			continue
		}
		b, err := f.ReadFile(p)
		if err != nil && p != f.CuFileJSON {
			continue
		}
		f.CuFile.Path, f.CuFile.Err = p, err
		if err == nil {
			f.CuFile.Values, f.CuFile.Err = parseCuFile(b)
		}
		return
	}
}

// parseCuFile parses a cufile.json, which may contain comments.
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

// libDirs returns the directories in which the dynamic loader and the CUDA packages keep libraries. The libraries are
// not loaded, because opening libcufile would start its threads.
func (f *Facts) libDirs() []string {
	dirs := []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib",
		"/usr/local/cuda/lib64"}
	for _, cuda := range f.Glob("/usr/local", "cuda*") {
		for _, target := range f.Glob(cuda+"/targets", "*") {
			dirs = append(dirs, target+"/lib")
		}
	}
	return dirs
}

// Library returns the path of a library with a file name that begins with prefix, or "" if there is none. Library
// takes the first directory with a match, and there the longest file name, because that name contains the version.
// Library does not find a library inside a Python wheel.
func (f *Facts) Library(prefix string) string {
	for _, d := range f.libDirs() {
		best := ""
		for _, n := range f.Glob(d, prefix+"*") {
			if len(n) > len(best) {
				best = n
			}
		}
		if best != "" {
			return best
		}
	}
	return ""
}
