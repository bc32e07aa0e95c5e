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

// pins is the set of pins of a cache. The owner guards it.
type pins struct {
	all   map[Pin]Pin // by pin without expiry
	epoch uint64      // changes with each change of the set
}

// set adds or replaces a pin.
func (p *pins) set(one Pin) {
	p.all[one.name()] = one
	p.epoch++
}

// drop removes a pin.
func (p *pins) drop(one Pin) {
	delete(p.all, one.name())
	p.epoch++
}

// of returns the latest expiry of the pins that match a key; the zero time means never. The caller holds mu.
func (p *pins) of(origin, key string, now time.Time) (expires time.Time, ok bool) {
	for _, one := range p.all {
		if !one.matches(origin, key, now) {
			continue
		}
		if one.Expires.IsZero() {
			return time.Time{}, true
		}
		if !ok || one.Expires.After(expires) {
			expires, ok = one.Expires, true
		}
	}
	return expires, ok
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
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	s.index.mu.Lock()
	_, old := s.index.pins.all[p.name()]
	full := !old && len(s.index.pins.all) >= MostPins
	s.index.mu.Unlock()
	if full {
		return errs.New(errs.Invalid, op, p.Key, fmt.Sprintf("there are %d pins already", MostPins)).
			WithFix("remove pins, or pin a prefix")
	}
	if err := s.meta.apply(ctx, op, p.Key, func(b *pebble.Batch) error {
		return b.Set(p.dbKey(), encodePin(p), nil)
	}); err != nil {
		return err
	}
	s.index.mu.Lock()
	s.index.pins.set(p)
	s.index.mu.Unlock()
	return nil
}

// Unpin removes a pin durably, and reports whether there was one.
func (s *Store) Unpin(ctx context.Context, origin, key string, prefix bool) (bool, error) {
	p := Pin{Origin: origin, Key: key, Prefix: prefix}
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	s.index.mu.Lock()
	_, ok := s.index.pins.all[p]
	s.index.mu.Unlock()
	if !ok {
		return false, nil
	}
	if err := s.meta.apply(ctx, "unpin", p.Key,
		func(b *pebble.Batch) error { return b.Delete(p.dbKey(), nil) }); err != nil {
		return false, err
	}
	s.index.mu.Lock()
	s.index.pins.drop(p)
	s.index.mu.Unlock()
	return true, nil
}

// Pins returns all pins that have not expired, sorted by origin and key.
func (s *Store) Pins() []Pin {
	now := s.opts.Now()
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	var out []Pin
	for _, p := range s.index.pins.all {
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
