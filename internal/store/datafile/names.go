// SPDX-License-Identifier: Apache-2.0

package datafile

import "github.com/cockroachdb/pebble/v2/vfs"

// Names returns the two names that a file can have in the directory of a store: the settled one in data/, and the one
// in tmp/ that it has before. It is for those who read a store that nobody has open; nothing is looked up.
func Names(fs vfs.FS, dir string, id ID) (settled, fresh string) {
	f := &Files{fs: fs, tmp: fs.PathJoin(dir, "tmp"), data: fs.PathJoin(dir, "data")}
	return f.dataName(id), f.tmpName(id)
}
