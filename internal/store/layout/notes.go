// SPDX-License-Identifier: Apache-2.0

// Package layout knows the directory of a store: its entries, its notes, its lock, and when it is whole.
//
//	FORMAT        what this directory is: format version, UUID, and that there is a witness
//	EPOCH         how often the store was opened, and where the last clean close was
//	REACH.0, .1   the witness: how far the log and the manifest of the metadata were durable
//	LOCK, OWNER   one process owns a store; OWNER says which
//	BALLAST       16 MiB that are given up when the disk is full
//	meta/         Pebble
//	data/, tmp/   files of content
//	PARTIAL       a restore or a salvage fills this directory
//	quarantine/   what repair moved aside: files with a note each, and records as they were
//
// All of them are the owner's alone: directories have mode 0700, files in the root and in meta/ 0600.
package layout

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// FormatVersion is what this code reads and writes.
const FormatVersion = 1

// The names in the root of a store.
const (
	FormatName     = "FORMAT" // what this directory is, and whether it has a witness; it must exist
	EpochName      = "EPOCH"  // how new the metadata has to be; written at each open and close
	LockName       = "LOCK"
	OwnerName      = "OWNER"   // the process that holds the lock
	BallastName    = "BALLAST" // space that is given up when the disk is full
	MetaName       = "meta"
	DataName       = "data"
	TmpName        = "tmp"
	QuarantineName = "quarantine"

	// a restore or a salvage fills this directory; it goes when the directory has become a store
	PartialName = "PARTIAL"
	BackupName  = "BACKUP"      // this directory is a backup; it has no FORMAT, so that no server starts on it
	ScratchName = "salvage.tmp" // where a salvage gathers what it read
)

// WitnessNames are the two copies of the witness.
var WitnessNames = [2]string{"REACH.0", "REACH.1"}

// maxNote bounds what is read of a note.
const maxNote = 4096

// Note is a small file of lines "name value" in the root of a store.
type Note map[string]string

// Number is the value of a name as a number.
func (n Note) Number(name string) (uint64, bool) {
	v, err := strconv.ParseUint(n[name], 10, 64)
	return v, err == nil
}

// parseNote reads the lines; a line that is none, or a name that comes twice, is an error.
func parseNote(b []byte) (Note, error) {
	n := Note{}
	for line := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if _, twice := n[k]; !ok || k == "" || v == "" || twice || !strings.HasSuffix(line, "\n") {
			return nil, fmt.Errorf("line %q, expected a name and a value", line)
		}
		n[k] = v
	}
	return n, nil
}

// ReadNote returns nil where the file does not exist.
func ReadNote(f vfs.FS, path string) (Note, error) {
	const op = "open store"
	fix := "restore the file from a backup; nothing was changed"
	if f.PathBase(path) == FormatName {
		fix = FormatFix
	}
	file, err := OpenRegular(f, path)
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

// WriteNote replaces a note: whole or not at all.
func WriteNote(f vfs.FS, dir, name, text string) error {
	const op = "write store note"
	path, tmp := f.PathJoin(dir, name), f.PathJoin(dir, name+".new")
	err := func() error {
		file, err := Private(f.Create(tmp, vfs.WriteCategoryUnspecified))
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
		return SyncDir(f, dir)
	}()
	if IsNoSpace(err) {
		_ = f.Remove(tmp) // half a note takes space, and makes an empty directory look used
	}
	return WrapIO(op, path, err)
}

// FormatNote is the text of FORMAT. A store whose witness is durable says so there: without FORMAT no store opens, so
// the witness cannot disappear unnoticed. Programs that know no witness pass over that line.
func FormatNote(uuid string, witness bool) string {
	text := fmt.Sprintf("nebulaio store\nformat %d\nuuid %s\n", FormatVersion, uuid)
	if witness {
		text += "witness 1\n"
	}
	return text
}

// CheckFormat refuses a directory that this code must not touch.
func CheckFormat(dir string, n Note) (uuid string, err error) {
	const op = "open store"
	v, ok := n.Number("format")
	if len(n) == 0 {
		return "", errs.New(errs.Corrupt, op, dir, FormatName+" is empty").WithFix(FormatFix)
	}
	if n["nebulaio"] == "store" && (!ok || n["uuid"] == "") {
		return "", errs.New(errs.Corrupt, op, dir, fmt.Sprintf("%s is damaged: it has %q", FormatName,
			map[string]string(n))).WithFix(FormatFix)
	}
	if n["nebulaio"] != "store" || !ok || n["uuid"] == "" {
		return "", errs.New(errs.Corrupt, op, dir, fmt.Sprintf("%s is not a store's: it has %q", FormatName,
			map[string]string(n))).
			WithFix("choose another directory; where a store was here, " + FormatFix)
	}
	if v > FormatVersion {
		return "", errs.New(errs.Unsupported, op, dir, fmt.Sprintf("the store has format %d, this program knows up to %d", v,
			FormatVersion)).
			WithFix("use a newer nebulaio; nothing was changed")
	}
	return n["uuid"], nil
}
