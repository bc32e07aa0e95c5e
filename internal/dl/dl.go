// SPDX-License-Identifier: Apache-2.0

// Package dl loads native libraries and their symbols at run time.
//
// So the same binary runs with and without CUDA. It is the only user of purego.
package dl

import (
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Library is an opened native library. It stays loaded for the life of the
// process: the drivers we bind start threads of their own and cannot be unloaded.
type Library struct {
	name   string
	handle uintptr
}

// Open loads the first of names that the dynamic loader finds. Symbols stay
// local to the library. The error of kind NotFound names each try with the
// loader's own words.
func Open(names ...string) (*Library, error) {
	var tried []string
	for _, n := range names {
		h, err := purego.Dlopen(n, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err == nil {
			return &Library{name: n, handle: h}, nil
		}
		tried = append(tried, err.Error())
	}
	return nil, &errs.Error{Kind: errs.NotFound, Msg: strings.Join(tried, "; ")}
}

// Name returns the name under which the library was found.
func (l *Library) Name() string { return l.name }

// Func is the address of a C function; 0 is a symbol the library does not have.
type Func uintptr

// Lookup returns the first of names that the library exports, newest version
// first by the caller's order, or 0 when it has none of them.
func (l *Library) Lookup(names ...string) Func {
	for _, n := range names {
		if p, err := purego.Dlsym(l.handle, n); err == nil && p != 0 {
			return Func(p)
		}
	}
	return 0
}

// Call calls f and returns its first result register. Arguments are integers
// (int, int32, uint64, uintptr) or unsafe.Pointer. What a pointer argument
// points to lives on the Go heap and stays alive until Call returns; the callee
// must not keep it. Calling the zero Func panics: callers check what Lookup
// gave them.
func (f Func) Call(args ...any) uintptr {
	if f == 0 {
		panic("dl: call of a symbol that was not found")
	}
	if neverTrue {
		// Stacks move, the heap does not: this makes the compiler place every
		// pointee on the heap, where its address as a number stays valid.
		escapeSink = args
	}
	var raw [maxArgs]uintptr
	for i, a := range args {
		raw[i] = word(a)
	}
	r, _, _ := purego.SyscallN(uintptr(f), raw[:len(args)]...)
	runtime.KeepAlive(args)
	return r
}

// maxArgs is the most arguments that the functions we bind take: cuLaunchKernel.
const maxArgs = 11

// neverTrue is a variable so that the compiler cannot remove the branch that
// uses it; nothing ever writes it or escapeSink.
var (
	neverTrue  bool
	escapeSink []any
)

func word(a any) uintptr {
	switch v := a.(type) {
	case unsafe.Pointer:
		return uintptr(v)
	case uintptr:
		return v
	case uint64:
		return uintptr(v)
	case int:
		return uintptr(v)
	case int32:
		return uintptr(v)
	}
	panic("dl: argument is neither an integer nor unsafe.Pointer")
}

// GoString copies the NUL-terminated C string at p, at most limit bytes of it.
func GoString(p uintptr, limit int) string {
	if p == 0 {
		return ""
	}
	// The address comes from C memory, which the garbage collector does not move.
	base := *(*unsafe.Pointer)(unsafe.Pointer(&p))
	b := unsafe.Slice((*byte)(base), limit)
	for i := range limit {
		if b[i] == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
