// SPDX-License-Identifier: Apache-2.0

package salvage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/store/codec"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/metafile"
	"github.com/nebulaio/nebulaio/internal/store/metascan"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// Without the manifest it is unknown which blob file contains a value. But a table refers to one file always by the
// same number of its own, and each reference has a block, a place in it and a length. A file is the right one for a
// number if every value of that number exists in it with the right length, and at least one of them is proven to be
// the right value. A proof is the checksum of an object's content, the sequence of a version, or the owner of a file.
// Without a proof a value is lost: nothing is guessed.

// sumPrefix is the first byte of the keys of a salvage that hold the checksums of small objects. No record begins
// with it.
const sumPrefix = 0

func sumKey(seq uint64) []byte { return record.Numbered(sumPrefix, seq, 0) }

// blobGroup identifies all values of a table that lie in one blob file.
type blobGroup struct{ table, ref uint64 }

// blobProof is the evidence for the file of a group.
type blobProof struct {
	fits   []*metascan.BlobFile // all values are there in the right length
	proven []*metascan.BlobFile // of these, those in which a value was proven
}

// blobMatch finds the blob files of values.
type blobMatch struct {
	ctx    context.Context
	view   *changes
	files  []*metascan.BlobFile
	groups map[blobGroup]*blobProof
	held   []*metascan.BlobFile // those with a block in memory
}

// matchRounds limits how often the search is repeated with the results of the last one: records of versions in blob
// files contain the checksums of content in others.
const matchRounds = 3

// run replaces references by values if they are proven, and by losses if not. It returns the number of each.
func (m *blobMatch) run() (found, lost int64, err error) {
	for range matchRounds {
		m.groups = map[blobGroup]*blobProof{}
		if err := m.each(m.weigh); err != nil {
			return found, lost, err
		}
		before := found
		if err := m.each(func(key, waits []byte, h *metascan.BlobHandle) error {
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
			v = []byte(metascan.ErrUnnamed.Error() + ", and no blob file is proven to have it")
		}
		return m.view.settle(waits, key, changeLost, v)
	})
	if err == nil {
		err = m.view.flush()
	}
	return found, lost, err
}

// each calls f with every reference without a value, and with its openKey.
func (m *blobMatch) each(f func(key, waits []byte, h *metascan.BlobHandle) error) error {
	return m.view.eachOpen(func(key, waits []byte, state changeState, v []byte) error {
		if state != changeBlob {
			return nil
		}
		t := codec.Decoder{Rest: v}
		h := &metascan.BlobHandle{Table: t.Uint(), Ref: t.Uint(), Block: t.Uint(), ID: t.Uint(), Size: t.Uint()}
		if !t.Done() {
			return nil
		}
		if err := m.ctx.Err(); err != nil {
			return err
		}
		return f(key, waits, h)
	})
}

// get reads a value, and limits how many blocks are in memory.
func (m *blobMatch) get(f *metascan.BlobFile, h *metascan.BlobHandle) ([]byte, error) {
	if f.Cached < 0 {
		if len(m.held) >= 64 {
			m.held[0].Forget()
			m.held = m.held[1:]
		}
		m.held = append(m.held, f)
	}
	return f.Value(h)
}

// weigh uses one reference as evidence for or against the files of its group.
func (m *blobMatch) weigh(key, _ []byte, h *metascan.BlobHandle) error {
	g := blobGroup{h.Table, h.Ref}
	p := m.groups[g]
	if p == nil {
		p = &blobProof{fits: slices.Clone(m.files)}
		m.groups[g] = p
	}
	p.fits = slices.DeleteFunc(p.fits, func(f *metascan.BlobFile) bool {
		v, err := m.get(f, h)
		if err != nil {
			return errors.Is(err, metascan.ErrNoValue) // a damaged block says nothing
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
	p.proven = slices.DeleteFunc(p.proven, func(f *metascan.BlobFile) bool { return !slices.Contains(p.fits, f) })
	return nil
}

// find returns the value of a reference, or nil if none is proven.
func (m *blobMatch) find(key []byte, h *metascan.BlobHandle) []byte {
	p := m.groups[blobGroup{h.Table, h.Ref}]
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

// proofKind is what a value proves about its file.
type proofKind int

const (
	proofNone    proofKind = iota // it may be the right one or not
	proofFor                      // only the right value is like that
	proofAgainst                  // it is not the value of this key
)

// proof compares a value with other records of its key.
func (m *blobMatch) proof(key, value []byte) proofKind {
	switch key[0] {
	case record.KindData:
		seq, ok := record.ExactNumber(key)
		want, err := metadb.Get(m.view.db, sumKey(seq))
		if !ok || err != nil || len(want) != 16 {
			return proofNone
		}
		if binary.BigEndian.Uint64(want) != uint64(len(value)) || binary.BigEndian.Uint64(want[8:]) != checksum.Of(value) {
			return proofAgainst
		}
		return proofFor
	case record.KindVersion:
		_, seq, ok := record.SplitVersionKey(key)
		if v, err := record.DecodeVersion(value, false); ok && err == nil && v.Seq == seq {
			return proofFor
		}
	case record.KindObject:
		id, ok := record.NumberOf(key)
		v, err := record.DecodeVersion(value, false)
		if !ok || err != nil || v.File == 0 {
			return proofNone
		}
		b, state := m.view.get(record.FileKey(v.File))
		if o, err := record.DecodeOwner(b); state == changeSet && err == nil &&
			*o == (record.Owner{Bucket: id, Key: string(key[9:]), Seq: v.Seq, Part: -1}) {
			return proofFor
		}
	}
	return proofNone
}

// matchBlobs settles all changes that wait for their value. It finds values in blob files that the manifest does not
// name.
func (v *salvage) matchBlobs(r *metascan.Reader) error {
	if v.view.open == 0 {
		return nil
	}
	m := &blobMatch{ctx: v.ctx, view: v.view}
	var names []string
	if v.view.blobs > 0 {
		var err error
		if names, err = v.fs.List(r.Dir); err != nil {
			return err
		}
	}
	slices.Sort(names)
	for _, name := range names {
		number, kind, ok := metafile.ParseName(name)
		if !ok || kind != "blob" {
			continue
		}
		f, err := metascan.OpenBlob(v.fs, v.fs.PathJoin(r.Dir, name), number)
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
	text := fmt.Sprintf("the manifest does not say in which blob files %d values lie: %d were found by their checksums",
		found+lost, found)
	if lost > 0 {
		text += fmt.Sprintf(", %d are lost", lost)
	}
	v.warn("%s", text)
	return nil
}
