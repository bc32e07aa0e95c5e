// SPDX-License-Identifier: Apache-2.0

// Package fakegpu compiles a libcuda, a libnvidia-ml and a libcufile without a GPU for
// tests. They are opened by the real bindings, through the real loader, so what
// is tested is the code that runs in production.
//
// The fake driver is as strict as the real one about contexts and addresses and
// more so about time: a copy always reads its source later, on another thread,
// and can be held back as long as a test wants. Device memory is host memory at
// its own address, so tests look at it with Bytes. Its streams have a clock that
// is made up: kernels and copies move it by what they are told to take, so what
// timing events measure is exact and no test waits for it.
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

// Results of the driver that tests speak of.
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

// Options choose what the libraries are like. The zero value is one GPU with a
// driver that works.
type Options struct {
	Devices       int      // 0 means one, -1 none
	DriverVersion int      // as cuDriverGetVersion gives it; 0 means 13.0
	InitResult    int      // of cuInit
	Without       []string // symbols that libcuda lacks
	NVMLInit      int      // result of nvmlInit_v2
	NVMLWithout   []string // symbols that libnvidia-ml lacks
}

// GPU is a pair of fake libraries of its own: another Build has other state.
type GPU struct {
	CUDA, NVML string // paths

	tb   testing.TB
	lib  *dl.Library
	nvml *dl.Library
}

// Build compiles the libraries into a temporary folder of the test. It skips
// the test if there is no C compiler.
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
	g := &GPU{tb: tb,
		CUDA: compile(tb, "libcuda", defs, o.Without),
		NVML: compile(tb, "libnvidia-ml", []string{fmt.Sprintf("-DFAKE_NVML_INIT=%d", o.NVMLInit)}, o.NVMLWithout)}
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

// built keeps what was compiled, by arguments: a copy of the file is another
// library to the loader, with state of its own.
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
	cmd.Dir = dir // the linker splits its options at commas, which a folder's name may have
	if text, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("cc %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	code, err := os.ReadFile(filepath.Join(dir, tmp))
	if err != nil {
		tb.Fatal(err)
	}
	return code
}

// Options are what makes device/open look for these libraries.
func (g *GPU) Options(m device.Mode) open.Options {
	return open.Options{Mode: m, CUDALibraries: []string{g.CUDA}, NVMLLibraries: []string{g.NVML}}
}

// Open opens one of the fake devices through device/open; it is closed when the
// test ends, and must then have left nothing behind.
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

// OpenAll opens every fake device through one set, so that they know each other;
// they are closed when the test ends.
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

// Count reads a counter of the driver by its name in csrc/libcuda.c:
// copies_queued, copies_done, copies_failed, copies_in_flight, copies_held,
// pageable_copies, bytes_in, bytes_out, streams, events, allocations,
// registered_ranges, pushed, context_errors, event_waits, waiting_for_event,
// used_after_free, failures (calls that Fail made fail),
// drains (waits for a whole stream), peer_copies (between devices),
// peer_through_host (those of them without peer access), peers_enabled, modules, and of kernels steps_queued,
// steps_done, steps_failed, steps_in_flight, steps_held, and of sums sums_queued,
// sums_done, sums_failed, sums_in_flight, sums_held, bytes_summed.
func (g *GPU) Count(name string) int64 {
	v := int64(g.fn("fake_count").Call(cstring(name)))
	if v == -1 {
		g.tb.Fatalf("the fake driver does not count %q", name)
	}
	return v
}

// Await blocks until a counter is at least v, and fails the test where that
// does not happen.
func (g *GPU) Await(name string, v int64) {
	g.tb.Helper()
	g.Count(name)
	if g.fn("fake_await").Call(cstring(name), uint64(v), awaitSeconds) == 0 {
		g.tb.Errorf("fake driver: %s is %d and never came to %d", name, g.Count(name), v)
	}
}

// awaitSeconds is far longer than anything awaited takes.
const awaitSeconds = 60

// settleSeconds is longer than any call takes.
const settleSeconds = 10

// Fail makes calls of a driver function return code and do nothing: after skip
// more calls, the next times of them.
func (g *GPU) Fail(fn string, skip, times, code int) {
	g.fn("fake_fail").Call(cstring(fn), skip, times, code)
}

// FailCopy makes the nth copy executed from now on fail if it cannot be
// seen by the call that queued it. The next event in its stream reports code;
// with sticky, so does everything in its context, for ever.
func (g *GPU) FailCopy(nth, code int, sticky bool) {
	g.fn("fake_fail_copy").Call(nth, code, flag(sticky))
}

// FailStep is FailCopy for the nth kernel executed from now on.
func (g *GPU) FailStep(nth, code int, sticky bool) {
	g.fn("fake_fail_step").Call(nth, code, flag(sticky))
}

// FailSum is FailCopy for the nth sum executed from now on.
func (g *GPU) FailSum(nth, code int, sticky bool) {
	g.fn("fake_fail_sum").Call(nth, code, flag(sticky))
}

// FlipCopy makes the nth copy executed from now on arrive with a bit flipped.
func (g *GPU) FlipCopy(nth int) { g.fn("fake_flip").Call(nth, 0) }

// FlipSum makes the nth sum executed from now on come out with a bit flipped.
func (g *GPU) FlipSum(nth int) { g.fn("fake_flip").Call(0, nth) }

// HoldSums holds every sum until ReleaseSums, which the end of the test calls
// where the test does not.
func (g *GPU) HoldSums() {
	g.tb.Cleanup(g.ReleaseSums)
	g.fn("fake_hold_sums").Call(1)
}

// ReleaseSums lets all sums go.
func (g *GPU) ReleaseSums() { g.fn("fake_hold_sums").Call(0) }

// HoldSteps holds every kernel until ReleaseSteps, which the end of the test
// calls where the test does not.
func (g *GPU) HoldSteps() {
	g.tb.Cleanup(g.ReleaseSteps)
	g.fn("fake_hold_steps").Call(1)
}

// ReleaseSteps lets all kernels go.
func (g *GPU) ReleaseSteps() { g.fn("fake_hold_steps").Call(0) }

// CopyTakes sets what each copy takes on the clock of its stream.
func (g *GPU) CopyTakes(d time.Duration) { g.fn("fake_copy_takes").Call(uint64(d)) }

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Hold lets pass more copies be executed and holds the others until Release,
// which the end of the test calls where the test does not.
func (g *GPU) Hold(pass int) {
	g.tb.Cleanup(g.Release)
	g.fn("fake_gate").Call(pass)
}

// Release lets all copies go.
func (g *GPU) Release() { g.fn("fake_gate").Call(-1) }

// HoldStream holds the copies of one stream, or lets them go.
func (g *GPU) HoldStream(stream uint64, held bool) {
	g.fn("fake_hold").Call(stream, flag(held))
}

// Peer reports whether device a may reach the memory of device b by itself; any
// may that is not told otherwise.
func (g *GPU) Peer(a, b int, may bool) { g.fn("fake_peer").Call(a, b, flag(may)) }

// Adopt makes memory of the test, outside the Go heap, a destination on device
// n, as if another user of the GPU had allocated it.
func (g *GPU) Adopt(mem []byte, n int) {
	g.fn("fake_adopt").Call(unsafe.Pointer(&mem[0]), len(mem), n)
}

// Retained is how often device n's context is held now; Retains how often it
// was ever taken.
func (g *GPU) Retained(n int) int64 { return int64(g.fn("fake_retained").Call(n)) }

// Retains is explained at Retained.
func (g *GPU) Retains(n int) int64 { return int64(g.fn("fake_retains").Call(n)) }

// Sessions is how many sessions of libnvidia-ml are open.
func (g *GPU) Sessions() int64 { return int64(g.nvml.Lookup("fake_sessions").Call()) }

// Foreign is what another user of the driver has: a thread with a context that
// is current on it.
type Foreign struct {
	g *GPU
	n int
}

// Thread locks the calling goroutine to its thread and makes device n's context
// current there, as PyTorch does.
func (g *GPU) Thread(n int) *Foreign {
	g.tb.Helper()
	runtime.LockOSThread()
	var ctx uintptr
	g.must("cuInit", 0)
	g.must("cuDevicePrimaryCtxRetain", unsafe.Pointer(&ctx), n)
	g.must("cuCtxPushCurrent_v2", ctx)
	return &Foreign{g: g, n: n}
}

// Leave undoes Thread; call it from the same goroutine.
func (f *Foreign) Leave() {
	var ctx uintptr
	f.g.must("cuCtxPopCurrent_v2", unsafe.Pointer(&ctx))
	f.g.must("cuDevicePrimaryCtxRelease_v2", f.n)
	runtime.UnlockOSThread()
}

// Current is the context that is current on the calling thread and how many
// lie on its stack.
func (g *GPU) Current() (ctx uint64, depth int64) {
	return uint64(g.fn("fake_current").Call()), int64(g.fn("fake_depth").Call())
}

// NewStream makes a stream of the foreign user.
func (f *Foreign) NewStream() uint64 {
	var s uintptr
	f.g.must("cuStreamCreate", unsafe.Pointer(&s), 1)
	return uint64(s)
}

// Copy queues a copy of mem, which lies outside the Go heap, on a stream of the
// foreign user.
func (f *Foreign) Copy(stream uint64, dst device.Ptr, mem []byte) {
	f.g.must("cuMemcpyHtoDAsync_v2", uint64(dst), unsafe.Pointer(&mem[0]), len(mem), stream)
}

// DestroyStream waits for a stream of the foreign user and ends it.
func (f *Foreign) DestroyStream(s uint64) { f.g.must("cuStreamDestroy_v2", s) }

func (g *GPU) must(fn string, args ...any) {
	g.tb.Helper()
	if r := g.fn(fn).Call(args...); int32(r) != 0 {
		g.tb.Fatalf("%s: %d", fn, int32(r))
	}
}

// Bytes looks at n bytes of fake device memory.
func (g *GPU) Bytes(p device.Ptr, n int64) []byte {
	a := uintptr(p)
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&a))), n)
}

// CheckIdle fails the test unless nothing is queued, no context was used
// wrongly or is left on a thread, and no memory was given back under a copy.
func (g *GPU) CheckIdle() {
	g.tb.Helper()
	g.CheckIdleBut()
}

// CheckIdleBut is CheckIdle without the named counters.
func (g *GPU) CheckIdleBut(but ...string) {
	g.tb.Helper()
	if !slices.Contains(but, "pushed") {
		// A call that is under way in the background has its context pushed.
		g.fn("fake_settle").Call(cstring("pushed"), settleSeconds)
	}
	for _, c := range []string{"copies_in_flight", "steps_in_flight", "sums_in_flight", "pushed", "context_errors",
		"used_after_free"} {
		if v := g.Count(c); v != 0 && !slices.Contains(but, c) {
			g.tb.Errorf("fake driver: %s is %d, expected 0", c, v)
		}
	}
}

// CheckFreed fails the test unless everything taken from the driver was given back.
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

// Pointer is the address of memory that was given to Adopt.
func (g *GPU) Pointer(mem []byte) device.Ptr {
	return device.Ptr(uintptr(unsafe.Pointer(&mem[0])))
}
