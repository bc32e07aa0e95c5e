// SPDX-License-Identifier: Apache-2.0

package datafile

import "github.com/cockroachdb/pebble/v2/vfs"

// Names returns the two possible names of a data file in a store: its final name in data/, and its name in tmp/ before
// the move to data/. Names does no I/O, so that tools that read a stopped store can use it too.
func Names(fs vfs.FS, dir string, id ID) (settled, fresh string) {
	f := &Files{fs: fs, tmp: fs.PathJoin(dir, "tmp"), data: fs.PathJoin(dir, "data")}
	return f.dataName(id), f.tmpName(id)
}
