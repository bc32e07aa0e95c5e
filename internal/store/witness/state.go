// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/codec"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metafile"
)

// promise records how far a log or a manifest was durable.
type promise struct {
	log     bool // false: a manifest
	number  uint64
	bytes   int64
	records int64 // whole ones within these bytes
}

// State is one state of the witness, stored in one slot of its files: the durable lengths of logs and manifests.
type State struct {
	uuid     string
	count    uint64 // higher means newer
	manifest uint64 // the marker names this manifest, or a later one
	files    []promise
}

// encode returns a slot. If there are too many files, the oldest are left out, because Pebble does not use them any
// more.
func (s *State) encode() []byte {
	files := s.files
	if len(files) > reachMost {
		files = files[len(files)-reachMost:]
	}
	p := make(codec.Encoder, 4, reachSlot)
	p.Text(reachMagic)
	p.Text(s.uuid[:min(reachName, len(s.uuid))])
	p.Word(s.count)
	p.Word(s.manifest)
	p.Uint(uint64(len(files)))
	for _, f := range files {
		kind := byte('m')
		if f.log {
			kind = 'l'
		}
		p.Byte(kind)
		p.Word(f.number)
		p.Uint(uint64(f.bytes))
		p.Uint(uint64(f.records))
	}
	p = append(p, make([]byte, reachSlot-len(p))...)
	binary.BigEndian.PutUint32(p, metafile.Checksum(p[4:]))
	return p
}

// decodeReach decodes a slot; ok is false if the slot is empty or damaged.
func decodeReach(b []byte) (s State, ok bool) {
	if len(b) != reachSlot || binary.BigEndian.Uint32(b) != metafile.Checksum(b[4:]) {
		return s, false
	}
	t := codec.Decoder{Rest: b[4:]}
	if t.Text() != reachMagic {
		return s, false
	}
	s = State{uuid: t.Text(), count: t.Word(), manifest: t.Word()}
	for range t.Size(11) {
		s.files = append(s.files, promise{log: t.Byte() == 'l', number: t.Word(), bytes: int64(t.Uint()),
			records: int64(t.Uint())})
	}
	return s, !t.Bad && metafile.IsZero(t.Rest)
}

// Copies reports for each copy of the witness whether it contains a readable state.
type Copies [2]bool

// Count returns the number of copies of the witness that contain a readable state.
func (w Copies) Count() (n int) {
	for _, whole := range w {
		if whole {
			n++
		}
	}
	return n
}

// Read returns the newest state in the copies of the witness, and reports which copies contain one.
func Read(f vfs.FS, dir, uuid string) (newest State, whole Copies, err error) {
	uuid = uuid[:min(reachName, len(uuid))]
	for copy, name := range layout.WitnessNames {
		file, err := layout.OpenRegular(f, f.PathJoin(dir, name))
		if errors.Is(err, fs.ErrNotExist) || errs.Is(err, errs.Corrupt) { // a directory or a pipe in its place is damage
			continue
		}
		if err != nil {
			return newest, Copies{}, layout.WrapIO("open store", f.PathJoin(dir, name), err)
		}
		for i := range reachSlots {
			b := make([]byte, reachSlot)
			if _, err := file.ReadAt(b, int64(i)*reachGap); err != nil && !errors.Is(err, io.EOF) {
				continue // as good as damaged
			}
			if s, ok := decodeReach(b); ok && s.uuid == uuid {
				whole[copy] = true
				if s.count >= newest.count {
					newest = s
				}
			}
		}
		_ = file.Close()
	}
	return newest, whole, nil
}
