// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/dl"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// These constants are CUresult codes of the functions that suspend and resume processes.
const (
	resInvalidValue = 1
	resIllegalState = 401
	resNotSupported = 801
)

// customStorage is the CUDA version from which on the driver hands GPU memory of another process to the caller, 13.4.
const customStorage = 13040

// Processes binds the functions of the driver that suspend and resume other processes.
type Processes struct {
	drv *Driver

	getState, lock, checkpoint, restore, unlock, threadID dl.Func
	complete                                              dl.Func // 0 if the driver has no custom storage
	whyNoStorage                                          string
}

// argBytes is the size of each argument structure of the functions. Bytes without a meaning are zero.
const argBytes = 64

type lockArgs struct {
	timeoutMs uint32
	_         [argBytes - 4]byte
}

type checkpointArgs struct {
	storage unsafe.Pointer // **storageInfo from CUDA 13.4 on
	_       [argBytes - 8]byte
}

type restoreArgs struct {
	pairs   unsafe.Pointer // *device.GPUPair
	count   uint32
	_       uint32
	storage unsafe.Pointer // **storageInfo from CUDA 13.4 on
	_       [argBytes - 24]byte
}

type unlockArgs struct{ _ [argBytes]byte }

// storageInfo and storageRegion are the driver's description of mapped memory.
type storageInfo struct {
	handle  uintptr
	regions *storageRegion
	count   uint32
}

type storageRegion struct {
	ptr    uint64
	size   uint64
	stream uintptr
}

// mostRegions limits the number of regions that are believed: more than the GPUs of any machine.
const mostRegions = 1024

// Processes returns the functions that suspend and resume other processes. If the driver lacks them, the error is of
// kind Unsupported and names them.
func (d *Driver) Processes() (*Processes, error) {
	p := &Processes{drv: d}
	missing := bind(d.lib, []binding{
		{&p.getState, []string{"cuCheckpointProcessGetState"}},
		{&p.lock, []string{"cuCheckpointProcessLock"}},
		{&p.checkpoint, []string{"cuCheckpointProcessCheckpoint"}},
		{&p.restore, []string{"cuCheckpointProcessRestore"}},
		{&p.unlock, []string{"cuCheckpointProcessUnlock"}},
		{&p.threadID, []string{"cuCheckpointProcessGetRestoreThreadId"}},
	})
	if len(missing) > 0 {
		return nil, errs.New(errs.Unsupported, "suspend processes with", d.lib.Name(), fmt.Sprintf(
			"the driver supports CUDA %s and lacks %s", d.Version(), strings.Join(missing, ", "))).
			WithFix("install NVIDIA driver 570 or newer (CUDA 12.8)")
	}
	p.findStorage()
	return p, nil
}

// findStorage asks the driver for the function that completes custom storage. Its presence means that the argument
// structures have the fields of custom storage: an older driver would ignore them.
func (p *Processes) findStorage() {
	d := p.drv
	p.whyNoStorage = fmt.Sprintf("the driver supports CUDA %s, at least %s is needed", d.Version(),
		versionText(customStorage))
	if d.version < customStorage {
		return
	}
	ask := d.lib.Lookup("cuGetProcAddress_v2")
	if ask == 0 {
		p.whyNoStorage = d.lib.Name() + " lacks cuGetProcAddress_v2"
		return
	}
	const name = "cuCheckpointOperationComplete"
	text := append([]byte(name), 0)
	var fn uintptr
	var status int32
	r := ask.Call(ptr(&text[0]), ptr(&fn), customStorage, 0, ptr(&status))
	if err := d.check("cuGetProcAddress", r); err != nil {
		p.whyNoStorage = err.Error()
	} else if fn == 0 || status != 0 {
		p.whyNoStorage = d.lib.Name() + " lacks " + name
	} else {
		p.complete, p.whyNoStorage = dl.Func(fn), ""
	}
}

// fail converts the result of a call about a process into an error.
func (p *Processes) fail(call string, pid int, r uintptr) error {
	err := p.drv.check(call, r)
	if err == nil {
		return nil
	}
	e := &errs.Error{Kind: errs.KindOf(err), Op: "process", Name: fmt.Sprint(pid), Err: err}
	switch code(err) {
	case resInvalidValue, resNotInitialized:
		e.Fix = "check that the process uses CUDA, and that its driver is the one of this machine"
	case resNotSupported:
		e.Kind = errs.Unsupported
		e.Fix = "the driver cannot suspend this process: managed (UVM) memory, CUDA IPC, MPS, MIG or NCCL may be in use"
	}
	return e
}

// State returns the state of a process; see device.Processes.
func (p *Processes) State(pid int) (device.ProcessState, error) {
	var state int32
	if err := p.fail("cuCheckpointProcessGetState", pid, p.getState.Call(pid, ptr(&state))); err != nil {
		return "", err
	}
	all := []device.ProcessState{device.ProcessRunning, device.ProcessLocked, device.ProcessSuspended,
		device.ProcessFailed}
	if state < 0 || int(state) >= len(all) {
		return "", errs.New(errs.Device, "process", fmt.Sprint(pid), fmt.Sprintf(
			"the driver names state %d, which is not known; expected 0 to %d", state, len(all)-1))
	}
	return all[state], nil
}

// Lock blocks the process's calls to the driver; see device.Processes.
func (p *Processes) Lock(pid int, timeout time.Duration) error {
	// 0 would mean no timeout.
	a := &lockArgs{timeoutMs: uint32(max(1, min(timeout.Milliseconds(), 1<<31)))}
	return p.fail("cuCheckpointProcessLock", pid, p.lock.Call(pid, ptr(a)))
}

// IsTimeout reports whether err means that Lock has reached its timeout.
func (p *Processes) IsTimeout(err error) bool { return code(err) == resNotReady }

// Checkpoint copies the process's GPU memory to host memory; see device.Processes.
func (p *Processes) Checkpoint(pid int) error {
	return p.fail("cuCheckpointProcessCheckpoint", pid, p.checkpoint.Call(pid, ptr(&checkpointArgs{})))
}

// Restore copies the process's GPU memory back; see device.Processes.
func (p *Processes) Restore(pid int, pairs []device.GPUPair) error {
	a := &restoreArgs{}
	a.name(pairs)
	return p.fail("cuCheckpointProcessRestore", pid, p.restore.Call(pid, ptr(a)))
}

// name sets the pairs of GPUs.
func (a *restoreArgs) name(pairs []device.GPUPair) {
	if len(pairs) > 0 {
		a.pairs, a.count = unsafe.Pointer(&pairs[0]), uint32(len(pairs))
	}
}

// Unlock lets the process call the driver again; see device.Processes.
func (p *Processes) Unlock(pid int) error {
	err := p.fail("cuCheckpointProcessUnlock", pid, p.unlock.Call(pid, ptr(&unlockArgs{})))
	if err != nil {
		// The driver can report an error after the process has resumed.
		if state, e := p.State(pid); e == nil && state == device.ProcessRunning {
			return nil
		}
	}
	return err
}

// RestoreThread returns the id of the thread that does the driver's work; see device.Processes.
func (p *Processes) RestoreThread(pid int) (int, error) {
	var tid int32
	err := p.fail("cuCheckpointProcessGetRestoreThreadId", pid, p.threadID.Call(pid, ptr(&tid)))
	return int(tid), err
}

// Storage returns the reason why the driver hands no memory to the caller; see device.Processes.
func (p *Processes) Storage() error {
	if p.complete != 0 {
		return nil
	}
	return errs.New(errs.Unsupported, "suspend to storage with", p.drv.lib.Name(), p.whyNoStorage).
		WithFix("install a driver of CUDA 13.4 or newer, or suspend to host memory: leave out --to")
}

// CheckpointOut maps the memory of a locked process; see device.Processes.
func (p *Processes) CheckpointOut(pid int) (device.MappedMemory, error) {
	if err := p.Storage(); err != nil {
		return nil, err
	}
	out := new(*storageInfo)
	a := &checkpointArgs{storage: unsafe.Pointer(out)}
	if err := p.fail("cuCheckpointProcessCheckpoint", pid, p.checkpoint.Call(pid, ptr(a))); err != nil {
		return nil, err
	}
	return p.mapped(pid, *out)
}

// RestoreIn maps memory for the content of a suspended process; see device.Processes.
func (p *Processes) RestoreIn(pid int, pairs []device.GPUPair) (device.MappedMemory, error) {
	if err := p.Storage(); err != nil {
		return nil, err
	}
	out := new(*storageInfo)
	a := &restoreArgs{storage: unsafe.Pointer(out)}
	a.name(pairs)
	if err := p.fail("cuCheckpointProcessRestore", pid, p.restore.Call(pid, ptr(a))); err != nil {
		return nil, err
	}
	return p.mapped(pid, *out)
}

// mapping is memory of another process; see device.MappedMemory.
type mapping struct {
	p       *Processes
	pid     int
	handle  uintptr
	regions []device.MappedRegion
}

// mapped reads the driver's description of the mapped memory.
func (p *Processes) mapped(pid int, info *storageInfo) (device.MappedMemory, error) {
	bad := func(why string) error {
		return errs.New(errs.Device, "process", fmt.Sprint(pid), "the driver's description of its memory has "+why)
	}
	if info == nil || info.handle == 0 {
		return nil, bad("no handle")
	}
	m := &mapping{p: p, pid: pid, handle: info.handle}
	var err error
	if m.regions, err = p.regions(info, bad); err != nil {
		return nil, errors.Join(err, m.Complete()) // the mapping is useless, and nobody else can remove it
	}
	return m, nil
}

// regions reads the table of regions, which is memory of the driver.
func (p *Processes) regions(info *storageInfo, bad func(why string) error) ([]device.MappedRegion, error) {
	var all []device.MappedRegion
	if info.count > mostRegions || info.count > 0 && info.regions == nil {
		return nil, bad(fmt.Sprintf("%d regions; expected at most %d and their addresses", info.count, mostRegions))
	}
	for i, r := range unsafe.Slice(info.regions, info.count) {
		if r.size == 0 {
			continue
		}
		gpu, err := p.ordinal(device.Ptr(r.ptr))
		if err != nil {
			return nil, err
		}
		if r.size > 1<<62 || !device.Ptr(r.ptr).Holds(int64(r.size)) {
			return nil, bad(fmt.Sprintf("%d bytes at 0x%x as region %d", r.size, r.ptr, i))
		}
		all = append(all, device.MappedRegion{GPU: gpu, Ptr: device.Ptr(r.ptr), Size: int64(r.size),
			Stream: uint64(r.stream)})
	}
	return all, nil
}

// ordinal returns the number of the GPU that has the memory at p.
func (p *Processes) ordinal(at device.Ptr) (int, error) {
	d := p.drv
	if err := d.lacks("look for the GPU of", fmt.Sprintf("0x%x", uint64(at)), d.fn.pointerGetAttributes); err != nil {
		return 0, err
	}
	first, err := d.Open(device.Info{ID: "cuda:0"}, 0)
	if err != nil {
		return 0, err
	}
	f, err := first.factsOf(at)
	if e := first.Close(); err == nil {
		err = e
	}
	if err == nil && f.kind != memoryDevice {
		err = errs.New(errs.Device, "look for the GPU of", fmt.Sprintf("0x%x", uint64(at)),
			"the driver knows of no GPU memory there")
	}
	return int(f.ordinal), err
}

// Regions returns the regions of the mapped memory.
func (m *mapping) Regions() []device.MappedRegion { return m.regions }

// Complete ends the operation; see device.MappedMemory.
func (m *mapping) Complete() error {
	return m.p.fail("cuCheckpointOperationComplete", m.pid, m.p.complete.Call(m.handle))
}
