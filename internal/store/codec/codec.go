// SPDX-License-Identifier: Apache-2.0

// Package codec encodes and decodes the fields of the store's metadata records.
package codec

import (
	"encoding/binary"
	"slices"
)

// Encoder appends values to a record.
type Encoder []byte

// Byte appends one byte.
func (p *Encoder) Byte(v byte) { *p = append(*p, v) }

// Uint appends an unsigned number as a varint of 1 to 10 bytes.
func (p *Encoder) Uint(v uint64) { *p = binary.AppendUvarint(*p, v) }

// Int appends a signed number as a zigzag varint of 1 to 10 bytes.
func (p *Encoder) Int(v int64) { *p = binary.AppendVarint(*p, v) }

// Word appends a number as 8 bytes, big-endian.
func (p *Encoder) Word(v uint64) { *p = binary.BigEndian.AppendUint64(*p, v) }

// Text appends the length of v and then the bytes of v.
func (p *Encoder) Text(v string) { p.Uint(uint64(len(v))); *p = append(*p, v...) }

// Words appends the number of words and then each word in 8 bytes.
func (p *Encoder) Words(vs []uint64) { p.Uint(uint64(len(vs))); p.RawWords(vs) }

// RawWords appends each word in 8 bytes, without the number of words before them.
func (p *Encoder) RawWords(vs []uint64) {
	*p = slices.Grow(*p, 8*len(vs))
	for _, v := range vs {
		p.Word(v)
	}
}

// Pairs appends a map sorted by its keys, so that equal maps have equal bytes.
func (p *Encoder) Pairs(m map[string]string) {
	p.Uint(uint64(len(m)))
	if len(m) == 0 {
		return
	}
	names := make([]string, 0, len(m))
	for k := range m {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		p.Text(k)
		p.Text(m[k])
	}
}

// Decoder reads values from a record. After the first missing or invalid value, the Decoder has set Bad, and every
// further value is zero. A caller of a Decoder needs to check for damage only once, after the last value. A damaged
// length in a record cannot make the Decoder allocate much more memory than the record has bytes.
type Decoder struct {
	Rest []byte // bytes of the record that were not read yet
	Bad  bool
}

// Fail marks the record as damaged and ends the reading.
func (t *Decoder) Fail() {
	t.Bad = true
	t.Rest = nil
}

// Byte reads one byte.
func (t *Decoder) Byte() byte {
	if len(t.Rest) == 0 {
		t.Fail()
		return 0
	}
	v := t.Rest[0]
	t.Rest = t.Rest[1:]
	return v
}

// Uint reads an unsigned number that Encoder.Uint wrote.
func (t *Decoder) Uint() uint64 {
	v, n := binary.Uvarint(t.Rest)
	if n <= 0 {
		t.Fail()
		return 0
	}
	t.Rest = t.Rest[n:]
	return v
}

// Int reads a signed number that Encoder.Int wrote.
func (t *Decoder) Int() int64 {
	v, n := binary.Varint(t.Rest)
	if n <= 0 {
		t.Fail()
		return 0
	}
	t.Rest = t.Rest[n:]
	return v
}

// Word reads an 8-byte number that Encoder.Word wrote.
func (t *Decoder) Word() uint64 {
	if len(t.Rest) < 8 {
		t.Fail()
		return 0
	}
	v := binary.BigEndian.Uint64(t.Rest)
	t.Rest = t.Rest[8:]
	return v
}

// Size reads the number of following items, each at least `each` bytes long. If the rest of the record is too short for
// the items, Size marks the record as damaged.
func (t *Decoder) Size(each int) int {
	n := t.Uint()
	if n > uint64(len(t.Rest)/each) {
		t.Fail()
		return 0
	}
	return int(n)
}

// Text reads a string that Encoder.Text wrote.
func (t *Decoder) Text() string {
	n := t.Size(1)
	v := string(t.Rest[:n])
	t.Rest = t.Rest[n:]
	return v
}

// Skip skips a string that Encoder.Text wrote.
func (t *Decoder) Skip() {
	n := t.Size(1)
	t.Rest = t.Rest[n:]
}

// Words reads a list of 8-byte numbers that Encoder.Words wrote.
func (t *Decoder) Words() []uint64 {
	n := t.Size(8)
	if n == 0 {
		return nil
	}
	vs := make([]uint64, n)
	for i := range vs {
		vs[i] = t.Word()
	}
	return vs
}

// Pairs reads a map that Encoder.Pairs wrote.
func (t *Decoder) Pairs() map[string]string {
	n := t.Size(2)
	if n == 0 {
		return nil
	}
	m := make(map[string]string, n)
	for range n {
		k := t.Text()
		m[k] = t.Text()
	}
	if len(m) != n {
		t.Bad = true
	}
	return m
}

// Done reports whether all values were valid and no bytes are left over.
func (t *Decoder) Done() bool { return !t.Bad && len(t.Rest) == 0 }
