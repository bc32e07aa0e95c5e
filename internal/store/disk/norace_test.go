// SPDX-License-Identifier: Apache-2.0

//go:build !race

package disk

import "testing"

// SingleThreaded marks a test that is skipped under the race detector.
func SingleThreaded(t *testing.T) {
	t.Helper()
}
