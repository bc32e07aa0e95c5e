// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// formatVersion is what this code reads and writes.
const formatVersion = 1

// The names in the root of a store.
const (
	formatName = "FORMAT" // what this directory is, and whether it has a witness; it must exist
	epochName  = "EPOCH"  // how new the metadata has to be; written at each open and close
	lockName   = "LOCK"
	ownerName  = "OWNER"   // the process that holds the lock
	spareName  = "BALLAST" // space that is given up when the disk is full
	metaName   = "meta"
	dataName   = "data"
	tmpName    = "tmp"
	asideName  = "quarantine"
)

// maxNote bounds what is read of a note.
const maxNote = 4096

// note is a small file of lines "name value" in the root of a store.
type note map[string]string

func (n note) number(name string) (uint64, bool) {
	v, err := strconv.ParseUint(n[name], 10, 64)
	return v, err == nil
}

// parseNote reads the lines; a line that is none, or a name that comes twice, is an error.
func parseNote(b []byte) (note, error) {
	n := note{}
	for line := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if _, twice := n[k]; !ok || k == "" || v == "" || twice || !strings.HasSuffix(line, "\n") {
			return nil, fmt.Errorf("line %q, expected a name and a value", line)
		}
		n[k] = v
	}
	return n, nil
}

// readNote returns nil where the file does not exist.
func readNote(f vfs.FS, path string) (note, error) {
	const op = "open store"
	fix := "restore the file from a backup; nothing was changed"
	if f.PathBase(path) == formatName {
		fix = formatFix
	}
	file, err := openRegular(f, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errs.Is(err, errs.Corrupt) {
		return nil, errs.New(errs.Corrupt, op, path, errs.MessageOf(err)).WithFix(fix)
	}
	if err != nil {
		return nil, errs.Wrap(op, path, err)
	}
	defer func() { _ = file.Close() }()
	b, err := io.ReadAll(io.LimitReader(file, maxNote))
	if err != nil {
		return nil, errs.Wrap(op, path, err)
	}
	n, err := parseNote(b)
	if err != nil {
		return nil, errs.New(errs.Corrupt, op, path, "is damaged: "+err.Error()).WithFix(fix)
	}
	return n, nil
}

// writeNote replaces a note: whole or not at all.
func writeNote(f vfs.FS, dir, name, text string) error {
	const op = "write store note"
	path, tmp := f.PathJoin(dir, name), f.PathJoin(dir, name+".new")
	err := func() error {
		file, err := private(f.Create(tmp, vfs.WriteCategoryUnspecified))
		if err != nil {
			return err
		}
		_, err = io.WriteString(file, text)
		if err == nil {
			err = file.Sync()
		}
		if e := file.Close(); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
		if err := f.Rename(tmp, path); err != nil {
			return err
		}
		return syncDir(f, dir)
	}()
	if noSpace(err) {
		_ = f.Remove(tmp) // half a note takes space, and makes an empty directory look used
	}
	return wrapIO(op, path, err)
}

func syncDir(f vfs.FS, dir string) error {
	d, err := f.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}

// newUUID is a random UUID, version 4.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// formatNote is the text of FORMAT. A store whose witness is durable says so there: without FORMAT no store opens, so
// the witness cannot disappear unnoticed. Programs that know no witness pass over that line.
func formatNote(uuid string, witness bool) string {
	text := fmt.Sprintf("nebulaio store\nformat %d\nuuid %s\n", formatVersion, uuid)
	if witness {
		text += "witness 1\n"
	}
	return text
}

// checkFormat refuses a directory that this code must not touch.
func checkFormat(dir string, n note) (uuid string, err error) {
	const op = "open store"
	v, ok := n.number("format")
	if len(n) == 0 {
		return "", errs.New(errs.Corrupt, op, dir, formatName+" is empty").WithFix(formatFix)
	}
	if n["nebulaio"] == "store" && (!ok || n["uuid"] == "") {
		return "", errs.New(errs.Corrupt, op, dir, fmt.Sprintf("%s is damaged: it has %q", formatName, map[string]string(n))).WithFix(formatFix)
	}
	if n["nebulaio"] != "store" || !ok || n["uuid"] == "" {
		return "", errs.New(errs.Corrupt, op, dir, fmt.Sprintf("%s is not a store's: it has %q", formatName, map[string]string(n))).
			WithFix("choose another directory; where a store was here, " + formatFix)
	}
	if v > formatVersion {
		return "", errs.New(errs.Unsupported, op, dir, fmt.Sprintf("the store has format %d, this program knows up to %d", v, formatVersion)).
			WithFix("use a newer nebulaio; nothing was changed")
	}
	return n["uuid"], nil
}

// lockStore makes this process the one owner of a store.
func lockStore(f vfs.FS, dir string) (io.Closer, error) {
	const op = "open store"
	lock, err := f.Lock(f.PathJoin(dir, lockName))
	if err != nil {
		if !lockTaken(err) {
			return nil, wrapIO(op, dir, err)
		}
		return nil, takenBy(f, dir, err)
	}
	if f == vfs.Default {
		_ = os.Chmod(f.PathJoin(dir, lockName), 0o600) // it is empty; where it is another user's, so is the store
	}
	noteOwner(f, dir)
	return lock, nil
}

// noteOwner writes the number of this process to OWNER, in place and always equally long: it needs no space where the file
// exists. OWNER only helps a person to find the process. Where it cannot be written, it is removed: no number is better than a wrong one.
func noteOwner(f vfs.FS, dir string) {
	path := f.PathJoin(dir, ownerName)
	file, err := private(f.OpenReadWrite(path, vfs.WriteCategoryUnspecified))
	if err == nil {
		_, err = file.WriteAt(fmt.Appendf(nil, "pid %010d\n", os.Getpid()), 0)
		if e := file.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		_ = f.Remove(path) // the lock is what counts
	}
}

// takenBy refuses a store that another process has locked, by its number where that is known.
func takenBy(f vfs.FS, dir string, err error) error {
	holder := "another process"
	n, _ := readNote(f, f.PathJoin(dir, ownerName))
	if pid, ok := n.number("pid"); ok {
		holder = fmt.Sprintf("process %d", pid)
	}
	return &errs.Error{Kind: errs.Invalid, Op: "open store", Name: dir, Msg: holder + " has this store open", Err: err,
		Fix: "stop it first, or use its admin interface"}
}
