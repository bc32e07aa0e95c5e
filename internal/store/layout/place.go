// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Resolve returns the file system and the directory of a store. If f is nil, Resolve returns the real file system and
// makes the directory absolute and free of symbolic links. A directory must have only one path, because the process
// recognizes its own lock by the path.
func Resolve(f vfs.FS, dir string) (vfs.FS, string, error) {
	if f != nil {
		return f, dir, nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, "", errs.Wrap("open store", dir, err)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}
	return vfs.Default, abs, nil
}
