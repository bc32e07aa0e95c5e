// SPDX-License-Identifier: Apache-2.0

package metascan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/metafile"
	"github.com/nebulaio/nebulaio/internal/store/witness"
)

// File describes one metadata file and how much of it is readable.
type File struct {
	Name    string // name of the file in meta/
	Changes int64  // readable changes in the file
	Lost    int64  // changes known to be lost; changes in unreadable ranges cannot be counted
	Damage  string // what is damaged; empty: the file is intact
}

// shownGaps limits the unreadable ranges that are reported for one file.
const shownGaps = 20

// Damage describes one unreadable place in a metadata file.
type Damage struct {
	Name string // name of the file in meta/
	Msg  string
}

// Survey reads every metadata file, even if other files are damaged, and collects the damage.
type Survey struct {
	Ctx    context.Context
	Files  []File
	Damage []Damage
	Told   func()            // called after each metadata file; may be nil
	Each   func(Entry) error // called with each readable change; may be nil
	Gaps   func([]Gap)       // called with the unreadable ranges of keys; may be nil
	Later  bool              // a value in an unknown blob file does not count as lost, because the caller searches for it
}

// Run reads all metadata files. The parameter known means that there is a witness (a record of the durable lengths), so
// that a log is complete if it is not in the list called short.
func (k *Survey) Run(r *Reader, short []witness.ShortFile, known bool) error {
	k.manifest(r, short)
	if err := k.logs(r, short, known); err != nil {
		return err
	}
	return k.tables(r)
}

// keep passes a change on to Each.
func (k *Survey) keep(e Entry) error {
	if k.Each == nil {
		return nil
	}
	return k.Each(e)
}

// note adds a file to the report.
func (k *Survey) note(f File) {
	k.Files = append(k.Files, f)
	if f.Damage != "" {
		k.problem(f.Name, f.Damage)
	}
	if k.Told != nil {
		k.Told()
	}
}

func (k *Survey) problem(name, msg string) {
	k.Damage = append(k.Damage, Damage{name, msg})
}

func (k *Survey) manifest(r *Reader, short []witness.ShortFile) {
	f := File{Name: "MANIFEST", Changes: int64(len(r.tables))}
	for _, s := range short {
		if _, kind, _ := metafile.ParseName(s.Name); kind == "MANIFEST" {
			f.Name, f.Damage = s.Name, s.Text()
		}
	}
	if f.Damage == "" && r.Damage != nil {
		f.Damage = r.Damage.Error()
	}
	if f.Damage == "" && r.unnamed != nil {
		f.Damage = r.unnamed.Error()
	}
	k.note(f)
}

func (k *Survey) logs(r *Reader, short []witness.ShortFile, known bool) error {
	for _, s := range short {
		if n, kind, _ := metafile.ParseName(s.Name); kind == "log" && !slices.Contains(r.logs, n) {
			k.note(File{Name: s.Name, Lost: s.Lost, Damage: s.Text()})
		}
	}
	for _, n := range r.logs {
		f := File{Name: metafile.LogName(n)}
		scan, err := r.log(k.Ctx, n, func(e Entry) error { f.Changes++; return k.keep(e) })
		if err := k.Ctx.Err(); err != nil {
			return err
		}
		switch {
		case err != nil:
			f.Damage = err.Error()
		case len(scan.Damaged) > 0 && !known: // else what lies behind the promise was never acknowledged
			f.Damage = fmt.Sprintf("%d places of the log cannot be read, the first from byte %d to %d", len(scan.Damaged),
				scan.Damaged[0].From, scan.Damaged[0].To)
		}
		for _, s := range short {
			if s.Name == f.Name {
				f.Lost, f.Damage = s.Lost, s.Text()
			}
		}
		k.note(f)
	}
	return nil
}

// tables reads each table with its values in blob files, and reports everything unreadable.
func (k *Survey) tables(r *Reader) error {
	k.blobs(r)
	for _, t := range r.tables {
		f := File{Name: fmt.Sprintf("%06d.sst", t.Number)}
		var lost string
		gaps, err := r.table(k.Ctx, t, func(e Entry) error {
			if e.Lost != nil && (e.Blob == nil || !k.Later) {
				f.Lost++
				lost = fmt.Sprintf("%q: %v", e.Key, e.Lost)
				return k.keep(e)
			}
			f.Changes++
			return k.keep(e)
		})
		if err != nil {
			return err
		}
		var index error
		if len(gaps) == 1 && gaps[0].empty {
			index, gaps = gaps[0].err, nil
		}
		if k.Gaps != nil {
			k.Gaps(gaps)
		}
		switch {
		case index != nil:
			f.Damage = fmt.Sprintf("its index cannot be read, and all keys can: %v", index)
		case len(gaps) == 1 && errors.Is(gaps[0].err, fs.ErrNotExist):
			f.Damage = fmt.Sprintf("the table is missing; it held the keys from %q to %q", t.Smallest, t.Largest)
			gaps = nil
		case len(gaps) > 0:
			f.Damage = fmt.Sprintf("%d ranges of keys cannot be read: %v", len(gaps), gaps[0].err)
		case f.Lost > 0:
			f.Damage = fmt.Sprintf("%d values cannot be read, the last of %s", f.Lost, lost)
		}
		k.note(f)
		for i, g := range gaps {
			if i == shownGaps {
				break
			}
			k.problem(f.Name, fmt.Sprintf("keys between %s and %s cannot be read", keyEnd(g.From, "the beginning"),
				keyEnd(g.To, "the end")))
		}
	}
	return nil
}

// blobs reports blob files that are missing, too short or damaged at their end. Tables with values in such a file are
// intact.
func (k *Survey) blobs(r *Reader) {
	for _, id := range slices.Sorted(maps.Keys(r.manifest.Blobs)) {
		b := r.manifest.Blobs[id]
		f := File{Name: fmt.Sprintf("%06d.blob", b.Number)}
		file, err := layout.OpenRegular(r.fs, r.fs.PathJoin(r.Dir, f.Name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			f.Damage = "it is missing"
		case err != nil:
			f.Damage = err.Error()
		default:
			if err := metadb.CheckBlob(file, f.Name, b.Number); err != nil {
				f.Damage = errs.MessageOf(err)
			}
			if info, err := file.Stat(); err == nil && info.Size() != int64(b.Size) {
				f.Damage = fmt.Sprintf("it has %d bytes, %d were written", info.Size(), b.Size)
			}
			_ = file.Close() // it was read only
		}
		if f.Damage != "" {
			k.note(f)
		}
	}
}

func keyEnd(key []byte, open string) string {
	if key == nil {
		return open
	}
	return fmt.Sprintf("%q", key)
}
