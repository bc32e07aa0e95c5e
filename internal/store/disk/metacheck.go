// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// MetaFile is one file of the metadata, and how much of it can be read.
type MetaFile struct {
	Name    string // within meta/
	Changes int64  // that it holds and that can be read
	Lost    int64  // changes that are known to be lost; those in unreadable ranges cannot be counted
	Damage  string // empty: it is whole
}

// shownGaps bounds the ranges that are named of one file.
const shownGaps = 20

// checkMeta reads every file of the metadata, whatever the others are like, and notes what is damaged. It returns whether
// anything is: then what the records say of each other proves nothing, and nothing may be repaired by it.
func (s *Store) checkMeta(ctx context.Context, c CheckOptions, report *CheckReport) (damaged bool, err error) {
	meta := s.fs.PathJoin(s.opts.Dir, metaName)
	if exists, err := s.metaExists(meta); !exists && err == nil {
		return false, nil // look says what is missing
	}
	k := &metaChecker{s: s, ctx: ctx, o: c, report: report}
	t, err := s.witnessed()
	if err != nil {
		return false, err
	}
	r, err := openMetaReader(s.fs, meta, t.manifestIsShort())
	if err != nil {
		return false, err
	}
	k.manifest(r, t.short)
	if err := k.logs(r, t); err != nil {
		return false, errs.Wrap("check store", s.opts.Dir, err)
	}
	if err := k.tables(r); err != nil {
		return false, errs.Wrap("check store", s.opts.Dir, err)
	}
	s.proven = t.known && k.found == 0
	if t.epoch != "" {
		s.epochLost = true
		p := Problem{Invariant: "witness", What: epochName, Msg: t.epoch, Repaired: c.Repair && k.found == 0}
		report.Found++
		if p.Repaired {
			p.Did = "written anew"
			report.Repaired++
		}
		report.Problems = append(report.Problems, p)
	}
	if t.spoilt != "" {
		p := Problem{Invariant: "witness", What: t.spoilt, Msg: "this copy of the witness is missing or damaged; the other is whole",
			Repaired: c.Repair && k.found == 0}
		report.Found++
		if p.Repaired {
			p.Did = "written anew"
			report.Repaired++
		}
		report.Problems = append(report.Problems, p)
	}
	if t.gone {
		p := Problem{Invariant: "witness", What: reachNames[0] + " and " + reachNames[1], Repaired: c.Repair && k.found == 0,
			Msg: "both are missing or damaged, so nothing proves that the newest log of the metadata is whole"}
		report.Found++
		if p.Repaired {
			report.Repaired++
			s.unproven = true
		}
		report.Problems = append(report.Problems, p)
	}
	return k.found > 0 || t.gone && !c.Repair, nil
}

type metaChecker struct {
	s      *Store
	ctx    context.Context
	o      CheckOptions
	report *CheckReport
	found  int
	each   func(metaEntry) error // where given, gets all changes that can be read
	gaps   func([]metaGap)       // where given, gets the ranges of keys that cannot
	later  bool                  // values whose blob file is not known are looked for later, and not lost yet
}

// keep hands a change on.
func (k *metaChecker) keep(e metaEntry) error {
	if k.each == nil {
		return nil
	}
	return k.each(e)
}

// note adds a file to the report.
func (k *metaChecker) note(f MetaFile) {
	k.report.Metadata = append(k.report.Metadata, f)
	if f.Damage != "" {
		k.problem(f.Name, f.Damage)
	}
	if k.o.Progress != nil {
		k.o.Progress(k.report.Records, k.report.Files)
	}
}

func (k *metaChecker) problem(name, msg string) {
	k.found++
	k.report.Found++
	if len(k.report.Problems) < MaxProblems {
		k.report.Problems = append(k.report.Problems, Problem{Invariant: "metadata", What: metaName + "/" + name, Msg: msg})
	}
}

func (k *metaChecker) manifest(r *metaReader, short []shortFile) {
	f := MetaFile{Name: "MANIFEST", Changes: int64(len(r.tables))}
	for _, s := range short {
		if _, kind, _ := metaFileNumber(s.name); kind == "MANIFEST" {
			f.Name, f.Damage = s.name, s.text()
		}
	}
	if f.Damage == "" && r.damage != nil {
		f.Damage = r.damage.Error()
	}
	if f.Damage == "" && r.unnamed != nil {
		f.Damage = r.unnamed.Error()
	}
	k.note(f)
}

func (k *metaChecker) logs(r *metaReader, t testimony) error {
	for _, s := range t.short {
		if n, kind, _ := metaFileNumber(s.name); kind == "log" && !slices.Contains(r.logs, n) {
			k.note(MetaFile{Name: s.name, Lost: s.lost, Damage: s.text()})
		}
	}
	for _, n := range r.logs {
		f := MetaFile{Name: metaLogName(n)}
		scan, err := r.log(k.ctx, n, func(e metaEntry) error { f.Changes++; return k.keep(e) })
		if err := k.ctx.Err(); err != nil {
			return err
		}
		switch {
		case err != nil:
			f.Damage = err.Error()
		case len(scan.Damaged) > 0 && !t.known: // else what lies behind the promise was never acknowledged
			f.Damage = fmt.Sprintf("%d places of the log cannot be read, the first from byte %d to %d", len(scan.Damaged), scan.Damaged[0].From, scan.Damaged[0].To)
		}
		for _, s := range t.short {
			if s.name == f.Name {
				f.Lost, f.Damage = s.lost, s.text()
			}
		}
		k.note(f)
	}
	return nil
}

// tables reads each table with the values that lie in blob files, and names what cannot be read.
func (k *metaChecker) tables(r *metaReader) error {
	k.blobs(r)
	for _, t := range r.tables {
		f := MetaFile{Name: fmt.Sprintf("%06d.sst", t.number)}
		var lost string
		gaps, err := r.table(k.ctx, t, func(e metaEntry) error {
			if e.lost != nil && (e.blob == nil || !k.later) {
				f.Lost++
				lost = fmt.Sprintf("%q: %v", e.key, e.lost)
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
		if k.gaps != nil {
			k.gaps(gaps)
		}
		switch {
		case index != nil:
			f.Damage = fmt.Sprintf("its index cannot be read, and all keys can: %v", index)
		case len(gaps) == 1 && errors.Is(gaps[0].err, fs.ErrNotExist):
			f.Damage = fmt.Sprintf("the table is missing; it held the keys from %q to %q", t.smallest, t.largest)
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
			k.problem(f.Name, fmt.Sprintf("keys between %s and %s cannot be read", keyEnd(g.from, "the beginning"), keyEnd(g.to, "the end")))
		}
	}
	return nil
}

// blobs names the blob files that are missing, too short or damaged at their end. A table whose values lie there is whole.
func (k *metaChecker) blobs(r *metaReader) {
	for _, id := range slices.Sorted(maps.Keys(r.manifest.blobs)) {
		b := r.manifest.blobs[id]
		f := MetaFile{Name: fmt.Sprintf("%06d.blob", b.number)}
		file, err := openRegular(r.fs, r.fs.PathJoin(r.dir, f.Name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			f.Damage = "it is missing"
		case err != nil:
			f.Damage = err.Error()
		default:
			if err := checkBlob(file, f.Name, b.number); err != nil {
				f.Damage = errs.MessageOf(err)
			}
			if info, err := file.Stat(); err == nil && info.Size() != int64(b.size) {
				f.Damage = fmt.Sprintf("it has %d bytes, %d were written", info.Size(), b.size)
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
