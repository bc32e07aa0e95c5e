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

// Subject is the stopped store that is checked. The caller holds the store's lock during the check.
type Subject struct {
	FS    vfs.FS
	Dir   string
	DB    *pebble.DB
	Files *datafile.Files
	Join  *checksum.Joiner
	UUID  string
	Names record.Names
	// Faults are the damaged records about the store itself; a store with a fault does not open.
	Faults []Fault
	// Unproven means that the witness (the files that record how far the metadata is durable) is lost. Without the
	// witness, the newest records may be lost unnoticed, including records that own data files.
	Unproven bool
	Marks    []Mark
	Now      func() time.Time
	// Apply commits a batch of metadata changes durably.
	Apply func(op, name string, b *pebble.Batch) error
	// Scrub reads all content. Scrub calls the function tell with the number of bytes read so far, and with each damage
	// found. The argument bucket is a function that returns the name of the bucket with the number id.
	Scrub func(ctx context.Context, bucket func(id uint64) string, tell func(bytes int64, d *object.Damage)) error
}

// Mark is a record that holds a number above all assigned numbers of one kind: data files, sequences or buckets.
type Mark struct {
	Key     []byte
	Reserve uint64 // how far the mark is above the highest assigned number
}

// Fault is a damaged record about the store itself: its UUID, its epoch (how often it was opened) or its last clean
// close. Open refuses a store with a Fault. A check collects all faults, and repair writes the right value if it is
// known.
type Fault struct {
	Invariant string
	What      string
	Err       error
	Key       []byte // key of the damaged record; nil if it is unknown which record is damaged
	Right     []byte // the right value of the damaged record; nil if it is unknown
}

// Run verifies the invariants of a stopped store and adds the problems to the report. If Repair is set, Run walks over
// the store twice: first to find damage that it cannot repair, then to make the changes.
func (s *Subject) Run(ctx context.Context, c Options, report Report) (Report, error) {
	k := newChecker(ctx, s, c)
	k.report = report
	// The first pass changes nothing. It finds out whether every possible owner is intact: only then it is known
	// which files and records have no owner.
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
