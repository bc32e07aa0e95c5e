// SPDX-License-Identifier: Apache-2.0

// Package nvtx shows the stages of transfers in profilers that read NVTX, such as Nsight Systems.
//
// A profiler sets the variable NVTX_INJECTION64_PATH of the program to its own library. NVTX is a protocol between the
// program and that library: the program lends tables of function pointers, and the library fills them. There is no
// library of NVTX itself. Without a profiler, nothing is loaded and nothing is called.
package nvtx

import (
	"os"
	"sync"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/dl"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Variable is the environment variable with the path of the profiler's library.
const Variable = "NVTX_INJECTION64_PATH"

// initialize is the function that a profiler's library exports.
const initialize = "InitializeInjectionNvtx2"

// Numbers of NVTX: the tables that a program lends, the modules of functions, and the functions of module core2.
const (
	tableCallbacks = 1
	tableVersion   = 3

	moduleCore  = 1
	moduleCore2 = 5

	rangeStart     = 2
	rangeEnd       = 3
	registerString = 10
	domainCreate   = 12
	domainDestroy  = 14
	functions      = 16 // of each of the two modules

	version = 3
)

// Domain is a connection to the profiler that runs the program. The profiler shows the ranges of a Domain under one
// name, apart from those of other libraries. All methods are safe for concurrent use.
type Domain struct {
	tables *tables
	handle uintptr

	mu      sync.Mutex
	strings map[string]uintptr // names that the profiler knows
}

// Open connects to the profiler that runs the program and makes a domain with the given name. If no profiler runs the
// program, Open returns nil without an error. Open fails with kind NotFound if the profiler's library cannot be loaded,
// and with kind Unsupported if it does not speak NVTX. The domain lives as long as the process.
func Open(name string) (*Domain, error) {
	path := os.Getenv(Variable)
	if path == "" {
		return nil, nil
	}
	return open(path, name)
}

func open(path, name string) (*Domain, error) {
	const op = "connect to the profiler"
	lib, err := dl.Open(path)
	if err != nil {
		return nil, errs.Wrap(op, Variable+"="+path, err)
	}
	start := lib.Lookup(initialize)
	if start == 0 {
		return nil, errs.New(errs.Unsupported, op, Variable+"="+path, "the library has no function "+initialize).
			WithFix("unset " + Variable + ", or name the library of a profiler")
	}
	d := &Domain{tables: newTables(), strings: map[string]uintptr{}}
	if start.Call(d.tables.lend()) == 0 {
		return nil, errs.New(errs.Unsupported, op, Variable+"="+path, "the profiler refused to start")
	}
	if create := d.tables.core2.function(domainCreate); create != 0 {
		text := append([]byte(name), 0)
		d.handle = create.Call(unsafe.Pointer(&text[0]))
	}
	return d, nil
}

// attributes is nvtxEventAttributes_v2.
type attributes struct {
	version     uint16
	size        uint16
	category    uint32
	colorType   int32
	color       uint32
	payloadType int32
	_           int32
	payload     uint64
	messageType int32
	_           int32
	message     uintptr
}

// registered says that the message is a name that the profiler knows.
const registered = 3

// Begin shows the beginning of a stage, and returns the number of the shown range, for End. Any thread may end it. A
// stage name is registered with the profiler once, so names must be few.
func (d *Domain) Begin(stage string) uint64 {
	begin := d.tables.core2.function(rangeStart)
	if begin == 0 {
		return 0 // the profiler does not want ranges
	}
	a := &attributes{version: version, messageType: registered, message: d.name(stage)}
	a.size = uint16(unsafe.Sizeof(*a))
	return uint64(begin.Call(d.handle, unsafe.Pointer(a)))
}

// End shows the end of the range with the given number. End does nothing for the number 0.
func (d *Domain) End(number uint64) {
	if end := d.tables.core2.function(rangeEnd); end != 0 && number != 0 {
		end.Call(d.handle, number)
	}
}

// name returns the handle that the profiler gave to the name of a stage. The first call registers the name.
func (d *Domain) name(stage string) uintptr {
	d.mu.Lock()
	defer d.mu.Unlock()
	h, ok := d.strings[stage]
	if register := d.tables.core2.function(registerString); !ok && register != 0 {
		text := append([]byte(stage), 0)
		h = register.Call(d.handle, unsafe.Pointer(&text[0]))
		d.strings[stage] = h
	}
	return h
}
