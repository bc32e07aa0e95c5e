// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"errors"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Pair is one key of two places. A is nil if only B has the key, and B is nil if only A has it.
type Pair struct {
	A, B *Entry
}

// Key returns the key of the pair.
func (p Pair) Key() string {
	if p.A != nil {
		return p.A.Key
	}
	return p.B.Key
}

// walkAhead is the number of entries that the walk of one side may be ahead.
const walkAhead = 2000

// Merge walks two places at once and calls each with every key that one of them has, in the byte order of keys. The
// two walks run on goroutines of their own, and each runs on that of the caller. Markers of folders are left out. The
// error of a walk, or of each, ends both walks and is returned.
func Merge(ctx context.Context, a, b Walker, each func(Pair) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	left, right := begin(ctx, a), begin(ctx, b)
	err := merge(left, right, each)
	cancel(errStopped)
	left.wait()
	right.wait()
	return err
}

// errStopped ends a walk whose entries nobody needs any more.
var errStopped = errors.New("the other walk has ended")

// side is a walk that runs ahead of its reader.
type side struct {
	entries chan Entry
	done    chan struct{}
	err     error // valid when entries is closed
}

func begin(ctx context.Context, w Walker) *side {
	s := &side{entries: make(chan Entry, walkAhead), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer close(s.entries)
		s.err = w.Walk(ctx, func(e Entry) error {
			if e.Marker() {
				return nil
			}
			select {
			case s.entries <- e:
				return nil
			case <-ctx.Done():
				return errs.Wrap("list", e.Name, context.Cause(ctx))
			}
		})
	}()
	return s
}

// next returns the next entry, or nil at the end.
func (s *side) next() (*Entry, error) {
	if e, ok := <-s.entries; ok {
		return &e, nil
	}
	return nil, s.err
}

func (s *side) wait() { <-s.done }

func merge(left, right *side, each func(Pair) error) error {
	a, err := left.next()
	if err != nil {
		return err
	}
	b, err := right.next()
	if err != nil {
		return err
	}
	for a != nil || b != nil {
		var p Pair
		switch {
		case b == nil || a != nil && a.Key < b.Key:
			p.A = a
		case a == nil || b.Key < a.Key:
			p.B = b
		default:
			p.A, p.B = a, b
		}
		if err := each(p); err != nil {
			return err
		}
		if p.A != nil {
			if a, err = left.next(); err != nil {
				return err
			}
		}
		if p.B != nil {
			if b, err = right.next(); err != nil {
				return err
			}
		}
	}
	return nil
}
