// SPDX-License-Identifier: Apache-2.0

package metascan

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

type tableIter = sstable.Iterator

// tableScan reads a table from both ends, and searches between two damaged places for readable entries.
type tableScan struct {
	ctx    context.Context
	open   func() (tableIter, error)
	blobs  func(key []byte) ([]byte, error)  // reads a value that lies in a blob file; nil: none does
	named  func(*BlobHandle) ([]byte, error) // reads it where blobs cannot, block by block; nil: that is not tried
	each   func(Entry) error
	unsure bool // the manifest is damaged: the blob file that it names may not be the one any more
	// between reports whether something may be readable between the first and the last damage.
	between func() bool
	gaps    []Gap
	left    int         // probes
	handle  *BlobHandle // where the value of the entry lies that the iterator is at; nil: in the table
}

// blobMark is the beginning of the text that the iterator of a table returns in place of a value in a blob file.
var blobMark = []byte("blob-value:")

func (s *tableScan) run() error {
	s.left = probes
	last, bad, err := s.forward(nil, nil)
	if bad == nil || err != nil {
		return err
	}
	first, bad, err := s.backward(nil, last)
	if err != nil {
		return err
	}
	if bad == nil {
		return nil // the same keys, read again without an error
	}
	if !s.between() {
		s.left = 0
	}
	return s.halve([]Gap{{From: last, To: first, err: bad}})
}

// halve searches gaps by bisection, until they are small or all probes are used.
func (s *tableScan) halve(open []Gap) error {
	for len(open) > 0 {
		g := open[0]
		open = open[1:]
		mid, ok := midKey(g.From, g.To)
		if !ok || s.left == 0 {
			s.gaps = append(s.gaps, g)
			continue
		}
		s.left--
		last, badUp, err := s.forward(mid, g.To)
		if err != nil {
			return err
		}
		first, badDown, err := s.backward(mid, g.From)
		if err != nil {
			return err
		}
		// Unreadable entries are left of first, or right of last. If nothing was readable from mid on, mid is the
		// border.
		if last == nil {
			last = mid
		}
		if first == nil {
			first = mid
		}
		if badDown != nil {
			open = append(open, Gap{From: g.From, To: first, err: badDown})
		}
		if badUp != nil {
			open = append(open, Gap{From: last, To: g.To, err: badUp})
		}
	}
	s.gaps = joinGaps(s.gaps)
	return nil
}

// forward reads from a key (nil: the first) up to another (nil: the end), and returns the last key that it read. bad
// is the reason why it stopped.
func (s *tableScan) forward(from, to []byte) (last []byte, bad, err error) {
	return s.walk(from, to, true)
}

// backward reads from below a key (nil: the last) down to another (nil: the beginning).
func (s *tableScan) backward(below, to []byte) (last []byte, bad, err error) {
	return s.walk(below, to, false)
}

// none is the zero value of what a function returns.
func none[T any](func() T) (zero T) { return zero }

// walk goes from entry to entry.
func (s *tableScan) walk(from, to []byte, up bool) (last []byte, bad, err error) {
	it, bad := s.open()
	if bad != nil {
		return nil, bad, nil
	}
	defer func() { _ = it.Close() }()
	kv := none(it.First)
	var value []byte
	var lost error
	// A panic of the reader on bytes that are not a table's counts as an error.
	step := func(first bool) (bad error) {
		s.handle = nil
		defer func() {
			if p := recover(); p != nil {
				bad = fmt.Errorf("%v", p)
			}
		}()
		switch {
		case first && up && from == nil:
			kv = it.First()
		case first && up:
			kv = it.SeekGE(from, 0)
		case first && from == nil:
			kv = it.Last()
		case first:
			kv = it.SeekLT(from, 0)
		case up:
			kv = it.Next()
		default:
			kv = it.Prev()
		}
		if kv == nil {
			return it.Error()
		}
		value, _, lost = kv.Value(nil)
		return nil
	}
	for first := true; ; first = false {
		if bad := step(first); kv == nil || bad != nil {
			return last, bad, nil
		}
		if c := bytes.Compare(kv.K.UserKey, to); to != nil && (up && c >= 0 || !up && c <= 0) {
			return last, nil, nil
		}
		if err := s.ctx.Err(); err != nil {
			return last, nil, err
		}
		last = bytes.Clone(kv.K.UserKey)
		e := Entry{Key: last, Seq: uint64(kv.SeqNum()), Kind: kv.Kind(), Value: bytes.Clone(value), Lost: lost}
		if s.resolve(&e) {
			if err := s.each(e); err != nil {
				return last, nil, err
			}
		}
	}
}

// resolve replaces a reference to a blob file by the value; false means that a newer change in the same table hides
// it.
func (s *tableScan) resolve(e *Entry) bool {
	if e.Lost != nil || s.handle == nil || !bytes.HasPrefix(e.Value, blobMark) {
		return true
	}
	if s.blobs != nil {
		e.Value, e.Lost = s.blobs(e.Key)
		if e.Lost != nil && !s.unsure && s.named != nil && !errors.Is(e.Lost, pebble.ErrNotFound) {
			e.Value, e.Lost = s.named(s.handle) // its error names the blob file, which that of Pebble does not
		}
		if e.Lost == nil || !s.unsure || errors.Is(e.Lost, pebble.ErrNotFound) {
			return !errors.Is(e.Lost, pebble.ErrNotFound)
		}
	}
	e.Value, e.Lost, e.Blob = nil, ErrUnnamed, s.handle
	return true
}

// midKey returns a key about half-way between two others; it returns false if there is none, or if searching is
// useless.
func midKey(from, to []byte) ([]byte, bool) {
	const most = 1100 // bytes of the longest key
	if to == nil {
		to = bytes.Repeat([]byte{0xff}, most)
	}
	mid := make([]byte, 0, most)
	carry := 0 // what the bytes before leave over: 0 or 1 times 256
	for i := range most {
		a, b := 0, 0
		if i < len(from) {
			a = int(from[i])
		}
		if i < len(to) {
			b = int(to[i])
		}
		sum := a + b + carry
		if i == 0 {
			sum = a + b
		}
		mid = append(mid, byte(min(255, sum/2)))
		carry = sum % 2 * 256
		if bytes.Compare(mid, from) > 0 && bytes.Compare(mid, to) < 0 {
			return mid, true
		}
	}
	return nil, false
}

// joinGaps joins gaps that touch each other.
func joinGaps(gaps []Gap) []Gap {
	var out []Gap
	for _, g := range gaps {
		if n := len(out); n > 0 && out[n-1].To != nil && bytes.Equal(out[n-1].To, g.From) {
			out[n-1].To = g.To
			continue
		}
		out = append(out, g)
	}
	return out
}
