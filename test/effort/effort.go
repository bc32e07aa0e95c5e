// SPDX-License-Identifier: Apache-2.0

// Package effort decides how much work tests do: a quick look, what each change has to pass, or hours.
package effort

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"
)

// Variable is the environment variable that sets the effort: check, test, ci, long, or a factor such as 0.5.
//
// make check sets check, which leaves slow tests out. test is the default, and make test uses it. make test-effort,
// a suite of .ci/run, sets ci. make crash sets long.
const Variable = "NEBULAIO_EFFORT"

// Rounds are the numbers of rounds of a test that repeats: kills, power cuts, random walks.
type Rounds struct{ Test, CI, Long int }

// Of returns the number of rounds for the present effort, at least 1. An effort that is a factor multiplies CI.
func (r Rounds) Of(t testing.TB) int {
	t.Helper()
	switch word := os.Getenv(Variable); word {
	case "", "check", "test":
		return r.Test
	case "ci":
		return r.CI
	case "long":
		return max(r.Long, r.CI)
	default:
		factor, err := strconv.ParseFloat(word, 64)
		if ok := factor > 0 && !math.IsInf(factor, 0); err != nil || !ok { // NaN is not above 0
			t.Fatal(unknown(word))
		}
		return max(1, int(factor*float64(r.CI)))
	}
}

// Slow skips the test in make check. Call Slow first in a test that takes more than about three seconds.
func Slow(t testing.TB) {
	t.Helper()
	if os.Getenv(Variable) == "check" {
		t.Skip("is slow: make test runs it")
	}
}

// AtLength skips the test except in the suite test-effort and in make crash, which give it its time.
func AtLength(t testing.TB) {
	t.Helper()
	switch word := os.Getenv(Variable); word {
	case "", "check", "test":
		t.Skip("takes long: make test-effort runs it")
	}
}

// SingleThreaded skips the test t under the race detector. Call SingleThreaded first in a test without concurrency of
// its own that takes long under the detector. make test runs the marked tests without the detector.
func SingleThreaded(t testing.TB) {
	t.Helper()
	if detector {
		t.Skip("runs without the race detector")
	}
}

// unknown is the message for an effort that is no word of ours and no factor.
func unknown(word string) string {
	return fmt.Sprintf("%s is %q, expected check, test, ci, long or a factor above 0", Variable, word)
}
