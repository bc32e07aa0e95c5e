// SPDX-License-Identifier: Apache-2.0

package salvage

import (
	"bytes"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/store/codec"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/metascan"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// changes stores all changes that were read, on disk, and finds the newest change of each key.
type changes struct {
	db    *pebble.DB
	b     *pebble.Batch
	open  uint64 // changes that wait for their value
	blobs int64  // of these, those whose blob file is not known
}

type changeState int

const (
	changeNone    changeState = iota // the key was never met
	changeSet                        // it has a value
	changeDeleted                    // it was deleted
	changeLost                       // it has a value that cannot be read; the value kept in its place says why
	changeBlob                       // it has a value in a blob file that is not known; see blobMatch
)

func changePrefix(key []byte) []byte { return append(record.Escape(nil, string(key)), 0, 1) }

// add stores a change. Counts are not stored, because they are counted again.
func (c *changes) add(e metascan.Entry) error {
	if len(e.Key) == 0 {
		return nil // of no kind that this store writes
	}
	state := changeSet
	switch e.Kind {
	case pebble.InternalKeyKindSet, pebble.InternalKeyKindSetWithDelete:
		if e.Lost != nil {
			state = changeLost
		}
		if e.Blob != nil {
			state = changeBlob
		}
	case pebble.InternalKeyKindDelete, pebble.InternalKeyKindDeleteSized, pebble.InternalKeyKindSingleDelete:
		state = changeDeleted
	default:
		return nil
	}
	stored := binary.BigEndian.AppendUint64(changePrefix(e.Key), ^e.Seq)
	switch state {
	case changeDeleted:
		return c.put(stored, e.Key, state, nil)
	case changeLost:
		c.open++
		return c.put(openKey(stored, 0, c.open), e.Key, state, []byte(e.Lost.Error()))
	case changeBlob:
		c.open++
		c.blobs++
		p := codec.Encoder{}
		for _, n := range []uint64{e.Blob.Table, e.Blob.Ref, e.Blob.Block, e.Blob.ID, e.Blob.Size} {
			p.Uint(n)
		}
		return c.put(openKey(stored, e.Blob.Table, c.open), e.Key, state, p)
	}
	return c.put(stored, e.Key, state, e.Value)
}

// openKey returns the key under which a change without a value waits. Another table may have the same change with its
// value, because an interrupted compaction leaves both tables. Only after everything was read it is known whether the
// value is lost.
func openKey(stored []byte, table, n uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(bytes.Clone(stored), table), n)
}

// openKeyTail is the additional length of an openKey over the key of the change.
const openKeyTail = 16

// settle gives a waiting change its value, or records why it is lost unless another table had it.
func (c *changes) settle(waits, key []byte, state changeState, value []byte) error {
	stored := waits[:len(waits)-openKeyTail]
	if state == changeLost {
		if known, err := metadb.Get(c.db, stored); known != nil || err != nil {
			if err != nil {
				return err
			}
			return c.drop(waits)
		}
	}
	if err := c.put(stored, key, state, value); err != nil {
		return err
	}
	return c.drop(waits)
}

func (c *changes) drop(waits []byte) error {
	if c.b == nil {
		c.b = c.db.NewBatch()
	}
	return c.b.Delete(waits, nil)
}

// eachOpen calls f with every waiting change: its key, its openKey, its state and its value so far.
func (c *changes) eachOpen(f func(key, waits []byte, state changeState, v []byte) error) error {
	return metadb.Each(c.db, []byte{sumPrefix + 1}, nil, func(waits, v []byte) error {
		name, rest, ok := record.Unescape(waits)
		if !ok || len(rest) != 8+openKeyTail || len(v) == 0 || name == "" {
			return nil
		}
		return f([]byte(name), waits, changeState(v[0]), v[1:])
	})
}

// put stores a change under a key of the salvage.
func (c *changes) put(stored, key []byte, state changeState, value []byte) error {
	if c.b == nil {
		c.b = c.db.NewBatch()
	}
	if err := c.b.Set(stored, append([]byte{byte(state)}, value...), nil); err != nil {
		return err
	}
	if state == changeSet && (key[0] == record.KindObject || key[0] == record.KindVersion) {
		// The checksum of a small object proves its content, wherever that is found.
		if v, err := record.DecodeVersion(value, true); err == nil && v.Inline() {
			sum := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(v.Size)), v.CRC)
			if err := c.b.Set(sumKey(v.Seq), sum, nil); err != nil {
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
	_ = c.newest(prefix, record.After(prefix), func(_, v []byte, s changeState) error {
		value, state = bytes.Clone(v), s
		return metadb.ErrStop
	})
	return value, state
}

// each calls f with the newest state of every key of a kind.
func (c *changes) each(kind byte, f func(key, value []byte, state changeState) error) error {
	return c.newest([]byte{kind}, []byte{kind + 1}, f)
}

func (c *changes) newest(from, to []byte, f func(key, value []byte, state changeState) error) error {
	var last []byte
	return metadb.Each(c.db, from, to, func(k, v []byte) error {
		name, rest, ok := record.Unescape(k)
		if !ok || len(rest) != 8 || len(v) < 1 || last != nil && name == string(last) {
			return nil
		}
		last = append(last[:0], name...)
		return f([]byte(name), v[1:], changeState(v[0]))
	})
}
