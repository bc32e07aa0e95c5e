// SPDX-License-Identifier: Apache-2.0

package pickle

import (
	"strconv"
	"strings"
)

// step runs one instruction. The letters and numbers are those of Python's module pickletools.
func (m *machine) step(op byte) error {
	switch op {
	case 0x80: // PROTO
		_, err := m.take(1)
		return err
	case 0x95: // FRAME
		_, err := m.take(8)
		return err
	case '(': // MARK
		m.push(mark{})
		return nil
	case '0': // POP
		if len(m.stack) == 0 {
			return errStack
		}
		m.stack = m.stack[:len(m.stack)-1]
		return nil
	case '1': // POP_MARK
		_, err := m.popMark()
		return err
	case '2': // DUP
		v, err := top[any](m)
		if err == nil {
			m.push(v)
		}
		return err
	case 'N': // NONE
		m.push(nil)
		return nil
	case 0x88, 0x89: // NEWTRUE, NEWFALSE
		m.push(op == 0x88)
		return nil
	case 'p', 'q', 'r', 0x94, 'g', 'h', 'j':
		return m.remember(op)
	case ')', 't', 0x85, 0x86, 0x87, ']', 'l', 'a', 'e', '}', 'd', 's', 'u', 0x8f, 0x90, 0x91:
		return m.collect(op)
	case 'c', 0x93, 'R', 0x81, 0x92, 'b', 'i', 'o', 'P', 'Q', 0x82, 0x83, 0x84:
		return m.construct(op)
	}
	return m.scalar(op)
}

// scalar runs the instructions that push a number or a text.
func (m *machine) scalar(op byte) error {
	var v any
	var p []byte
	var s string
	var err error
	switch op {
	case 'K', 'M': // BININT1, BININT2
		var n uint64
		n, err = m.number(map[byte]int{'K': 1, 'M': 2}[op])
		v = int64(n)
	case 'J': // BININT
		if p, err = m.take(4); err == nil {
			v = integer(p)
		}
	case 0x8a, 0x8b: // LONG1, LONG4
		if p, err = m.counted(map[byte]int{0x8a: 1, 0x8b: 4}[op]); err == nil {
			v = integer(p)
		}
	case 'I', 'L': // INT, LONG
		if s, err = m.line(); err == nil {
			v, err = textNumber(s)
		}
	case 'F': // FLOAT
		if s, err = m.line(); err == nil {
			v, err = strconv.ParseFloat(s, 64)
		}
	case 'G': // BINFLOAT
		if p, err = m.take(8); err == nil {
			v = bigEndianFloat(p)
		}
	case 0x8c, 'X', 0x8d: // SHORT_BINUNICODE, BINUNICODE, BINUNICODE8
		p, err = m.counted(map[byte]int{0x8c: 1, 'X': 4, 0x8d: 8}[op])
		v = string(p)
	case 'V', 'S': // UNICODE, STRING
		s, err = m.line()
		v = strings.Trim(s, `'"`)
	case 'U', 'T', 'C', 'B', 0x8e, 0x96: // SHORT_BINSTRING, BINSTRING, SHORT_BINBYTES, BINBYTES, BINBYTES8, BYTEARRAY8
		p, err = m.counted(map[byte]int{'U': 1, 'T': 4, 'C': 1, 'B': 4, 0x8e: 8, 0x96: 8}[op])
		v = p
	default:
		return unknown(op)
	}
	if err == nil {
		m.push(v)
	}
	return err
}

// remember runs the instructions that store a value and fetch it again.
func (m *machine) remember(op byte) error {
	var at uint64
	var err error
	switch op {
	case 'p', 'g': // PUT, GET
		var s string
		if s, err = m.line(); err == nil {
			at, err = strconv.ParseUint(s, 10, 32)
		}
	case 'q', 'h': // BINPUT, BINGET
		at, err = m.number(1)
	case 'r', 'j': // LONG_BINPUT, LONG_BINGET
		at, err = m.number(4)
	case 0x94: // MEMOIZE
		at = uint64(len(m.memo))
	}
	if err != nil {
		return err
	}
	if op == 'g' || op == 'h' || op == 'j' {
		v, ok := m.memo[at]
		if !ok {
			return errMemo
		}
		m.push(v)
		return nil
	}
	v, err := top[any](m)
	if err == nil {
		m.memo[at] = v
	}
	return err
}

// collect runs the instructions that make and fill tuples, lists, dicts and sets.
func (m *machine) collect(op byte) error {
	switch op {
	case ')', ']', 0x8f: // EMPTY_TUPLE, EMPTY_LIST, EMPTY_SET
		m.push(&List{})
		return nil
	case '}': // EMPTY_DICT
		m.push(&Dict{})
		return nil
	case 0x85, 0x86, 0x87: // TUPLE1, TUPLE2, TUPLE3
		all, err := m.popMany(int(op - 0x84))
		m.push(&List{all})
		return err
	case 's', 'a': // SETITEM, APPEND
		n := map[byte]int{'s': 2, 'a': 1}[op]
		all, err := m.popMany(n)
		if err != nil {
			return err
		}
		return m.fill(op, all)
	}
	all, err := m.popMark()
	if err != nil {
		return err
	}
	switch op {
	case 't', 'l', 0x91: // TUPLE, LIST, FROZENSET
		m.push(&List{all})
		return nil
	case 'd': // DICT
		m.push(&Dict{})
	}
	return m.fill(op, all) // DICT, APPENDS, SETITEMS, ADDITEMS
}

// fill adds values to the list or dict that is last on the stack.
func (m *machine) fill(op byte, all []any) error {
	if op == 'a' || op == 'e' || op == 0x90 {
		switch to, _ := top[any](m); to := to.(type) {
		case *List:
			to.Items = append(to.Items, all...)
			return nil
		case *Object: // of a class that extends list
			return nil
		}
		return errForm
	}
	if len(all)%2 != 0 {
		return errStack
	}
	var to *Dict
	switch x, _ := top[any](m); x := x.(type) {
	case *Dict:
		to = x
	case *Object: // of a class that extends dict, such as OrderedDict
		d, ok := x.State.(*Dict)
		if !ok {
			d = &Dict{}
			x.State = d
		}
		to = d
	default:
		return errForm
	}
	for i := 0; i < len(all); i += 2 {
		to.Keys, to.Values = append(to.Keys, all[i]), append(to.Values, all[i+1])
	}
	return nil
}

// construct runs the instructions that name classes and make objects.
func (m *machine) construct(op byte) error {
	switch op {
	case 'c', 'i': // GLOBAL, INST
		module, err := m.line()
		if err != nil {
			return err
		}
		name, err := m.line()
		if err != nil {
			return err
		}
		c := &Class{module, name}
		if op == 'c' {
			m.push(c)
			return nil
		}
		args, err := m.popMark()
		m.push(&Object{Class: c, Args: &List{args}})
		return err
	case 'o': // OBJ
		all, err := m.popMark()
		if err != nil || len(all) == 0 {
			return errStack
		}
		m.push(&Object{Class: all[0], Args: &List{all[1:]}})
		return nil
	case 0x93: // STACK_GLOBAL
		all, err := m.popMany(2)
		if err != nil {
			return err
		}
		module, ok1 := all[0].(string)
		name, ok2 := all[1].(string)
		if !ok1 || !ok2 {
			return errForm
		}
		m.push(&Class{module, name})
		return nil
	case 'R', 0x81: // REDUCE, NEWOBJ
		all, err := m.popMany(2)
		if err != nil {
			return err
		}
		m.push(&Object{Class: all[0], Args: all[1]})
		return nil
	case 0x92: // NEWOBJ_EX
		all, err := m.popMany(3)
		if err != nil {
			return err
		}
		m.push(&Object{Class: all[0], Args: all[1]})
		return nil
	case 'b': // BUILD
		state, err := m.pop()
		if err != nil {
			return err
		}
		o, err := top[*Object](m)
		if err == nil {
			o.State = state
		}
		return err
	case 'P': // PERSID
		s, err := m.line()
		m.push(&Object{Args: s})
		return err
	case 'Q': // BINPERSID
		v, err := m.pop()
		m.push(&Object{Args: v})
		return err
	default: // EXT1, EXT2, EXT4
		n, err := m.number(map[byte]int{0x82: 1, 0x83: 2, 0x84: 4}[op])
		m.push(&Class{Name: strconv.FormatUint(n, 10)})
		return err
	}
}
