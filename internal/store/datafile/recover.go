// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Recovered is the result of Recover.
type Recovered struct {
	Settled []ID     // files known to the metadata, which are now in data/
	Removed []ID     // files unknown to the metadata, which were removed
	Left    []string // unexpected paths that Recover did not touch, for a person to inspect
}

// Recover clears tmp/ after a crash: it moves the files in the caller's metadata from tmp/ to data/, and removes
// unknown files, which were never acknowledged. Recover does not touch files that it cannot judge, and lists them in
// Left. Left lists files in tmp/ with a name that is no ID. If an ID is in tmp/ and in data/, Left lists both names if
// they are different files, or if the metadata does not know the ID. Recover must be called before any file is created.
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
	// A file that cannot be moved now, for lack of space for a name, say, stays readable in tmp/ and is tried again.
	// That is no reason to refuse the store. Failed is called.
	r.Settled, _ = f.settler.settle(keep)
	return r, nil
}

// SameFile reports whether the names of id in tmp/ and in data/ lead to the same inode. SameFile requires that the file
// has a name in tmp/ and a name in data/.
func (f *Files) SameFile(id ID) (bool, error) {
	_, same, err := f.placed(id)
	return same, fail("compare", f.tmpName(id), err)
}

// placed reports whether a file of tmp/ has a name in data/ too, and whether both names are the same file.
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

// sameFile compares inodes. A file system in memory has no inodes, and its crash turns one file into two; such files
// count as the same.
func sameFile(a, b vfs.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, ok2 := b.Sys().(*syscall.Stat_t)
	if !ok || !ok2 {
		return true
	}
	return x.Dev == y.Dev && x.Ino == y.Ino
}
