// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// name returns the pin without its expiry, by which pins are kept.
func (p Pin) name() Pin { return Pin{Origin: p.Origin, Key: p.Key, Prefix: p.Prefix} }

// dbKey returns the key of the pin in the database.
func (p Pin) dbKey() []byte {
	k := knownKey(0, p.Origin, p.Key)
	k[0] = kindPin
	if p.Prefix {
		k[1] = 1
	}
	return k
}

// Pin adds or replaces a pin durably. Pin fails with kind Invalid if the pin has expired, names no key, or there are
// MostPins pins already.
func (s *Store) Pin(ctx context.Context, p Pin) error {
	const op = "pin"
	now := s.opts.Now()
	switch {
	case p.Key == "" && !p.Prefix:
		return errs.New(errs.Invalid, op, p.Origin, "no key is named").WithFix("name a key, or set prefix to pin all keys")
	case len(p.Key) > maxKey || len(p.Origin) > maxText:
		return errs.New(errs.Invalid, op, p.Key, fmt.Sprintf("the key has %d bytes, expected at most %d", len(p.Key), maxKey))
	case !p.Expires.IsZero() && !now.Before(p.Expires):
		return errs.New(errs.Invalid, op, p.Key, fmt.Sprintf("the pin expires at %v, which is in the past", p.Expires))
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	_, old := s.pins[p.name()]
	full := !old && len(s.pins) >= MostPins
	s.mu.Unlock()
	if full {
		return errs.New(errs.Invalid, op, p.Key, fmt.Sprintf("there are %d pins already", MostPins)).
			WithFix("remove pins, or pin a prefix")
	}
	if err := s.commitPin(ctx, op, p, func(b *pebble.Batch) error { return b.Set(p.dbKey(), encodePin(p), nil) }); err != nil {
		return err
	}
	s.mu.Lock()
	s.pins[p.name()] = p
	s.pinEpoch++
	s.mu.Unlock()
	return nil
}

// Unpin removes a pin durably, and reports whether there was one.
func (s *Store) Unpin(ctx context.Context, origin, key string, prefix bool) (bool, error) {
	p := Pin{Origin: origin, Key: key, Prefix: prefix}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	_, ok := s.pins[p]
	s.mu.Unlock()
	if !ok {
		return false, nil
	}
	if err := s.commitPin(ctx, "unpin", p, func(b *pebble.Batch) error { return b.Delete(p.dbKey(), nil) }); err != nil {
		return false, err
	}
	s.mu.Lock()
	delete(s.pins, p)
	s.pinEpoch++
	s.mu.Unlock()
	return true, nil
}

// commitPin writes a change of pins durably.
func (s *Store) commitPin(ctx context.Context, op string, p Pin, change func(*pebble.Batch) error) error {
	if err := context.Cause(ctx); err != nil {
		return fail(op, p.Key, err)
	}
	done, err := s.use(op, p.Key)
	if err != nil {
		return err
	}
	defer done()
	b := s.db.NewBatch()
	if err := change(b); err != nil {
		_ = b.Close()
		return fail(op, p.Key, err)
	}
	return s.fence.Apply(s.db, op, p.Key, b, nil)
}

// Pins returns all pins that have not expired, sorted by origin and key.
func (s *Store) Pins() []Pin {
	now := s.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Pin
	for _, p := range s.pins {
		if p.Expires.IsZero() || now.Before(p.Expires) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Pin) int {
		return cmp.Or(strings.Compare(a.Origin, b.Origin), strings.Compare(a.Key, b.Key), cmp.Compare(boolInt(a.Prefix),
			boolInt(b.Prefix)))
	})
	return out
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// pinOf returns the latest expiry of the pins that match a key; the zero time means never. The caller holds mu.
func (s *Store) pinOf(origin, key string, now time.Time) (expires time.Time, ok bool) {
	for _, p := range s.pins {
		if !p.matches(origin, key, now) {
			continue
		}
		if p.Expires.IsZero() {
			return time.Time{}, true
		}
		if !ok || p.Expires.After(expires) {
			expires, ok = p.Expires, true
		}
	}
	return expires, ok
}
