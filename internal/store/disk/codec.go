// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"encoding/binary"
	"slices"
)

// put appends values to a record.
type put []byte

func (p *put) byte(v byte)       { *p = append(*p, v) }
func (p *put) uint(v uint64)     { *p = binary.AppendUvarint(*p, v) }
func (p *put) int(v int64)       { *p = binary.AppendVarint(*p, v) }
func (p *put) word(v uint64)     { *p = binary.BigEndian.AppendUint64(*p, v) }
func (p *put) text(v string)     { p.uint(uint64(len(v))); *p = append(*p, v...) }
func (p *put) words(vs []uint64) { p.uint(uint64(len(vs))); p.rawWords(vs) }
func (p *put) rawWords(vs []uint64) {
	*p = slices.Grow(*p, 8*len(vs))
	for _, v := range vs {
		p.word(v)
	}
}

// pairs appends a map in the order of its names, so that equal maps are equal bytes.
func (p *put) pairs(m map[string]string) {
	p.uint(uint64(len(m)))
	if len(m) == 0 {
		return
	}
	names := make([]string, 0, len(m))
	for k := range m {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		p.text(k)
		p.text(m[k])
	}
}

// take reads values from a record. After the first that is not there, bad is
// set and every further one is zero, so that callers look once, at the end.
// Nothing is allocated beyond what the record's own length allows.
type take struct {
	b   []byte
	bad bool
}

func (t *take) fail() {
	t.bad = true
	t.b = nil
}

func (t *take) byte() byte {
	if len(t.b) == 0 {
		t.fail()
		return 0
	}
	v := t.b[0]
	t.b = t.b[1:]
	return v
}

func (t *take) uint() uint64 {
	v, n := binary.Uvarint(t.b)
	if n <= 0 {
		t.fail()
		return 0
	}
	t.b = t.b[n:]
	return v
}

func (t *take) int() int64 {
	v, n := binary.Varint(t.b)
	if n <= 0 {
		t.fail()
		return 0
	}
	t.b = t.b[n:]
	return v
}

func (t *take) word() uint64 {
	if len(t.b) < 8 {
		t.fail()
		return 0
	}
	v := binary.BigEndian.Uint64(t.b)
	t.b = t.b[8:]
	return v
}

// size reads a length or a count of things that take at least each bytes.
func (t *take) size(each int) int {
	n := t.uint()
	if n > uint64(len(t.b)/each) {
		t.fail()
		return 0
	}
	return int(n)
}

func (t *take) text() string {
	n := t.size(1)
	v := string(t.b[:n])
	t.b = t.b[n:]
	return v
}

func (t *take) skip() {
	n := t.size(1)
	t.b = t.b[n:]
}

func (t *take) words() []uint64 {
	n := t.size(8)
	if n == 0 {
		return nil
	}
	vs := make([]uint64, n)
	for i := range vs {
		vs[i] = t.word()
	}
	return vs
}

func (t *take) pairs() map[string]string {
	n := t.size(2)
	if n == 0 {
		return nil
	}
	m := make(map[string]string, n)
	for range n {
		k := t.text()
		m[k] = t.text()
	}
	if len(m) != n {
		t.bad = true
	}
	return m
}

// done says whether everything was there and nothing is left over.
func (t *take) done() bool { return !t.bad && len(t.b) == 0 }
