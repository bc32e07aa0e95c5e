// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// part is one target of make and its outcome.
type part struct {
	name  string
	began bool
	took  time.Duration
	code  int
	note  string // why the part did not run, where that is no fault
	Result
}

// runParts runs make for each part and prints the table, even if a part fails. It returns the first exit code that is
// not 0.
func runParts(arguments []string, out io.Writer) (int, error) {
	flags := flag.NewFlagSet("count run", flag.ContinueOnError)
	goOn := flags.Bool("k", false, "go on after a part that fails")
	beside := flags.String("beside", "", "the part that runs beside the others, which run one after the other")
	maker := flags.String("make", "make", "the make program")
	if err := flags.Parse(arguments); err != nil {
		return 2, nil
	}
	began := time.Now()
	parts, err := runLanes(*maker, flags.Args(), *beside, *goOn, out)
	if err != nil {
		return 1, err
	}
	printTable(out, parts, time.Since(began))
	for _, p := range parts {
		if p.code != 0 {
			return p.code, nil
		}
	}
	return 0, nil
}

// runLanes runs the parts one after the other, and the part called beside at the same time: tests wait for most of
// their time. The output of beside is printed when it has ended, after that of the part that then runs.
func runLanes(maker string, names []string, beside string, goOn bool, out io.Writer) ([]part, error) {
	parts := make([]part, len(names))
	var text bytes.Buffer
	ended := make(chan error, 1)
	ended <- nil
	for i, name := range names {
		parts[i].name = name
		if name == beside && len(names) > 1 {
			<-ended
			fmt.Fprintf(out, "=== %s runs beside the others\n", name)
			go func() { ended <- parts[i].run(maker, &text) }()
		}
	}
	var failed error
	for i, name := range names {
		if name == beside && len(names) > 1 {
			continue
		}
		if !goOn && slices.ContainsFunc(parts[:i], func(p part) bool { return p.name != beside && p.code != 0 }) {
			continue
		}
		fmt.Fprintf(out, "=== %s\n", name)
		if failed = parts[i].run(maker, out); failed != nil {
			break
		}
	}
	failed = errors.Join(failed, <-ended)
	if text.Len() > 0 {
		fmt.Fprintf(out, "=== %s\n", beside)
		_, err := text.WriteTo(out)
		failed = errors.Join(failed, err)
	}
	return parts, failed
}

// run runs make for the part and collects the counts of its tests.
func (p *part) run(maker string, out io.Writer) error {
	folder, err := os.MkdirTemp("", "count-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	start := time.Now()
	cmd := exec.Command(maker, "--no-print-directory", p.name)
	cmd.Env = append(os.Environ(), resultsVariable+"="+folder)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, out
	if p.code, err = exitCode(cmd.Run()); err != nil {
		return err
	}
	p.began, p.took = true, time.Since(start)
	p.Result, err = collect(folder)
	return err
}

// state describes the outcome of the part in a word.
func (p part) state() string {
	switch {
	case !p.began && p.note != "":
		return p.note
	case !p.began:
		return "not run"
	case p.code != 0:
		return "FAILED"
	}
	return "ok"
}

// printTable prints minutes and tests for each part, then the places where skipped tests run. The minutes of all parts
// are the elapsed ones: fewer than the sum if parts ran side by side.
func printTable(out io.Writer, parts []part, elapsed time.Duration) {
	sum := part{name: "all", began: true, took: elapsed}
	var failed []string
	fmt.Fprintf(out, "\n%-16s %8s %7s %7s %8s  %s\n", "part", "minutes", "tests", "failed", "skipped", "")
	for _, p := range append(parts, part{}) {
		if p.name == "" {
			p = sum
		} else {
			sum.code = max(sum.code, p.code)
			sum.add(p.Result)
			if p.code != 0 {
				failed = append(failed, p.name)
			}
		}
		fmt.Fprintf(out, "%-16s %8.1f %7d %7d %8d  %s\n", p.name, p.took.Minutes(), p.Ran, p.Failed, len(p.Skipped),
			p.state())
	}
	printSkipped(out, sum.Result)
	if failed != nil {
		fmt.Fprintf(out, "FAILED: %s\n", strings.Join(failed, ", "))
	}
}
