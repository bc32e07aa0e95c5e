// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Found says where a block is.
type Found int

const (
	// Elsewhere means that the block is not in the exchange: the caller reads it in another way.
	Elsewhere Found = iota
	// Here means that the block is in the exchange, and another call had read it.
	Here
	// Filled means that this call has read the block into the exchange.
	Filled
)

const (
	// step is the time between two looks at the other loads while a load waits.
	step = 20 * time.Millisecond
	// patience is the longest time that a load waits for a slot, because another load still needs the block in it.
	patience = 500 * time.Millisecond
	// longestHuge is the longest time that a huge page may take. After a longer one, the load asks for none any more:
	// the kernel has to move other memory for each of them.
	longestHuge = 20 * time.Millisecond
	// longestRead is the longest time that a load waits while another load reads a block into the exchange.
	longestRead = 3 * time.Second
)

// State of a slot.
const (
	empty = iota
	filling
	ready
)

// pack makes the word of a slot: the number of its block, the load that fills it, and its state. The number never
// becomes smaller, so that an unchanged word means unchanged bytes.
func pack(block int64, who, state int) uint64 {
	return uint64(block)<<8 | uint64(who)<<2 | uint64(state)
}

func unpack(w uint64) (block int64, who, state int) {
	return int64(w >> 8), int(w >> 2 & 63), int(w & 3)
}

// Has reports whether the block is in the exchange.
func (x *Exchange) Has(block int64) bool {
	s, _ := x.slot(block, x.slots)
	at, _, state := unpack(s.word.Load())
	return at == block && state == ready
}

// Get brings a block into the exchange. If no load has read the block, Get calls fill, which reads it into p. fill may
// be nil: then Get only finds blocks that others read. If stop returns true, Get ends early with Elsewhere.
func (x *Exchange) Get(block int64, fill func(p []byte) error, stop func() bool) (Found, error) {
	s, mem := x.slot(block, x.slots)
	began := time.Now()
	for first := true; ; first = false {
		if !first && stop() {
			return Elsewhere, nil
		}
		turn, moved := s.turn.Load(), x.header().moved.Load()
		w := s.word.Load()
		at, who, state := unpack(w)
		switch {
		case at == block && state == ready:
			return Here, nil
		case at > block || fill == nil && (at != block || state != filling):
			return Elsewhere, nil
		case state == filling:
			switch {
			case !x.alive(who):
				x.change(s, w, pack(at, who, empty))
			case x.member(who).stuck.Load() != 0:
				return Elsewhere, nil
			case time.Since(began) > x.longestRead:
				x.member(who).stuck.Store(1)
			default:
				wait(&s.turn, turn, step)
			}
		case state == ready && !x.released(at):
			if !x.waits(at, time.Since(began), moved) {
				return Elsewhere, nil
			}
		case x.change(s, w, pack(block, x.me, filling)):
			x.prepare(block, mem)
			err := fill(mem)
			x.member(x.me).stuck.Store(0)
			if err != nil {
				x.change(s, pack(block, x.me, filling), pack(block, x.me, empty))
				return Elsewhere, err
			}
			x.change(s, pack(block, x.me, filling), pack(block, x.me, ready))
			return Filled, nil
		}
	}
}

// prepare makes a huge page of a slot before its first use, if the kernel has one at hand.
func (x *Exchange) prepare(block int64, mem []byte) {
	if block >= x.slots || x.small.Load() {
		return
	}
	began := time.Now()
	if !enlarge(mem) || time.Since(began) > longestHuge {
		x.small.Store(true)
	}
}

// released reports whether all loads are done with a block.
func (x *Exchange) released(block int64) bool { return len(x.blockers(block)) == 0 }

// waits waits for a moment for the loads that are not done with a block. It returns false if they were waited for long
// enough, then and later: the slot stays theirs.
func (x *Exchange) waits(block int64, waited time.Duration, moved uint32) bool {
	for _, i := range x.blockers(block) {
		switch p := x.member(i); {
		case !x.alive(i):
			return true // its place is free now
		case p.ignored.Load() != 0:
			return false
		case waited > x.patience:
			p.ignored.Store(1)
			return false
		}
	}
	wait(&x.header().moved, moved, step)
	return true
}

// change changes the word of a slot from one value to another, and reports whether it had the first value.
func (x *Exchange) change(s *slot, from, to uint64) bool {
	if !s.word.CompareAndSwap(from, to) {
		return false
	}
	s.turn.Add(1)
	wake(&s.turn)
	return true
}

// Copy copies the bytes of the file at offset off to p, and reports whether p holds them. All of them must be in one
// block.
func (x *Exchange) Copy(p []byte, off int64) bool {
	block := off / Block
	s, mem := x.slot(block, x.slots)
	w := s.word.Load()
	if at, _, state := unpack(w); at != block || state != ready {
		return false
	}
	copy(p, mem[off-block*Block:])
	// Another load may have reused the slot meanwhile, if it took this one for dead or far behind. The exchange of equal
	// values also keeps the processor from making the copy later.
	return s.word.CompareAndSwap(w, w)
}

// Lent is a part of a block, in the shared memory itself. The zero value is no part.
type Lent struct {
	Mem  []byte
	slot *slot
	word uint64
}

// Lend returns n bytes of the file at offset off without a copy, as a part of the shared memory. All of them must be in
// one block. Lend returns false if the block is not in the shared memory. As a rule, no load replaces the block before
// this load is done with it. A load that seems dead or far behind loses its blocks, so the caller calls Valid after it
// has used the bytes.
func (x *Exchange) Lend(off, n int64) (Lent, bool) {
	block := off / Block
	s, mem := x.slot(block, x.slots)
	w := s.word.Load()
	if at, _, state := unpack(w); at != block || state != ready {
		return Lent{}, false
	}
	return Lent{Mem: mem[off-block*Block:][:n:n], slot: s, word: w}, true
}

// Valid reports whether no load has replaced the lent bytes since Lend returned them.
func (l Lent) Valid() bool { return l.slot.word.CompareAndSwap(l.word, l.word) }

// Memory returns the memory of all slots, in order.
func (x *Exchange) Memory() []byte { return x.mem[dataAt:] }

// Place returns the offset of a block's slot in Memory, and whether the slot had an earlier block.
func (x *Exchange) Place(block int64) (at int64, used bool) {
	return block % x.slots * Block, block >= x.slots
}

// wait waits until the word at a is not v any more, for at most d.
func wait(a *atomic.Uint32, v uint32, d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	const futexWait = 0
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(a)), futexWait, uintptr(v),
		uintptr(unsafe.Pointer(&t)), 0, 0) // an early end does no harm
}

// wake wakes all that wait for the word at a.
func wake(a *atomic.Uint32) {
	const futexWake, all = 1, 1<<31 - 1
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(a)), futexWake, all, 0, 0, 0)
}
