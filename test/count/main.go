// SPDX-License-Identifier: Apache-2.0

// Command count runs the parts of `make test`, shows the whole output of failed tests, and counts tests and minutes.
//
//	count run [-k] [-make MAKE] PART...   runs make PART for each part and prints the table; -k goes on after a failure
//	count go -- go test ARGUMENTS         runs go test and prints one line per package, and what fails in full
//	count unraced -- go test ARGUMENTS    does the same for the tests that call unraced.SingleThreaded alone
//	count pytest -- PYTHON -m pytest ...  runs pytest and keeps its counts
//	count fuzz [-time 60s] [-within 8m]   runs every fuzzer of the module, one after the other
package main

import (
	"fmt"
	"os"
	"slices"
)

func main() {
	arguments := os.Args[1:]
	if len(arguments) < 1 {
		fmt.Fprintln(os.Stderr, "usage: count run|go|unraced|pytest|fuzz ARGUMENTS (see the top of test/count/main.go)")
		os.Exit(2)
	}
	mode, rest := arguments[0], arguments[1:]
	var code int
	var err error
	switch mode {
	case "run":
		code, err = runParts(rest, os.Stdout)
	case "fuzz":
		code, err = runFuzz(rest, os.Stdout)
	case "go", "unraced", "pytest":
		if i := slices.Index(rest, "--"); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		}
		runner := runGo
		switch mode {
		case "unraced":
			runner = runUnraced
		case "pytest":
			runner = runPytest
		}
		var r Result
		if r, code, err = runner(rest, os.Stdout); err == nil {
			err = r.keep(os.Getenv(resultsVariable), os.Stdout)
		}
	default:
		err = fmt.Errorf("%q is not one of run, go, unraced, pytest, fuzz", mode)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
