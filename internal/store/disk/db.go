// SPDX-License-Identifier: Apache-2.0

package disk

import "github.com/cockroachdb/pebble/v2"

// writable says why no change can be made now, or nil.
func (s *Store) writable(op, name string) error {
	if why := s.readOnly.Load(); why != nil {
		return s.refused(op, name, *why)
	}
	return s.fence.Writable(op, name)
}

// apply makes a batch durable, as the fence does, unless the store is open for reading only.
func (s *Store) apply(op, name string, b *pebble.Batch, then func()) error {
	if why := s.readOnly.Load(); why != nil {
		_ = b.Close()
		return s.refused(op, name, *why)
	}
	return s.fence.Apply(s.db, op, name, b, then)
}

// stalled says whether the metadata waits until it can be written.
func (s *Store) stalled() bool { return s.fence.Stalled() }

// closeDB closes Pebble, or abandons it if it cannot be closed any more.
func (s *Store) closeDB() error { return s.fence.CloseDB(s.db, s.opts.Dir) }
