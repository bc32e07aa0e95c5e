// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metafile"
)

// ShortFile is a log or a manifest of Pebble that has lost durable bytes: fewer bytes are readable than the witness
// recorded as durable.
type ShortFile struct {
	Name   string
	msg    string
	Lost   int64 // number of durable records that Pebble would not replay
	Behind int64 // number of lost records that are still readable behind the damage
}

// Text describes the damage: how far the file is readable, and how many changes are lost.
func (s *ShortFile) Text() string {
	text := s.msg
	if s.Lost > 0 {
		text += fmt.Sprintf("; %d changes are lost with it", s.Lost)
	}
	if s.Behind > 0 {
		text += fmt.Sprintf(", %d of them are readable behind the damage", s.Behind)
	}
	return text
}

// Testimony is the result of comparing the metadata of a store with its witness (the record of the metadata's durable
// lengths).
type Testimony struct {
	Short  []ShortFile // files that are shorter than the witness recorded
	Gone   bool        // the store had a witness, but no copy of it is readable
	Epoch  string      // what is wrong with the file EPOCH, which a store with a witness has; empty: nothing
	Known  bool        // there is a witness, so every log and manifest that is not in Short is complete
	Spoilt string      // the copy of the witness that is missing or damaged while the other is intact; empty: none
}

// ManifestIsShort reports whether the manifest is one of the files in Short.
func (t Testimony) ManifestIsShort() bool {
	for _, f := range t.Short {
		if _, kind, _ := metafile.ParseName(f.Name); kind == "MANIFEST" {
			return true
		}
	}
	return false
}

// Examiner compares the metadata of a store with its witness (the record of the metadata's durable lengths), and
// changes nothing.
type Examiner struct {
	FS   vfs.FS
	Dir  string      // directory of the store
	Tell func(error) // called with damage that needs no repair, such as one damaged copy of the witness
	// Stopped makes Examine report a damaged file EPOCH in Testimony.Epoch. If Stopped is not set, Examine fails if
	// EPOCH is damaged.
	Stopped bool
}

// Examine compares the logs and the manifest of the metadata with the witness.
func (e Examiner) Examine() (t Testimony, err error) {
	dir := e.Dir
	format, err := layout.ReadNote(e.FS, e.FS.PathJoin(dir, layout.FormatName))
	if err != nil || format == nil {
		return t, err
	}
	uuid, err := layout.CheckFormat(dir, format)
	if err != nil {
		return t, err
	}
	epoch, err := layout.ReadEpoch(e.FS, e.Dir)
	switch {
	case e.Stopped && errs.Is(err, errs.Corrupt):
		t.Epoch = err.Error()
	case err != nil:
		return t, err
	case epoch == nil && format["witness"] != "":
		t.Epoch = "it is missing"
	case epoch != nil && epoch["reach"] == "":
		return t, nil // last written by a version that kept no witness
	}
	state, whole, err := Read(e.FS, dir, uuid)
	copies := whole.Count()
	if err == nil && copies == 0 {
		err = e.otherWitness(uuid, epoch)
	}
	if err != nil || copies == 0 {
		t.Gone = (epoch != nil || t.Epoch != "") && err == nil
		return t, err
	}
	if t.Epoch != "" {
		e.Tell(errs.New(errs.Corrupt, "open store", e.FS.PathJoin(dir, layout.EpochName), t.Epoch+"; it is written anew"))
	}
	if copies == 1 {
		bad, good := layout.WitnessNames[0], layout.WitnessNames[1]
		if whole[0] {
			bad, good = good, bad
		}
		if format["witness"] != "" { // before that, a kill may have come between the two
			t.Spoilt = bad
		}
		e.Tell(errs.New(errs.Corrupt, "open store", dir,
			fmt.Sprintf("%s is missing or damaged; %s is whole and is used", bad, good)))
	}
	t.Known = true
	t.Short, err = e.Compare(state)
	return t, err
}

// otherWitness refuses a FORMAT with a UUID that neither EPOCH nor the witness has. FORMAT is then damaged or of
// another store. Repair would take the UUID of FORMAT for the right one, and change that of the metadata.
func (e Examiner) otherWitness(uuid string, epoch layout.Note) error {
	other := epoch["uuid"]
	if other == "" || other == uuid {
		return nil
	}
	if _, whole, err := Read(e.FS, e.Dir, other); err != nil || whole.Count() == 0 {
		return err
	}
	return errs.New(errs.Corrupt, "open store", e.Dir,
		fmt.Sprintf("%s says store %s, %s and the witness are of store %s", layout.FormatName, uuid, layout.EpochName,
			other)).
		WithFix(layout.FormatFix)
}

// Compare returns the logs and manifests that are shorter than their lengths in the given state of the witness.
func (e Examiner) Compare(state State) ([]ShortFile, error) {
	meta := e.FS.PathJoin(e.Dir, layout.MetaName)
	name, err := metafile.CurrentManifest(e.FS, meta)
	if err != nil {
		return nil, layout.WrapIO("open store", meta, err)
	}
	if name == "" {
		name = metafile.ManifestName(state.manifest) // no marker names one, as a salvage may meet it
	}
	number, _, _ := metafile.ParseName(name)
	if number < state.manifest {
		return []ShortFile{{Name: name, msg: fmt.Sprintf("the marker names %s, %s was in use already", name,
			metafile.ManifestName(state.manifest))}}, nil
	}
	file, err := layout.OpenRegular(e.FS, e.FS.PathJoin(meta, name))
	if errors.Is(err, fs.ErrNotExist) {
		return []ShortFile{{Name: name, msg: "it is missing"}}, nil
	}
	if err != nil {
		return nil, layout.WrapIO("open store", e.FS.PathJoin(meta, name), err)
	}
	m, scan, bad := metafile.ReadManifest(file)
	_ = file.Close()
	for _, p := range state.files {
		if !p.log && p.number == number && scan.Before < p.records {
			return []ShortFile{{Name: name, msg: fmt.Sprintf("it is readable up to byte %d, it was written up to byte %d",
				scan.Stopped, p.bytes)}}, nil
		}
	}
	if bad != nil {
		return nil, nil // Pebble says what it makes of it
	}
	var short []ShortFile
	for _, p := range state.files {
		if !p.log || p.number < m.MinLog {
			continue
		}
		found, err := e.compareLog(p)
		if err != nil {
			return nil, err
		}
		if found != nil {
			short = append(short, *found)
		}
	}
	return short, nil
}

// compareLog compares one log with its promise; nil means that the log is long enough.
func (e Examiner) compareLog(p promise) (*ShortFile, error) {
	name := metafile.LogName(p.number)
	path := e.FS.PathJoin(e.Dir, layout.MetaName, name)
	file, err := layout.OpenRegular(e.FS, path)
	if errors.Is(err, fs.ErrNotExist) {
		if p.records == 0 {
			return nil, nil
		}
		return &ShortFile{Name: name, msg: fmt.Sprintf("the log is missing, %d bytes of it were written", p.bytes),
			Lost: p.records}, nil
	}
	if err != nil {
		return nil, layout.WrapIO("open store", path, err)
	}
	defer func() { _ = file.Close() }()
	scan, err := metafile.Scan(file, true, p.number, nil)
	if err != nil {
		return nil, layout.WrapIO("open store", path, err)
	}
	if scan.Before >= p.records {
		return nil, nil
	}
	return &ShortFile{Name: name, Lost: p.records - scan.Before, Behind: max(0, min(scan.Records, p.records)-scan.Before),
		msg: fmt.Sprintf("the log is readable up to byte %d, it was written up to byte %d", scan.Stopped, p.bytes)}, nil
}

// Check refuses a store if a log or a manifest of its metadata is shorter than the witness recorded. Without Check,
// Pebble would take the damage for the end of the log, and acknowledged changes behind the damage would be lost
// silently.
func (e Examiner) Check() error {
	const op = "open store"
	t, err := e.Examine()
	switch {
	case err != nil:
		return err
	case t.Gone:
		return errs.New(errs.Corrupt, op, e.Dir, fmt.Sprintf(
			"%s and %s are missing or damaged, so nothing proves that the log of the metadata is whole", layout.WitnessNames[0],
			layout.WitnessNames[1])).
			WithFix("run nebulaio store check, and with --repair to go on with what the log has; nothing was changed")
	case len(t.Short) > 0:
		f := t.Short[0]
		text := f.Text()
		if more := len(t.Short) - 1; more > 0 {
			text += fmt.Sprintf("; %d more files are damaged", more)
		}
		return errs.New(errs.Corrupt, op, e.FS.PathJoin(e.Dir, layout.MetaName, f.Name),
			"the metadata is damaged, or older than the data: "+text).
			WithFix(layout.MetaFix + "; nothing was changed")
	}
	return nil
}
