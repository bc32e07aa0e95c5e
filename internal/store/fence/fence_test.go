// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble tries a table again at once, thousands of times in a second.
func TestErrorsOfTablesComeSlowly(t *testing.T) {
	f := New(vfs.NewMem(), "meta", nil)
	f.pause = 30 * time.Millisecond
	f.armed.Store(true)
	began := time.Now()
	if err := f.do(false, func() error { return syscall.ENOSPC }); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a table without space: %v", err)
	}
	if took := time.Since(began); took < f.pause {
		t.Errorf("it was told after %v, expected %v at least", took, f.pause)
	}
	f.pause = time.Hour
	if err := f.do(false, func() error { return fs.ErrNotExist }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a table that is not there: %v", err)
	}
	// A store that has failed writes no tables, and nobody asks it to again.
	f.Fail(syscall.EIO)
	back := make(chan error, 1)
	go func() { back <- f.do(false, func() error { return nil }) }()
	select {
	case err := <-back:
		t.Errorf("a store that has failed went on with a table: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
}
