// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
)

// TestLoadThroughCuFile runs the command as a process of its own, which
// prepares its environment, leaves no log and ends cleanly.
func TestLoadThroughCuFile(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	path := tinyModel(t)
	for _, api := range []string{"sync", "async", "batch"} {
		c := g.BuildCuFile(fakegpu.CuFileOptions{})
		var w World
		withGPU(g, c.Path)(&w)
		cmd := w.Command(t.Context(), "load", path, "--device", "cuda:0", "--route", "cufile", "--cufile", api, "--json")
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var v loadsJSON
		if err := json.Unmarshal(out, &v); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		r := v.Loads[0].Report
		if len(r.Routes) != 1 || r.Routes[0].Route != "cufile_compat" || r.CuFile == nil || string(r.CuFile.API) != api ||
			r.CuFile.Contexts != 2 {
			t.Errorf("%+v, %+v", r.Routes, r.CuFile)
		}
		if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) > 0 {
			t.Errorf("left in the working directory: %v, %v", left, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "nebulaio-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestLoadThroughCuFileTellsIt(t *testing.T) {
	t.Setenv("CUFILE_ENV_PATH_JSON", "")
	t.Setenv("CUFILE_LOGFILE_PATH", "")
	g := fakegpu.Build(t, fakegpu.Options{})
	c := g.BuildCuFile(fakegpu.CuFileOptions{Route: fakegpu.P2P})
	path := tinyModel(t) // sizes of its tensors are odd, so that 22 of them begin a read of their own
	run(t, []string{"load", path, "--device", "cuda", "--route", "cufile"}, withGPU(g, c.Path)).
		want(t, 0, "\ncufile_p2p ", "cufile    1.15.1, interface sync; libcufile counted posix 0, p2p 22, nvfs 0",
			"note: libcufile 1.15.1 was opened for this; that makes a context on every visible GPU, here 1")
	c.CheckFreed()
	c = g.BuildCuFile(fakegpu.CuFileOptions{CompatOnly: true})
	run(t, []string{"load", path, "--device", "cuda", "--route", "cufile"}, withGPU(g, c.Path)).
		want(t, 0, "\ncufile_compat ", "interface sync; posix 22, p2p 0, nvfs 0, counted by nebulaio: only compatibility "+
			"mode is possible here; ")
	c = g.BuildCuFile(fakegpu.CuFileOptions{Register: 5027})
	run(t, []string{"load", path, "--device", "cuda", "--route", "cufile"}, withGPU(g, c.Path)).want(t, 9, "5027",
		"/run/udev")
	run(t, []string{"load", path, "--device", "cuda", "--route", "cufile"},
		withGPU(g, filepath.Join(t.TempDir(), "libcufile.so.0"))).want(t, 9, "the library was not found", "fix: install")
	if r := run(t, []string{"load", path, "--device", "host", "--route", "cufile"}); r.code != 9 ||
		!strings.Contains(r.stderr, "no GPU") {
		t.Errorf("%d %s", r.code, r.stderr)
	}
}
