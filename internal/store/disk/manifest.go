// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"encoding/binary"
	"fmt"
	"io"
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

// metaTable is a table that a manifest names.
type metaTable struct {
	number   uint64
	level    uint64
	size     uint64
	smallest []byte // user keys
	largest  []byte
	blobs    []uint64 // identifiers of the blob files its values lie in
	raw      []byte   // the entry as the manifest has it, from its tag on
}

// metaBlob is a blob file that a manifest names.
type metaBlob struct {
	id     uint64
	number uint64 // of the file
	size   uint64
	raw    []byte
}

// manifest is the state that a chain of version edits leads to: which files the metadata consists of.
type manifest struct {
	comparer string
	minLog   uint64 // logs from here on are not in tables yet
	nextFile uint64
	lastSeq  uint64
	tables   map[uint64]*metaTable
	blobs    map[uint64]*metaBlob // by identifier
}

func newManifest() *manifest {
	return &manifest{tables: map[uint64]*metaTable{}, blobs: map[uint64]*metaBlob{}}
}

// readManifest reads the records of a manifest as far as they can be decoded; the first that cannot is the error.
func readManifest(r io.Reader) (*manifest, chunkScan, error) {
	m := newManifest()
	var bad error
	scan, err := scanChunks(r, false, 0, func(record []byte) error {
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
func (m *manifest) apply(edit []byte) error {
	all := append([]byte(nil), edit...) // entries keep parts of it
	d := &editReader{take{b: all}}
	var added []*metaTable
	var blobs []*metaBlob
	var gone, goneBlobs []uint64
	next := manifest{comparer: m.comparer, minLog: m.minLog, nextFile: m.nextFile, lastSeq: m.lastSeq}
	for len(d.b) > 0 && !d.bad {
		start := d.b
		switch tag := d.uint(); tag {
		case editComparer:
			next.comparer = d.text()
		case editLogNumber:
			next.minLog = d.uint()
		case editNextFile:
			next.nextFile = d.uint()
		case editLastSequence:
			next.lastSeq = d.uint()
		case editPointer:
			d.uint()
			d.skip()
		case editPrevLog:
			d.uint()
		case editDeletedTable:
			d.uint()
			gone = append(gone, d.uint())
		case editNewTable, editNewTableKeys:
			if t := d.table(tag); !d.bad {
				t.raw = start[:len(start)-len(d.b)]
				added = append(added, t)
			}
		case editNewBlob:
			b := &metaBlob{id: d.uint(), number: d.uint(), size: d.uint()}
			d.uint()
			d.uint()
			b.raw = start[:len(start)-len(d.b)]
			blobs = append(blobs, b)
		case editDeletedBlob:
			goneBlobs = append(goneBlobs, d.uint())
			d.uint()
		default:
			return fmt.Errorf("an edit has the unknown tag %d", tag)
		}
	}
	if d.bad {
		return fmt.Errorf("an edit of %d bytes cannot be decoded", len(edit))
	}
	m.comparer, m.minLog, m.nextFile, m.lastSeq = next.comparer, next.minLog, next.nextFile, next.lastSeq
	for _, n := range gone {
		delete(m.tables, n)
	}
	for _, id := range goneBlobs {
		delete(m.blobs, id)
	}
	for _, t := range added {
		m.tables[t.number] = t
	}
	for _, b := range blobs {
		m.blobs[b.id] = b
	}
	return nil
}

// editReader decodes the fields of a version edit.
type editReader struct{ take }

// table decodes a new table behind its tag.
func (d *editReader) table(tag uint64) *metaTable {
	t := &metaTable{level: d.uint(), number: d.uint(), size: d.uint()}
	points := true
	if tag == editNewTableKeys {
		points = d.byte()&1 != 0
	}
	if points {
		t.smallest, t.largest = userKey(d.text()), userKey(d.text())
	}
	if tag == editNewTableKeys {
		d.skip()
		d.skip()
	}
	d.uint() // the smallest and the largest sequence number
	d.uint()
	for !d.bad {
		switch custom := d.uint(); {
		case custom == customEnd:
			return t
		case custom == customBlobs:
			d.uint() // depth
			for range d.size(2) {
				t.blobs = append(t.blobs, d.uint())
				d.uint()
			}
		case custom&customUnsafe != 0:
			d.fail() // virtual tables and the like, which this store never has
		default:
			d.skip()
		}
	}
	return t
}

// userKey cuts the trailer (sequence number and kind) off an internal key.
func userKey(k string) []byte { return []byte(k[:max(0, len(k)-8)]) }

// shadow is the text of a manifest that names one table and its blob files alone, so that Pebble reads just that table.
func (m *manifest) shadow(t *metaTable) []byte {
	p := put{}
	p.uint(editComparer)
	p.text(m.comparer)
	p.uint(editLogNumber)
	p.uint(max(1, m.minLog))
	p.uint(editNextFile)
	p.uint(max(m.nextFile, t.number+1))
	p.uint(editLastSequence)
	p.uint(max(m.lastSeq, 1<<40)) // whatever the table holds is visible
	seen := map[uint64]bool{}
	for _, id := range t.blobs {
		if b := m.blobs[id]; b != nil && !seen[id] {
			seen[id] = true
			p = append(p, b.raw...)
		}
	}
	return append(p, t.raw...)
}

// metaFileNumber is the number in the name of a file of the metadata: 000012.log, 000013.sst, 000014.blob, MANIFEST-000015.
func metaFileNumber(name string) (number uint64, kind string, ok bool) {
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

// batchHeader is the sequence number and the number of changes of a batch in a log.
func batchHeader(record []byte) (seq uint64, n uint32, ok bool) {
	if len(record) < 12 {
		return 0, 0, false
	}
	return binary.LittleEndian.Uint64(record), binary.LittleEndian.Uint32(record[8:]), true
}
