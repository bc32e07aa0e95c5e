// SPDX-License-Identifier: Apache-2.0

package dcgm_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/dcgm"
	"github.com/nebulaio/nebulaio/internal/dl"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const local = "127.0.0.1"

// fake compiles the fake libdcgm.
func fake(t *testing.T, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("the fake libdcgm needs a C compiler: %v", err)
	}
	out := filepath.Join(t.TempDir(), "libdcgm.so.4")
	args := append([]string{"-shared", "-fPIC", "-Wall", "-Werror", "-o", out, "testdata/libdcgm.c"}, flags...)
	if text, err := exec.CommandContext(t.Context(), cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// stillOpen returns the number of things that the fake library has handed out and not got back.
func stillOpen(t *testing.T, name string) int {
	t.Helper()
	lib, err := dl.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return int(int32(lib.Lookup("fake_open").Call()))
}

func TestTheActivityOfGPUsIsRead(t *testing.T) {
	name := fake(t, "-DFAKE_GPUS=2", "-DFAKE_WATCH=0")
	e, err := dcgm.Open(local, name)
	if err != nil {
		t.Fatal(err)
	}
	all, err := e.Activity()
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	want := device.GPUActivity{Index: 0, SM: 0.25, Tensor: 0.25, Memory: 0.25, PCIeSent: 1009e6, PCIeReceived: 1010e6,
		NVLinkSent: 1011e6, NVLinkReceived: 1012e6}
	if all[0] != want {
		t.Errorf("%+v, expected %+v", all[0], want)
	}
	// Blank and unsupported fields are unknown, not zero.
	if g := all[1]; g.Index != 1 || g.SM >= 0 || g.NVLinkReceived >= 0 || g.PCIeSent != 1009e6 {
		t.Errorf("%+v", g)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if n := stillOpen(t, name); n != 0 {
		t.Errorf("%d things are still open", n)
	}
}

func TestAMachineWithoutDCGMSaysWhy(t *testing.T) {
	for name, c := range map[string]struct{ address, library, part, fix string }{
		"no library": {local, "/nonexistent/libdcgm.so", "libdcgm", "datacenter-gpu-manager"},
		"no engine": {"127.0.0.2", fake(t, "-DFAKE_GPUS=2", "-DFAKE_WATCH=0"), "Host engine connection invalid",
			"systemctl start nvidia-dcgm"},
		"no GPU":    {local, fake(t, "-DFAKE_GPUS=0", "-DFAKE_WATCH=0"), "0 GPUs", ""},
		"many GPUs": {local, fake(t, "-DFAKE_GPUS=9999", "-DFAKE_WATCH=0"), "9999 GPUs", ""},
		"no fields": {local, fake(t, "-DFAKE_GPUS=2", "-DFAKE_WATCH=-6"), "watch fields: status -6", "data center GPU"},
		"no symbol": {local, fake(t, "-DFAKE_GPUS=2", "-DFAKE_WATCH=0", "-DdcgmWatchFields=other"),
			"dcgmWatchFields is missing", "DCGM 3"},
	} {
		_, err := dcgm.Open(c.address, c.library)
		if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), c.part) ||
			!strings.Contains(errs.FixOf(err), c.fix) {
			t.Errorf("%s: %v", name, err)
		}
		if c.library[1] != 'n' {
			if n := stillOpen(t, c.library); n != 0 {
				t.Errorf("%s: %d things are still open", name, n)
			}
		}
	}
}
