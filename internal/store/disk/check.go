// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/quarantine"
)

// Check verifies the invariants of a stopped store, and holds the store's lock meanwhile. Check reads every record, and
// the name and length of every file. Check reads the content of files only if Content is set. If Repair is not set,
// Check writes only to the files LOCK and OWNER. If Check returns an error, the store could not be checked; the
// problems that Check found are in the report.
func Check(ctx context.Context, o Options, c check.Options) (report check.Report, err error) {
	s, err := lockStopped("check store", o, c.Repair)
	if err != nil {
		return report, err
	}
	defer s.abandon()
	state, err := check.ReadMetadata(ctx, s.examiner(), c, &report)
	s.proven, s.unproven, s.epochLost = state.Proven, state.Unproven, state.EpochLost
	if state.Damaged || err != nil {
		return report, err
	}
	if err := s.openLocked(c.Repair); err != nil {
		return report, err
	}
	if c.Repair && s.epochLost {
		if err := layout.WriteEpoch(s.fs, s.opts.Dir, s.uuid, layout.Epoch{Number: s.epoch}); err != nil {
			return report, err
		}
	}
	return s.subject().Run(ctx, c, report)
}

// subject returns the stopped store as package check needs it.
func (s *Store) subject() *check.Subject {
	return &check.Subject{
		FS: s.fs, Dir: s.opts.Dir, DB: s.db, Files: s.files, Join: s.join, UUID: s.uuid, Names: s.names,
		Faults: s.faults, Unproven: s.unproven, Now: s.opts.now,
		Marks: []check.Mark{{Key: s.fileIDs.key, Reserve: fileReserve}, {Key: s.seqs.key, Reserve: sequenceReserve},
			{Key: s.bucketIDs.key, Reserve: bucketReserve}},
		Apply: func(op, name string, b *pebble.Batch) error { return s.apply(op, name, b, nil) },
		Scrub: func(ctx context.Context, bucket func(uint64) string, tell func(int64, *object.Damage)) error {
			sc := &scrubber{s: s, ctx: ctx, still: true, bucketName: bucket}
			sc.o.Progress = func(r ScrubReport, d *object.Damage) { tell(r.Bytes, d) }
			return sc.run()
		},
	}
}

// clearNotes moves anything that is no regular file from the names of EPOCH and the witness to quarantine, so that
// these files can be written again.
func (s *Store) clearNotes(when time.Time) error {
	for _, name := range []string{layout.EpochName, layout.WitnessNames[0], layout.WitnessNames[1]} {
		path := s.fs.PathJoin(s.opts.Dir, name)
		info, err := s.fs.Stat(path)
		if err != nil || info.Mode().IsRegular() {
			continue
		}
		if _, err := (quarantine.Folder{FS: s.fs, Dir: s.opts.Dir}).SetAside(path, "it is no file, and "+name+
			" has to be one", when); err != nil {
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

// lockStopped takes the lock of a stopped store, and opens nothing yet.
func lockStopped(op string, o Options, change bool) (*Store, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	s := newStore(o)
	s.stopped = true
	if _, err := o.FS.Stat(o.Dir); err != nil {
		return nil, layout.WrapIO(op, o.Dir, err)
	}
	readOnly, err := s.takeLock()
	if err != nil {
		return nil, err
	}
	if readOnly != nil && change {
		s.abandon()
		return nil, readOnly
	}
	format, err := layout.ReadNote(o.FS, o.FS.PathJoin(o.Dir, layout.FormatName))
	if err == nil && format == nil {
		err = errs.New(errs.NotFound, op, o.Dir, "is not a store: it has no "+layout.FormatName)
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

// openLocked opens a store that lockStopped locked, for reading unless change is set. It fails as Open does, except
// for damaged records about the store itself: they are left in s.faults.
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
		if err := s.fence.Witness.Start(s.opts.Dir, s.uuid); err != nil {
			return err
		}
	}
	s.fence.Arm()
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

// openStopped calls lockStopped and openLocked.
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

// Quarantine lists the files and records that repairs moved to quarantine/. Quarantine takes no lock and changes
// nothing.
func Quarantine(ctx context.Context, o Options) ([]quarantine.Entry, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	return quarantine.Folder{FS: o.FS, Dir: o.Dir}.List(ctx)
}

// RestoreQuarantined moves one entry of quarantine/ back into the store. A quarantined file returns to its old path,
// unless another file is there. Quarantined records are restored if nothing has changed them since the repair. The
// store must be stopped while RestoreQuarantined runs.
func RestoreQuarantined(ctx context.Context, o Options, name string) (r quarantine.Restored, err error) {
	const op = "restore"
	if err := quarantine.CheckName(op, name); err != nil {
		return r, err
	}
	s, err := openStopped(op, o, true)
	if err != nil {
		return r, err
	}
	defer s.abandon()
	apply := func(op, name string, b *pebble.Batch) error { return s.apply(op, name, b, nil) }
	return quarantine.Folder{FS: s.fs, Dir: s.opts.Dir}.PutBack(ctx, quarantine.Metadata{DB: s.db, Apply: apply}, name)
}
