// SPDX-License-Identifier: Apache-2.0

// Package closing closes what a test opens.
package closing

import (
	"io"
	"testing"
)

// AtEnd returns c and closes it when the test ends. If err is not nil, AtEnd stops the test at once.
// An error of Close fails the test. The arguments c and err are the results of the call that opened c.
func AtEnd[T io.Closer](tb testing.TB, c T, err error) T {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Errorf("close %T: %v", c, err)
		}
	})
	return c
}
