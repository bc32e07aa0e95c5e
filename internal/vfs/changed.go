// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// state identifies a version of a file, in addition to its size and modification time. Every write changes the change
// time, and no program can set it back. A rename, a link or a change of mode also changes the change time; the other
// fields show which of these happened.
type state struct {
	ctime          int64 // change time in nanoseconds; 0 means that it is not compared
	mode, uid, gid uint32
	nlink          uint64
	name           string
}

// stateOf returns the state of the file. For a file that a server passed, the state is zero: the server may rename or
// remove the file, and never writes in place.
func (f *File) stateOf(st *unix.Stat_t) state {
	if f.passed {
		return state{}
	}
	s := state{ctime: st.Ctim.Nano(), mode: st.Mode, uid: st.Uid, gid: st.Gid, nlink: uint64(st.Nlink)}
	s.name, _ = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.buffered))
	return s
}

// CheckUnchanged fails if the file may have changed since Open, because the bytes that were read may then be a mixture
// of two versions. CheckUnchanged compares the size, the modification time and the change time with their values at
// Open. The change time also detects writers that reset the modification time. A new change time is accepted if a
// rename, a hard link, or a change of mode or owner explains it. If the parameter `summed` is set, CheckUnchanged
// ignores the change time, because checksums have confirmed the bytes. On network and FUSE file systems the change
// time is also ignored, because it is not reliable.
func (f *File) CheckUnchanged(summed bool) error {
	if f.remote != nil {
		return nil // every request names the version
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
		// The file was renamed or linked, or its mode or owner changed. The next check compares with the new state.
		f.state.CompareAndSwap(before, &now)
		return nil
	}
	return errs.New(errs.IO, "read", f.path, fmt.Sprintf(
		"the file changed while it was being read: its size and mtime are as at open, its ctime was %s and is %s; "+
			"it was written and its mtime put back, or its times or attributes were set",
		time.Unix(0, before.ctime).UTC().Format(time.RFC3339Nano), time.Unix(0, now.ctime).UTC().Format(time.RFC3339Nano))).
		WithFix(fix + "; load it again where only times or attributes were set")
}
