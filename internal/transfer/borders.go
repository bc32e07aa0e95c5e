// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"slices"

	"github.com/nebulaio/nebulaio/internal/device"
)

// borders are the ends of the allocations that receive the bytes of a load, in order. Two tensors of a framework can
// follow each other in memory and be two allocations. Drivers refuse a copy that goes from one into the other.
type borders []device.Ptr

// bordersOf finds the allocations of all segments. It asks the driver once for each allocation. If the driver does not
// know the bounds, a segment counts as an allocation of its own.
func bordersOf(d device.Device, segs []Segment) borders {
	b, ok := d.(device.Bounder)
	if !ok || len(segs) < 2 {
		return nil
	}
	type span struct{ lo, hi device.Ptr }
	var known []span
	find := func(p device.Ptr) (int, bool) {
		return slices.BinarySearchFunc(known, p, func(s span, p device.Ptr) int {
			switch {
			case s.hi <= p:
				return -1
			case s.lo > p:
				return 1
			}
			return 0
		})
	}
	for i := range segs {
		lo, n := segs[i].Dst, segs[i].Wanted()
		at, found := find(lo)
		if n == 0 || found {
			continue
		}
		s := span{lo, lo + device.Ptr(n)}
		if start, size, err := b.Bounds(lo); err == nil && size > 0 {
			s = span{start, start + device.Ptr(size)}
		}
		known = slices.Insert(known, at, s)
	}
	if len(known) < 2 {
		return nil
	}
	out := make(borders, len(known))
	for i, s := range known {
		out[i] = s.hi
	}
	return out
}

// copyIn queues the copies of data to dst, one for each allocation.
func (t *Load) copyIn(dst device.Ptr, data []byte, to copier) error {
	queued := false
	at, exact := slices.BinarySearch(t.borders, dst)
	if exact {
		at++
	}
	for len(data) > 0 {
		n := len(data)
		if at < len(t.borders) && t.borders[at]-dst < device.Ptr(n) {
			n = int(t.borders[at] - dst)
		}
		if err := to(dst, data[:n]); err != nil {
			if queued { // the copies before have no mark behind them
				err = errors.Join(err, t.port.queue.Drain())
			}
			return err
		}
		dst, data, queued = dst+device.Ptr(n), data[n:], true
		at++
	}
	return nil
}
