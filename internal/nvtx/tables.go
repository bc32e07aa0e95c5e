// SPDX-License-Identifier: Apache-2.0

package nvtx

import (
	"sync/atomic"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/dl"
)

// module is a table of function pointers that the profiler fills. The profiler gets the address of each pointer, and
// may change a pointer at any time.
type module struct {
	pointers [functions]uintptr
	places   [functions]*uintptr
}

func newModule() *module {
	m := &module{}
	for i := range m.pointers {
		m.places[i] = &m.pointers[i]
	}
	return m
}

// function returns the profiler's function of the given number, or 0 if the profiler does not want it called.
func (m *module) function(number int) dl.Func {
	return dl.Func(atomic.LoadUintptr(&m.pointers[number]))
}

// tables are what the program lends to the profiler. The profiler keeps their addresses, so they live as long as the
// Domain. Go does not move them.
type tables struct {
	core, core2 *module
	callbacks   *callbacks
	versions    *versions
}

// callbacks is NvtxExportTableCallbacks.
type callbacks struct {
	size      uintptr
	functions uintptr
}

// versions is NvtxExportTableVersionInfo.
type versions struct {
	size    uintptr
	version uint32
	_       uint32
	set     uintptr
}

func newTables() *tables {
	t := &tables{core: newModule(), core2: newModule()}
	t.callbacks = &callbacks{size: unsafe.Sizeof(callbacks{}), functions: dl.Callback(t.module)}
	t.versions = &versions{size: unsafe.Sizeof(versions{}), version: version,
		set: dl.Callback(func(uintptr) uintptr { return 0 })}
	return t
}

// lend returns the address of the C function that gives the tables to the profiler by their numbers.
func (t *tables) lend() uintptr {
	return dl.Callback(func(number uintptr) unsafe.Pointer {
		switch uint32(number) {
		case tableCallbacks:
			return unsafe.Pointer(t.callbacks)
		case tableVersion:
			return unsafe.Pointer(t.versions)
		}
		return nil
	})
}

// module gives the profiler the table of a module and its length. It returns 0 for a module without functions of ours.
//
// The addresses point into the profiler's memory. Numbers are stored there, not pointers, because the garbage collector
// would look at what a pointer replaces.
func (t *tables) module(number uintptr, table *uintptr, length *uint32) uintptr {
	m := t.core
	switch uint32(number) {
	case moduleCore:
	case moduleCore2:
		m = t.core2
	default:
		return 0
	}
	*table = uintptr(unsafe.Pointer(&m.places[0]))
	if length != nil {
		*length = functions
	}
	return 1
}
