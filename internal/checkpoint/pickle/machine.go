// SPDX-License-Identifier: Apache-2.0

package pickle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

var (
	errSteps     = errors.New("too many instructions")
	errShort     = errors.New("the pickle is truncated")
	errStack     = errors.New("a value is missing on the stack")
	errMemo      = errors.New("a value is fetched that was not stored")
	errForm      = errors.New("a value has another type than its instruction expects")
	errNoMark    = errors.New("a mark is missing on the stack")
	errNoContent = errors.New("the pickle has no value")
)

// machine runs the instructions of a pickle.
type machine struct {
	b     []byte
	at    int
	stack []any
	memo  map[uint64]any
}

func (m *machine) run() (any, error) {
	m.memo = map[uint64]any{}
	for steps := 0; ; steps++ {
		if steps == MostSteps {
			return nil, errSteps
		}
		op, err := m.take(1)
		if err != nil {
			return nil, err
		}
		if op[0] == '.' {
			if len(m.stack) == 0 {
				return nil, errNoContent
			}
			v := m.stack[len(m.stack)-1]
			if _, ok := v.(mark); ok {
				return nil, errNoContent
			}
			return v, nil
		}
		if err := m.step(op[0]); err != nil {
			return nil, err
		}
	}
}

// take returns the next n bytes of the pickle.
func (m *machine) take(n uint64) ([]byte, error) {
	if n > uint64(len(m.b)-m.at) {
		return nil, errShort
	}
	p := m.b[m.at : m.at+int(n)]
	m.at += int(n)
	return p, nil
}

// line returns the bytes up to the end of the line, as the first protocols write arguments.
func (m *machine) line() (string, error) {
	i := bytes.IndexByte(m.b[m.at:min(len(m.b), m.at+1<<16)], '\n')
	if i < 0 {
		return "", errShort
	}
	p, err := m.take(uint64(i) + 1)
	return string(p[:i]), err
}

// number reads a little-endian number of n bytes.
func (m *machine) number(n int) (uint64, error) {
	p, err := m.take(uint64(n))
	if err != nil {
		return 0, err
	}
	var full [8]byte
	copy(full[:], p)
	return binary.LittleEndian.Uint64(full[:]), nil
}

// counted reads a length of n bytes and then as many bytes.
func (m *machine) counted(n int) ([]byte, error) {
	size, err := m.number(n)
	if err != nil {
		return nil, err
	}
	return m.take(size)
}

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

// pop removes the last value. A mark is no value.
func (m *machine) pop() (any, error) {
	if len(m.stack) == 0 {
		return nil, errStack
	}
	v := m.stack[len(m.stack)-1]
	if _, ok := v.(mark); ok {
		return nil, errStack
	}
	m.stack = m.stack[:len(m.stack)-1]
	return v, nil
}

// popMany removes n values and returns them in the order in which they were pushed.
func (m *machine) popMany(n int) ([]any, error) {
	out := make([]any, n)
	for i := n - 1; i >= 0; i-- {
		v, err := m.pop()
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

// popMark removes all values back to the last mark.
func (m *machine) popMark() ([]any, error) {
	for i := len(m.stack) - 1; i >= 0; i-- {
		if _, ok := m.stack[i].(mark); ok {
			out := append([]any(nil), m.stack[i+1:]...)
			m.stack = m.stack[:i]
			return out, nil
		}
	}
	return nil, errNoMark
}

// top returns the last value and leaves it on the stack.
func top[T any](m *machine) (T, error) {
	var none T
	if len(m.stack) == 0 {
		return none, errStack
	}
	v, ok := m.stack[len(m.stack)-1].(T)
	if !ok {
		return none, errForm
	}
	return v, nil
}

// integer converts a little-endian number in two's complement.
func integer(p []byte) any {
	if len(p) > 8 {
		return Big{p}
	}
	var v uint64
	for i, b := range p {
		v |= uint64(b) << (8 * i)
	}
	if n := len(p); n > 0 && n < 8 && p[n-1]&0x80 != 0 {
		v |= ^uint64(0) << (8 * n)
	}
	return int64(v)
}

// textNumber converts an integer of the first protocols.
func textNumber(s string) (any, error) {
	switch s = strings.TrimSuffix(s, "L"); s {
	case "00":
		return false, nil
	case "01":
		return true, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return Big{[]byte(s)}, nil
	}
	return n, err
}

func bigEndianFloat(p []byte) float64 { return math.Float64frombits(binary.BigEndian.Uint64(p)) }

func unknown(op byte) error { return fmt.Errorf("the instruction 0x%02x is not known", op) }
