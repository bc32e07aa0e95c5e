// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/codec"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
)

// generations bounds the number of Known records. Records are written to the current generation. If it is half of
// what is allowed, the older generation is removed, and its place becomes the current one. So a record that is written
// again from time to time stays.
type generations struct {
	current byte // 0 or 1
	counts  [2]int64
}

func (g *generations) total() int64 { return g.counts[0] + g.counts[1] }

func (g *generations) encode(e *codec.Encoder) {
	e.Byte(g.current)
	e.Int(g.counts[0])
	e.Int(g.counts[1])
}

func (g *generations) decode(d *codec.Decoder) {
	g.current = d.Byte() & 1
	g.counts[0], g.counts[1] = max(0, d.Int()), max(0, d.Int())
}

// knownKey returns the database key of the Known record of an object in one of the two generations.
func knownKey(generation byte, origin, key string) []byte {
	b := binary.AppendUvarint(nil, uint64(len(origin)))
	b = append(append(b, origin...), key...)
	h := sha256.Sum256(b)
	return append([]byte{kindKnown, generation}, h[:16]...)
}

// knowledge is the Known records of a cache.
type knowledge struct {
	meta *metadata
	most int64      // Known records
	mu   sync.Mutex // orders changes of records

	genMu sync.Mutex
	gen   generations
}

// now returns the generations.
func (k *knowledge) now() generations {
	k.genMu.Lock()
	defer k.genMu.Unlock()
	return k.gen
}

// set replaces the generations.
func (k *knowledge) set(g generations) {
	k.genMu.Lock()
	defer k.genMu.Unlock()
	k.gen = g
}

// remember writes a record to the current generation.
func (k *knowledge) remember(origin, key string, value []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	done, err := k.meta.use("remember", key)
	if err != nil {
		return err
	}
	defer done()
	g := k.now()
	before := g.current
	there, err := metadb.Get(k.meta.db, knownKey(g.current, origin, key))
	if err != nil {
		return err
	}
	if there == nil && g.counts[g.current] >= max(1, k.most/2) {
		g.current ^= 1
		g.counts[g.current] = 0
	}
	if there == nil {
		g.counts[g.current]++
	}
	k.set(g)
	k.meta.fence.ApplyLazily(k.meta.db, func(b *pebble.Batch) error {
		if g.current != before {
			if err := b.DeleteRange([]byte{kindKnown, g.current}, []byte{kindKnown, g.current + 1}, nil); err != nil {
				return err
			}
		}
		if err := b.Delete(knownKey(g.current^1, origin, key), nil); err != nil {
			return err
		}
		return b.Set(knownKey(g.current, origin, key), value, nil)
	})
	return nil
}

// find reads a record.
func (k *knowledge) find(origin, key string) (Known, bool, error) {
	done, err := k.meta.use("known", key)
	if err != nil {
		return Known{}, false, nil // the cache is closed
	}
	defer done()
	current := k.now().current
	for _, g := range []byte{current, current ^ 1} {
		b, err := metadb.Get(k.meta.db, knownKey(g, origin, key))
		if err != nil {
			return Known{}, false, err
		}
		if b == nil {
			continue
		}
		o, name, known, err := decodeKnown(b)
		if err != nil {
			return Known{}, false, err
		}
		if o == origin && name == key {
			return known, true, nil
		}
	}
	return Known{}, false, nil
}

// forget removes a record.
func (k *knowledge) forget(origin, key string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	done, err := k.meta.use("forget", key)
	if err != nil {
		return err
	}
	defer done()
	k.meta.fence.ApplyLazily(k.meta.db, func(b *pebble.Batch) error {
		if err := b.Delete(knownKey(0, origin, key), nil); err != nil {
			return err
		}
		return b.Delete(knownKey(1, origin, key), nil)
	})
	return nil
}

// Remember records what another server said about a key. Entries of the key with another identity become superseded. A
// caller may also remember under another name than the key of the identity, for example for one version of a key: then
// no entry becomes superseded. A crash may lose the last records. Remember fails with kind Invalid if the identity is
// of another origin, or if About is too long.
func (s *Store) Remember(origin, key string, k Known) error {
	const op = "remember"
	if !k.Absent {
		if err := checkIdentity(op, k.Identity); err != nil {
			return err
		}
		if k.Identity.Origin != origin {
			return errs.New(errs.Invalid, op, key, fmt.Sprintf("the identity is of %q, expected %q", k.Identity.Origin, origin))
		}
	}
	if len(k.About) > MaxAbout {
		return errs.New(errs.Invalid, op, key, fmt.Sprintf("the description has %d bytes, expected at most %d", len(k.About),
			MaxAbout))
	}
	if k.Absent || k.Identity.Key == key {
		s.index.supersede(origin, key, k)
	}
	return s.known.remember(origin, key, encodeKnown(origin, key, k))
}

// Known returns what Remember recorded last, or false if that is not known or was forgotten.
func (s *Store) Known(origin, key string) (Known, bool) {
	k, ok, err := s.known.find(origin, key)
	if err != nil {
		s.opts.Failed(err)
	}
	return k, ok
}

// Forget removes the record that Remember made. The entries of the key stay.
func (s *Store) Forget(origin, key string) error { return s.known.forget(origin, key) }
