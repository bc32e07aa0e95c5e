// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// partialName marks a directory that a restore or a salvage is filling. It goes when the directory has become a store.
const partialName = "PARTIAL"

// beginPartial makes a directory ready for a new store. It must be missing, empty, or what an interrupted run of the same
// kind left: that is removed.
func beginPartial(op string, f vfs.FS, dir, kind string) error {
	names, err := f.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return makePartial(op, f, dir, kind)
	}
	if err != nil {
		return wrapIO(op, dir, err)
	}
	n, noteErr := readNote(f, f.PathJoin(dir, partialName))
	again := noteErr == nil && n["partial"] == kind
	ours := map[string]bool{partialName: true, metaName: true, dataName: true, tmpName: true, scratchName: true}
	for _, name := range []string{epochName, reachNames[0], reachNames[1]} {
		ours[name], ours[name+".new"] = true, true
	}
	for _, name := range names {
		if name == "lost+found" || name == partialName+".new" || again && ours[name] {
			continue
		}
		return errs.New(errs.Invalid, op, dir, fmt.Sprintf("is not empty: it has %q", name)).WithFix("name a directory that is missing or empty")
	}
	for _, name := range names {
		if name != "lost+found" && name != partialName { // which goes last, so that this can be interrupted too
			if err := f.RemoveAll(f.PathJoin(dir, name)); err != nil {
				return wrapIO(op, dir, err)
			}
		}
	}
	if again {
		return nil
	}
	if err := writeNote(f, dir, partialName, partialNote(kind)); err != nil {
		return copyFailed(op, dir, err)
	}
	return nil
}

// partialNote is the text of PARTIAL.
func partialNote(kind string) string { return "partial " + kind + "\n" }

// begunSuffix ends the name that a missing directory has until it holds PARTIAL.
const begunSuffix = ".nebulaio-begun"

// makePartial makes a directory that holds PARTIAL from its first moment on. Without the mark, an empty directory would
// be left by a kill, and a server would make a new store there.
func makePartial(op string, f vfs.FS, dir, kind string) error {
	begun := dir + begunSuffix
	names, err := f.List(begun)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wrapIO(op, begun, err)
	}
	for _, name := range names {
		if name != partialName && name != partialName+".new" {
			return errs.New(errs.Invalid, op, begun, fmt.Sprintf("is in the way: it has %q", name)).WithFix("move it away")
		}
	}
	if err := f.MkdirAll(begun, 0o700); err != nil {
		return wrapIO(op, dir, err)
	}
	if err := writeNote(f, begun, partialName, partialNote(kind)); err != nil {
		_ = f.RemoveAll(begun) // it holds at most the mark; the error of the write is told
		return copyFailed(op, dir, err)
	}
	if err := f.Rename(begun, dir); err != nil {
		return wrapIO(op, dir, err)
	}
	return wrapIO(op, dir, syncDir(f, f.PathDir(dir)))
}

// endPartial makes a directory a store with a witness, as the last step. Nobody has its metadata open.
func endPartial(f vfs.FS, dir, uuid string) error {
	if err := seal(f, dir, uuid); err != nil {
		return err
	}
	if err := writeNote(f, dir, formatName, formatNote(uuid, true)); err != nil {
		return err
	}
	return f.Remove(f.PathJoin(dir, partialName)) // where FORMAT is, nobody looks at it
}

// copyFailed is the error of a backup, restore or salvage, with a remedy where the disk is full.
func copyFailed(op, dir string, err error) error {
	if noSpace(err) && errs.FixOf(err) == "" {
		return &errs.Error{Kind: errs.IO, Op: op, Name: dir, Err: err, Fix: "make room there, or name a directory on another disk, and run the command again"}
	}
	return wrapIO(op, dir, err)
}

// StoreAt says why a directory is no store that can be opened; nil where it is one. The kind is NotFound where there is
// nothing of a store, Invalid where it is a backup or an interrupted copy, and Corrupt where only FORMAT is missing.
func StoreAt(dir string) error { return storeAt(vfs.Default, dir) }

func storeAt(f vfs.FS, dir string) error {
	const op = "open store"
	_, err := f.Stat(f.PathJoin(dir, formatName))
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return &errs.Error{Kind: errs.Permission, Op: op, Name: dir, Msg: "this user may not look into it", Err: err,
			Fix: "run the command as the user of the server, or as root"}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return &errs.Error{Kind: errs.KindOf(err), Op: op, Name: dir, Msg: "cannot be read", Err: err, Fix: namedFix}
	}
	if err := notMade(f, dir); err != nil {
		return err
	}
	if names, e := f.List(f.PathJoin(dir, metaName)); e == nil && len(names) > 0 {
		return errs.New(errs.Corrupt, op, dir, fmt.Sprintf("%s is missing, and %s/ holds metadata", formatName, metaName)).
			WithFix(formatFix)
	}
	return &errs.Error{Kind: errs.NotFound, Op: op, Name: dir, Msg: "holds no object store", Err: err, Fix: namedFix}
}

const namedFix = "name its directory with --data, --config or NEBULAIO_DATA"

// notMade refuses a directory without FORMAT that holds a backup, or what an interrupted restore or salvage left.
func notMade(f vfs.FS, dir string) error {
	const op = "open store"
	if _, err := f.Stat(f.PathJoin(dir, formatName)); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := f.Stat(f.PathJoin(dir, partialName+".new")); err == nil {
		return errs.New(errs.Invalid, op, dir, "holds the beginning of an interrupted restore or salvage, no store").
			WithFix("run the same command again: it begins anew; nothing was changed")
	}
	if n, err := readNote(f, f.PathJoin(dir, partialName)); err == nil && n != nil {
		return errs.New(errs.Invalid, op, dir, fmt.Sprintf("holds what an interrupted %s left, no store", n["partial"])).
			WithFix("run the same command again: it begins anew; nothing was changed")
	}
	if _, err := f.Stat(f.PathJoin(dir, backupName)); err == nil {
		return errs.New(errs.Invalid, op, dir, "is a backup, no store").WithFix("make a store out of it with nebulaio store restore; nothing was changed")
	}
	return nil
}

// apart refuses a directory that lies within another one, which is not to be changed. It sees through symbolic links.
func apart(op string, f vfs.FS, dir, outer, what string) error {
	a, b := realName(f, dir), realName(f, outer)
	if a == b || strings.HasPrefix(a, strings.TrimSuffix(b, "/")+"/") {
		return errs.New(errs.Invalid, op, dir, "lies within "+what).WithFix("name a directory outside " + outer)
	}
	return nil
}

// realName is the full name of something that may not exist yet, without symbolic links.
func realName(f vfs.FS, path string) string {
	if f != vfs.Default {
		return path
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	for at, rest := abs, ""; ; {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if filepath.Dir(at) == at {
			return abs
		}
		at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest)
	}
}
