// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
)

// What repair moves aside lies in quarantine/. A file has a note beside it, with its name and noteSuffix. Records are lines of
// JSON in files that begin with recordsPrefix.
const (
	noteSuffix    = ".json"
	recordsPrefix = "records-"
	recordsSuffix = ".jsonl"
	restoredMark  = ".restored"
)

// maxSavedLine bounds one saved record: values have at most a few MiB.
const maxSavedLine = 64 << 20

// fileNote says what a file in quarantine is.
type fileNote struct {
	Path string    `json:"path"` // within the store's directory
	Link string    `json:"link,omitempty"`
	Why  string    `json:"why"`
	When time.Time `json:"when"`
}

// savedRecord is one record as it was before repair changed it.
type savedRecord struct {
	Key    []byte    `json:"key"`
	Value  []byte    `json:"value"`
	Absent bool      `json:"absent,omitempty"` // there was none
	New    []byte    `json:"new"`              // what repair wrote; null where it took the record away
	What   string    `json:"what"`
	Why    string    `json:"why"`
	When   time.Time `json:"when"`
}

// asideDir makes quarantine/ durably and returns its path.
func (s *Store) asideDir() (string, error) {
	dir := s.fs.PathJoin(s.opts.Dir, asideName)
	if _, err := s.fs.Stat(dir); err == nil {
		return dir, nil
	}
	if err := s.fs.MkdirAll(dir, 0o700); err != nil {
		return dir, wrapIO("quarantine", dir, err)
	}
	return dir, wrapIO("quarantine", dir, syncDir(s.fs, s.opts.Dir))
}

// maxAsideName bounds the names in quarantine/, so that the name of a note is none that the file system refuses.
const maxAsideName = 128

// freeName is a name in dir that neither a file nor a note has.
func (s *Store) freeName(dir, base, end string) string {
	base = base[:min(len(base), maxAsideName)]
	for n := 0; ; n++ {
		name := base + end
		if n > 0 {
			name = fmt.Sprintf("%s.%d%s", base, n, end)
		}
		if !s.exists(s.fs.PathJoin(dir, name)) && !s.exists(s.fs.PathJoin(dir, name+noteSuffix)) {
			return name
		}
	}
}

// exists says whether a name is taken, by a link that leads nowhere too.
func (s *Store) exists(path string) bool {
	if s.fs == vfs.Default {
		_, err := os.Lstat(path)
		return err == nil
	}
	_, err := s.fs.Stat(path)
	return err == nil
}

// setAside moves a file to quarantine. Its note is durable before it moves: after a crash in between the file is where it was,
// and the note names a file that is not there.
func (s *Store) setAside(path, why string, when time.Time) (string, error) {
	const op = "quarantine"
	dir, err := s.asideDir()
	if err != nil {
		return "", err
	}
	inside, err := filepath.Rel(s.opts.Dir, path)
	if err != nil {
		return "", errs.Wrap(op, path, err)
	}
	note := fileNote{Path: inside, Why: why, When: when}
	if s.fs == vfs.Default {
		note.Link, _ = os.Readlink(path) // empty for what is no link
	}
	text, err := json.MarshalIndent(note, "", "  ")
	if err != nil {
		return "", errs.Wrap(op, path, err)
	}
	name := s.freeName(dir, s.fs.PathBase(path), "")
	to := s.fs.PathJoin(dir, name)
	if err := writeNote(s.fs, dir, name+noteSuffix, string(text)+"\n"); err != nil {
		return "", err
	}
	if s.exists(to) {
		return "", errs.New(errs.IO, op, to, "exists")
	}
	if err := s.fs.Rename(path, to); err != nil {
		_ = s.fs.Remove(to + noteSuffix) // the file stays where it was
		return "", wrapIO(op, path, err)
	}
	// The new name first: a file that has two names after a crash is named by the next check, one that has none is lost.
	for _, d := range []string{dir, s.fs.PathDir(path)} {
		if err := syncDir(s.fs, d); err != nil {
			return "", wrapIO(op, d, err)
		}
	}
	return asideName + "/" + name, nil
}

// saveRecords writes records to a file in quarantine, durably.
func (s *Store) saveRecords(records []savedRecord, when time.Time) error {
	dir, err := s.asideDir()
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
	name := s.freeName(dir, recordsPrefix+when.UTC().Format("20060102T150405Z"), recordsSuffix)
	return writeNote(s.fs, dir, name, b.String())
}

// Quarantined is one thing that repair moved aside.
type Quarantined struct {
	Name     string    // in quarantine/
	Kind     string    // "file", "records", or "unknown" for what has no note
	Path     string    // of a file: where it was, within the store's directory
	Records  int       // of records: how many
	Why      string    // of records: the first reason
	When     time.Time // zero where there is no note
	Restored bool      // put back before
}

// Quarantine lists what repair moved aside. It takes no lock and changes nothing.
func Quarantine(ctx context.Context, o Options) ([]Quarantined, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	s := newStore(o)
	dir := s.fs.PathJoin(o.Dir, asideName)
	names, err := s.fs.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, wrapIO("list quarantine", dir, err)
	}
	slices.Sort(names)
	var all []Quarantined
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, errs.Wrap("list quarantine", dir, err)
		}
		if of, ok := strings.CutSuffix(name, noteSuffix); ok && slices.Contains(names, of) {
			continue // the note of a file
		}
		q := Quarantined{Name: name, Kind: "unknown"}
		bare := strings.TrimSuffix(name, restoredMark)
		switch {
		case strings.HasPrefix(name, recordsPrefix) && strings.HasSuffix(bare, recordsSuffix):
			q.Kind, q.Restored = "records", bare != name
			err := s.savedRecords(name, func(r *savedRecord) error {
				if q.Records == 0 {
					q.Why, q.When = r.What+": "+r.Why, r.When
				}
				q.Records++
				return nil
			})
			if err != nil {
				q.Kind, q.Why = "unknown", err.Error()
			}
		default:
			if note, err := s.fileNote(name); err == nil {
				q.Kind, q.Path, q.Why, q.When = "file", note.Path, note.Why, note.When
			} else if strings.HasSuffix(name, noteSuffix) {
				q.Why = "the note of a file that was not moved"
			}
		}
		all = append(all, q)
	}
	return all, nil
}

// fileNote reads the note of a file in quarantine.
func (s *Store) fileNote(name string) (*fileNote, error) {
	path := s.fs.PathJoin(s.opts.Dir, asideName, name+noteSuffix)
	file, err := openRegular(s.fs, path)
	if err != nil {
		return nil, wrapIO("read note", path, err)
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, 1<<20))
	if err != nil {
		return nil, wrapIO("read note", path, err)
	}
	return parseFileNote(path, text)
}

// parseFileNote reads the note of a file. A path that leads out of the folders for content is refused: the note is a file that
// anybody who can write to quarantine/ may have written.
func parseFileNote(name string, text []byte) (*fileNote, error) {
	var n fileNote
	if err := json.Unmarshal(text, &n); err != nil {
		return nil, &errs.Error{Kind: errs.Corrupt, Op: "read note", Name: name, Err: err}
	}
	first, _, _ := strings.Cut(filepath.ToSlash(n.Path), "/")
	if !filepath.IsLocal(n.Path) || filepath.Clean(n.Path) != n.Path || first != dataName && first != tmpName || first == n.Path {
		return nil, errs.New(errs.Corrupt, "read note", name, fmt.Sprintf("the path %q is not one below %s/ or %s/", n.Path, dataName, tmpName))
	}
	return &n, nil
}

// savedRecords calls f with each record of a file in quarantine.
func (s *Store) savedRecords(name string, f func(*savedRecord) error) error {
	path := s.fs.PathJoin(s.opts.Dir, asideName, name)
	file, err := openRegular(s.fs, path)
	if err != nil {
		return wrapIO("read records", path, err)
	}
	defer func() { _ = file.Close() }()
	return parseSavedRecords(path, file, f)
}

// parseSavedRecords calls f with each record of a file of records.
func parseSavedRecords(name string, in io.Reader, f func(*savedRecord) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxSavedLine)
	for n := 1; lines.Scan(); n++ {
		var r savedRecord
		err := json.Unmarshal(lines.Bytes(), &r)
		if err == nil && len(r.Key) == 0 {
			err = errors.New("it has no key")
		}
		if err != nil {
			return &errs.Error{Kind: errs.Corrupt, Op: "read records", Name: fmt.Sprintf("%s, line %d", name, n), Err: err}
		}
		if err := f(&r); err != nil {
			return err
		}
	}
	return wrapIO("read records", name, lines.Err())
}

// Restored is what Restore did.
type Restored struct {
	Path    string   // of a file: where it is now
	Records int      // put back
	Kept    []string // records that have changed since repair, and were left as they are
}

// RestoreQuarantined puts back what repair moved aside: a file to its place, unless another one is there, and records where nothing has
// changed them since. The store must be stopped.
func RestoreQuarantined(ctx context.Context, o Options, name string) (r Restored, err error) {
	const op = "restore"
	if name != filepath.Base(name) || name == "." || name == ".." || name == "" {
		return r, errs.New(errs.Invalid, op, name, "expected a name that store quarantine list shows")
	}
	s, err := openStopped(op, o, true)
	if err != nil {
		return r, err
	}
	defer s.abandon()
	path := s.fs.PathJoin(s.opts.Dir, asideName, name)
	if !s.exists(path) {
		return r, errs.New(errs.NotFound, op, name, "there is no such thing in "+asideName+"/").WithFix("run nebulaio store quarantine list")
	}
	if strings.HasPrefix(name, recordsPrefix) && strings.HasSuffix(name, recordsSuffix) {
		err = s.restoreRecords(ctx, name, &r)
		return r, err
	}
	note, err := s.fileNote(name)
	if err != nil {
		return r, err
	}
	to := s.fs.PathJoin(s.opts.Dir, note.Path)
	if s.exists(to) {
		return r, errs.New(errs.Invalid, op, name, to+" exists").WithFix("move that file away first")
	}
	if err := s.wouldStay(op, to); err != nil {
		return r, err
	}
	if err := s.fs.MkdirAll(s.fs.PathDir(to), 0o700); err != nil {
		return r, wrapIO(op, to, err)
	}
	if err := s.fs.Rename(path, to); err != nil {
		return r, wrapIO(op, path, err)
	}
	for _, d := range []string{s.fs.PathDir(to), s.fs.PathDir(path)} {
		if err := syncDir(s.fs, d); err != nil {
			return r, wrapIO(op, d, err)
		}
	}
	r.Path = to
	return r, wrapIO(op, name, s.fs.Remove(path+noteSuffix))
}

// wouldStay refuses to put a file into tmp/ that the next start would remove, because no record knows it.
func (s *Store) wouldStay(op, path string) error {
	if s.fs.PathBase(s.fs.PathDir(path)) != tmpName {
		return nil
	}
	id, err := datafile.ParseID(s.fs.PathBase(path))
	if err != nil {
		return nil // no data file: it is left alone there
	}
	known, err := has(s.db, fileKey(uint64(id)))
	if err != nil || known {
		return err
	}
	return errs.New(errs.Invalid, op, path, "no record knows this file, so the next start would remove it").WithFix("restore its records first")
}

// restoreRecords puts records back.
func (s *Store) restoreRecords(ctx context.Context, name string, r *Restored) error {
	const op = "restore"
	b := s.db.NewBatch()
	err := s.savedRecords(name, func(e *savedRecord) error {
		now, err := get(s.db, e.Key)
		if err != nil {
			return err
		}
		was := e.Value
		if !e.Absent && was == nil {
			was = []byte{} // JSON tells no empty value from none
		}
		switch {
		case bytes.Equal(now, was) && (now == nil) == e.Absent:
		case bytes.Equal(now, e.New) && (now == nil) == (e.New == nil):
			r.Records++
			if e.Absent {
				return b.Delete(e.Key, nil)
			}
			return b.Set(e.Key, was, nil)
		default:
			r.Kept = append(r.Kept, fmt.Sprintf("%q, of %s", e.Key, e.What))
		}
		return ctx.Err()
	})
	if err != nil {
		_ = b.Close()
		return err
	}
	if err := s.apply(op, name, b, nil); err != nil {
		return err
	}
	if len(r.Kept) > 0 {
		return nil
	}
	dir := s.fs.PathJoin(s.opts.Dir, asideName)
	if err := s.fs.Rename(s.fs.PathJoin(dir, name), s.fs.PathJoin(dir, name+restoredMark)); err != nil {
		return wrapIO(op, name, err)
	}
	return wrapIO(op, name, syncDir(s.fs, dir))
}
