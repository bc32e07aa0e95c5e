// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/fence"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// refuse returns the error of a fault. For a check of a stopped store it records the fault once instead.
func (s *Store) refuse(f check.Fault) error {
	if !s.stopped {
		return f.Err
	}
	for _, old := range s.faults {
		if old.What == f.What && bytes.Equal(old.Key, f.Key) {
			return nil
		}
	}
	s.faults = append(s.faults, f)
	return nil
}

// checkOwner compares the metadata with FORMAT, and finishes the creation of a new store.
func (s *Store) checkOwner(format, readOnly bool) error {
	const op = "open store"
	dir := s.opts.Dir
	uuid, err := metadb.Get(s.db, record.MetaKey("uuid"))
	if err != nil {
		return err
	}
	epoch, err := metadb.Get(s.db, record.MetaKey("epoch"))
	if err != nil {
		return err
	}
	if format && string(uuid) != s.uuid {
		err := errs.New(errs.Corrupt, op, dir, fmt.Sprintf("%s says store %s, the metadata is of store %q", layout.FormatName,
			s.uuid, uuid))
		if uuid == nil && epoch == nil {
			return errs.New(errs.Corrupt, op, dir, "the metadata has lost its beginning: it does not say of which store it is").
				WithFix(layout.SaveFix + "; nothing was changed")
		}
		if !layout.IsSpoiltUUID(string(uuid), s.uuid) {
			return err.WithFix("put back the metadata that belongs to this store, or save what is here with nebulaio store " +
				"salvage; nothing was changed")
		}
		err = err.WithFix("put back the metadata that belongs to this store; if it is here, run nebulaio store check " +
			"--repair; nothing was changed")
		if err := s.refuse(check.Fault{Invariant: "record", What: "uuid of the metadata", Err: err,
			Key: record.MetaKey("uuid"), Right: []byte(s.uuid)}); err != nil {
			return err
		}
	}
	if !format && epoch != nil {
		return errs.New(errs.Corrupt, op, dir, fmt.Sprintf("%s is missing, the metadata is of store %q", layout.FormatName,
			uuid)).
			WithFix(layout.FormatFix)
	}
	if !format && !readOnly {
		if uuid == nil {
			uuid = []byte(layout.NewUUID())
			if err := s.db.Set(record.MetaKey("uuid"), uuid, pebble.Sync); err != nil {
				return layout.WrapIO(op, dir, err)
			}
		}
		s.uuid = string(uuid)
		if err := layout.WriteNote(s.fs, dir, layout.FormatName, layout.FormatNote(s.uuid, false)); err != nil {
			return err
		}
	}
	s.names = record.NamesOf(s.uuid)
	if epoch == nil {
		return nil
	}
	if len(epoch) != 8 {
		s.epoch = 1
		if n, err := layout.ReadEpoch(s.fs, s.opts.Dir); err == nil && n != nil {
			s.epoch, _ = n.Number("epoch")
		}
		return s.refuse(check.Fault{Invariant: "record", What: "epoch of the metadata",
			Err: record.Unreadable("epoch", epoch),
			Key: record.MetaKey("epoch"), Right: binary.BigEndian.AppendUint64(nil, s.epoch)})
	}
	s.epoch = binary.BigEndian.Uint64(epoch)
	return nil
}

// wasOpened reports whether the store was opened before. It also reads EPOCH, because the record may be lost.
func (s *Store) wasOpened() (bool, error) {
	if s.epoch > 0 {
		return true, nil
	}
	n, err := layout.ReadEpoch(s.fs, s.opts.Dir)
	if s.stopped && errs.Is(err, errs.Corrupt) {
		return true, nil
	}
	return n != nil, err
}

// checkAge refuses metadata that is older than the data.
func (s *Store) checkAge() error {
	const op = "open store"
	dir := s.opts.Dir
	older := func(msg string) error {
		return errs.New(errs.Corrupt, op, dir, "the metadata is older than the data: "+msg).
			WithFix("restore " + layout.MetaName + "/ and " + layout.DataName + "/ from the same moment; nothing was changed")
	}
	n, err := layout.ReadEpoch(s.fs, s.opts.Dir)
	if s.stopped && errs.Is(err, errs.Corrupt) {
		n, err = nil, nil // ReadMetadata has named it
	}
	if err != nil {
		return err
	}
	if n != nil {
		if n["uuid"] != s.uuid {
			return s.refuse(check.Fault{Invariant: "age", What: dir, Err: errs.New(errs.Corrupt, op, dir,
				fmt.Sprintf("%s is of store %q, %s of store %s", layout.EpochName, n["uuid"], layout.FormatName, s.uuid)).
				WithFix("put back the file that belongs to this store; nothing was changed")})
		}
		if err := s.compareEpoch(n, older); err != nil {
			return err
		}
	}
	return s.checkFileIDs(older)
}

// compareEpoch compares the epoch and the clean close in the metadata with those in EPOCH.
func (s *Store) compareEpoch(n layout.Note, older func(string) error) error {
	// If the witness proves that logs and manifest are complete, the metadata cannot be older. Then the record is
	// damaged, and EPOCH has the right value.
	right := func(v uint64) []byte {
		if !s.proven {
			return nil
		}
		return binary.BigEndian.AppendUint64(nil, v)
	}
	epoch, _ := n.Number("epoch")
	if epoch > s.epoch {
		err := s.refuse(check.Fault{Invariant: "age", What: "epoch of the metadata", Key: record.MetaKey("epoch"),
			Right: right(epoch),
			Err:   older(fmt.Sprintf("it was opened %d times, this is the state after %d", epoch, s.epoch))})
		if err != nil || !s.proven {
			return err
		}
		s.epoch = epoch
	}
	want, closed := n.Number("closed")
	if !closed || epoch != s.epoch {
		return nil
	}
	have, err := metadb.Get(s.db, record.MetaKey("closed"))
	if err != nil || len(have) == 8 && binary.BigEndian.Uint64(have) == want {
		return err
	}
	return s.refuse(check.Fault{Invariant: "age", What: "clean end of the metadata", Key: record.MetaKey("closed"),
		Right: right(want),
		Err:   older(fmt.Sprintf("it was closed at sequence %d, this state is from before", want))})
}

// checkFileIDs refuses metadata that does not know existing files.
func (s *Store) checkFileIDs(older func(string) error) error {
	mark, err := metadb.Get(s.db, record.MetaKey("files"))
	if err != nil {
		return err
	}
	var next uint64 = 1
	if len(mark) == 8 {
		next = binary.BigEndian.Uint64(mark)
	}
	highest, found, err := s.files.MaxID()
	if err != nil {
		return err
	}
	if found && uint64(highest) >= next {
		return s.refuse(check.Fault{Invariant: "age", What: s.opts.Dir,
			Err: older(fmt.Sprintf("file %s exists, only those before %s were ever made", highest, datafile.ID(next)))})
	}
	return nil
}

// beginEpoch records this opening durably before anything is changed: first in the metadata, then in EPOCH.
func (s *Store) beginEpoch() error {
	const op = "open store"
	b := s.db.NewBatch()
	s.epoch++
	if err := b.Set(record.MetaKey("epoch"), binary.BigEndian.AppendUint64(nil, s.epoch), nil); err != nil {
		return err
	}
	if err := b.Delete(record.MetaKey("closed"), nil); err != nil {
		return err
	}
	for _, n := range []*numbers{&s.fileIDs, &s.seqs, &s.bucketIDs} {
		if err := n.begin(s.db, b); err != nil {
			return err
		}
		if err := s.raise(n, b); err != nil {
			return err
		}
	}
	if err := s.apply(op, s.opts.Dir, b, nil); err != nil {
		return err
	}
	return layout.WriteEpoch(s.fs, s.opts.Dir, s.uuid, layout.Epoch{Number: s.epoch})
}

// declareWitness records in FORMAT that the store has a witness, after the witness and EPOCH are durable. From then
// on the store does not open without a witness. A store of an older version without a witness gets it at its first
// start. A store of an older format gets the newest one, so that an older program refuses it by name instead of reading
// records that it does not know.
func (s *Store) declareWitness() error {
	n, err := layout.ReadNote(s.fs, s.fs.PathJoin(s.opts.Dir, layout.FormatName))
	if v, _ := n.Number("format"); err != nil || n["witness"] != "" && v == layout.FormatVersion {
		return err
	}
	return layout.WriteNote(s.fs, s.opts.Dir, layout.FormatName, layout.FormatNote(s.uuid, true))
}

// note records a clean close, with the state of the metadata.
func (s *Store) note() error {
	if s.fence.Failure() != nil || s.readOnly.Load() != nil {
		return nil // said by closeDB; nothing was changed
	}
	s.seqs.mu.Lock()
	next := s.seqs.next
	s.seqs.mu.Unlock()
	err := s.fence.NoteEnd(s.db, fence.CleanEnd{Dir: s.opts.Dir, UUID: s.uuid, Epoch: s.epoch, Next: next})
	if layout.IsNoSpace(err) {
		return nil // the next Open then takes this end for a crash, which costs nothing
	}
	return err
}
