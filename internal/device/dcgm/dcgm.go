// SPDX-License-Identifier: Apache-2.0

// Package dcgm reads from NVIDIA's Data Center GPU Manager (DCGM) how much of each GPU computes.
//
// NVML says whether any kernel runs. DCGM also says how many multiprocessors have work, and how many bytes travel over
// PCIe and NVLink. Package dcgm asks the host engine of DCGM that runs on the machine, and starts none. If libdcgm, a
// symbol or the host engine is missing, the caller gets the reason and goes on without these figures.
package dcgm

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/dl"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Numbers of DCGM.
const (
	allGPUs      = 0x7fffffff
	mostGPUs     = 64
	blobBytes    = 4096
	typeDouble   = 'd'
	typeInteger  = 'i'
	blankDouble  = 140737488355328.0 // this and larger values mean that there is no value
	blankInteger = 0x7ffffffffffffff0

	everyMicroseconds = 500_000
	keepSeconds       = 10.0
	keepSamples       = 20
	connectMillis     = 1000
)

// Fields of DCGM, in the order in which they are read.
const (
	fieldIndex = iota
	fieldSM
	fieldTensor
	fieldDRAM
	fieldPCIeSent
	fieldPCIeReceived
	fieldNVLinkSent
	fieldNVLinkReceived
	fieldCount
)

// numbers are DCGM's numbers of the fields.
var numbers = [fieldCount]uint16{fieldIndex: 52, fieldSM: 1002, fieldTensor: 1004, fieldDRAM: 1005, fieldPCIeSent: 1009,
	fieldPCIeReceived: 1010, fieldNVLinkSent: 1011, fieldNVLinkReceived: 1012}

// value is dcgmFieldValue_v1.
type value struct {
	version     uint32
	field, kind uint16
	status      int32
	_           int32
	at          int64
	data        [blobBytes]byte
}

// connection is dcgmConnectV2Params_v2.
type connection struct {
	version, persist, millis, isSocket uint32
}

// Engine is a connection to the host engine of DCGM. An Engine is safe for use by one goroutine at a time.
type Engine struct {
	lib    *dl.Library
	handle uintptr
	gpus   []uint32

	latest, unwatch, destroy, disconnect, shutdown, errorString dl.Func
	group                                                       uintptr
}

// LibraryNames returns the file names under which Open looks for libdcgm, in order.
func LibraryNames() []string { return []string{"libdcgm.so.4", "libdcgm.so.3", "libdcgm.so"} }

// Open loads libdcgm, connects to the host engine at address, and watches the fields of all GPUs. Open fails with kind
// Unsupported if there is no libdcgm or no host engine, or if the GPUs have no such fields.
func Open(address string, names ...string) (*Engine, error) {
	lib, err := dl.Open(names...)
	if err != nil {
		return nil, (&errs.Error{Kind: errs.Unsupported, Op: "use DCGM", Name: names[0], Msg: "libdcgm was not found",
			Err: err}).
			WithFix("install NVIDIA's package datacenter-gpu-manager")
	}
	e := &Engine{lib: lib}
	var start, connect, devices, fields, watch dl.Func
	for name, to := range map[string]*dl.Func{"dcgmInit": &start, "dcgmConnect_v2": &connect,
		"dcgmGetAllSupportedDevices": &devices, "dcgmFieldGroupCreate": &fields, "dcgmWatchFields": &watch,
		"dcgmGetLatestValuesForFields": &e.latest, "dcgmUnwatchFields": &e.unwatch, "dcgmFieldGroupDestroy": &e.destroy,
		"dcgmDisconnect": &e.disconnect, "dcgmShutdown": &e.shutdown} {
		if *to = lib.Lookup(name); *to == 0 {
			return nil, errs.New(errs.Unsupported, "use DCGM", lib.Name(), "symbol "+name+" is missing").
				WithFix("install DCGM 3 or newer")
		}
	}
	e.errorString = lib.Lookup("errorString")
	if err := e.check("dcgmInit", start.Call()); err != nil {
		return nil, err
	}
	c := connection{millis: connectMillis}
	c.version = uint32(unsafe.Sizeof(c)) | 2<<24
	if err := e.check("connect to the host engine at "+address, connect.Call(unsafe.Pointer(cString(address)),
		unsafe.Pointer(&c), unsafe.Pointer(&e.handle))); err != nil {
		e.shutdown.Call()
		return nil, err.WithFix("start the host engine: systemctl start nvidia-dcgm")
	}
	if err := e.begin(devices, fields, watch); err != nil {
		e.disconnect.Call(e.handle)
		e.shutdown.Call()
		return nil, err
	}
	return e, nil
}

// begin lists the GPUs and watches their fields.
func (e *Engine) begin(devices, fields, watch dl.Func) error {
	var ids [mostGPUs]uint32
	var count int32
	if err := e.check("list GPUs", devices.Call(e.handle, unsafe.Pointer(&ids), unsafe.Pointer(&count))); err != nil {
		return err
	}
	if count <= 0 || count > mostGPUs {
		return errs.New(errs.Unsupported, "use DCGM", e.lib.Name(), fmt.Sprintf("the host engine has %d GPUs", count))
	}
	e.gpus = ids[:count]
	asked := numbers
	name := cString(fmt.Sprintf("nebulaio-%d", os.Getpid()))
	if err := e.check("make a field group", fields.Call(e.handle, len(asked), unsafe.Pointer(&asked),
		unsafe.Pointer(name), unsafe.Pointer(&e.group))); err != nil {
		return err
	}
	var watchFields func(handle, gpus, group uintptr, every int64, seconds float64, samples int32) int32
	watch.Bind(&watchFields)
	if r := watchFields(e.handle, allGPUs, e.group, everyMicroseconds, keepSeconds, keepSamples); r != 0 {
		e.destroy.Call(e.handle, e.group)
		return e.check("watch fields", uintptr(uint32(r))).WithFix("profiling fields need a data center GPU, and no other " +
			"profiler at work")
	}
	return nil
}

// check turns a status of DCGM into an error, or into nil.
func (e *Engine) check(op string, status uintptr) *errs.Error {
	r := int32(status)
	if r == 0 {
		return nil
	}
	text := fmt.Sprintf("status %d", r)
	if e.errorString != 0 {
		if said := dl.GoString(e.errorString.Call(int(r)), 256); said != "" {
			text = fmt.Sprintf("%s (%d)", said, r)
		}
	}
	return errs.New(errs.Unsupported, "use DCGM", e.lib.Name(), op+": "+text)
}

// Activity returns the latest values of all GPUs. A value that a GPU does not have is device.UnknownActivity.
func (e *Engine) Activity() ([]device.GPUActivity, error) {
	all := make([]device.GPUActivity, 0, len(e.gpus))
	for _, id := range e.gpus {
		asked := numbers
		values := make([]value, fieldCount)
		for i := range values {
			values[i].version = uint32(unsafe.Sizeof(value{})) | 1<<24
		}
		if err := e.check(fmt.Sprintf("read GPU %d", id), e.latest.Call(e.handle, int(id), unsafe.Pointer(&asked),
			int(fieldCount), unsafe.Pointer(&values[0]))); err != nil {
			return nil, err
		}
		g := device.GPUActivity{Index: int(id), SM: values[fieldSM].number(), Tensor: values[fieldTensor].number(),
			Memory: values[fieldDRAM].number(), PCIeSent: values[fieldPCIeSent].number(),
			PCIeReceived: values[fieldPCIeReceived].number(), NVLinkSent: values[fieldNVLinkSent].number(),
			NVLinkReceived: values[fieldNVLinkReceived].number()}
		if index := values[fieldIndex].number(); index >= 0 {
			g.Index = int(index)
		}
		all = append(all, g)
	}
	return all, nil
}

// number returns the value of a field as a number.
func (v *value) number() float64 {
	if v.status != 0 {
		return device.UnknownActivity
	}
	switch v.kind {
	case typeDouble:
		if x := *(*float64)(unsafe.Pointer(&v.data)); x >= 0 && x < blankDouble {
			return x
		}
	case typeInteger:
		if x := *(*int64)(unsafe.Pointer(&v.data)); x >= 0 && x < blankInteger {
			return float64(x)
		}
	}
	return device.UnknownActivity
}

// Close ends the watches and the connection.
func (e *Engine) Close() error {
	e.unwatch.Call(e.handle, uintptr(allGPUs), e.group)
	e.destroy.Call(e.handle, e.group)
	err := e.check("disconnect", e.disconnect.Call(e.handle))
	e.shutdown.Call()
	if err != nil {
		return err
	}
	return nil
}

func cString(s string) *byte { return unsafe.SliceData(append([]byte(s), 0)) }
