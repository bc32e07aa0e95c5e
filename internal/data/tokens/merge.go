// SPDX-License-Identifier: Apache-2.0

package tokens

// symbol is a token of a word, in a list of the word's tokens. A symbol that was merged into its left neighbour has
// next == dead.
type symbol struct {
	id         uint32
	prev, next int32
}

// dead marks a symbol that is part of another.
const dead = -2

// shortWord is the number of symbols up to which a search through all pairs is faster than a heap.
const shortWord = 40

// mergeWork is the memory for the merges of one word.
type mergeWork struct {
	symbols []symbol
	heap    []uint64 // rank and position of pairs; the least is first
	ranks   [shortWord]uint64
	pending bool // whether an unknown token waits for its end
}

// add appends a symbol.
func (w *mergeWork) add(id uint32) {
	at := int32(len(w.symbols))
	w.symbols = append(w.symbols, symbol{id: id, prev: at - 1, next: at + 1})
}

// flush appends the unknown token if one is pending.
func (w *mergeWork) flush(m *bpe) {
	if w.pending {
		w.pending = false
		w.add(uint32(m.unknown))
	}
}

// mergeAll merges pairs until no pair is left to merge, the pair with the lowest rank first and of equal ones the
// leftmost first. mergeAll appends the ids that remain.
func (w *mergeWork) mergeAll(m *bpe, out []uint32) []uint32 {
	if len(w.symbols) == 0 {
		return out
	}
	if len(w.symbols) <= shortWord {
		return w.mergeShort(m, out)
	}
	return w.mergeLong(m, out)
}

// mergeLong is mergeAll for long words.
func (w *mergeWork) mergeLong(m *bpe, out []uint32) []uint32 {
	w.symbols[len(w.symbols)-1].next = -1
	w.heap = w.heap[:0]
	for i := 0; i+1 < len(w.symbols); i++ {
		w.push(m, i, w.symbols[i].id, w.symbols[i+1].id)
	}
	for len(w.heap) > 0 {
		top := w.pop()
		at, made := int(uint32(top)), m.results[top>>32]
		s := &w.symbols[at]
		if s.next < 0 { // the last one, or merged into another
			continue
		}
		right := &w.symbols[s.next]
		if found, ok := m.merges.get(uint64(s.id)<<32 | uint64(right.id)); !ok || uint32(found) != made {
			continue // the pair has changed since it was put on the heap
		}
		s.id, s.next, right.next = made, right.next, dead
		if s.next >= 0 {
			w.symbols[s.next].prev = int32(at)
			w.push(m, at, s.id, w.symbols[s.next].id)
		}
		if s.prev >= 0 {
			w.push(m, int(s.prev), w.symbols[s.prev].id, s.id)
		}
	}
	for i := int32(0); i >= 0; i = w.symbols[i].next {
		out = append(out, w.symbols[i].id)
	}
	return out
}

// mergeShort is mergeAll for short words.
func (w *mergeWork) mergeShort(m *bpe, out []uint32) []uint32 {
	const never = ^uint64(0)
	n := len(w.symbols)
	s := w.symbols
	rank := func(i int) uint64 {
		if i+1 < n {
			if found, ok := m.merges.get(uint64(s[i].id)<<32 | uint64(s[i+1].id)); ok {
				return found
			}
		}
		return never
	}
	for i := range n {
		w.ranks[i] = rank(i)
	}
	for {
		least, at := never, -1
		for i, r := range w.ranks[:n] {
			if r < least {
				least, at = r, i
			}
		}
		if at < 0 {
			break
		}
		s[at].id = uint32(least)
		copy(s[at+1:n-1], s[at+2:n])
		copy(w.ranks[at+1:n-1], w.ranks[at+2:n])
		n--
		w.ranks[at] = rank(at)
		if at > 0 {
			w.ranks[at-1] = rank(at - 1)
		}
	}
	for _, x := range s[:n] {
		out = append(out, x.id)
	}
	return out
}

// push puts the pair at position at on the heap, if the pair can be merged.
func (w *mergeWork) push(m *bpe, at int, left, right uint32) {
	found, ok := m.merges.get(uint64(left)<<32 | uint64(right))
	if !ok {
		return
	}
	h := append(w.heap, found>>32<<32|uint64(at))
	i := len(h) - 1
	for i > 0 && h[(i-1)/2] > h[i] {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
		i = (i - 1) / 2
	}
	w.heap = h
}

// pop takes the least entry off the heap.
func (w *mergeWork) pop() uint64 {
	h := w.heap
	top := h[0]
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && h[child+1] < h[child] {
			child++
		}
		if h[i] <= h[child] {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	w.heap = h
	return top
}
