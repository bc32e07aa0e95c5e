// SPDX-License-Identifier: Apache-2.0

// Package unraced marks tests that make test runs without the race detector.
package unraced

import "testing"

// SingleThreaded skips the test t under the race detector. Call SingleThreaded first in a test without concurrency of
// its own that takes long under the detector. make test runs the marked tests in a second call of go test.
func SingleThreaded(t *testing.T) {
	t.Helper()
	if detector {
		t.Skip("runs without the race detector")
	}
}
