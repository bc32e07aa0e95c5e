// SPDX-License-Identifier: Apache-2.0

package effort

import (
	"os"
	"strconv"
	"testing"
)

// Number returns the number in an environment variable, or otherwise if the variable is not set.
//
// A test passes numbers to its own processes in such variables. NEBULAIO_CRASH_SEED repeats the random draws of a run.
func Number(t testing.TB, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s is %q, expected a number", name, text)
	}
	return n
}
