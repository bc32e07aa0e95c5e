// SPDX-License-Identifier: Apache-2.0

// Package pickle reads the values of a Python pickle without running any code of it. Classes and functions that a
// pickle names are returned as names, and the objects that it would make are returned as their arguments and their
// state.
package pickle

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Values of a pickle are nil, bool, int64, float64, string, []byte, *List, *Dict, *Class and *Object. An integer that
// does not fit into an int64 is returned as Big.

// List is a list, a tuple or a set.
type List struct{ Items []any }

// Dict has the keys and values of a dict, in order.
type Dict struct{ Keys, Values []any }

// Get returns the value of a key that is text, or nil if there is none.
func (d *Dict) Get(key string) any {
	for i, k := range d.Keys {
		if k == key {
			return d.Values[i]
		}
	}
	return nil
}

// Class is a class or a function that a pickle names.
type Class struct{ Module, Name string }

// Object is what a class or a function would make of its arguments.
type Object struct {
	Class any // a *Class, as a rule
	Args  any
	State any // nil if the pickle has none
}

// Attribute returns an attribute of the object's state, or nil if there is none.
func (o *Object) Attribute(name string) any {
	if d, ok := o.State.(*Dict); ok {
		return d.Get(name)
	}
	return nil
}

// Big is an integer of more than 64 bits, in little-endian two's complement.
type Big struct{ Bytes []byte }

// mark is on the stack where a sequence of values begins.
type mark struct{}

// MostSteps is the largest number of instructions of a pickle. MostSteps bounds the memory of Parse to
// a few gigabytes.
const MostSteps = 16 << 20

// Parse returns the value of a pickle. Errors show the parameter `name` as the pickle's name. If the content is not a
// pickle, the error is of kind Corrupt. If it has too many instructions, the error is of kind Unsupported.
func Parse(name string, b []byte) (any, error) {
	m := machine{b: b}
	v, err := m.run()
	if err == nil {
		return v, nil
	}
	if err == errSteps {
		return nil, errs.New(errs.Unsupported, "read pickle", name, fmt.Sprintf("has more than %d instructions", MostSteps))
	}
	return nil, errs.New(errs.Corrupt, "read pickle", name, fmt.Sprintf("at byte %d: %v", m.at, err))
}
