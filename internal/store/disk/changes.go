// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// changes keeps all changes that were read, on disk, and finds the newest of each key.
type changes struct {
	db    *pebble.DB
	b     *pebble.Batch
	blobs int64 // values whose blob file is not known
}

type changeState int

const (
	changeNone    changeState = iota // the key was never met
	changeSet                        // it has a value
	changeDeleted                    // it was deleted
	changeLost                       // it has a value that cannot be read; the value kept in its place says why
	changeBlob                       // it has a value in a blob file that is not known; see blobMatch
)

func changePrefix(key []byte) []byte { return append(escape(nil, string(key)), 0, 1) }

// add keeps a change. Sums of counts are not kept: they are counted anew.
func (c *changes) add(e metaEntry) error {
	if len(e.key) == 0 {
		return nil // of no kind that this store writes
	}
	state := changeSet
	switch e.kind {
	case pebble.InternalKeyKindSet, pebble.InternalKeyKindSetWithDelete:
		if e.lost != nil {
			state = changeLost
		}
		if e.blob != nil {
			state = changeBlob
		}
	case pebble.InternalKeyKindDelete, pebble.InternalKeyKindDeleteSized, pebble.InternalKeyKindSingleDelete:
		state = changeDeleted
	default:
		return nil
	}
	value := e.value
	switch state {
	case changeDeleted, changeLost:
		value = nil
	case changeBlob:
		c.blobs++
		p := put{}
		for _, n := range []uint64{e.blob.table, e.blob.ref, e.blob.block, e.blob.id, e.blob.size} {
			p.uint(n)
		}
		value = p
	}
	return c.replace(binary.BigEndian.AppendUint64(changePrefix(e.key), ^e.seq), e.key, state, value)
}

// replace keeps a change under the key that add made for it.
func (c *changes) replace(stored, key []byte, state changeState, value []byte) error {
	if c.b == nil {
		c.b = c.db.NewBatch()
	}
	if err := c.b.Set(stored, append([]byte{byte(state)}, value...), nil); err != nil {
		return err
	}
	if state == changeSet && (key[0] == kindObject || key[0] == kindVersion) {
		// The checksum of a small object proves its content, wherever that is found.
		if v, err := decodeVersion(value, true); err == nil && v.inline() {
			sum := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(v.size)), v.crc)
			if err := c.b.Set(sumKey(v.seq), sum, nil); err != nil {
				return err
			}
		}
	}
	if c.b.Len() > 4<<20 {
		return c.flush()
	}
	return nil
}

func (c *changes) flush() error {
	if c.b == nil {
		return nil
	}
	err := c.db.Apply(c.b, pebble.NoSync)
	_ = c.b.Close()
	c.b = nil
	return err
}

// get returns the newest state of a key.
func (c *changes) get(key []byte) ([]byte, changeState) {
	var value []byte
	state := changeNone
	prefix := changePrefix(key)
	_ = c.newest(prefix, after(prefix), func(_, v []byte, s changeState) error {
		value, state = bytes.Clone(v), s
		return errFound
	})
	return value, state
}

// each calls f with the newest state of every key of a kind.
func (c *changes) each(kind byte, f func(key, value []byte, state changeState) error) error {
	return c.newest([]byte{kind}, []byte{kind + 1}, f)
}

func (c *changes) newest(from, to []byte, f func(key, value []byte, state changeState) error) error {
	var last []byte
	return eachIn(c.db, from, to, func(k, v []byte) error {
		name, rest, ok := unescape(k)
		if !ok || len(rest) != 8 || len(v) < 1 || last != nil && name == string(last) {
			return nil
		}
		last = append(last[:0], name...)
		return f([]byte(name), v[1:], changeState(v[0]))
	})
}
