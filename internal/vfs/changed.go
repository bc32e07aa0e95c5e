// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// state identifies a version of a file, in addition to its size and modification
// time. Every write changes the change time, and nobody can set it back. A rename,
// a link or a change of mode changes it too; the other fields show which it was.
type state struct {
	ctime          int64 // nanoseconds; 0: it means nothing on this file system
	mode, uid, gid uint32
	nlink          uint64
	name           string
}

// stateOf reads the state. A file that a server has passed is not opened by
// name: the server moves and removes its files as it likes and writes none in place.
func (f *File) stateOf(st *unix.Stat_t) state {
	if f.passed {
		return state{}
	}
	s := state{ctime: st.Ctim.Nano(), mode: st.Mode, uid: st.Uid, gid: st.Gid, nlink: uint64(st.Nlink)}
	s.name, _ = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.buffered))
	return s
}

// CheckUnchanged fails if the file may have changed since Open. The bytes read
// would then be a mixture of two versions. It compares the size, the modification
// time and the change time. The change time also detects writers that reset the
// modification time. A rename, a hard link, or a change of mode or owner explains a
// new change time and is accepted. If summed is set, checksums have confirmed the
// bytes, and the change time is ignored. It is also ignored on network and FUSE
// file systems, whose change times are not reliable.
func (f *File) CheckUnchanged(summed bool) error {
	if f.remote != nil {
		return nil // it asks for one version alone
	}
	if err := f.Pin(); err != nil {
		return err
	}
	defer f.Unpin()
	var st unix.Stat_t
	if err := unix.Fstat(f.buffered, &st); err != nil {
		return errs.Wrap("stat", f.path, err)
	}
	const fix = "write new versions to another name and rename them into place"
	if st.Size != f.size || !time.Unix(st.Mtim.Unix()).Equal(f.mtime) {
		return errs.New(errs.IO, "read", f.path, fmt.Sprintf(
			"the file changed while it was being read: size %d and mtime %s at open, now size %d and mtime %s",
			f.size, f.mtime.UTC().Format(time.RFC3339Nano), st.Size, time.Unix(st.Mtim.Unix()).UTC().Format(time.RFC3339Nano))).
			WithFix(fix)
	}
	before := f.state.Load()
	if summed || st.Ctim.Nano() == before.ctime || before.ctime == 0 || hides(f.fs.Name) != "" {
		return nil
	}
	now := f.stateOf(&st)
	if old := *before; now != (state{now.ctime, old.mode, old.uid, old.gid, old.nlink, old.name}) {
		// It was renamed or linked, or its rights were changed. The next check begins here.
		f.state.CompareAndSwap(before, &now)
		return nil
	}
	return errs.New(errs.IO, "read", f.path, fmt.Sprintf(
		"the file changed while it was being read: its size and mtime are as at open, its ctime was %s and is %s; "+
			"it was written and its mtime put back, or its times or attributes were set",
		time.Unix(0, before.ctime).UTC().Format(time.RFC3339Nano), time.Unix(0, now.ctime).UTC().Format(time.RFC3339Nano))).
		WithFix(fix + "; load it again where only times or attributes were set")
}
