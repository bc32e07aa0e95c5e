// SPDX-License-Identifier: Apache-2.0

// Package fakegpu compiles fake versions of libcuda, libnvidia-ml and libcufile for tests without a GPU. Packages
// cuda, nvml and cufile load the fake libraries as they load the real ones, so tests run the production code.
//
// The fake CUDA driver checks contexts and addresses as strictly as the real one. Copies of the fake CUDA driver
// always run later, on another thread, and a test can hold them back. Fake device memory is host memory, which tests
// read with Bytes. Each fake stream has a simulated clock. Kernels and copies advance the simulated clock of their
// stream by a given time, so timing events are exact and tests do not wait.
package fakegpu

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/dl"
)

//go:embed csrc/*.c
var sources embed.FS

// InvalidValue to DriverMismatch are the CUresult codes that tests use.
const (
	InvalidValue      = 1
	OutOfMemory       = 2
	NotInitialized    = 3
	NoDevice          = 100
	InvalidContext    = 201
	InvalidPTX        = 218
	NoJIT             = 221
	LaunchTimeout     = 702
	PeerUnsupported   = 217
	PeerEnabled       = 704
	AlreadyRegistered = 712
	LaunchFailed      = 719
	DriverMismatch    = 803
)

// Options configure the fake libraries. The zero value of Options means one GPU with a working driver.
type Options struct {
	Devices       int      // number of fake GPUs; 0 means one, -1 means none
	DriverVersion int      // the result of cuDriverGetVersion; 0 means 13.0
	InitResult    int      // the result of cuInit
	Without       []string // symbols that libcuda lacks
	NVMLInit      int      // the result of nvmlInit_v2
	NVMLWithout   []string // symbols that libnvidia-ml lacks
	Release       string   // the driver's release by libnvidia-ml; empty means "999.1.2"
}

// GPU is one set of fake libraries with its own state. Every call of Build returns a separate GPU.
type GPU struct {
	CUDA, NVML string // paths of the fake libcuda and libnvidia-ml

	tb   testing.TB
	lib  *dl.Library
	nvml *dl.Library
}

// Build compiles the fake libraries into a temporary folder of the test. Build skips the test if there is no C
// compiler.
func Build(tb testing.TB, o Options) *GPU {
	tb.Helper()
	devices := max(o.Devices, 0)
	if o.Devices == 0 {
		devices = 1
	}
	defs := []string{fmt.Sprintf("-DFAKE_DEVICES=%d", devices), fmt.Sprintf("-DFAKE_INIT=%d", o.InitResult)}
	if o.DriverVersion != 0 {
		defs = append(defs, fmt.Sprintf("-DFAKE_VERSION=%d", o.DriverVersion))
	}
	management := []string{fmt.Sprintf("-DFAKE_NVML_INIT=%d", o.NVMLInit)}
	if o.Release != "" {
		management = append(management, fmt.Sprintf("-DFAKE_RELEASE=%q", o.Release))
	}
	g := &GPU{tb: tb,
		CUDA: compile(tb, "libcuda", defs, o.Without),
		NVML: compile(tb, "libnvidia-ml", management, o.NVMLWithout)}
	var err error
	if g.lib, err = dl.Open(g.CUDA); err != nil {
		tb.Fatal(err)
	}
	if g.nvml, err = dl.Open(g.NVML); err != nil {
		tb.Fatal(err)
	}
	return g
}

// OpenOne builds the fake libraries of one GPU and opens its device. The device is closed when the test ends.
func OpenOne(tb testing.TB) (*GPU, device.Device) {
	tb.Helper()
	g := Build(tb, Options{})
	return g, g.Open("cuda:0")
}

// built caches compiled libraries by their arguments. The loader treats each copy of a file as a separate library
// with its own state.
var built struct {
	sync.Mutex
	libs map[string][]byte
}

func compile(tb testing.TB, name string, defs, without []string) string {
	tb.Helper()
	dir := tb.TempDir()
	out := filepath.Join(dir, name+".so.1")
	key := strings.Join(slices.Concat([]string{name}, defs, without), " ")
	built.Lock()
	defer built.Unlock()
	code, ok := built.libs[key]
	if !ok {
		code = runCompiler(tb, dir, name, defs, without)
		if built.libs == nil {
			built.libs = map[string][]byte{}
		}
		built.libs[key] = code
	}
	if err := os.WriteFile(out, code, 0o700); err != nil {
		tb.Fatal(err)
	}
	return out
}

func runCompiler(tb testing.TB, dir, name string, defs, without []string) []byte {
	tb.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		tb.Skipf("the fake GPU needs a C compiler: %v", err)
	}
	src, err := sources.ReadFile("csrc/" + name + ".c")
	if err != nil {
		tb.Fatal(err)
	}
	in, tmp, script := name+".c", name+".tmp", name+".map"
	hidden := ""
	for _, s := range without {
		if !strings.Contains(string(src), s+"(") {
			tb.Fatalf("the fake %s has no symbol %s to leave out", name, s)
		}
		hidden += s + "; "
	}
	exports := "{ global: *; };\n"
	if hidden != "" {
		exports = "{ global: *; local: " + hidden + "};\n"
	}
	for p, b := range map[string][]byte{in: src, script: []byte(exports)} {
		if err := os.WriteFile(filepath.Join(dir, p), b, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	args := append([]string{"-shared", "-fPIC", "-pthread", "-O1", "-Wall", "-Werror", "-o", tmp,
		"-Wl,--version-script=" + script, in}, defs...)
	cmd := exec.Command(cc, args...)
	cmd.Dir = dir // relative paths, because the linker splits options at commas
	if text, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("cc %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	code, err := os.ReadFile(filepath.Join(dir, tmp))
	if err != nil {
		tb.Fatal(err)
	}
	return code
}

// Options returns the options that make device/open load the fake libcuda and libnvidia-ml.
func (g *GPU) Options(m device.Mode) open.Options {
	return open.Options{Mode: m, CUDALibraries: []string{g.CUDA}, NVMLLibraries: []string{g.NVML}}
}

// Open opens one of the fake devices through device/open. The device is closed when the test ends.
func (g *GPU) Open(id string) device.Device {
	g.tb.Helper()
	s, err := open.New(g.Options(device.Require))
	if err != nil {
		g.tb.Fatal(err)
	}
	d, err := s.Open(context.Background(), id)
	if err != nil {
		g.tb.Fatal(err)
	}
	g.tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			g.tb.Errorf("close devices: %v", err)
		}
	})
	return d
}

// OpenAll opens all fake devices in one device set, so that they can be peers. The devices are closed when the test
// ends.
func (g *GPU) OpenAll() []device.Device {
	g.tb.Helper()
	s, err := open.New(g.Options(device.Require))
	if err != nil {
		g.tb.Fatal(err)
	}
	g.tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			g.tb.Errorf("close devices: %v", err)
		}
	})
	var all []device.Device
	for _, info := range s.Survey().Devices {
		if info.Kind != device.CUDA {
			continue
		}
		d, err := s.Open(context.Background(), info.ID)
		if err != nil {
			g.tb.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

func (g *GPU) fn(name string) dl.Func {
	f := g.lib.Lookup(name)
	if f == 0 {
		g.tb.Fatalf("the fake driver has no %s", name)
	}
	return f
}

func cstring(s string) unsafe.Pointer { return unsafe.Pointer(&append([]byte(s), 0)[0]) }

// Count returns the value of a counter of the fake driver by its name, such as copies_done. The table counters in
// csrc/libcuda.c lists all names. An unknown name fails the test. The counter failures counts calls that Fail made
// fail. The counter drains counts waits for a whole stream. The counter peer_copies counts copies between devices,
// and peer_through_host counts copies between devices without peer access.
func (g *GPU) Count(name string) int64 {
	v := int64(g.fn("fake_count").Call(cstring(name)))
	if v == -1 {
		g.tb.Fatalf("the fake driver does not count %q", name)
	}
	return v
}

// Await waits until a counter of the fake driver is at least v. If the counter does not reach v within a minute,
// Await fails the test.
func (g *GPU) Await(name string, v int64) {
	g.tb.Helper()
	g.Count(name)
	if g.fn("fake_await").Call(cstring(name), uint64(v), awaitSeconds) == 0 {
		g.tb.Errorf("fake driver: %s is %d and never came to %d", name, g.Count(name), v)
	}
}

// awaitSeconds is the longest wait of Await, in seconds.
const awaitSeconds = 60

// settleSeconds is the longest wait of CheckIdle for calls in progress, in seconds.
const settleSeconds = 10

// Fail makes calls of a CUDA driver function return code and do nothing. The argument skip is the number of calls
// that still work, and times is the number of calls that then fail.
func (g *GPU) Fail(fn string, skip, times, code int) {
	g.fn("fake_fail").Call(cstring(fn), skip, times, code)
}

// Heal ends all failures that Fail has arranged.
func (g *GPU) Heal() { g.fn("fake_heal").Call() }

// FailCopy makes the nth copy from now on fail after the call that queued it has returned. The next event in the
// copy's stream returns code. If sticky is set, every later call in the same context also returns code.
func (g *GPU) FailCopy(nth, code int, sticky bool) {
	g.fn("fake_fail_copy").Call(nth, code, flag(sticky))
}

// FailStep makes the nth kernel from now on fail, as FailCopy does for copies.
func (g *GPU) FailStep(nth, code int, sticky bool) {
	g.fn("fake_fail_step").Call(nth, code, flag(sticky))
}

// FailSum makes the nth checksum kernel from now on fail, as FailCopy does for copies.
func (g *GPU) FailSum(nth, code int, sticky bool) {
	g.fn("fake_fail_sum").Call(nth, code, flag(sticky))
}

// FlipCopy flips one bit of the data of the nth copy from now on.
func (g *GPU) FlipCopy(nth int) { g.fn("fake_flip").Call(nth, 0) }

// FlipSum flips one bit of the result of the nth checksum kernel from now on.
func (g *GPU) FlipSum(nth int) { g.fn("fake_flip").Call(0, nth) }

// HoldSums holds back every checksum kernel until ReleaseSums is called, at the latest when the test ends.
func (g *GPU) HoldSums() {
	g.tb.Cleanup(g.ReleaseSums)
	g.fn("fake_hold_sums").Call(1)
}

// ReleaseSums lets all held checksum kernels run.
func (g *GPU) ReleaseSums() { g.fn("fake_hold_sums").Call(0) }

// HoldSteps holds back every step kernel until ReleaseSteps is called, at the latest when the test ends.
func (g *GPU) HoldSteps() {
	g.tb.Cleanup(g.ReleaseSteps)
	g.fn("fake_hold_steps").Call(1)
}

// ReleaseSteps lets all held step kernels run.
func (g *GPU) ReleaseSteps() { g.fn("fake_hold_steps").Call(0) }

// CopyTakes sets the time by which each copy advances the simulated clock of its stream.
func (g *GPU) CopyTakes(d time.Duration) { g.fn("fake_copy_takes").Call(uint64(d)) }

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Hold holds back copies until Release is called, at the latest when the test ends. The argument pass is the number
// of copies that Hold still lets run.
func (g *GPU) Hold(pass int) {
	g.tb.Cleanup(g.Release)
	g.fn("fake_gate").Call(pass)
}

// Release lets all held copies run.
func (g *GPU) Release() { g.fn("fake_gate").Call(-1) }

// HoldStream holds back the copies of one stream if held is true, and lets them run if it is false.
func (g *GPU) HoldStream(stream uint64, held bool) {
	g.fn("fake_hold").Call(stream, flag(held))
}

// Peer sets whether device a may access the memory of device b. By default every fake device may access the memory of
// every other one.
func (g *GPU) Peer(a, b int, may bool) { g.fn("fake_peer").Call(a, b, flag(may)) }

// Adopt makes memory of the test a valid allocation on device n, as if another user of the GPU had allocated it.
// Memory that is passed to Adopt must be outside the Go heap.
func (g *GPU) Adopt(mem []byte, n int) {
	g.fn("fake_adopt").Call(unsafe.Pointer(&mem[0]), len(mem), n)
}

// Retained returns how many users retain the primary context of device n now.
func (g *GPU) Retained(n int) int64 { return int64(g.fn("fake_retained").Call(n)) }

// Retains returns how often the primary context of device n was retained in total.
func (g *GPU) Retains(n int) int64 { return int64(g.fn("fake_retains").Call(n)) }

// Sessions returns the number of open sessions of the fake libnvidia-ml.
func (g *GPU) Sessions() int64 { return int64(g.nvml.Lookup("fake_sessions").Call()) }

// Foreign simulates another user of the driver in this process, such as PyTorch, with its own thread and current
// context.
type Foreign struct {
	g *GPU
	n int
}

// Thread locks the calling goroutine to its thread and makes the context of device n current on the thread, as
// PyTorch does.
func (g *GPU) Thread(n int) *Foreign {
	g.tb.Helper()
	runtime.LockOSThread()
	var ctx uintptr
	g.must("cuInit", 0)
	g.must("cuDevicePrimaryCtxRetain", unsafe.Pointer(&ctx), n)
	g.must("cuCtxPushCurrent_v2", ctx)
	return &Foreign{g: g, n: n}
}

// Leave reverses Thread. Leave must be called by the goroutine that called Thread.
func (f *Foreign) Leave() {
	var ctx uintptr
	f.g.must("cuCtxPopCurrent_v2", unsafe.Pointer(&ctx))
	f.g.must("cuDevicePrimaryCtxRelease_v2", f.n)
	runtime.UnlockOSThread()
}

// Current returns the current context of the calling thread and the depth of the thread's context stack.
func (g *GPU) Current() (ctx uint64, depth int64) {
	return uint64(g.fn("fake_current").Call()), int64(g.fn("fake_depth").Call())
}

// NewStream creates a stream of the foreign user.
func (f *Foreign) NewStream() uint64 {
	var s uintptr
	f.g.must("cuStreamCreate", unsafe.Pointer(&s), 1)
	return uint64(s)
}

// Copy queues a copy of mem to dst on a stream of the foreign user. The memory mem must be outside the Go heap.
func (f *Foreign) Copy(stream uint64, dst device.Ptr, mem []byte) {
	f.g.must("cuMemcpyHtoDAsync_v2", uint64(dst), unsafe.Pointer(&mem[0]), len(mem), stream)
}

// DestroyStream waits for all work on a stream of the foreign user, then destroys the stream.
func (f *Foreign) DestroyStream(s uint64) { f.g.must("cuStreamDestroy_v2", s) }

func (g *GPU) must(fn string, args ...any) {
	g.tb.Helper()
	if r := g.fn(fn).Call(args...); int32(r) != 0 {
		g.tb.Fatalf("%s: %d", fn, int32(r))
	}
}

// Bytes returns the n bytes of fake device memory at p.
func (g *GPU) Bytes(p device.Ptr, n int64) []byte {
	a := uintptr(p)
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&a))), n)
}

// CheckIdle fails the test if work is still queued, if a context was misused or left on a thread, or if memory was
// freed during a copy.
func (g *GPU) CheckIdle() {
	g.tb.Helper()
	g.CheckIdleBut()
}

// CheckIdleBut is CheckIdle, but does not check the named counters.
func (g *GPU) CheckIdleBut(but ...string) {
	g.tb.Helper()
	if !slices.Contains(but, "pushed") {
		// A call in progress in the background has a pushed context.
		g.fn("fake_settle").Call(cstring("pushed"), settleSeconds)
	}
	for _, c := range []string{"copies_in_flight", "steps_in_flight", "sums_in_flight", "pushed", "context_errors",
		"used_after_free"} {
		if v := g.Count(c); v != 0 && !slices.Contains(but, c) {
			g.tb.Errorf("fake driver: %s is %d, expected 0", c, v)
		}
	}
}

// CheckFreed fails the test if CheckIdle does, or if streams, events, memory, contexts or other resources of the
// driver are not freed.
func (g *GPU) CheckFreed() {
	g.tb.Helper()
	g.CheckIdle()
	for _, c := range []string{"streams", "events", "allocations", "registered_ranges", "modules"} {
		if v := g.Count(c); v != 0 {
			g.tb.Errorf("fake driver: %d %s are left", v, c)
		}
	}
	for n := range 8 {
		if v := g.Retained(n); v != 0 {
			g.tb.Errorf("fake driver: the context of device %d is still retained %d times", n, v)
		}
	}
	if v := g.Sessions(); v != 0 {
		g.tb.Errorf("fake libnvidia-ml: %d sessions are left", v)
	}
}

// Pointer returns the device address of memory that was passed to Adopt.
func (g *GPU) Pointer(mem []byte) device.Ptr {
	return device.Ptr(uintptr(unsafe.Pointer(&mem[0])))
}
