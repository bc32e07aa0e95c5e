// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Recovered is what Recover did.
type Recovered struct {
	Settled []ID     // known to the metadata, now in their places
	Removed []ID     // unknown: never acknowledged
	Left    []string // paths that it did not touch because they should not exist; to be looked at by a person
}

// Recover clears tmp/ after a crash: known files are settled, and unknown ones, which nobody was told of, are removed.
// Nothing else is ever removed: a file that is unknown and yet has a place in data/, or that differs from the one
// there, is left and reported, and so is what is no data file. It is called before anything is created.
func (f *Files) Recover(known func(ID) bool) (Recovered, error) {
	const op = "recover"
	var r Recovered
	names, err := f.fs.List(f.tmp)
	if err != nil {
		return r, fail(op, f.tmp, err)
	}
	var keep []ID
	for _, name := range names {
		id, err := ParseID(name)
		if err != nil {
			r.Left = append(r.Left, f.fs.PathJoin(f.tmp, name))
			continue
		}
		placed, same, err := f.placed(id)
		switch {
		case err != nil:
			return r, fail(op, f.tmpName(id), err)
		case placed && (!same || !known(id)):
			r.Left = append(r.Left, f.tmpName(id), f.dataName(id))
		case known(id):
			keep = append(keep, id)
		default:
			if err := f.fs.Remove(f.tmpName(id)); err != nil && !missing(err) {
				return r, fail(op, f.tmpName(id), err)
			}
			r.Removed = append(r.Removed, id)
		}
	}
	f.settler.work.Lock()
	defer f.settler.work.Unlock()
	f.settler.expect(keep)
	// What cannot be moved now, on a disk without space for a name, say, is read where it is and tried again: no reason
	// to refuse a store. Failed is told.
	r.Settled, _ = f.settler.settle(keep)
	return r, nil
}

// SameFile says whether the names that a file has in tmp/ and in data/, both of which exist, are of the same file.
func (f *Files) SameFile(id ID) (bool, error) {
	_, same, err := f.placed(id)
	return same, fail("compare", f.tmpName(id), err)
}

// placed says whether a file of tmp/ has a name in data/ too, and whether both are the same file.
func (f *Files) placed(id ID) (placed, same bool, err error) {
	in, err := f.fs.Stat(f.dataName(id))
	if missing(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	tmp, err := f.fs.Stat(f.tmpName(id))
	if err != nil {
		return false, false, err
	}
	return true, sameFile(in, tmp), nil
}

// sameFile compares inodes. A file system in memory has none, and a crash of it makes two files of one; there they
// count as the same.
func sameFile(a, b vfs.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, ok2 := b.Sys().(*syscall.Stat_t)
	if !ok || !ok2 {
		return true
	}
	return x.Dev == y.Dev && x.Ino == y.Ino
}
