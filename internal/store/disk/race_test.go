// SPDX-License-Identifier: Apache-2.0

//go:build race

package disk

import "testing"

// SingleThreaded skips a test that the race detector has nothing to find in: the test makes its changes one after the
// other, and takes minutes under the detector. make test runs it without the detector too.
func SingleThreaded(t *testing.T) {
	t.Helper()
	t.Skip("runs without the race detector")
}
