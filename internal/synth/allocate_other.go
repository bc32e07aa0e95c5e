// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package synth

import "os"

// allocate sets the size of f.
func allocate(f *os.File, size int64) error { return f.Truncate(size) }
