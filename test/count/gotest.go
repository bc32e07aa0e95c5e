// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// event is one line that go test -json prints.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// testName is one test of one package. Output of the package itself has no Test.
type testName struct{ Package, Test string }

// counter counts tests from the events of go test.
type counter struct {
	out     io.Writer
	results map[testName]string     // pass, fail or skip; "" while it runs
	output  map[string][]testOutput // of each package, until it ends
	parents map[testName]bool       // tests that have subtests
	result  Result
}

// testOutput is one line of output, with the test that printed it.
type testOutput struct {
	test testName
	line string
}

// runGo runs go test with -json. It prints one line for each package, and the whole output of tests that fail.
func runGo(command []string, out io.Writer) (Result, int, error) {
	i := slices.Index(command, "test")
	if i < 0 {
		return Result{}, 1, fmt.Errorf("%q is not a call of go test", strings.Join(command, " "))
	}
	command = slices.Insert(slices.Clone(command), i+1, "-json")
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return Result{}, 1, err
	}
	if err := cmd.Start(); err != nil {
		return Result{}, 1, err
	}
	c := newCounter(out)
	readErr := c.read(pipe)
	code, err := exitCode(cmd.Wait())
	return c.finish(), code, errors.Join(readErr, err)
}

// newCounter returns a counter that prints to out.
func newCounter(out io.Writer) *counter {
	return &counter{out: out, results: map[testName]string{}, output: map[string][]testOutput{},
		parents: map[testName]bool{}}
}

// read processes all events of r. Lines that are no events are printed unchanged.
func (c *counter) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
				c.take(e)
			} else {
				fmt.Fprint(c.out, line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// take processes one event.
func (c *counter) take(e event) {
	name := testName{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(c.out, e.Output)
	case "output":
		c.output[e.Package] = append(c.output[e.Package], testOutput{name, e.Output})
	case "run":
		c.results[name] = ""
		if i := strings.LastIndex(e.Test, "/"); i >= 0 {
			c.parents[testName{e.Package, e.Test[:i]}] = true
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			c.endPackage(e)
			return
		}
		c.results[name] = e.Action
	}
}

// endPackage prints the outcome of a package and drops its output.
func (c *counter) endPackage(e event) {
	ran, skipped, failed := 0, 0, 0
	for name, how := range c.results {
		if name.Package != e.Package || c.parents[name] {
			continue
		}
		ran++
		switch how {
		case "skip":
			skipped++
		case "fail", "":
			failed++
		}
	}
	if e.Action == "fail" && failed == 0 {
		c.result.Failed++ // no test failed: the package did not compile, or ended by itself
	}
	switch e.Action {
	case "fail":
		for _, o := range c.output[e.Package] {
			if how := c.results[o.test]; o.test.Test == "" || how == "fail" || how == "" {
				fmt.Fprint(c.out, o.line)
			}
		}
		fmt.Fprintf(c.out, "FAIL %s (%.1f s)\n", e.Package, e.Elapsed)
	case "pass":
		if ran > 0 {
			how := fmt.Sprintf("%.1f s", e.Elapsed)
			if slices.ContainsFunc(c.output[e.Package], func(o testOutput) bool {
				return strings.Contains(o.line,
					"\t(cached)")
			}) {
				how = "cached"
			}
			fmt.Fprintf(c.out, "ok   %s (%d tests, %d skipped, %s)\n", e.Package, ran, skipped, how)
		}
	}
	for _, o := range c.output[e.Package] {
		if c.results[o.test] == "skip" && !c.parents[o.test] {
			c.explain(o)
		}
	}
	delete(c.output, e.Package)
}

// reasonLine matches the first line of a test's log, which begins with the place in the source.
var reasonLine = regexp.MustCompile(`^\s+[\w./-]+\.go:\d+: (.*)\n?$`)

// explain records the last line that a skipped test logged, as its reason.
func (c *counter) explain(o testOutput) {
	m := reasonLine.FindStringSubmatch(o.line)
	if m == nil {
		return
	}
	i := slices.IndexFunc(c.result.Skipped, func(s Skipped) bool { return s.Name == full(o.test) })
	if i < 0 {
		c.result.Skipped = append(c.result.Skipped, Skipped{Name: full(o.test)})
		i = len(c.result.Skipped) - 1
	}
	c.result.Skipped[i].Reason = m[1]
}

// full returns a test's name with the last element of its package.
func full(n testName) string { return n.Package[strings.LastIndex(n.Package, "/")+1:] + "." + n.Test }

// finish counts the tests. A test without a result counts as failed, because its package was killed.
func (c *counter) finish() Result {
	r := c.result
	said := map[string]bool{}
	for _, s := range r.Skipped {
		said[s.Name] = true
	}
	for name, how := range c.results {
		if name.Test == "" || c.parents[name] {
			continue
		}
		switch how {
		case "skip":
			if !said[full(name)] {
				r.Skipped = append(r.Skipped, Skipped{Name: full(name)})
			}
			continue
		case "fail", "":
			r.Failed++
		}
		r.Ran++
	}
	slices.SortFunc(r.Skipped, func(a, b Skipped) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// exitCode returns the exit code of a command, or an error if the command did not run.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}
