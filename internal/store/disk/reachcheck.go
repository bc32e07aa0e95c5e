// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func metaLogName(n uint64) string      { return fmt.Sprintf("%06d.log", n) }
func metaManifestName(n uint64) string { return fmt.Sprintf("MANIFEST-%06d", n) }

// saveFix says what to do about damaged metadata that check has looked at.
const saveFix = "restore a backup with nebulaio store restore, or save what is readable with nebulaio store salvage"

// metaFix says what to do about damaged metadata.
const metaFix = "run nebulaio store check to see all damage; " + saveFix

// formatFix says what to do about a damaged FORMAT.
const formatFix = "restore " + formatName + " from a backup, or save the store with nebulaio store salvage; nothing was changed"

// shortFile is a log or a manifest that does not reach as far as it was durable.
type shortFile struct {
	name   string
	msg    string
	lost   int64 // records that Pebble would not see
	behind int64 // of these, those that can still be read behind the damage
}

func (s *shortFile) text() string {
	text := s.msg
	if s.lost > 0 {
		text += fmt.Sprintf("; %d changes are lost with it", s.lost)
	}
	if s.behind > 0 {
		text += fmt.Sprintf(", %d of them are readable behind the damage", s.behind)
	}
	return text
}

// testimony is what the witness of a store says of its metadata.
type testimony struct {
	short  []shortFile // files that do not reach as far as they were durable
	gone   bool        // the store had a witness, and neither copy can be read
	epoch  string      // what is wrong with EPOCH, which a store with a witness has; empty: nothing
	known  bool        // there is a witness: what it does not complain of is whole
	spoilt string      // the copy of the witness that is missing or damaged while the other is whole; empty: none
}

// manifestIsShort says whether the manifest is among the files that do not reach far enough.
func (t testimony) manifestIsShort() bool {
	for _, f := range t.short {
		if _, kind, _ := metaFileNumber(f.name); kind == "MANIFEST" {
			return true
		}
	}
	return false
}

// witnessed compares the logs and the manifest of the metadata with what the witness says of them, and changes nothing.
func (s *Store) witnessed() (t testimony, err error) {
	dir := s.opts.Dir
	format, err := readNote(s.fs, s.fs.PathJoin(dir, formatName))
	if err != nil || format == nil {
		return t, err
	}
	uuid, err := checkFormat(dir, format)
	if err != nil {
		return t, err
	}
	epoch, err := s.readEpoch()
	switch {
	case s.stopped && errs.Is(err, errs.Corrupt):
		t.epoch = err.Error()
	case err != nil:
		return t, err
	case epoch == nil && format["witness"] != "":
		t.epoch = "it is missing"
	case epoch != nil && epoch["reach"] == "":
		return t, nil // last written by a version that kept no witness
	}
	state, whole, err := readReach(s.fs, dir, uuid)
	copies := whole.count()
	if err == nil && copies == 0 {
		err = s.otherWitness(uuid, epoch)
	}
	if err != nil || copies == 0 {
		t.gone = (epoch != nil || t.epoch != "") && err == nil
		return t, err
	}
	if t.epoch != "" {
		s.background(errs.New(errs.Corrupt, "open store", s.fs.PathJoin(dir, epochName), t.epoch+"; it is written anew"))
	}
	if copies == 1 {
		bad, good := reachNames[0], reachNames[1]
		if whole[0] {
			bad, good = good, bad
		}
		if format["witness"] != "" { // before that, a kill may have come between the two
			t.spoilt = bad
		}
		s.background(errs.New(errs.Corrupt, "open store", dir, fmt.Sprintf("%s is missing or damaged; %s is whole and is used", bad, good)))
	}
	t.known = true
	t.short, err = s.compare(state)
	return t, err
}

// otherWitness refuses a FORMAT with a UUID that neither EPOCH nor the witness has. Then FORMAT is the one that is damaged
// or of another store. Repair would take the UUID of FORMAT for the right one, and change that of the metadata.
func (s *Store) otherWitness(uuid string, epoch note) error {
	other := epoch["uuid"]
	if other == "" || other == uuid {
		return nil
	}
	if _, whole, err := readReach(s.fs, s.opts.Dir, other); err != nil || whole.count() == 0 {
		return err
	}
	return errs.New(errs.Corrupt, "open store", s.opts.Dir,
		fmt.Sprintf("%s says store %s, %s and the witness are of store %s", formatName, uuid, epochName, other)).
		WithFix(formatFix)
}

// compare returns the files that do not reach as far as state says.
func (s *Store) compare(state reachState) ([]shortFile, error) {
	meta := s.fs.PathJoin(s.opts.Dir, metaName)
	desc, err := pebble.Peek(meta, s.fs)
	if err != nil {
		return nil, wrapIO("open store", meta, err)
	}
	name := metaManifestName(state.manifest) // where no marker names one, as a salvage may meet it
	if desc.Exists {
		name = s.fs.PathBase(desc.ManifestFilename)
	}
	number, _, _ := metaFileNumber(name)
	if number < state.manifest {
		return []shortFile{{name: name, msg: fmt.Sprintf("the marker names %s, %s was in use already", name, metaManifestName(state.manifest))}}, nil
	}
	file, err := openRegular(s.fs, s.fs.PathJoin(meta, name))
	if errors.Is(err, fs.ErrNotExist) {
		return []shortFile{{name: name, msg: "it is missing"}}, nil
	}
	if err != nil {
		return nil, wrapIO("open store", s.fs.PathJoin(meta, name), err)
	}
	m, scan, bad := readManifest(file)
	_ = file.Close()
	for _, p := range state.files {
		if !p.log && p.number == number && scan.Before < p.records {
			return []shortFile{{name: name, msg: fmt.Sprintf("it is readable up to byte %d, it was written up to byte %d", scan.Stopped, p.bytes)}}, nil
		}
	}
	if bad != nil {
		return nil, nil // Pebble says what it makes of it
	}
	var short []shortFile
	for _, p := range state.files {
		if !p.log || p.number < m.minLog {
			continue
		}
		found, err := s.compareLog(p)
		if err != nil {
			return nil, err
		}
		if found != nil {
			short = append(short, *found)
		}
	}
	return short, nil
}

// checkBlobs refuses metadata whose blob files are not all there: Pebble looks for its tables at the start, and for these
// only when a value is read.
func (s *Store) checkBlobs() error {
	meta := s.fs.PathJoin(s.opts.Dir, metaName)
	desc, err := pebble.Peek(meta, s.fs)
	if err != nil || !desc.Exists {
		return nil // Pebble says so
	}
	file, err := openRegular(s.fs, s.fs.PathJoin(meta, s.fs.PathBase(desc.ManifestFilename)))
	if err != nil {
		return nil
	}
	m, _, err := readManifest(file)
	_ = file.Close()
	if err != nil {
		return nil
	}
	for _, b := range m.blobs {
		path := s.fs.PathJoin(meta, fmt.Sprintf("%06d.blob", b.number))
		info, err := s.fs.Stat(path)
		msg := "it is missing"
		if err == nil {
			msg = fmt.Sprintf("it has %d bytes, %d were written", info.Size(), b.size)
		}
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() != int64(b.size) {
			return errs.New(errs.Corrupt, "open store", path, "the metadata is damaged: "+msg).WithFix(metaFix + "; nothing was changed")
		}
		if err == nil {
			if file, err := (blobFS{s.fs}).Open(path); err == nil {
				_ = file.Close()
			} else if errs.Is(err, errs.Corrupt) {
				return errs.Wrap("open store", s.opts.Dir, err)
			}
		}
	}
	return nil
}

// compareLog compares one log with its promise; nil means that it reaches as far.
func (s *Store) compareLog(p promise) (*shortFile, error) {
	name := metaLogName(p.number)
	path := s.fs.PathJoin(s.opts.Dir, metaName, name)
	file, err := openRegular(s.fs, path)
	if errors.Is(err, fs.ErrNotExist) {
		if p.records == 0 {
			return nil, nil
		}
		return &shortFile{name: name, msg: fmt.Sprintf("the log is missing, %d bytes of it were written", p.bytes), lost: p.records}, nil
	}
	if err != nil {
		return nil, wrapIO("open store", path, err)
	}
	defer func() { _ = file.Close() }()
	scan, err := scanChunks(file, true, p.number, nil)
	if err != nil {
		return nil, wrapIO("open store", path, err)
	}
	if scan.Before >= p.records {
		return nil, nil
	}
	return &shortFile{name: name, lost: p.records - scan.Before, behind: max(0, min(scan.Records, p.records)-scan.Before),
		msg: fmt.Sprintf("the log is readable up to byte %d, it was written up to byte %d", scan.Stopped, p.bytes)}, nil
}

// checkReach refuses a store whose metadata does not reach as far as it was durable. Pebble would take the damage for the
// end of the log, and what was acknowledged behind it would be gone without a word.
func (s *Store) checkReach() error {
	const op = "open store"
	t, err := s.witnessed()
	switch {
	case err != nil:
		return err
	case t.gone:
		return errs.New(errs.Corrupt, op, s.opts.Dir, fmt.Sprintf(
			"%s and %s are missing or damaged, so nothing proves that the log of the metadata is whole", reachNames[0], reachNames[1])).
			WithFix("run nebulaio store check, and with --repair to go on with what the log has; nothing was changed")
	case len(t.short) > 0:
		f := t.short[0]
		text := f.text()
		if more := len(t.short) - 1; more > 0 {
			text += fmt.Sprintf("; %d more files are damaged", more)
		}
		return errs.New(errs.Corrupt, op, s.fs.PathJoin(s.opts.Dir, metaName, f.name), "the metadata is damaged, or older than the data: "+text).
			WithFix(metaFix + "; nothing was changed")
	}
	return nil
}
