// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/quarantine"
)

// mend is the repair of one problem.
type mend struct {
	// sure means that the repair takes something away, so it is allowed only if every possible owner is intact.
	sure bool
	do   func(r *repairs, what, why string) (outcome, error)
}

// outcome is the result of a mend.
type outcome struct {
	text string
	done bool
}

// aside moves a record without an owner to quarantine.
func aside(key []byte) *mend {
	m := change(key, nil)
	m.sure = true
	return m
}

// change replaces a record that follows from others, or moves it to quarantine if value is nil. The old value goes to
// quarantine.
func change(key, value []byte) *mend {
	did := "put right, and what was there is in " + layout.QuarantineName + "/"
	if value == nil {
		did = "the record was moved to " + layout.QuarantineName + "/"
	}
	return &mend{do: changeTo(key, value, did)}
}

// changeTo replaces a record as change does; did is the text that the report shows.
func changeTo(key, value []byte, did string) func(r *repairs, what, why string) (outcome, error) {
	key = bytes.Clone(key)
	return func(r *repairs, what, why string) (outcome, error) {
		return outcome{did, true}, r.change(key, value, what, why)
	}
}

// replace is change with sure set, because another record may be the right one.
func replace(key, value []byte) *mend {
	m := change(key, value)
	m.sure = true
	return m
}

// repairs collects changes of records. The old values are durable in quarantine before any change is made.
type repairs struct {
	s     *Subject
	aside quarantine.Folder
	batch *pebble.Batch
	saved []quarantine.SavedRecord
	size  int
	when  time.Time
}

// Limits of the changes that are collected before they are made durable.
const (
	repairRecords = 4096
	repairBytes   = 8 << 20
)

// change adds one change of a record; a nil value deletes the record.
func (r *repairs) change(key, value []byte, what, why string) error {
	old, err := metadb.Get(r.s.DB, key)
	e := quarantine.SavedRecord{Key: key, Value: old, Absent: old == nil && err == nil, New: value, What: what, Why: why,
		When: r.when}
	if err != nil {
		e.Why += "; what was there cannot be read: " + err.Error()
	}
	r.saved = append(r.saved, e)
	if value == nil {
		err = r.batch.Delete(key, nil)
	} else {
		err = r.batch.Set(key, value, nil)
	}
	if err != nil {
		return err
	}
	r.size += len(key) + len(old) + len(value)
	if len(r.saved) >= repairRecords || r.size >= repairBytes {
		return r.flush()
	}
	return nil
}

// flush writes the old values to quarantine durably, and then makes the changes.
func (r *repairs) flush() error {
	if len(r.saved) == 0 {
		return nil
	}
	if err := r.aside.SaveRecords(r.saved, r.when); err != nil {
		return err
	}
	b := r.batch
	r.saved, r.size, r.batch = nil, 0, r.s.DB.NewBatch()
	return r.s.Apply("repair store", r.s.Dir, b)
}

// move moves a file, or a directory that is not the store's, to quarantine. sure is as in mend.
func move(path string, sure bool) *mend {
	return &mend{sure: sure, do: func(r *repairs, what, why string) (outcome, error) {
		to, err := r.aside.SetAside(path, why, r.when)
		if err != nil {
			return outcome{text: "could not be moved aside: " + err.Error()}, nil
		}
		return outcome{"moved to " + to, true}, nil
	}}
}
