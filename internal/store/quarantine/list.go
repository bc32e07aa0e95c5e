// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// Entry is a file, or a set of records, that a repair moved to quarantine/.
type Entry struct {
	Name     string    // name of the entry in quarantine/
	Kind     string    // "file", "records", or "unknown" for an entry without a descriptive note
	Path     string    // old path of a file, relative to the store's directory
	Records  int       // number of records in an entry of kind "records"
	Why      string    // reason of the repair; for several records, the reason for the first record
	When     time.Time // time of the repair; zero if it is unknown
	Restored bool      // the records of this entry were already put back
}

// List lists the entries of quarantine/. List takes no lock and changes nothing.
func (q Folder) List(ctx context.Context) ([]Entry, error) {
	dir := q.FS.PathJoin(q.Dir, layout.QuarantineName)
	names, err := q.FS.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, layout.WrapIO("list quarantine", dir, err)
	}
	slices.Sort(names)
	var all []Entry
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, errs.Wrap("list quarantine", dir, err)
		}
		if of, ok := strings.CutSuffix(name, noteSuffix); ok && slices.Contains(names, of) {
			continue // the note of a file
		}
		all = append(all, q.describe(name))
	}
	return all, nil
}

// describe describes one entry of the directory.
func (q Folder) describe(name string) Entry {
	e := Entry{Name: name, Kind: "unknown"}
	bare := strings.TrimSuffix(name, restoredMark)
	if strings.HasPrefix(name, recordsPrefix) && strings.HasSuffix(bare, recordsSuffix) {
		e.Kind, e.Restored = "records", bare != name
		err := q.savedRecords(name, func(r *SavedRecord) error {
			if e.Records == 0 {
				e.Why, e.When = r.What+": "+r.Why, r.When
			}
			e.Records++
			return nil
		})
		if err != nil {
			e.Kind, e.Why = "unknown", err.Error()
		}
		return e
	}
	if n, err := q.fileNote(name); err == nil {
		e.Kind, e.Path, e.Why, e.When = "file", n.Path, n.Why, n.When
	} else if strings.HasSuffix(name, noteSuffix) {
		e.Why = "the note of a file that was not moved"
	}
	return e
}

// fileNote reads the note of a file in quarantine.
func (q Folder) fileNote(name string) (*fileNote, error) {
	path := q.FS.PathJoin(q.Dir, layout.QuarantineName, name+noteSuffix)
	file, err := layout.OpenRegular(q.FS, path)
	if err != nil {
		return nil, layout.WrapIO("read note", path, err)
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, 1<<20))
	if err != nil {
		return nil, layout.WrapIO("read note", path, err)
	}
	return parseFileNote(path, text)
}

// parseFileNote parses the note of a file. A path outside of the folders for content is refused, because anybody who
// can write to quarantine/ may have written the note.
func parseFileNote(name string, text []byte) (*fileNote, error) {
	var n fileNote
	if err := json.Unmarshal(text, &n); err != nil {
		return nil, &errs.Error{Kind: errs.Corrupt, Op: "read note", Name: name, Err: err}
	}
	first, _, _ := strings.Cut(filepath.ToSlash(n.Path), "/")
	if !filepath.IsLocal(n.Path) || filepath.Clean(n.Path) != n.Path || first != layout.DataName &&
		first != layout.TmpName || first == n.Path {
		return nil, errs.New(errs.Corrupt, "read note", name,
			fmt.Sprintf("the path %q is not one below %s/ or %s/", n.Path, layout.DataName, layout.TmpName))
	}
	return &n, nil
}

// savedRecords calls f with each record of a file in quarantine.
func (q Folder) savedRecords(name string, f func(*SavedRecord) error) error {
	path := q.FS.PathJoin(q.Dir, layout.QuarantineName, name)
	file, err := layout.OpenRegular(q.FS, path)
	if err != nil {
		return layout.WrapIO("read records", path, err)
	}
	defer func() { _ = file.Close() }()
	return parseSavedRecords(path, file, f)
}

// parseSavedRecords calls f with each record of a file of records.
func parseSavedRecords(name string, in io.Reader, f func(*SavedRecord) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxSavedLine)
	for n := 1; lines.Scan(); n++ {
		var r SavedRecord
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
	return layout.WrapIO("read records", name, lines.Err())
}
