// SPDX-License-Identifier: Apache-2.0

package checksum

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// A save replaces two files, the data and its sums, and two renames are not
// atomic. So sums can also have a pending name. It contains the inode and the
// modification time of the file's version, which a rename keeps:
//
//	FILE.crc64nvme.<inode>-<mtime in ns>, 16 hex digits each
//
// A reader looks first for the pending name of the version that it has open, then
// for the plain name. A save that writes sums makes each step durable before the
// next. F is the file and D its replacement:
//
//	1  write the sums of D under D's pending name    F old: plain sums, right
//	2  rename D to F                                 F new: pending sums, right
//	3  rename the pending sums to the plain name     F new: plain sums, right
//
// A save that writes none, where F has plain sums:
//
//	1  rename the plain sums to F's pending name     F old: pending sums, right
//	2  rename D to F                                 F new: no sums
//	3  remove what was moved away                    F new: no sums
//
// So a save that is killed after any step leaves a file that verifies or has no
// sums. Pending sums of a missing version are garbage, and Sweep removes them. For a
// version that is in place, Sweep finishes step 3. All steps hold a lock on the
// directory, so a sweeper only finds sums of killed saves.

// ID identifies one version of a file by its inode and its modification time.
type ID struct {
	Inode   uint64
	MtimeNs int64
}

// Pending returns the temporary path of a sidecar while a save replaces its file. The sidecar has the checksums of the
// file version that id identifies. The path that Pending returns contains the inode and the modification time of the
// file version.
func Pending(file string, id ID) string {
	return fmt.Sprintf("%s.%016x-%016x", Path(file), id.Inode, uint64(id.MtimeNs))
}

// maxName is the largest length of a file name on Linux, in bytes.
const maxName = 255

// CheckName returns an error if the name of file is so long that the name of its pending sidecar would exceed 255
// bytes.
func CheckName(file string) error {
	name := filepath.Base(file)
	if most := maxName - len(filepath.Base(Pending(name, ID{}))) + len(name); len(name) > most {
		return errs.New(errs.Invalid, "write checksums", Path(file),
			fmt.Sprintf("the file's name has %d bytes, expected at most %d: that of its checksums is longer", len(name), most)).
			WithFix("give a shorter name, or save without checksums")
	}
	return nil
}

// absent reports whether err means that a file does not exist, or cannot exist because its name is too long.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENAMETOOLONG)
}

// pendingOf splits a pending name, without its directory, into the file's name and the version. ok is false for any
// other name.
func pendingOf(name string) (file string, id ID, ok bool) {
	const digits = 2*16 + 1
	at := len(name) - digits
	if at < 1 || name[at-1] != '.' {
		return "", ID{}, false
	}
	file, ok = strings.CutSuffix(name[:at-1], Suffix)
	if !ok || file == "" {
		return "", ID{}, false
	}
	inode, mtime, _ := strings.Cut(name[at:], "-")
	a, err1 := strconv.ParseUint(inode, 16, 64)
	b, err2 := strconv.ParseUint(mtime, 16, 64)
	id = ID{Inode: a, MtimeNs: int64(b)}
	return file, id, err1 == nil && err2 == nil && filepath.Base(Pending(file, id)) == name
}

// WritePending writes the checksums to the path that Pending returns for file and id, and flushes the sidecar to
// storage. The caller syncs the directory to make the name of the sidecar durable. If WritePending fails, no sidecar
// is left.
func (s *Sums) WritePending(file string, id ID) error {
	const op = "write checksums"
	name := Pending(file, id)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return wrap(op, Path(file), err)
	}
	_, err = f.Write(s.Encode())
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		_ = os.Remove(name)
	}
	return wrap(op, Path(file), err)
}

// Promote renames the pending sidecar for version id of file to its plain name, FILE.crc64nvme.
func Promote(file string, id ID) error {
	return wrap("write checksums", Path(file), os.Rename(Pending(file, id), Path(file)))
}

// Retire renames the sidecar of file to the pending name for the file's current version, and returns the identity of
// this version. The result `moved` is false if file had no sidecar. If file does not exist, or its name is too long
// for a pending name, Retire removes the sidecar instead.
func Retire(file string) (id ID, moved bool, err error) {
	id, err = identify(file)
	if errors.Is(err, fs.ErrNotExist) || CheckName(file) != nil {
		_, err = Forget(file)
		return ID{}, false, err
	}
	if err == nil {
		err = os.Rename(Path(file), Pending(file, id))
	}
	if absent(err) {
		return id, false, nil
	}
	return id, err == nil, wrap("set checksums aside", Path(file), err)
}

// Current reports whether the file at the given path is the version that id identifies.
func Current(file string, id ID) bool {
	now, err := identify(file)
	return err == nil && now == id
}

// Discard removes the pending sidecar for version id of file, if one exists.
func Discard(file string, id ID) { _ = os.Remove(Pending(file, id)) }

// Forget removes the sidecar FILE.crc64nvme of file and reports whether the sidecar existed.
func Forget(file string) (bool, error) {
	err := os.Remove(Path(file))
	if absent(err) {
		return false, nil
	}
	return err == nil, wrap("remove checksums", Path(file), err)
}

// Sweep cleans up the pending sidecars that killed saves left in dir. The parameter `names` lists the entries of dir.
// If a pending sidecar belongs to the current version of its file, Sweep renames the sidecar to the plain name. Sweep
// removes a pending sidecar if its file version is no longer the current one. If Sweep has no permission to change a
// sidecar, it leaves the sidecar for a later save by the sidecar's owner. The caller must hold the lock of the
// directory dir. Sweep returns the number of sidecars that it renamed or removed.
func Sweep(dir string, names []string) (int, error) {
	changed := 0
	for _, name := range names {
		base, id, ok := pendingOf(name)
		if !ok {
			continue
		}
		file := filepath.Join(dir, base)
		var err error
		if Current(file, id) {
			err = Promote(file, id)
		} else {
			err = os.Remove(filepath.Join(dir, name))
		}
		switch {
		case err == nil:
			changed++
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
			return changed, errs.Wrap("tidy up checksums in", dir, err)
		}
	}
	return changed, nil
}

// IsPending reports whether name has the form of a pending sidecar.
func IsPending(name string) bool {
	_, _, ok := pendingOf(name)
	return ok
}
