// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// deniedFS is a file system that this user may not look into.
type deniedFS struct{ vfs.FS }

func (deniedFS) Stat(name string) (vfs.FileInfo, error) {
	return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrPermission}
}

// A store that this user may not see is not called missing.
func TestAStoreOfAnotherUser(t *testing.T) {
	err := storeAt(deniedFS{vfs.Default}, "/srv/objects")
	if !errs.Is(err, errs.Permission) || strings.Contains(err.Error(), "no object store") ||
		!strings.Contains(errs.FixOf(err), "as the user of the server") {
		t.Errorf("%v", err)
	}
}
