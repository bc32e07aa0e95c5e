// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	maker := flags.String("make", "make", "the make program")
	if err := flags.Parse(arguments); err != nil {
		return 2, nil
	}
	parts, err := runEach(*maker, flags.Args(), *goOn, out)
	if err != nil {
		return 1, err
	}
	printTable(out, parts)
	for _, p := range parts {
		if p.code != 0 {
			return p.code, nil
		}
	}
	return 0, nil
}

// runEach runs the parts one after the other, those after one that fails only if goOn is true.
func runEach(maker string, names []string, goOn bool, out io.Writer) ([]part, error) {
	parts := make([]part, len(names))
	failed := false
	for i, name := range names {
		parts[i].name = name
		if failed && !goOn {
			continue
		}
		fmt.Fprintf(out, "=== %s\n", name)
		if err := parts[i].run(maker, out); err != nil {
			return parts, err
		}
		failed = failed || parts[i].code != 0
	}
	return parts, nil
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

// printTable prints minutes and tests for each part, then the places where skipped tests run.
func printTable(out io.Writer, parts []part) {
	sum := part{name: "all", began: true}
	var failed []string
	fmt.Fprintf(out, "\n%-16s %8s %7s %7s %8s  %s\n", "part", "minutes", "tests", "failed", "skipped", "")
	for _, p := range append(parts, part{}) {
		if p.name == "" {
			p = sum
		} else {
			sum.took += p.took
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
