// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// others are the permission bits of group and others. Secrets and small objects are in the metadata, so no entry of a
// store has any of these bits. The directory of the store itself keeps the mode that its operator gave it: the door's
// socket may lie in it, and other users have to reach the socket.
const others = 0o077

// closeUp removes the access of other users to the entries of a store, whatever the umask was when they were created.
// It runs before Pebble opens anything. Files below meta/, data/, tmp/ and quarantine/ need no check: nobody reaches
// them through a directory of mode 0700. An entry that this process may not change is reported and stays.
func (s *Store) closeUp() {
	if s.fs != vfs.Default {
		return // files in memory have no permissions
	}
	for _, name := range []string{layout.MetaName, layout.DataName, layout.TmpName, layout.QuarantineName} {
		s.closeEntry(s.fs.PathJoin(s.opts.Dir, name), fs.FileMode.IsDir)
	}
	for _, name := range []string{layout.FormatName, layout.EpochName, layout.LockName, layout.OwnerName,
		layout.WitnessNames[0], layout.WitnessNames[1], layout.BallastName} {
		for _, end := range []string{"", ".new"} {
			s.closeEntry(s.fs.PathJoin(s.opts.Dir, name+end), fs.FileMode.IsRegular)
		}
	}
}

// closeEntry removes the access of other users to one entry, if it exists and is of the expected kind.
func (s *Store) closeEntry(path string, kind func(fs.FileMode) bool) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!kind(info.Mode()) || info.Mode().Perm()&others == 0) {
		return
	}
	var was fs.FileMode
	if err == nil {
		was = info.Mode().Perm()
		err = os.Chmod(path, was&^others)
	}
	if err != nil {
		err = &errs.Error{Kind: errs.KindOf(err), Op: "close to other users", Name: path, Err: err,
			Fix: "as the owner of the file, run chmod go= " + path}
	}
	if s.opts.Events.Exposed != nil {
		s.opts.Events.Exposed(path, was, err)
	}
}
