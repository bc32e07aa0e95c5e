// SPDX-License-Identifier: Apache-2.0

package tokens

import "math/bits"

// table maps 64-bit keys to 64-bit values. A lookup takes less time than in a Go map.
type table struct {
	keys   []uint64 // a key is stored plus one, so that zero is free
	values []uint64
	used   int
}

// slot returns the place of key, or the free place where key belongs.
func (t *table) slot(key uint64) int {
	mask := uint64(len(t.keys) - 1)
	at := key * 0x9E3779B97F4A7C15 >> (64 - bits.Len64(mask))
	for t.keys[at] != 0 && t.keys[at] != key+1 {
		at = (at + 1) & mask
	}
	return int(at)
}

// get returns the value of key, or false.
func (t *table) get(key uint64) (uint64, bool) {
	if len(t.keys) == 0 {
		return 0, false
	}
	at := t.slot(key)
	return t.values[at], t.keys[at] != 0
}

// set gives key a value. The largest key of 64 bits is not allowed.
func (t *table) set(key, value uint64) {
	if 2*(t.used+1) > len(t.keys) {
		old := *t
		t.keys, t.values = make([]uint64, max(16, 2*len(old.keys))), make([]uint64, max(16, 2*len(old.keys)))
		for i, k := range old.keys {
			if k != 0 {
				at := t.slot(k - 1)
				t.keys[at], t.values[at] = k, old.values[i]
			}
		}
	}
	at := t.slot(key)
	if t.keys[at] == 0 {
		t.keys[at] = key + 1
		t.used++
	}
	t.values[at] = value
}

// none is the value of a node of a trie where no key ends.
const none = ^uint32(0)

// trie finds the keys that a text begins with. Each key has a value below none.
type trie struct {
	edges table    // node and byte to the next node
	value []uint32 // of each node
}

// newTrie returns a trie without keys.
func newTrie() *trie { return &trie{value: []uint32{none}} }

// insert adds a key. If the trie has the key already, insert gives the key the new value and returns false.
func (t *trie) insert(key []byte, value uint32) bool {
	node := uint32(0)
	for _, b := range key {
		to, ok := t.edges.get(uint64(node)<<8 | uint64(b))
		if !ok {
			to = uint64(len(t.value))
			t.edges.set(uint64(node)<<8|uint64(b), to)
			t.value = append(t.value, none)
		}
		node = uint32(to)
	}
	fresh := t.value[node] == none
	t.value[node] = value
	return fresh
}

// step returns the node after node for byte b, or false.
func (t *trie) step(node uint32, b byte) (uint32, bool) {
	to, ok := t.edges.get(uint64(node)<<8 | uint64(b))
	return uint32(to), ok
}

// walk returns the node of a key, or false if no key begins with key.
func (t *trie) walk(key []byte) (uint32, bool) {
	node, ok := uint32(0), true
	for i := 0; i < len(key) && ok; i++ {
		node, ok = t.step(node, key[i])
	}
	return node, ok
}

// longest returns the length and the value of the longest key that text begins with, or zeros.
func (t *trie) longest(text []byte) (int, uint32) { return t.longestFrom(0, text) }

// longestFrom is longest for keys below a node. The empty key does not count.
func (t *trie) longestFrom(node uint32, text []byte) (n int, value uint32) {
	for i, b := range text {
		to, ok := t.step(node, b)
		if !ok {
			break
		}
		node = to
		if v := t.value[node]; v != none {
			n, value = i+1, v
		}
	}
	return n, value
}
