// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// state is what tells one version of a file from another besides its size and
// modification time. The change time moves with every write and cannot be put
// back. It moves with a rename, a link and a change of rights too: the rest
// shows whether one of these was made.
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

// CheckUnchanged fails when the file may not be what it was at Open: what was
// read is then a mixture of two versions. It compares the size, the modification
// time and the change time, which finds writers that put the modification time
// back. A rename, a hard link, or a change of mode or owner explains a new change
// time and is no failure. With summed the bytes were compared with checksums, and
// the change time says nothing more. File systems of servers and of processes make
// up their change times: it is not compared there.
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
