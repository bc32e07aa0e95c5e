// SPDX-License-Identifier: Apache-2.0

// Package dl loads native libraries and their symbols at run time, so that the same binary runs with and without
// CUDA.
//
// Package dl is the only package that imports purego.
package dl

import (
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Library is a loaded native library. A Library is never unloaded, because drivers such as libcuda start their own
// threads.
type Library struct {
	name   string
	handle uintptr
}

// Open loads the first library of the parameter names that the dynamic loader finds. Open loads a library with
// RTLD_LOCAL, so that its symbols are not visible to other libraries. If no library is found, Open fails with kind
// NotFound and the loader's message for each name.
func Open(names ...string) (*Library, error) {
	// The loader keeps its message for each thread, and purego asks for the message in a second call.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
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

// Name returns the name, as passed to Open, under which the library was found.
func (l *Library) Name() string { return l.name }

// Func is the address of a C function. A Func of 0 means that the library does not have the symbol.
type Func uintptr

// Lookup returns the address of the first symbol of the parameter names that the library exports, or 0 if it exports
// none of them. Callers list the newest version of a symbol first.
func (l *Library) Lookup(names ...string) Func {
	for _, n := range names {
		if p, err := purego.Dlsym(l.handle, n); err == nil && p != 0 {
			return Func(p)
		}
	}
	return 0
}

// Call calls the C function f and returns its first result register. Each argument is an int, int32, uint64, uintptr
// or unsafe.Pointer. Memory behind a pointer argument stays alive and at its address until Call returns. The C
// function must not keep a pointer argument after it has returned. Call panics if f is 0, so callers check the result
// of Lookup first.
func (f Func) Call(args ...any) uintptr {
	if f == 0 {
		panic("dl: call of a symbol that was not found")
	}
	if neverTrue {
		// Stacks move, the heap does not. This makes the compiler place the target of every pointer on the heap,
		// where its address stays valid.
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

// Bind sets *fptr, a variable of a Go function type, to a Go function that calls the C function f. Bind is for
// functions with floating-point arguments, which Call does not pass. Bind panics if f is 0, or if C has no such
// function type.
func (f Func) Bind(fptr any) {
	if f == 0 {
		panic("dl: bind of a symbol that was not found")
	}
	purego.RegisterFunc(fptr, uintptr(f))
}

// Callback returns the address of a C function that calls fn, a Go function whose arguments and result are integers,
// pointers or unsafe.Pointer. A process can make about 2000 callbacks, and none is ever freed.
func Callback(fn any) uintptr { return purego.NewCallback(fn) }

// maxArgs is the largest number of arguments of a bound function, cuLaunchKernel.
const maxArgs = 11

// neverTrue is a variable, so that the compiler cannot remove the branch that uses it. Nothing ever writes to
// neverTrue or escapeSink.
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

// GoString returns a copy of the NUL-terminated C string at address p, at most limit bytes of it. GoString returns ""
// if p is 0.
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
