// SPDX-License-Identifier: Apache-2.0

// Command count runs the parts of `make test`, shows the whole output of failed tests, and counts tests and minutes.
//
//	count check [-since COMMIT]           checks what changed: format, go vet, quick tests of what it touches
//	count run [-k] [-make MAKE] PART...   runs make PART for each part and prints the table; -k goes on after a failure
//	count ci [-all] [-minutes 25]         runs what a change has to pass, and says what is proven and what is not
//	count go -- go test ARGUMENTS         runs go test and prints one line per package, and what fails in full
//	count race -- go test ARGUMENTS       does the same for the packages that start goroutines
//	count rounds -- go test ARGUMENTS     does the same for the tests whose number of rounds follows NEBULAIO_EFFORT
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
		fmt.Fprintln(os.Stderr, "usage: count check|run|ci|go|race|rounds|pytest|fuzz ARGUMENTS (see the top of test/count/main.go)")
		os.Exit(2)
	}
	mode, rest := arguments[0], arguments[1:]
	var code int
	var err error
	switch mode {
	case "run":
		code, err = runParts(rest, os.Stdout)
	case "check":
		code, err = runCheck(rest, os.Stdout)
	case "ci":
		code, err = runChange(rest, os.Stdout)
	case "fuzz":
		code, err = runFuzz(rest, os.Stdout)
	case "go", "race", "rounds", "pytest":
		if i := slices.Index(rest, "--"); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		}
		runner := runGo
		switch mode {
		case "race":
			runner = runRaced
		case "rounds":
			runner = runRounds
		case "pytest":
			runner = runPytest
		}
		var r Result
		if r, code, err = runner(rest, os.Stdout); err == nil {
			err = r.keep(os.Getenv(resultsVariable), os.Stdout)
		}
	default:
		err = fmt.Errorf("%q is not one of check, run, ci, go, race, rounds, pytest, fuzz", mode)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
