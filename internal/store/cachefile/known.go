// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

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

// Remember records what another server said about a key. Entries of the key with another identity become superseded. A
// caller may also remember under another name than the key of the identity, for example for one version of a key: then
// no entry becomes superseded. A crash may lose the last records. Remember fails with kind Invalid if the identity is of
// another origin, or if About is too long.
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
		s.supersede(origin, key, k)
	}
	value := encodeKnown(origin, key, k)
	s.knownMu.Lock()
	defer s.knownMu.Unlock()
	done, err := s.use(op, key)
	if err != nil {
		return err
	}
	defer done()
	s.mu.Lock()
	g := s.known
	s.mu.Unlock()
	there, err := metadb.Get(s.db, knownKey(g.current, origin, key))
	if err != nil {
		return err
	}
	if there == nil && g.counts[g.current] >= max(1, s.opts.MostKnown/2) {
		g.current ^= 1
		g.counts[g.current] = 0
	}
	if there == nil {
		g.counts[g.current]++
	}
	s.mu.Lock()
	turned := g.current != s.known.current
	s.known = g
	s.mu.Unlock()
	s.fence.ApplyLazily(s.db, func(b *pebble.Batch) error {
		if turned {
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

// supersede marks the entries of a key that are not its current content.
func (s *Store) supersede(origin, key string, k Known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.byKey[keyName{origin, key}] {
		if old := k.Absent || v.id != k.Identity; old != v.superseded {
			v.superseded = old
			s.requeue(v)
			if v.named {
				s.dirty[v] = struct{}{}
			}
		}
	}
}

// Known returns what Remember recorded last, or false if that is not known or was forgotten.
func (s *Store) Known(origin, key string) (Known, bool) {
	done, err := s.use("known", key)
	if err != nil {
		return Known{}, false
	}
	defer done()
	s.mu.Lock()
	current := s.known.current
	s.mu.Unlock()
	for _, g := range []byte{current, current ^ 1} {
		b, err := metadb.Get(s.db, knownKey(g, origin, key))
		if err != nil {
			s.opts.Failed(err)
			return Known{}, false
		}
		if b == nil {
			continue
		}
		o, name, k, err := decodeKnown(b)
		if err != nil {
			s.opts.Failed(err)
			return Known{}, false
		}
		if o == origin && name == key {
			return k, true
		}
	}
	return Known{}, false
}

// Forget removes the record that Remember made. The entries of the key stay.
func (s *Store) Forget(origin, key string) error {
	s.knownMu.Lock()
	defer s.knownMu.Unlock()
	done, err := s.use("forget", key)
	if err != nil {
		return err
	}
	defer done()
	s.fence.ApplyLazily(s.db, func(b *pebble.Batch) error {
		if err := b.Delete(knownKey(0, origin, key), nil); err != nil {
			return err
		}
		return b.Delete(knownKey(1, origin, key), nil)
	})
	return nil
}
