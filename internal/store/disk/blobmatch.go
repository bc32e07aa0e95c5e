// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/nebulaio/nebulaio/internal/checksum"
)

// Without the manifest it is not known in which blob file a value lies. But a table refers to one and the same file by
// one number of its own, and each reference has a block, a place in it and a length. A file is the right one for a number
// if every value of that number is there in the right length, and at least one of them is proven to be the right value.
// Such a proof is the checksum of an object's content, the sequence of a version, or the owner of a file. Without a proof
// a value is lost: nothing is guessed.

// sumPrefix begins the keys of a salvage under which the checksums of small objects lie. No record begins with it.
const sumPrefix = 0

func sumKey(seq uint64) []byte { return numbered(sumPrefix, seq, 0) }

// blobGroup are all values of a table that lie in one blob file.
type blobGroup struct{ table, ref uint64 }

// blobProof is what is known of the file of a group.
type blobProof struct {
	fits   []*blobFile // all values are there in the right length
	proven []*blobFile // of these, those in which a value was proven
}

// blobMatch finds the blob files of values.
type blobMatch struct {
	ctx    context.Context
	view   *changes
	files  []*blobFile
	groups map[blobGroup]*blobProof
	held   []*blobFile // those with a block in memory
}

// matchRounds bounds how often the search begins again with what the last one found: records of versions in blob files
// have the checksums of content in others.
const matchRounds = 3

// run replaces references by values where they are proven, and by losses where they are not. It returns how many of each.
func (m *blobMatch) run() (found, lost int64, err error) {
	for range matchRounds {
		m.groups = map[blobGroup]*blobProof{}
		if err := m.each(m.weigh); err != nil {
			return found, lost, err
		}
		before := found
		if err := m.each(func(key, waits []byte, h *blobHandle) error {
			value := m.find(key, h)
			if value == nil {
				return nil
			}
			found++
			return m.view.settle(waits, key, changeSet, value)
		}); err != nil {
			return found, lost, err
		}
		if err := m.view.flush(); err != nil || found == before {
			break
		}
	}
	err = m.view.eachOpen(func(key, waits []byte, state changeState, v []byte) error {
		if state == changeBlob {
			lost++
			v = []byte(errUnnamed.Error() + ", and no blob file is proven to have it")
		}
		return m.view.settle(waits, key, changeLost, v)
	})
	if err == nil {
		err = m.view.flush()
	}
	return found, lost, err
}

// each calls f with every reference that has no value yet, and where the reference waits for one.
func (m *blobMatch) each(f func(key, waits []byte, h *blobHandle) error) error {
	return m.view.eachOpen(func(key, waits []byte, state changeState, v []byte) error {
		if state != changeBlob {
			return nil
		}
		t := take{b: v}
		h := &blobHandle{table: t.uint(), ref: t.uint(), block: t.uint(), id: t.uint(), size: t.uint()}
		if !t.done() {
			return nil
		}
		if err := m.ctx.Err(); err != nil {
			return err
		}
		return f(key, waits, h)
	})
}

// get reads a value, and bounds how many blocks are in memory.
func (m *blobMatch) get(f *blobFile, h *blobHandle) ([]byte, error) {
	if f.cached < 0 {
		if len(m.held) >= 64 {
			m.held[0].forget()
			m.held = m.held[1:]
		}
		m.held = append(m.held, f)
	}
	return f.value(h)
}

// weigh takes one reference as evidence for or against the files of its group.
func (m *blobMatch) weigh(key, _ []byte, h *blobHandle) error {
	g := blobGroup{h.table, h.ref}
	p := m.groups[g]
	if p == nil {
		p = &blobProof{fits: slices.Clone(m.files)}
		m.groups[g] = p
	}
	p.fits = slices.DeleteFunc(p.fits, func(f *blobFile) bool {
		v, err := m.get(f, h)
		if err != nil {
			return errors.Is(err, errNoValue) // a damaged block says nothing
		}
		switch m.proof(key, v) {
		case proofFor:
			if !slices.Contains(p.proven, f) {
				p.proven = append(p.proven, f)
			}
		case proofAgainst:
			return true
		}
		return false
	})
	p.proven = slices.DeleteFunc(p.proven, func(f *blobFile) bool { return !slices.Contains(p.fits, f) })
	return nil
}

// find returns the value of a reference, or nil where none is proven.
func (m *blobMatch) find(key []byte, h *blobHandle) []byte {
	p := m.groups[blobGroup{h.table, h.ref}]
	if p == nil {
		return nil
	}
	var value []byte
	for _, f := range p.proven {
		v, err := m.get(f, h)
		if err != nil {
			continue
		}
		if value != nil && !bytes.Equal(v, value) {
			return nil // two files are proven, and differ here
		}
		value = bytes.Clone(v)
	}
	return value
}

// proofKind is what a value says of the file that it is in.
type proofKind int

const (
	proofNone    proofKind = iota // it may be the right one or not
	proofFor                      // only the right value is like that
	proofAgainst                  // it is not the value of this key
)

// proof compares a value with what other records say of its key.
func (m *blobMatch) proof(key, value []byte) proofKind {
	switch key[0] {
	case kindData:
		seq, ok := exactNumber(key)
		want, err := get(m.view.db, sumKey(seq))
		if !ok || err != nil || len(want) != 16 {
			return proofNone
		}
		if binary.BigEndian.Uint64(want) != uint64(len(value)) || binary.BigEndian.Uint64(want[8:]) != checksum.Of(value) {
			return proofAgainst
		}
		return proofFor
	case kindVersion:
		_, seq, ok := splitVersionKey(key)
		if v, err := decodeVersion(value, false); ok && err == nil && v.seq == seq {
			return proofFor
		}
	case kindObject:
		id, ok := numberOf(key)
		v, err := decodeVersion(value, false)
		if !ok || err != nil || v.file == 0 {
			return proofNone
		}
		b, state := m.view.get(fileKey(v.file))
		if o, err := decodeOwner(b); state == changeSet && err == nil && *o == (owner{bucket: id, key: string(key[9:]), seq: v.seq, part: -1}) {
			return proofFor
		}
	}
	return proofNone
}

// matchBlobs settles all changes that wait for their value. It finds the values that lie in blob files which the manifest does not name.
func (v *salvage) matchBlobs(r *metaReader) error {
	if v.view.open == 0 {
		return nil
	}
	m := &blobMatch{ctx: v.ctx, view: v.view}
	var names []string
	if v.view.blobs > 0 {
		var err error
		if names, err = v.fs.List(r.dir); err != nil {
			return err
		}
	}
	slices.Sort(names)
	for _, name := range names {
		number, kind, ok := metaFileNumber(name)
		if !ok || kind != "blob" {
			continue
		}
		f, err := openBlob(v.fs, v.fs.PathJoin(r.dir, name), number)
		if err != nil {
			v.warn("%s cannot be read: %v", name, err)
			continue
		}
		m.files = append(m.files, f)
	}
	found, lost, err := m.run()
	if err != nil || found+lost == 0 {
		return err
	}
	text := fmt.Sprintf("the manifest does not say in which blob files %d values lie: %d were found by their checksums", found+lost, found)
	if lost > 0 {
		text += fmt.Sprintf(", %d are lost", lost)
	}
	v.warn("%s", text)
	return nil
}
