// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// BeginPartial prepares a directory for a new store. The directory must be missing or empty, or contain the remains of
// an interrupted restore or salvage of the same kind, which BeginPartial removes.
func BeginPartial(op string, f vfs.FS, dir, kind string) error {
	names, err := f.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return makePartial(op, f, dir, kind)
	}
	if err != nil {
		return WrapIO(op, dir, err)
	}
	n, noteErr := ReadNote(f, f.PathJoin(dir, PartialName))
	again := noteErr == nil && n["partial"] == kind
	ours := map[string]bool{PartialName: true, MetaName: true, DataName: true, TmpName: true, ScratchName: true}
	for _, name := range []string{EpochName, WitnessNames[0], WitnessNames[1]} {
		ours[name], ours[name+".new"] = true, true
	}
	for _, name := range names {
		if name == "lost+found" || name == PartialName+".new" || again && ours[name] {
			continue
		}
		return errs.New(errs.Invalid, op, dir, fmt.Sprintf("is not empty: it has %q",
			name)).WithFix("name a directory that is missing or empty")
	}
	for _, name := range names {
		if name != "lost+found" && name != PartialName { // which goes last, so that this can be interrupted too
			if err := f.RemoveAll(f.PathJoin(dir, name)); err != nil {
				return WrapIO(op, dir, err)
			}
		}
	}
	if again {
		return nil
	}
	if err := WriteNote(f, dir, PartialName, partialNote(kind)); err != nil {
		return CopyFailed(op, dir, err)
	}
	return nil
}

// partialNote is the text of PARTIAL.
func partialNote(kind string) string { return "partial " + kind + "\n" }

// begunSuffix is appended to the name of a new directory until it contains PARTIAL.
const begunSuffix = ".nebulaio-begun"

// makePartial creates a directory that contains PARTIAL from the beginning. Otherwise a kill could leave an empty
// directory, and a server would create a new store there.
func makePartial(op string, f vfs.FS, dir, kind string) error {
	begun := dir + begunSuffix
	names, err := f.List(begun)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return WrapIO(op, begun, err)
	}
	for _, name := range names {
		if name != PartialName && name != PartialName+".new" {
			return errs.New(errs.Invalid, op, begun, fmt.Sprintf("is in the way: it has %q", name)).WithFix("move it away")
		}
	}
	if err := f.MkdirAll(begun, 0o700); err != nil {
		return WrapIO(op, dir, err)
	}
	if err := WriteNote(f, begun, PartialName, partialNote(kind)); err != nil {
		_ = f.RemoveAll(begun) // it holds at most the mark; the error of the write is told
		return CopyFailed(op, dir, err)
	}
	if err := f.Rename(begun, dir); err != nil {
		return WrapIO(op, dir, err)
	}
	return WrapIO(op, dir, SyncDir(f, f.PathDir(dir)))
}

// CopyFailed returns the error of a backup, restore or salvage. If the disk is full, the error of CopyFailed says what
// to do.
func CopyFailed(op, dir string, err error) error {
	if IsNoSpace(err) && errs.FixOf(err) == "" {
		return &errs.Error{Kind: errs.IO, Op: op, Name: dir, Err: err,
			Fix: "make room there, or name a directory on another disk, and run the command again"}
	}
	return WrapIO(op, dir, err)
}

// StoreAt returns nil if a directory is a store, or an error that explains why not. StoreAt fails with kind NotFound
// if the directory contains nothing of a store. StoreAt fails with kind Invalid for a backup or an interrupted
// restore or salvage. StoreAt fails with kind Corrupt if FORMAT is missing but metadata exists.
func StoreAt(dir string) error { return storeAt(vfs.Default, dir) }

func storeAt(f vfs.FS, dir string) error {
	const op = "open store"
	_, err := f.Stat(f.PathJoin(dir, FormatName))
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
	if err := CheckMade(f, dir); err != nil {
		return err
	}
	if names, e := f.List(f.PathJoin(dir, MetaName)); e == nil && len(names) > 0 {
		return errs.New(errs.Corrupt, op, dir, fmt.Sprintf("%s is missing, and %s/ holds metadata", FormatName, MetaName)).
			WithFix(FormatFix)
	}
	return &errs.Error{Kind: errs.NotFound, Op: op, Name: dir, Msg: "holds no object store", Err: err, Fix: namedFix}
}

const namedFix = "name its directory with --data, --config or NEBULAIO_DATA"

// CheckMade refuses a directory without FORMAT that contains a backup, or the rest of an interrupted restore or
// salvage.
func CheckMade(f vfs.FS, dir string) error {
	const op = "open store"
	if _, err := f.Stat(f.PathJoin(dir, FormatName)); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := f.Stat(f.PathJoin(dir, PartialName+".new")); err == nil {
		return errs.New(errs.Invalid, op, dir, "holds the beginning of an interrupted restore or salvage, no store").
			WithFix("run the same command again: it begins anew; nothing was changed")
	}
	if n, err := ReadNote(f, f.PathJoin(dir, PartialName)); err == nil && n != nil {
		return errs.New(errs.Invalid, op, dir, fmt.Sprintf("holds what an interrupted %s left, no store", n["partial"])).
			WithFix("run the same command again: it begins anew; nothing was changed")
	}
	if _, err := f.Stat(f.PathJoin(dir, BackupName)); err == nil {
		return errs.New(errs.Invalid, op, dir, "is a backup, no store").WithFix("make a store out of it with nebulaio " +
			"store restore; nothing was changed")
	}
	return nil
}

// CheckApart returns an error if the directory dir equals the directory outer or lies within it, also through symbolic
// links. The parameter called what describes outer in the error text.
func CheckApart(op string, f vfs.FS, dir, outer, what string) error {
	a, b := RealName(f, dir), RealName(f, outer)
	if a == b || strings.HasPrefix(a, strings.TrimSuffix(b, "/")+"/") {
		return errs.New(errs.Invalid, op, dir, "lies within "+what).WithFix("name a directory outside " + outer)
	}
	return nil
}

// RealName returns the absolute path without symbolic links; the file need not exist yet.
func RealName(f vfs.FS, path string) string {
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
