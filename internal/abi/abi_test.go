// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/abi"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/synth"
)

const seed = 3

func tiny(t *testing.T) string {
	t.Helper()
	shapes, err := synth.Shapes("tiny")
	if err != nil {
		t.Fatal(err)
	}
	// And one that takes many copies with a small pool.
	shapes = append(shapes, format.Tensor{Name: "large", DType: format.U8, Shape: []int64{4 << 20}})
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if _, err := synth.Write(context.Background(), path, synth.Options{Shapes: shapes, Seed: seed}); err != nil {
		t.Fatal(err)
	}
	return path
}

type description struct {
	Device string `json:"device"`
	Files  []struct {
		Path      string `json:"path"`
		Size      int64  `json:"size"`
		DestSize  int64  `json:"dest_size"`
		DestAlign int64  `json:"dest_align"`
	} `json:"files"`
	Tensors []struct {
		Name   string  `json:"name"`
		DType  string  `json:"dtype"`
		Shape  []int64 `json:"shape"`
		File   int     `json:"file"`
		Offset int64   `json:"offset"`
		Begin  int64   `json:"file_offset"`
		Size   int64   `json:"size"`
	} `json:"tensors"`
	Metadata map[string]string `json:"metadata"`
}

// caller is a program that uses the C ABI: it has handles and memory.
type caller struct {
	*testing.T
	abi.Table
	system, model uint64
	desc          description
	mem           []byte
}

func (c *caller) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *caller) dst() []nebulaio.Destination {
	return []nebulaio.Destination{{Ptr: nebulaio.Ptr(uintptr(unsafe.Pointer(&c.mem[0]))), Size: int64(len(c.mem))}}
}

// newCaller opens a system and a model, and allocates what describe asks for.
func newCaller(t *testing.T, system, model string) *caller {
	t.Helper()
	c := &caller{T: t}
	var err error
	c.system, err = c.OpenSystem(system)
	c.must(err)
	c.model, err = c.OpenModel(c.system, tiny(t), model)
	c.must(err)
	text, err := c.Describe(c.model)
	c.must(err)
	c.must(json.Unmarshal(text, &c.desc))
	r, err := hostmem.Map(c.desc.Files[0].DestSize)
	c.must(err)
	t.Cleanup(func() { r.Unmap() })
	c.mem = r.Bytes()
	return c
}

// onFakeGPU is a caller whose copies can be held back.
func onFakeGPU(t *testing.T) (*caller, *fakegpu.GPU) {
	t.Helper()
	g := fakegpu.Build(t, fakegpu.Options{})
	o, err := json.Marshal(map[string]any{"devices": device.Require, "cuda_library": g.CUDA, "nvml_library": g.NVML,
		"buffer_pool_size": 262144})
	if err != nil {
		t.Fatal(err)
	}
	c := newCaller(t, string(o), `{"device":"cuda:0"}`)
	g.Adopt(c.mem, 0)
	return c, g
}

// heldLoad is a caller with a load that has begun and whose copies are held back.
func heldLoad(t *testing.T) (*caller, *fakegpu.GPU, uint64) {
	t.Helper()
	c, g := onFakeGPU(t)
	g.Hold(0)
	load, err := c.StartLoad(c.model, c.dst(), 0, "")
	c.must(err)
	g.Await("copies_held", 1)
	return c, g, load
}

// release releases handles in this order.
func (c *caller) release(handles ...uint64) {
	c.Helper()
	for _, h := range handles {
		c.must(c.Release(h))
	}
}

func TestALoadFromOpenToRelease(t *testing.T) {
	c := newCaller(t,
		`{"devices":"off","buffer_pool_size":1048576,"max_transfer_size":65536,"queue_depth":2,"workers":2,"io":"pread"}`,
		`{"device":"host"}`)
	if c.desc.Device != "host" || len(c.desc.Files) != 1 || len(c.desc.Tensors) == 0 || c.desc.Metadata["format"] != "pt" {
		t.Fatalf("description: %+v", c.desc)
	}
	load, err := c.StartLoad(c.model, c.dst(), 0, `{"route":"auto","cache":"auto"}`)
	c.must(err)
	running, done, total, err := c.Wait(load, -1)
	if running || err != nil || done != total || total == 0 {
		t.Fatalf("running %v, %d of %d, %v", running, done, total, err)
	}
	f, err := os.ReadFile(c.desc.Files[0].Path)
	c.must(err)
	for _, x := range c.desc.Tensors {
		if !bytes.Equal(f[x.Begin:x.Begin+x.Size], c.mem[x.Offset:x.Offset+x.Size]) {
			t.Errorf("%s differs", x.Name)
		}
	}
	text, err := c.Report(load)
	c.must(err)
	var r map[string]any
	c.must(json.Unmarshal(text, &r))
	for _, key := range []string{"path", "tensors", "open_seconds", "alloc_seconds", "device", "asked", "bytes", "seconds",
		"gbps", "routes", "stages", "limiting_stage", "engine", "files", "refusals", "notes"} {
		if _, ok := r[key]; !ok {
			t.Errorf("the report has no %q", key)
		}
	}
	again, err := c.Report(load)
	if err != nil || !bytes.Equal(text, again) {
		t.Error("a second report differs: callers ask for its length first")
	}
	devices, err := c.Devices(c.system)
	if err != nil || !strings.Contains(string(devices), `"id":"host"`) {
		t.Errorf("%s %v", devices, err)
	}
	for _, h := range []uint64{load, c.model, c.system} {
		c.must(c.Release(h))
		if err := c.Release(h); !errs.Is(err, errs.Closed) {
			t.Errorf("released twice: %v", err)
		}
	}
}

func TestHandlesThatAreNotOnesOwn(t *testing.T) {
	c := newCaller(t, `{"devices":"off"}`, "")
	load, err := c.StartLoad(c.model, c.dst(), 0, "")
	c.must(err)
	if _, _, _, err := c.Wait(load, -1); err != nil {
		t.Fatal(err)
	}
	use := map[string]func(h uint64) error{
		"devices":    func(h uint64) error { _, err := c.Devices(h); return err },
		"open model": func(h uint64) error { _, err := c.OpenModel(h, "x", ""); return err },
		"describe":   func(h uint64) error { _, err := c.Describe(h); return err },
		"start":      func(h uint64) error { _, err := c.StartLoad(h, nil, 0, ""); return err },
		"wait":       func(h uint64) error { _, _, _, err := c.Wait(h, -1); return err },
		"cancel":     func(h uint64) error { return c.Cancel(h) },
		"report":     func(h uint64) error { _, err := c.Report(h); return err },
	}
	takes := map[string]uint64{"devices": c.system, "open model": c.system, "describe": c.model, "start": c.model,
		"wait": load, "cancel": load, "report": load}
	for name, f := range use {
		for _, h := range []uint64{0, c.system, c.model, load, 999, 1 << 63} {
			err := f(h)
			if closed := errs.Is(err, errs.Closed); closed != (h != takes[name]) {
				t.Errorf("%s with handle %d: %v", name, h, err)
			}
		}
	}
	if err := c.Release(0); !errs.Is(err, errs.Closed) {
		t.Errorf("releasing 0: %v", err)
	}
	c.release(load, c.model, c.system)
	for name, f := range use {
		if err := f(takes[name]); !errs.Is(err, errs.Closed) {
			t.Errorf("%s with a released handle: %v", name, err)
		}
	}
	next, err := c.OpenSystem(`{"devices":"off"}`)
	c.must(err)
	if next <= load {
		t.Errorf("handle %d is used again", next)
	}
	c.must(c.Release(next))
}

func TestOptionsAreReadStrictly(t *testing.T) {
	c := newCaller(t, `{"devices":"off"}`, "")
	defer func() { c.must(c.Release(c.model)); c.must(c.Release(c.system)) }()
	open := map[string]func(o string) error{
		"system": func(o string) error { _, err := c.OpenSystem(o); return err },
		"model":  func(o string) error { _, err := c.OpenModel(c.system, c.desc.Files[0].Path, o); return err },
		"load":   func(o string) error { _, err := c.StartLoad(c.model, c.dst(), 0, o); return err },
	}
	for name, f := range open {
		for _, o := range []string{`{"colour":"blue"}`, `{"devices":1,"device":1,"route":1}`, `[]`, `"auto"`, `{`, `{} {}`,
			`nonsense`} {
			if err := f(o); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), o) {
				t.Errorf("%s with %s: %v", name, o, err)
			}
		}
	}
	for o, f := range map[string]func(o string) error{
		`{"devices":"maybe"}`:        open["system"],
		`{"io":"magic"}`:             open["system"],
		`{"buffer_pool_size":1}`:     open["system"],
		`{"workers":-1}`:             open["system"],
		`{"device":"gpu"}`:           open["model"],
		`{"tensors":["["]}`:          open["model"],
		`{"route":"scenic"}`:         open["load"],
		`{"cache":"sometimes"}`:      open["load"],
		`{"max_transfer_size":12}`:   open["system"],
		`{"queue_depth":1000000000}`: open["system"],
	} {
		if err := f(o); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", o, err)
		}
	}
}

func TestWaitInSlices(t *testing.T) {
	c, g, load := heldLoad(t)
	for _, d := range []time.Duration{0, time.Millisecond} {
		running, done, total, err := c.Wait(load, d)
		if !running || err != nil || done != 0 || total == 0 {
			t.Errorf("a slice of %v: running %v, %d of %d, %v", d, running, done, total, err)
		}
	}
	if _, err := c.Report(load); !errs.Is(err, errs.Invalid) || errs.FixOf(err) == "" {
		t.Errorf("the report of a running load: %v", err)
	}
	g.Release()
	if running, done, total, err := c.Wait(load, -1); running || err != nil || done != total {
		t.Errorf("running %v, %d of %d, %v", running, done, total, err)
	}
	for range 200 { // an ended load has ended, however short the look
		if running, _, _, err := c.Wait(load, 0); running || err != nil {
			t.Fatalf("running %v, %v", running, err)
		}
	}
	c.must(c.Cancel(load)) // too late to matter
	if _, _, _, err := c.Wait(load, -1); err != nil {
		t.Error(err)
	}
	c.release(load, c.model, c.system)
	g.CheckFreed()
}

func TestCancel(t *testing.T) {
	c, g, load := heldLoad(t)
	c.must(c.Cancel(load))
	running, err := true, error(nil)
	for running { // one copy at a time, so that it cannot end before it has stopped
		g.Hold(1)
		running, _, _, err = c.Wait(load, time.Millisecond)
	}
	if abi.Status(err) != int32(errs.Cancelled) {
		t.Errorf("got %v", err)
	}
	if n := g.Count("copies_in_flight"); n != 0 {
		t.Errorf("%d copies are in flight after the wait", n)
	}
	text, err := c.Report(load)
	if err != nil || !strings.Contains(string(text), `"error":`) {
		t.Errorf("the report of a cancelled load: %s %v", text, err)
	}
	c.release(load, c.model, c.system)
	g.CheckFreed()
}

func TestReleasingARunningLoadCancelsItAndWaits(t *testing.T) {
	c, g, load := heldLoad(t)
	released := make(chan error)
	go func() { released <- c.Release(load) }()
	g.Release()
	c.must(<-released)
	if n := g.Count("copies_in_flight"); n != 0 {
		t.Errorf("%d copies are in flight after the release", n)
	}
	c.release(c.model, c.system)
	g.CheckFreed()
}

// A caller that releases in the wrong order is told so, and can still release
// in the right one.
func TestReleasingInTheWrongOrderIsRefused(t *testing.T) {
	for _, name := range []string{"system", "model"} {
		t.Run(name, func(t *testing.T) {
			c, g, load := heldLoad(t)
			h := map[string]uint64{"system": c.system, "model": c.model}[name]
			if err := c.Release(h); !errs.Is(err, errs.Invalid) {
				t.Errorf("releasing the %s under a running load: %v", name, err)
			}
			g.Release()
			if _, _, _, err := c.Wait(load, -1); err != nil {
				t.Errorf("the load was harmed: %v", err)
			}
			for _, h := range []uint64{load, c.model, c.system} {
				if err := c.Release(h); err != nil {
					t.Errorf("releasing handle %d: %v", h, err)
				}
			}
			g.CheckFreed()
		})
	}
}

func TestStatusNumbersAreThoseOfTheHeader(t *testing.T) {
	header, err := os.ReadFile("../../include/nebulaio/nebulaio.h")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int32{"RUNNING": abi.Running, "OK": abi.Status(nil)}
	names := map[errs.Kind]string{errs.Other: "OTHER", errs.Invalid: "INVALID", errs.NotFound: "NOT_FOUND",
		errs.Permission: "PERMISSION", errs.Corrupt: "CORRUPT", errs.IO: "IO",
		errs.Device: "DEVICE", errs.NoMemory: "NO_MEMORY", errs.Unsupported: "UNSUPPORTED", errs.Cancelled: "CANCELLED",
		errs.Closed: "CLOSED"}
	for _, k := range errs.Kinds() {
		name, ok := names[k]
		if !ok {
			t.Errorf("kind %q has no name here", k)
		}
		want["ERR_"+name] = abi.Status(errs.New(k, "", "", ""))
	}
	got := map[string]int32{}
	for _, m := range regexp.MustCompile(`(?m)^\s*NEBULAIO_(RUNNING|OK|ERR_\w+) = (-?\d+)`).FindAllStringSubmatch(
		string(header), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		got[m[1]] = int32(n)
	}
	for name, n := range want {
		if v, ok := got[name]; !ok || v != n {
			t.Errorf("NEBULAIO_%s is %d in the header (found %v), %d here", name, v, ok, n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the header has %d statuses, here are %d", len(got), len(want))
	}
	if v := regexp.MustCompile(`#define NEBULAIO_ABI_VERSION (\d+)`).FindStringSubmatch(string(header)); len(v) != 2 ||
		v[1] != strconv.Itoa(abi.Version) {
		t.Errorf("version %v in the header, %d here", v, abi.Version)
	}
}
