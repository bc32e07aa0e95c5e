// SPDX-License-Identifier: Apache-2.0

package metafile

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/store/codec"
)

// The tags of a version edit in Pebble's manifest.
const (
	editComparer     = 1
	editLogNumber    = 2
	editNextFile     = 3
	editLastSequence = 4
	editPointer      = 5
	editDeletedTable = 6
	editPrevLog      = 9
	editNewTable     = 103
	editNewTableKeys = 104 // with range keys
	editNewBlob      = 107
	editDeletedBlob  = 108

	customEnd    = 1
	customUnsafe = 1 << 6
	customBlobs  = 69
)

// Table is an SST file of Pebble that a manifest names.
type Table struct {
	Number   uint64
	level    uint64
	size     uint64
	Smallest []byte // user keys
	Largest  []byte
	Blobs    []uint64 // identifiers of the blob files with the table's values
	raw      []byte   // the entry as the manifest has it, from its tag on
}

// Blob is a blob file of Pebble that a manifest names.
type Blob struct {
	id     uint64
	Number uint64 // number of the blob file
	Size   uint64
	raw    []byte
}

// Manifest is the list of metadata files that results from the version edits in Pebble's manifest.
type Manifest struct {
	Comparer string
	MinLog   uint64 // changes in logs with this or a higher number are not in tables yet
	nextFile uint64
	lastSeq  uint64
	Tables   map[uint64]*Table
	Blobs    map[uint64]*Blob // by identifier
}

// NewManifest returns an empty Manifest, which is the state before the first edit.
func NewManifest() *Manifest {
	return &Manifest{Tables: map[uint64]*Table{}, Blobs: map[uint64]*Blob{}}
}

// ReadManifest reads the edits of a manifest up to the first edit that cannot be decoded, and returns the error of
// that edit.
func ReadManifest(r io.Reader) (*Manifest, Result, error) {
	m := NewManifest()
	var bad error
	scan, err := Scan(r, false, 0, func(record []byte) error {
		if bad == nil {
			bad = m.apply(record)
		}
		return nil
	})
	if err == nil {
		err = bad
	}
	return m, scan, err
}

// apply adds one version edit. An edit that cannot be decoded changes nothing.
func (m *Manifest) apply(edit []byte) error {
	all := append([]byte(nil), edit...) // entries keep parts of it
	d := &editReader{codec.Decoder{Rest: all}}
	var added []*Table
	var blobs []*Blob
	var gone, goneBlobs []uint64
	next := Manifest{Comparer: m.Comparer, MinLog: m.MinLog, nextFile: m.nextFile, lastSeq: m.lastSeq}
	for len(d.Rest) > 0 && !d.Bad {
		start := d.Rest
		switch tag := d.Uint(); tag {
		case editComparer:
			next.Comparer = d.Text()
		case editLogNumber:
			next.MinLog = d.Uint()
		case editNextFile:
			next.nextFile = d.Uint()
		case editLastSequence:
			next.lastSeq = d.Uint()
		case editPointer:
			d.Uint()
			d.Skip()
		case editPrevLog:
			d.Uint()
		case editDeletedTable:
			d.Uint()
			gone = append(gone, d.Uint())
		case editNewTable, editNewTableKeys:
			if t := d.table(tag); !d.Bad {
				t.raw = start[:len(start)-len(d.Rest)]
				added = append(added, t)
			}
		case editNewBlob:
			b := &Blob{id: d.Uint(), Number: d.Uint(), Size: d.Uint()}
			d.Uint()
			d.Uint()
			b.raw = start[:len(start)-len(d.Rest)]
			blobs = append(blobs, b)
		case editDeletedBlob:
			goneBlobs = append(goneBlobs, d.Uint())
			d.Uint()
		default:
			return fmt.Errorf("an edit has the unknown tag %d", tag)
		}
	}
	if d.Bad {
		return fmt.Errorf("an edit of %d bytes cannot be decoded", len(edit))
	}
	m.Comparer, m.MinLog, m.nextFile, m.lastSeq = next.Comparer, next.MinLog, next.nextFile, next.lastSeq
	for _, n := range gone {
		delete(m.Tables, n)
	}
	for _, id := range goneBlobs {
		delete(m.Blobs, id)
	}
	for _, t := range added {
		m.Tables[t.Number] = t
	}
	for _, b := range blobs {
		m.Blobs[b.id] = b
	}
	return nil
}

// editReader decodes the fields of a version edit.
type editReader struct{ codec.Decoder }

// table decodes a new table behind its tag.
func (d *editReader) table(tag uint64) *Table {
	t := &Table{level: d.Uint(), Number: d.Uint(), size: d.Uint()}
	points := true
	if tag == editNewTableKeys {
		points = d.Byte()&1 != 0
	}
	if points {
		t.Smallest, t.Largest = userKey(d.Text()), userKey(d.Text())
	}
	if tag == editNewTableKeys {
		d.Skip()
		d.Skip()
	}
	d.Uint() // the smallest and the largest sequence number
	d.Uint()
	for !d.Bad {
		switch custom := d.Uint(); {
		case custom == customEnd:
			return t
		case custom == customBlobs:
			d.Uint() // depth
			for range d.Size(2) {
				t.Blobs = append(t.Blobs, d.Uint())
				d.Uint()
			}
		case custom&customUnsafe != 0:
			d.Fail() // virtual tables and the like, which this store never has
		default:
			d.Skip()
		}
	}
	return t
}

// userKey cuts the trailer (sequence number and kind) off an internal key.
func userKey(k string) []byte { return []byte(k[:max(0, len(k)-8)]) }

// Shadow returns the text of a manifest that names only one table and its blob files, so that Pebble reads just this
// table.
func (m *Manifest) Shadow(t *Table) []byte {
	p := codec.Encoder{}
	p.Uint(editComparer)
	p.Text(m.Comparer)
	p.Uint(editLogNumber)
	p.Uint(max(1, m.MinLog))
	p.Uint(editNextFile)
	p.Uint(max(m.nextFile, t.Number+1))
	p.Uint(editLastSequence)
	p.Uint(max(m.lastSeq, 1<<40)) // whatever the table holds is visible
	seen := map[uint64]bool{}
	for _, id := range t.Blobs {
		if b := m.Blobs[id]; b != nil && !seen[id] {
			seen[id] = true
			p = append(p, b.raw...)
		}
	}
	return append(p, t.raw...)
}

// ParseName returns the number and the kind in the name of a metadata file: 000012.log, 000013.sst, 000014.blob or
// MANIFEST-000015. ParseName returns false for a name that is no metadata file's.
func ParseName(name string) (number uint64, kind string, ok bool) {
	for _, ext := range []string{"log", "sst", "blob"} {
		if n, found := cutSuffixNumber(name, "."+ext); found {
			return n, ext, true
		}
	}
	var n uint64
	if len(name) > len("MANIFEST-") && name[:len("MANIFEST-")] == "MANIFEST-" {
		if _, err := fmt.Sscanf(name[len("MANIFEST-"):], "%d", &n); err == nil {
			return n, "MANIFEST", true
		}
	}
	return 0, "", false
}

func cutSuffixNumber(name, suffix string) (uint64, bool) {
	if len(name) <= len(suffix) || name[len(name)-len(suffix):] != suffix {
		return 0, false
	}
	var n uint64
	for _, c := range []byte(name[:len(name)-len(suffix)]) {
		if c < '0' || c > '9' || n > 1<<58 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

// BatchHeader returns the sequence number and the number of changes of a batch in a log. BatchHeader returns false if
// the record is too short for the header of a batch.
func BatchHeader(record []byte) (seq uint64, n uint32, ok bool) {
	if len(record) < 12 {
		return 0, 0, false
	}
	return binary.LittleEndian.Uint64(record), binary.LittleEndian.Uint32(record[8:]), true
}
