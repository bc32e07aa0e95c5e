// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
)

// fault is a damaged record of the metadata about the store itself: its UUID, its epoch or its clean end. Open refuses
// such a store. Check gathers the faults in place of that, and repair writes the right value where one is known.
type fault struct {
	invariant string
	what      string
	err       error
	key       []byte // the damaged record; nil where no record is known to be the damaged one
	right     []byte // what the record should be; nil where nothing proves it
}

// refuse returns the error of a fault, unless the store is stopped and checked: then it notes the fault once.
func (s *Store) refuse(f fault) error {
	if !s.stopped {
		return f.err
	}
	for _, old := range s.faults {
		if old.what == f.what && bytes.Equal(old.key, f.key) {
			return nil
		}
	}
	s.faults = append(s.faults, f)
	return nil
}

// checkOwner compares the metadata with FORMAT, and finishes making a new store.
func (s *Store) checkOwner(format, readOnly bool) error {
	const op = "open store"
	dir := s.opts.Dir
	uuid, err := get(s.db, metaKey("uuid"))
	if err != nil {
		return err
	}
	epoch, err := get(s.db, metaKey("epoch"))
	if err != nil {
		return err
	}
	if format && string(uuid) != s.uuid {
		err := errs.New(errs.Corrupt, op, dir, fmt.Sprintf("%s says store %s, the metadata is of store %q", formatName, s.uuid, uuid))
		if uuid == nil && epoch == nil {
			return errs.New(errs.Corrupt, op, dir, "the metadata has lost its beginning: it does not say of which store it is").
				WithFix(saveFix + "; nothing was changed")
		}
		if !spoiltUUID(string(uuid), s.uuid) {
			return err.WithFix("put back the metadata that belongs to this store, or save what is here with nebulaio store salvage; nothing was changed")
		}
		err = err.WithFix("put back the metadata that belongs to this store; if it is here, run nebulaio store check --repair; nothing was changed")
		if err := s.refuse(fault{invariant: "record", what: "uuid of the metadata", err: err, key: metaKey("uuid"), right: []byte(s.uuid)}); err != nil {
			return err
		}
	}
	if !format && epoch != nil {
		return errs.New(errs.Corrupt, op, dir, fmt.Sprintf("%s is missing, the metadata is of store %q", formatName, uuid)).
			WithFix(formatFix)
	}
	if !format && !readOnly {
		if uuid == nil {
			uuid = []byte(newUUID())
			if err := s.db.Set(metaKey("uuid"), uuid, pebble.Sync); err != nil {
				return wrapIO(op, dir, err)
			}
		}
		s.uuid = string(uuid)
		if err := writeNote(s.fs, dir, formatName, formatNote(s.uuid, false)); err != nil {
			return err
		}
	}
	s.names = namesOf(s.uuid)
	if epoch == nil {
		return nil
	}
	if len(epoch) != 8 {
		s.epoch = 1
		if n, err := s.readEpoch(); err == nil && n != nil {
			s.epoch, _ = n.number("epoch")
		}
		return s.refuse(fault{invariant: "record", what: "epoch of the metadata", err: badRecord("epoch", epoch),
			key: metaKey("epoch"), right: binary.BigEndian.AppendUint64(nil, s.epoch)})
	}
	s.epoch = binary.BigEndian.Uint64(epoch)
	return nil
}

// uuidLength is the length of a UUID in text, and uuidAlike how many of its characters two random ones never share.
const (
	uuidLength = 36
	uuidAlike  = 24
)

// spoiltUUID reports whether a UUID in the metadata is a damaged form of the right one, and not that of another store.
// One that is well-formed is never replaced by one that is not.
func spoiltUUID(have, right string) bool {
	if !wellFormedUUID(have) {
		return true
	}
	alike := 0
	for i := range min(len(right), uuidLength) {
		if have[i] == right[i] {
			alike++
		}
	}
	return wellFormedUUID(right) && alike >= uuidAlike
}

// wellFormedUUID reports whether a text can be the UUID of a store.
func wellFormedUUID(text string) bool {
	if len(text) != uuidLength {
		return false
	}
	for i := range uuidLength {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		hex := text[i] >= '0' && text[i] <= '9' || text[i] >= 'a' && text[i] <= 'f'
		if dash != (text[i] == '-') || !dash && !hex {
			return false
		}
	}
	return true
}

// readEpoch reads EPOCH. The note is nil where there is none; an error means that the note cannot be used.
func (s *Store) readEpoch() (note, error) {
	path := s.fs.PathJoin(s.opts.Dir, epochName)
	n, err := readNote(s.fs, path)
	if err == nil && n != nil {
		if _, ok := n.number("epoch"); !ok {
			err = errs.New(errs.Corrupt, "open store", path, fmt.Sprintf("it has epoch %q, expected a number", n["epoch"]))
		}
	}
	if errs.Is(err, errs.Corrupt) {
		err = &errs.Error{Kind: errs.Corrupt, Op: "open store", Name: path, Msg: "the note is damaged", Err: err,
			Fix: "run nebulaio store check --repair, which writes it anew; nothing was changed"}
	}
	return n, err
}

// wasOpened reports whether the store was opened before. EPOCH knows it too: the record may be the one that is lost.
func (s *Store) wasOpened() (bool, error) {
	if s.epoch > 0 {
		return true, nil
	}
	n, err := s.readEpoch()
	if s.stopped && errs.Is(err, errs.Corrupt) {
		return true, nil
	}
	return n != nil, err
}

// checkAge refuses metadata that is older than what was done since.
func (s *Store) checkAge() error {
	const op = "open store"
	dir := s.opts.Dir
	older := func(msg string) error {
		return errs.New(errs.Corrupt, op, dir, "the metadata is older than the data: "+msg).
			WithFix("restore " + metaName + "/ and " + dataName + "/ from the same moment; nothing was changed")
	}
	n, err := s.readEpoch()
	if s.stopped && errs.Is(err, errs.Corrupt) {
		n, err = nil, nil // checkMeta has named it
	}
	if err != nil {
		return err
	}
	if n != nil {
		if n["uuid"] != s.uuid {
			return s.refuse(fault{invariant: "age", what: dir, err: errs.New(errs.Corrupt, op, dir,
				fmt.Sprintf("%s is of store %q, %s of store %s", epochName, n["uuid"], formatName, s.uuid)).
				WithFix("put back the file that belongs to this store; nothing was changed")})
		}
		if err := s.compareEpoch(n, older); err != nil {
			return err
		}
	}
	return s.checkFileIDs(older)
}

// compareEpoch compares the epoch and the clean end in the metadata with those in EPOCH.
func (s *Store) compareEpoch(n note, older func(string) error) error {
	// If the witness says that logs and manifest reach as far as they were durable, the metadata cannot be older.
	// Then the record is what is damaged, and EPOCH has the right value.
	right := func(v uint64) []byte {
		if !s.proven {
			return nil
		}
		return binary.BigEndian.AppendUint64(nil, v)
	}
	epoch, _ := n.number("epoch")
	if epoch > s.epoch {
		err := s.refuse(fault{invariant: "age", what: "epoch of the metadata", key: metaKey("epoch"), right: right(epoch),
			err: older(fmt.Sprintf("it was opened %d times, this is the state after %d", epoch, s.epoch))})
		if err != nil || !s.proven {
			return err
		}
		s.epoch = epoch
	}
	want, closed := n.number("closed")
	if !closed || epoch != s.epoch {
		return nil
	}
	have, err := get(s.db, metaKey("closed"))
	if err != nil || len(have) == 8 && binary.BigEndian.Uint64(have) == want {
		return err
	}
	return s.refuse(fault{invariant: "age", what: "clean end of the metadata", key: metaKey("closed"), right: right(want),
		err: older(fmt.Sprintf("it was closed at sequence %d, this state is from before", want))})
}

// checkFileIDs refuses metadata that does not know of files which exist.
func (s *Store) checkFileIDs(older func(string) error) error {
	mark, err := get(s.db, metaKey("files"))
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
		return s.refuse(fault{invariant: "age", what: s.opts.Dir,
			err: older(fmt.Sprintf("file %s exists, only those before %s were ever made", highest, datafile.ID(next)))})
	}
	return nil
}

// beginEpoch makes this opening durable before anything is changed: first in the metadata, then beside it.
func (s *Store) beginEpoch() error {
	const op = "open store"
	b := s.db.NewBatch()
	s.epoch++
	if err := b.Set(metaKey("epoch"), binary.BigEndian.AppendUint64(nil, s.epoch), nil); err != nil {
		return err
	}
	if err := b.Delete(metaKey("closed"), nil); err != nil {
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
	return s.writeEpoch("")
}

// writeEpoch replaces EPOCH; more is what it says beside the epoch.
func (s *Store) writeEpoch(more string) error {
	return writeNote(s.fs, s.opts.Dir, epochName, fmt.Sprintf("uuid %s\nepoch %d\nreach 1\n%s", s.uuid, s.epoch, more))
}

// declareWitness makes FORMAT say that the store has a witness, once that witness and EPOCH are durable. From then on the
// store does not open without one. A store of a version that kept no witness comes here at its first start.
func (s *Store) declareWitness() error {
	n, err := readNote(s.fs, s.fs.PathJoin(s.opts.Dir, formatName))
	if err != nil || n["witness"] != "" {
		return err
	}
	return writeNote(s.fs, s.opts.Dir, formatName, formatNote(s.uuid, true))
}

// note writes down, at a clean end, how far the metadata has come.
func (s *Store) note() error {
	if s.fence.failure() != nil || s.readOnly.Load() != nil {
		return nil // said by closeDB; nothing was changed
	}
	s.seqs.mu.Lock()
	next := s.seqs.next
	s.seqs.mu.Unlock()
	err := s.noteEnd(next)
	if noSpace(err) {
		return nil // the next Open then takes this end for a crash, which costs nothing
	}
	return err
}

// noteEnd writes a clean end into the metadata, then into EPOCH.
func (s *Store) noteEnd(next uint64) error {
	b := s.db.NewBatch()
	if err := b.Set(metaKey("epoch"), binary.BigEndian.AppendUint64(nil, s.epoch), nil); err != nil {
		return err
	}
	if err := b.Set(metaKey("closed"), binary.BigEndian.AppendUint64(nil, next), nil); err != nil {
		return err
	}
	if err := s.apply("close store", s.opts.Dir, b, nil); err != nil {
		return err
	}
	return s.writeEpoch(fmt.Sprintf("closed %d\n", next))
}

// namesOf makes and reads the identifiers of the store with this UUID.
func namesOf(uuid string) names {
	var secret uint64
	for _, c := range []byte(uuid) {
		secret = mix(secret + uint64(c))
	}
	return names{secret}
}
