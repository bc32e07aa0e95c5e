// SPDX-License-Identifier: Apache-2.0

package open_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestOpenDirectOnTheDeviceAskedFor(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	c := g.BuildCuFile(fakegpu.CuFileOptions{Route: fakegpu.P2P})
	s := newSet(t, c.Options(device.Require))
	dev := openDevice(t, s, "cuda:1")
	if c.Count("opens") != 0 {
		t.Error("cuFile was opened before it was asked for")
	}
	d, err := s.OpenDirect(t.Context(), dev)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("sixteen bytes ok"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := dev.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	file, err := d.OpenFile(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := file.Read(b.Ptr(), 0, 4096, 0); n != 16 || err != nil ||
		!bytes.Equal(g.Bytes(b.Ptr(), 16), []byte("sixteen bytes ok")) {
		t.Errorf("%d, %v", n, err)
	}
	if d.Version() != "1.15.1" || !strings.Contains(d.Facts()["library"], c.Path) {
		t.Errorf("%s, %v", d.Version(), d.Facts())
	}
	second, err := s.OpenDirect(t.Context(), dev)
	if err != nil || c.Count("users") != 2 {
		t.Errorf("%v, %d users", err, c.Count("users"))
	}
	if err := second.Close(); err != nil || c.Count("users") != 1 {
		t.Errorf("%v, %d users", err, c.Count("users"))
	}
	if err := b.Free(); err != nil {
		t.Error(err)
	}
	// The first is left for the set to close, before its device.
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.OpenDirect(t.Context(), dev); !errs.Is(err, errs.Closed) {
		t.Errorf("%v", err)
	}
	c.CheckFreed()
	g.CheckFreed()
}

func TestOpenDirectSaysWhyNot(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	working := g.BuildCuFile(fakegpu.CuFileOptions{})

	s := newSet(t, working.Options(device.Auto))
	if _, err := s.OpenDirect(t.Context(), openDevice(t, s, "host")); !errs.Is(err, errs.Unsupported) ||
		!containsAll(err.Error(), "host", "no GPU") || errs.FixOf(err) == "" {
		t.Errorf("host: %v", err)
	}
	none := working.Options(device.Auto)
	none.CUDALibraries = []string{filepath.Join(t.TempDir(), "libcuda.so.1")}
	s = newSet(t, none)
	if _, err := s.OpenDirect(t.Context(), openDevice(t, s, "auto")); !errs.Is(err, errs.Unsupported) ||
		!containsAll(err.Error(), "there is none", "libcuda.so.1") || !strings.Contains(errs.FixOf(err), "driver") {
		t.Errorf("no GPU: %v", err)
	}
	absent := working.Options(device.Require)
	absent.CuFileLibraries = []string{filepath.Join(t.TempDir(), "libcufile.so.0")}
	s = newSet(t, absent)
	if _, err := s.OpenDirect(t.Context(), openDevice(t, s, "cuda")); !errs.Is(err, errs.Unsupported) ||
		!containsAll(err.Error(), "libcufile.so.0") || !strings.Contains(errs.FixOf(err), "install") {
		t.Errorf("no libcufile: %v", err)
	}
	s = newSet(t, g.BuildCuFile(fakegpu.CuFileOptions{Without: []string{"cuFileHandleRegister"}}).Options(device.Require))
	if _, err := s.OpenDirect(t.Context(), openDevice(t, s, "cuda")); !errs.Is(err, errs.Unsupported) ||
		!containsAll(err.Error(), "missing cuFileHandleRegister") {
		t.Errorf("a symbol: %v", err)
	}
	s, other := newSet(t, working.Options(device.Require)), newSet(t, working.Options(device.Require))
	if _, err := s.OpenDirect(t.Context(), openDevice(t, other, "cuda")); !errs.Is(err, errs.Invalid) {
		t.Errorf("a device of another set: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.OpenDirect(ctx, openDevice(t, s, "cuda")); !errs.Is(err, errs.Cancelled) {
		t.Errorf("%v", err)
	}
	working.Fail("cuFileDriverOpen", 0, 1, 5001)
	if _, err := s.OpenDirect(t.Context(), openDevice(t, s, "cuda")); !errs.Is(err, errs.Unsupported) ||
		!containsAll(err.Error(), "CU_FILE_DRIVER_NOT_INITIALIZED", "cuda:0") {
		t.Errorf("%v", err)
	}
	working.CheckFreed()
}

func TestTheSurveyLooksForCuFileWithoutOpeningIt(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	c := g.BuildCuFile(fakegpu.CuFileOptions{})
	for want, names := range map[bool][]string{true: {c.Path}, false: {filepath.Join(t.TempDir(), "libcufile.so.0")}} {
		o := c.Options(device.Auto)
		o.CuFileLibraries = names
		s := newSet(t, o)
		seen := false
		for _, f := range append(s.Survey().Findings, s.Survey().Findings...) {
			if strings.HasPrefix(filepath.Base(f.Name), "libcufile") {
				seen = true
				if f.Found != want || f.Needed || !want && f.Fix == "" {
					t.Errorf("%+v", f)
				}
			}
		}
		if !seen {
			t.Error("the survey does not say whether libcufile is there")
		}
	}
	if c.Count("opens") != 0 {
		t.Error("the survey opened cuFile")
	}
}
