// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/quarantine"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// Subject is the stopped store that is checked. Whoever checks it holds its lock.
type Subject struct {
	FS    vfs.FS
	Dir   string
	DB    *pebble.DB
	Files *datafile.Files
	Join  *checksum.Joiner
	UUID  string
	Names record.Names
	// Faults are damaged records about the store itself, for which it would not open.
	Faults []Fault
	// Unproven says that the witness is gone: a record that acknowledged a file may be the one that is lost.
	Unproven bool
	Marks    []Mark
	Now      func() time.Time
	// Apply makes a change of the metadata durable.
	Apply func(op, name string, b *pebble.Batch) error
	// Scrub reads all content. It calls tell with the bytes read so far, and with each damage. bucket names a bucket.
	Scrub func(ctx context.Context, bucket func(id uint64) string, tell func(bytes int64, d *object.Damage)) error
}

// Mark is a record above all numbers of one kind that were given out.
type Mark struct {
	Key     []byte
	Reserve uint64 // how far above them it is kept
}

// Fault is a damaged record of the metadata about the store itself: its UUID, its epoch or its clean end. Open refuses
// such a store. Check gathers the faults in place of that, and repair writes the right value where one is known.
type Fault struct {
	Invariant string
	What      string
	Err       error
	Key       []byte // the damaged record; nil where no record is known to be the damaged one
	Right     []byte // what the record should be; nil where nothing proves it
}

// Run proves the invariants of a stopped store and adds what it finds to the report. With Repair it looks twice.
func (s *Subject) Run(ctx context.Context, c Options, report Report) (Report, error) {
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
	second.fix = &repairs{s: s, aside: quarantine.Folder{FS: s.FS, Dir: s.Dir}, batch: s.DB.NewBatch(), when: s.Now()}
	if err := second.run(); err != nil {
		return second.report, err
	}
	return second.report, second.fix.flush()
}
