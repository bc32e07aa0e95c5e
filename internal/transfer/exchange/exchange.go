// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"math"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// Exchange is the part of one load in the memory that loads of several processes share. The methods of an Exchange are
// safe for concurrent use; Leave or Retire must be the last call.
type Exchange struct {
	*memory
	in    *vfs.Interest
	slots int64
	me    int
	id    uint64
	// patience and longestRead are the constants; tests have others.
	patience, longestRead time.Duration
	small                 atomic.Bool // huge pages are not asked for any more
}

// SetPatience sets the longest time that the load waits for others until a slot is free. The caller sets it before the
// first use of the exchange.
func (x *Exchange) SetPatience(d time.Duration) { x.patience = d }

// Join opens the memory that other loads of the file share, or makes it with at most limit bytes. The caller calls
// Leave at the end.
func Join(in *vfs.Interest, v vfs.Version, limit int64) (*Exchange, error) {
	m := oldest(in, v, nil)
	if m == nil {
		var err error
		if m, err = create(v, limit); err != nil {
			return nil, err
		}
	}
	return enter(in, m)
}

// enter takes a place in the memory and offers the memory to others.
func enter(in *vfs.Interest, m *memory) (*Exchange, error) {
	x := &Exchange{memory: m, in: in, slots: m.header().slots, patience: patience, longestRead: longestRead,
		id: uint64(uint32(os.Getpid())) | uint64(time.Now().UnixNano())<<32}
	for x.me = range members {
		p := m.member(x.me)
		if !p.id.CompareAndSwap(0, x.id) {
			continue
		}
		p.ignored.Store(0)
		p.stuck.Store(0)
		p.low.Store(0)
		x.inherit()
		if err := in.Offer(m.fd); err != nil {
			x.Leave()
			return nil, err
		}
		return x, nil
	}
	m.close()
	return nil, errs.New(errs.Unsupported, "share memory with other loads", "", "there are too many loads")
}

// inherit frees the slots that the last load in this place was filling when its process ended.
func (x *Exchange) inherit() {
	for k := range x.slots {
		s, _ := x.slot(k, x.slots)
		w := s.word.Load()
		if at, who, state := unpack(w); state == filling && who == x.me {
			x.change(s, w, pack(at, who, empty))
		}
	}
}

// oldest opens the oldest memory that others offer for this version of the file, or returns nil. Offers in known are
// left out.
func oldest(in *vfs.Interest, v vfs.Version, known []vfs.Offer) (best *memory) {
	for _, o := range in.Offers() {
		if slices.Contains(known, o) {
			continue
		}
		m, err := open(o, v)
		switch {
		case err != nil:
		case best == nil || m.header().made < best.header().made:
			if best != nil {
				best.close()
			}
			best = m
		default:
			m.close()
		}
	}
	return best
}

// Older returns the part of this load in a memory that is older than this one, if others offer one; otherwise nil. Two
// loads that began at the same moment may have made a memory each. The caller uses the older one from then on, and
// leaves both at the end. known lists offers that were looked at before.
func (x *Exchange) Older(known []vfs.Offer) *Exchange {
	h := x.header()
	m := oldest(x.in, h.version, known)
	if m == nil {
		return nil
	}
	if m.header().made >= h.made {
		m.close()
		return nil
	}
	y, err := enter(x.in, m)
	if err != nil {
		return nil
	}
	x.in.Withdraw(x.fd)
	x.Done(math.MaxInt64)
	return y
}

// Covers reports whether each of these processes has a load in the exchange, besides the caller's own load.
func (x *Exchange) Covers(pids []int) bool {
	var in [members]int
	for i := range in {
		if i != x.me { // another load of this process has a place of its own
			in[i] = int(uint32(x.member(i).id.Load()))
		}
	}
	for _, p := range pids {
		if !slices.Contains(in[:], p) {
			return false
		}
	}
	return true
}

// Loads returns the number of loads in the exchange, without those that the others do not wait for any more. A load
// whose process has died counts until another load notices.
func (x *Exchange) Loads() (n int) {
	for i := range members {
		if p := x.member(i); p.id.Load() != 0 && p.ignored.Load() == 0 {
			n++
		}
	}
	return n
}

// Done records that the load is done with all blocks before the block `low`.
func (x *Exchange) Done(low int64) {
	p := x.member(x.me)
	if p.low.Load() >= low {
		return
	}
	p.low.Store(low)
	h := x.header()
	h.moved.Add(1)
	wake(&h.moved)
}

// Leave ends the part of the load in the exchange and frees the memory. The caller has closed the Interest, or closes
// it next: others would otherwise see a load that has not joined.
func (x *Exchange) Leave() { x.Retire()() }

// Retire is like Leave, but does not free the memory. The caller unpins the memory and then calls free.
func (x *Exchange) Retire() (free func()) {
	x.Done(math.MaxInt64)
	x.member(x.me).id.CompareAndSwap(x.id, 0)
	return x.close
}

// alive reports whether the load with number i runs. It frees the place of a load whose process has ended.
func (x *Exchange) alive(i int) bool {
	p := x.member(i)
	id := p.id.Load()
	if id == 0 {
		return false
	}
	if pid := int(uint32(id)); pid == os.Getpid() || x.in.Loading(pid) {
		return true
	}
	p.id.CompareAndSwap(id, 0)
	return false
}

// blockers returns the loads that still need a block. A load that is behind by more blocks than there are slots does
// not count: the blocks that it needs next are not in the exchange any more.
func (x *Exchange) blockers(block int64) (all []int) {
	for i := range members {
		p := x.member(i)
		if low := p.low.Load(); p.id.Load() != 0 && low <= block && low > block-x.slots {
			all = append(all, i)
		}
	}
	return all
}
