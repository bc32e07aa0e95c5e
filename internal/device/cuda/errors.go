// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"errors"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/dl"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// These constants are the CUresult codes that this package handles specially.
const (
	resOutOfMemory          = 2
	resNotInitialized       = 3
	resNoDevice             = 100
	resNoBinaryForGPU       = 209
	resInvalidPTX           = 218
	resJITCompilerNotFound  = 221
	resUnsupportedPTX       = 222
	resJITDisabled          = 223
	resPeerUnsupported      = 217
	resNotReady             = 600
	resPeerAlreadyEnabled   = 704
	resSystemNotReady       = 802
	resSystemDriverMismatch = 803
)

// Result is the error of a CUDA driver call: a CUresult other than success.
type Result struct {
	Code int
	Name string // CUDA_ERROR_OUT_OF_MEMORY
	Text string
}

// Error returns the driver's name of the code, the code and the driver's message.
func (r *Result) Error() string { return fmt.Sprintf("%s (%d): %s", r.Name, r.Code, r.Text) }

// check converts the result of a driver call into an error that names the call.
func (d *Driver) check(call string, ret uintptr) error {
	c := int(int32(ret))
	if c == 0 {
		return nil
	}
	r := &Result{Code: c, Name: d.errorText(d.fn.getErrorName, c), Text: d.errorText(d.fn.getErrorString, c)}
	e := &errs.Error{Kind: errs.Device, Op: call, Err: r}
	if c == resOutOfMemory {
		e.Kind = errs.NoMemory
		e.Fix = "free device memory, or choose another device"
	}
	return e
}

func (d *Driver) errorText(fn dl.Func, code int) string {
	var s uintptr
	if fn == 0 || fn.Call(uintptr(code), ptr(&s)) != 0 || s == 0 {
		return "unknown CUDA error"
	}
	return dl.GoString(s, 256)
}

// code returns the CUresult inside err, or 0.
func code(err error) int {
	var r *Result
	if errors.As(err, &r) {
		return r.Code
	}
	return 0
}
