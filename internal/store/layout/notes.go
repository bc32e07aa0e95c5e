// SPDX-License-Identifier: Apache-2.0

// Package layout defines the files and directories of a store: their names, the small text files in the root, and the
// lock.
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
// All files and directories of a store are accessible to their owner only. Directories have mode 0700; files in the
// root and in meta/ have mode 0600.
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

// FormatVersion is the newest store format that this program reads, and the format that it writes. Format 2 may have
// encrypted objects and a journal of changes.
const FormatVersion = 2

// FormatName and the constants after it are the names of the files and directories in the root of a store.
const (
	FormatName     = "FORMAT" // this file identifies a directory as a store and records whether there is a witness
	EpochName      = "EPOCH"  // this file records how new the metadata has to be; it is written at each open and close
	LockName       = "LOCK"
	OwnerName      = "OWNER"   // this file contains the number of the process that holds the lock
	BallastName    = "BALLAST" // this file occupies space that is freed if the disk is full
	MetaName       = "meta"
	DataName       = "data"
	TmpName        = "tmp"
	QuarantineName = "quarantine"

	// PartialName is the name of the file that marks an unfinished restore or salvage; the file is removed when the
	// store is complete.
	PartialName = "PARTIAL"
	BackupName  = "BACKUP"      // this file marks a backup; a backup has no FORMAT, so that no server starts on it
	ScratchName = "salvage.tmp" // the temporary directory of a salvage
)

// WitnessNames are the file names of the two copies of the witness, which records how far the metadata is durable.
var WitnessNames = [2]string{"REACH.0", "REACH.1"}

// maxNote is the largest number of bytes that is read of a note.
const maxNote = 4096

// Note is a small text file in the root of a store, with a name and a value in each line.
type Note map[string]string

// Number returns the value of a name in the note as an unsigned number. Number returns false if the name is missing or
// its value is not a number.
func (n Note) Number(name string) (uint64, bool) {
	v, err := strconv.ParseUint(n[name], 10, 64)
	return v, err == nil
}

// parseNote parses the lines; a malformed line or a repeated name is an error.
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

// ReadNote reads a note, which is a small text file of names and values. ReadNote returns nil without an error if the
// file does not exist.
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

// WriteNote replaces a note atomically and durably.
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

// FormatNote returns the text of the file FORMAT. If witness is set, FORMAT records that the store has a durable
// witness (the files that record how far the metadata is durable). No store opens without FORMAT, so a loss of the
// witness files is always noticed. Older programs ignore the line about the witness in the file FORMAT.
func FormatNote(uuid string, witness bool) string {
	text := fmt.Sprintf("nebulaio store\nformat %d\nuuid %s\n", FormatVersion, uuid)
	if witness {
		text += "witness 1\n"
	}
	return text
}

// CheckFormat returns the UUID in FORMAT, or an error if FORMAT is damaged, belongs to no store, or has a newer format
// version.
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
