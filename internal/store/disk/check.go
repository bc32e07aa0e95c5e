// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
)

// CheckOptions says what Check does beside looking.
type CheckOptions struct {
	// Repair puts right counts, indexes and marks that follow from the rest, and moves aside what nothing refers to. It
	// also puts right what keeps a store from opening: its identity, and damaged records of buckets. Repair deletes
	// nothing: files go to quarantine/, and records are written to a file there before they are changed. While anything
	// is wrong that repair cannot put right, nothing is moved aside: it might belong to that.
	Repair bool
	// Unreadable makes Repair move aside damaged records of objects, uploads and parts too, after which what belonged to
	// them can be moved aside. Records of a newer version always stay.
	Unreadable bool
	// Content reads all content and compares it with its checksums, as Scrub does.
	Content bool
	// Progress hears from time to time how many records and files were looked at; nil is allowed.
	Progress func(records, files int64)
	// Reading hears from time to time how many bytes of content were read, with Content; nil is allowed.
	Reading func(bytes int64)
}

// Problem is an invariant that does not hold.
type Problem struct {
	// Invariant is I1 to I8, see the package comment; "record", "metadata" or "witness" for what cannot be read; "age" or "content".
	Invariant string
	What      string // on what: an object, a file, a record
	Msg       string
	Repaired  bool
	Did       string // what repair did, or why it did nothing; empty without Repair
}

// CheckReport is what Check found.
type CheckReport struct {
	UUID     string
	Records  int64
	Versions int64
	Files    int64
	Bytes    int64
	Problems []Problem // at most MaxProblems; Found counts all
	Found    int64
	Repaired int64
	// Metadata are the files of the metadata. Where one of them is damaged, the invariants were not looked at.
	Metadata []MetaFile
	// Unfinished is work of a stopped store that the next Open does: files to be settled or removed. It is no problem.
	Unfinished int64
}

// MaxProblems bounds the problems that a report names.
const MaxProblems = 10000

// Check proves the invariants of a store that nobody has open; it takes the
// store's lock. It looks at every record and at the name and length of every
// file; it reads the content of files only with Content. Without Repair it changes nothing
// but the lock. An error means that it could not look; problems are in the report.
func Check(ctx context.Context, o Options, c CheckOptions) (report CheckReport, err error) {
	s, err := lockStopped("check store", o, c.Repair)
	if err != nil {
		return report, err
	}
	defer s.abandon()
	if damaged, err := s.checkMeta(ctx, c, &report); damaged || err != nil {
		return report, err
	}
	if err := s.openLocked(c.Repair); err != nil {
		return report, err
	}
	if c.Repair && s.epochLost {
		if err := s.writeEpoch(""); err != nil {
			return report, err
		}
	}
	k := newChecker(ctx, s, c)
	k.report = report
	// The first look changes nothing. It tells whether everything that owns something is whole: only then it is known what
	// belongs to nobody.
	k.o.Repair, k.o.Content = false, c.Content && !c.Repair
	if err := k.run(); err != nil || !c.Repair {
		return k.report, err
	}
	second := newChecker(ctx, s, c)
	second.report = report
	second.doubt = k.suspect
	second.fix = &repairs{s: s, batch: s.db.NewBatch(), when: o.now()}
	if err := second.run(); err != nil {
		return second.report, err
	}
	return second.report, second.fix.flush()
}

// clearNotes moves what is no file from the places of EPOCH and the witness to quarantine, so that they can be written anew.
func (s *Store) clearNotes(when time.Time) error {
	for _, name := range []string{epochName, reachNames[0], reachNames[1]} {
		path := s.fs.PathJoin(s.opts.Dir, name)
		info, err := s.fs.Stat(path)
		if err != nil || info.Mode().IsRegular() {
			continue
		}
		if _, err := s.setAside(path, "it is no file, and "+name+" has to be one", when); err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// lockStopped takes the lock of a store that nobody has open, and opens nothing of it yet.
func lockStopped(op string, o Options, change bool) (*Store, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	s := newStore(o)
	s.stopped = true
	if _, err := o.FS.Stat(o.Dir); err != nil {
		return nil, wrapIO(op, o.Dir, err)
	}
	readOnly, err := s.takeLock()
	if err != nil {
		return nil, err
	}
	if readOnly != nil && change {
		s.abandon()
		return nil, readOnly
	}
	format, err := readNote(o.FS, o.FS.PathJoin(o.Dir, formatName))
	if err == nil && format == nil {
		err = errs.New(errs.NotFound, op, o.Dir, "is not a store: it has no "+formatName)
	}
	if err != nil {
		s.abandon()
		return nil, err
	}
	if change {
		s.closeUp()
	}
	return s, nil
}

// openLocked opens a store that lockStopped locked, for reading unless change is set. What makes Open refuse a store is an
// error here too, except damaged records about the store itself: they are left in s.faults.
func (s *Store) openLocked(change bool) (err error) {
	if err := s.look(); err != nil {
		return err
	}
	if change {
		if err := s.clearNotes(s.opts.now()); err != nil {
			return err
		}
	}
	if err := s.openMeta(!change); err != nil {
		return err
	}
	if change {
		if err := s.fence.reach.start(s.opts.Dir, s.uuid); err != nil {
			return err
		}
	}
	s.fence.armed.Store(true)
	if s.files == nil {
		if s.files, err = datafile.Open(s.fileOptions(true)); err != nil {
			return err
		}
	}
	if change {
		return s.files.BeginWrites()
	}
	return nil
}

// openStopped is lockStopped and openLocked.
func openStopped(op string, o Options, change bool) (*Store, error) {
	s, err := lockStopped(op, o, change)
	if err != nil {
		return nil, err
	}
	if err := s.openLocked(change); err != nil {
		s.abandon()
		return nil, err
	}
	return s, nil
}
