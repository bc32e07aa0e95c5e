// SPDX-License-Identifier: Apache-2.0

// Package quarantine keeps the files and records that a repair moved out of a store, and puts them back on request.
package quarantine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// Names in quarantine/. A file has a note beside it, with its name and noteSuffix. Records are lines of JSON in files
// that begin with recordsPrefix.
const (
	noteSuffix    = ".json"
	recordsPrefix = "records-"
	recordsSuffix = ".jsonl"
	restoredMark  = ".restored"
)

// maxSavedLine limits the length of one saved record: values have at most a few MiB.
const maxSavedLine = 64 << 20

// fileNote describes a file in quarantine.
type fileNote struct {
	Path string    `json:"path"` // within the store's directory
	Link string    `json:"link,omitempty"`
	Why  string    `json:"why"`
	When time.Time `json:"when"`
}

// SavedRecord is a metadata record as it was before a repair changed it.
type SavedRecord struct {
	Key    []byte    `json:"key"`
	Value  []byte    `json:"value"`
	Absent bool      `json:"absent,omitempty"` // the record did not exist before the repair
	New    []byte    `json:"new"`              // the value that the repair wrote; null if the repair deleted the record
	What   string    `json:"what"`
	Why    string    `json:"why"`
	When   time.Time `json:"when"`
}

// Folder is the directory quarantine/ of a store.
type Folder struct {
	FS  vfs.FS
	Dir string // directory of the store
}

// asideDir creates quarantine/ durably and returns its path.
func (q Folder) asideDir() (string, error) {
	dir := q.FS.PathJoin(q.Dir, layout.QuarantineName)
	if _, err := q.FS.Stat(dir); err == nil {
		return dir, nil
	}
	if err := q.FS.MkdirAll(dir, 0o700); err != nil {
		return dir, layout.WrapIO("quarantine", dir, err)
	}
	return dir, layout.WrapIO("quarantine", dir, layout.SyncDir(q.FS, q.Dir))
}

// maxAsideName limits the length of names in quarantine/, so that the file system also accepts the name of the note.
const maxAsideName = 128

// freeName returns a name in dir that neither a file nor a note has.
func (q Folder) freeName(dir, base, end string) string {
	base = base[:min(len(base), maxAsideName)]
	for n := 0; ; n++ {
		name := base + end
		if n > 0 {
			name = fmt.Sprintf("%s.%d%s", base, n, end)
		}
		if !layout.Exists(q.FS, q.FS.PathJoin(dir, name)) && !layout.Exists(q.FS, q.FS.PathJoin(dir, name+noteSuffix)) {
			return name
		}
	}
}

// SetAside moves a file to quarantine/, and returns its new path relative to the store. A note that describes the file
// is durable before SetAside moves the file. If a crash happens after the note is written and before the file is moved,
// the file is still at its old path.
func (q Folder) SetAside(path, why string, when time.Time) (string, error) {
	const op = "quarantine"
	dir, err := q.asideDir()
	if err != nil {
		return "", err
	}
	inside, err := filepath.Rel(q.Dir, path)
	if err != nil {
		return "", errs.Wrap(op, path, err)
	}
	n := fileNote{Path: inside, Why: why, When: when}
	if q.FS == vfs.Default {
		n.Link, _ = os.Readlink(path) // empty for what is no link
	}
	text, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return "", errs.Wrap(op, path, err)
	}
	name := q.freeName(dir, q.FS.PathBase(path), "")
	to := q.FS.PathJoin(dir, name)
	if err := layout.WriteNote(q.FS, dir, name+noteSuffix, string(text)+"\n"); err != nil {
		return "", err
	}
	if layout.Exists(q.FS, to) {
		return "", errs.New(errs.IO, op, to, "exists")
	}
	if err := q.FS.Rename(path, to); err != nil {
		_ = q.FS.Remove(to + noteSuffix) // the file stays where it was
		return "", layout.WrapIO(op, path, err)
	}
	// Sync the new name first: after a crash the next check reports a file with two names, but a file with none is
	// lost.
	for _, d := range []string{dir, q.FS.PathDir(path)} {
		if err := layout.SyncDir(q.FS, d); err != nil {
			return "", layout.WrapIO(op, d, err)
		}
	}
	return layout.QuarantineName + "/" + name, nil
}

// SaveRecords writes records durably to a new file in quarantine/.
func (q Folder) SaveRecords(records []SavedRecord, when time.Time) error {
	dir, err := q.asideDir()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	for i := range records {
		if err := out.Encode(&records[i]); err != nil {
			return errs.Wrap("quarantine", dir, err)
		}
	}
	name := q.freeName(dir, recordsPrefix+when.UTC().Format("20060102T150405Z"), recordsSuffix)
	return layout.WriteNote(q.FS, dir, name, b.String())
}
