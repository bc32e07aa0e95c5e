// SPDX-License-Identifier: Apache-2.0

// Package fakeprofiler builds a small profiler's library for tests, which records the ranges that a program shows by
// NVTX.
package fakeprofiler

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

//go:embed csrc/profiler.c
var source []byte

// Profiler is a built library.
type Profiler struct {
	Library string // path, for NVTX_INJECTION64_PATH
	log     string
}

// Build compiles the library. A test is skipped on a machine without a C compiler.
func Build(tb testing.TB) Profiler {
	tb.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		tb.Skipf("the fake profiler needs a C compiler: %v", err)
	}
	dir := tb.TempDir()
	p := Profiler{Library: filepath.Join(dir, "profiler.so"), log: filepath.Join(dir, "log")}
	if err := os.WriteFile(filepath.Join(dir, "profiler.c"), source, 0o600); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(cc, "-shared", "-fPIC", "-pthread", "-O1", "-Wall", "-Werror", "-DLOG="+strconv.Quote(p.log),
		"-o", "profiler.so", "profiler.c")
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", cmd, err, text)
	}
	return p
}

// Recording is what a program has shown.
type Recording struct {
	Domains []string
	Ranges  map[string]int // how many ranges of each name began
	Open    int            // ranges that did not end
	Wrong   []string       // calls that break the rules of NVTX
}

// Recording returns what programs have shown so far.
func (p Profiler) Recording(tb testing.TB) Recording {
	tb.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		tb.Fatalf("the program has shown nothing: %v", err)
	}
	r := Recording{Ranges: map[string]int{}}
	open := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		what, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		number, name, _ := strings.Cut(rest, " ")
		switch {
		case what == "domain":
			r.Domains = append(r.Domains, name)
		case what == "start" && !open[number]:
			r.Ranges[name]++
			open[number] = true
		case what == "end" && open[number]:
			delete(open, number)
		default:
			r.Wrong = append(r.Wrong, strings.TrimSpace(line))
		}
	}
	r.Open = len(open)
	return r
}
