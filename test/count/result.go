// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// resultsVariable names the folder to which the parts of one run write their results.
const resultsVariable = "COUNT_RESULTS"

// Result is the number of tests that one call of go test or pytest ran, failed and skipped. A test with subtests is
// not counted itself; its subtests are.
type Result struct {
	Ran     int       `json:"ran"`
	Failed  int       `json:"failed"`
	Left    int       `json:"left"` // number of tests that a pytest marker deselected
	Skipped []Skipped `json:"skipped"`
}

// Skipped is one skipped test with the reason that it logged.
type Skipped struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// add adds the counts of another result.
func (r *Result) add(other Result) {
	r.Ran += other.Ran
	r.Failed += other.Failed
	r.Left += other.Left
	r.Skipped = append(r.Skipped, other.Skipped...)
}

// keep writes the result into a new file of folder, for the table at the end of the run. Without a folder, keep
// prints the result, because make was called for this part alone.
func (r Result) keep(folder string, out io.Writer) error {
	if folder == "" {
		fmt.Fprintf(out, "%d tests ran, %d failed, %d were skipped\n", r.Ran, r.Failed, len(r.Skipped))
		printSkipped(out, r)
		return nil
	}
	f, err := os.CreateTemp(folder, "*.json")
	if err != nil {
		return err
	}
	if err := json.NewEncoder(f).Encode(r); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// collect reads and removes the results in folder.
func collect(folder string) (Result, error) {
	var sum Result
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return sum, err
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return sum, err
		}
		var r Result
		if err := json.Unmarshal(text, &r); err != nil {
			return sum, fmt.Errorf("%s: %w", name, err)
		}
		sum.add(r)
		if err := os.Remove(name); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// places tells where a skipped test runs, by words of its name and of its reason. The first match counts.
var places = []struct {
	reason *regexp.Regexp
	where  string
}{
	{regexp.MustCompile(`(?i)process of its own|\b(run|started) by Test|runs for other tests|as a child`),
		"is started by another test"},
	{regexp.MustCompile(`(?i)not short|header of 60 MB`), "runs without the flag -short"},
	{regexp.MustCompile(`no -pages`), "runs by hand: go test ./internal/bench/report -pages DIR"},
	{regexp.MustCompile(`(?i)server that was given`), "runs against a server that the test starts: make test-go"},
	{regexp.MustCompile(`(?i)race detector`), "runs in the second call of go test, without the race detector"},
	{regexp.MustCompile(`(?i)\bgpu|cuda|cufile|cupy|numba|jax`), "needs a GPU: make gpu-bundle, build/gpu/run.sh test"},
	{regexp.MustCompile(`(?i)\bdali`), "needs DALI: make test-dali"},
	{regexp.MustCompile(`make test-upstreams`), "needs other S3 servers: make test-upstreams"},
	{regexp.MustCompile(`second loopback address`), "needs a Linux with all of 127.0.0.0/8"},
	{regexp.MustCompile(`(?i)torch|transformers`), "needs torch: make test-torch"},
	{
		regexp.MustCompile(
			`(?i)\broot\b|mount|privilege|cgroup|namespace|memory controller|overlay|no disk to fill|not permitted`),
		"needs root and the right to mount: sudo make test-go"},
	{regexp.MustCompile(`(?i)in memory|page cache|is memory|made cold|stay in|direct|journal|lease|no drafts|blocks|tmpfs|file system|written here`),
		"needs a temporary folder on a disk with ext4 or xfs: TMPDIR=/on/a/disk make test-go"},
	{
		regexp.MustCompile(
			`(?i)MiB free|GiB free|sparse|address space|descriptors|may be open|are taken|no room|that much memory`),
		"needs a machine with more or less memory and disk"},
	{regexp.MustCompile(`(?i)not installed|not built|compiler|could not import|not found|no glibc|no shell`),
		"needs a tool that is not installed, or make build"},
	{regexp.MustCompile(`(?i)/dev/|no terminals|account of mappings|ctypes|checkout`),
		"needs a whole Linux system and a checkout, not a bare container"},
	{regexp.MustCompile(`(?i)kernel|linux|io_uring|pidfs|cachestat|registered|refused`),
		"needs a newer Linux, or one that allows more"},
}

// unknown is the place of a test whose reason matches no entry of places.
const unknown = "did not say where it runs"

// whereItRuns returns where a skipped test runs. Tests of the package gpu need a GPU, whatever else they lack.
func whereItRuns(s Skipped) string {
	for _, p := range places {
		if p.reason.MatchString(s.Reason) || strings.HasPrefix(s.Name, "gpu.") && p.reason.MatchString("gpu") {
			return p.where
		}
	}
	return unknown
}

// printSkipped lists the skipped tests by the place where they run. Tests with the same reason are grouped.
func printSkipped(out io.Writer, r Result) {
	groups := map[string]map[string][]string{}
	var order []string
	for _, s := range r.Skipped {
		where := whereItRuns(s)
		if groups[where] == nil {
			groups[where] = map[string][]string{}
			order = append(order, where)
		}
		groups[where][s.Reason] = append(groups[where][s.Reason], s.Name)
	}
	slices.Sort(order)
	for _, where := range order {
		fmt.Fprintf(out, "skipped: %s\n", where)
		var lines []string
		for reason, names := range groups[where] {
			slices.Sort(names)
			names = slices.Compact(names)
			lines = append(lines, fmt.Sprintf("  %s: %s\n", strings.Join(names, ", "), oneLine(reason)))
		}
		slices.Sort(lines)
		for _, line := range lines {
			fmt.Fprint(out, line)
		}
	}
	if r.Left > 0 {
		fmt.Fprintf(out, "left out: %d tests marked torch, dali or cuda: make test-torch; make test-dali; make gpu-bundle, build/gpu/run.sh test\n",
			r.Left)
	}
}

// oneLine returns the beginning of a reason in one line, or a remark if there is none.
func oneLine(reason string) string {
	if reason == "" {
		return "(no reason given)"
	}
	text := []rune(strings.Join(strings.Fields(reason), " "))
	if len(text) > 160 {
		return string(text[:160]) + " …"
	}
	return string(text)
}
