// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/units"
)

// savesJSON is the documented shape of save --json.
type savesJSON struct {
	Load  nebulaio.ModelReport   `json:"load"`
	Saves []nebulaio.ModelReport `json:"saves"`
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range all {
		out = append(out, e.Name())
	}
	return out
}

func TestSaveText(t *testing.T) {
	path, out := tinyModel(t), filepath.Join(t.TempDir(), "o.safetensors")
	r := run(t, []string{"save", path, out, "--device", "host", "--repeat", "2"})
	r.want(t, 0, "loaded 5.64 KiB from "+path+" to host in ", "save 2 of 2: ",
		"\ndevice    host (memory of this machine; no GPU was used)\n",
		"\npath      "+out+"\n", "\ntensors   54\n", "\ndurable ", "\nchecksum  "+out+".crc64nvme, 1 block\n", "\nroute ",
		"100.0 %",
		"\nstage ", "\nreserve ", "\nwrite ", "\nsync ", "\nrename ", "\nlimiting ",
		"\nengine    16 writes in flight, each up to 1.00 MiB; ")
	run(t, []string{"load", out, "--device", "host", "--verify"}).want(t, 0, "tensors   54 in 1 file\n", "\nverified ")
	run(t, []string{"inspect", out}).want(t, 0, "4096")
}

func TestSaveJSON(t *testing.T) {
	dir, _ := shardedModel(t)
	out := filepath.Join(t.TempDir(), "o.safetensors")
	v := decode[savesJSON](t, run(t, []string{"save", dir, out, "--device", "host", "--json"}, terminal))
	st, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	if s := v.Saves[0]; len(v.Saves) != 1 || s.Direction != "save" || s.Bytes != st.Size() || s.Save == nil ||
		v.Load.Direction != "load" || v.Load.Tensors != s.Tensors {
		t.Errorf("%+v", v)
	}
}

func TestSaveTwiceIsTheSame(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	gpu := func(w *World) { w.CUDALibrary, w.NVMLLibrary = g.CUDA, g.NVML }
	path, dir := tinyModel(t), t.TempDir()
	a, b := filepath.Join(dir, "a.safetensors"), filepath.Join(dir, "b.safetensors")
	run(t, []string{"save", path, a, "--device", "host"}).want(t, 0)
	run(t, []string{"save", a, b, "--device", "cuda:0", "--verify", "--write-block-size", "64KiB", "--write-depth", "2"},
		gpu).want(t, 0, "device    cuda:0 (")
	x, _ := os.ReadFile(a)
	y, err := os.ReadFile(b)
	if err != nil || !slices.Equal(x, y) {
		t.Errorf("a saved model saves to another file: %v", err)
	}
}

func TestSaveWithoutChecksums(t *testing.T) {
	path, dir := tinyModel(t), t.TempDir()
	out := filepath.Join(dir, "o.safetensors")
	run(t, []string{"save", path, out, "--device", "host"}).want(t, 0)
	run(t, []string{"save", path, out, "--device", "host", "--no-checksum", "--tensors", "*"}).want(t, 0)
	if got := names(t, dir); !slices.Equal(got, []string{"o.safetensors"}) {
		t.Errorf("names: %q", got)
	}
	run(t, []string{"load", out, "--device", "host", "--verify"}).want(t, 3, "has no checksums")
}

func TestSaveErrors(t *testing.T) {
	path, dir := tinyModel(t), t.TempDir()
	out := filepath.Join(dir, "o.safetensors")
	run(t, []string{"save", path}).want(t, 2, "1 path given; expected two, a model and the file to write")
	run(t, []string{"save", path, out, out}).want(t, 2, "3 paths given")
	run(t, []string{"save", path, ""}).want(t, 2, `a path is ""`)
	run(t, []string{"save", path, dir, "--device", "host"}).want(t, 2, "is a directory")
	run(t, []string{"save", path, filepath.Join(dir, "none", "o"), "--device", "host"}).want(t, 3, "there is no directory",
		"fix: make the directory first")
	// Places that take no file are refused before anything is loaded.
	for place, c := range map[string]struct {
		code int
		want string
	}{
		"/proc/o.safetensors":    {9, "/proc lies in procfs, a file system of the kernel"},
		"/proc/self/o":           {9, "procfs, a file system of the kernel"},
		"/proc/version":          {9, "procfs, a file system of the kernel"},
		"/dev/null":              {2, "is a device"},
		filepath.Join(path, "o"): {2, path + " is no directory"},
	} {
		var moved bool
		r := run(t, []string{"save", path, place, "--device", "host"}, func(w *World) {
			w.Progress = func(int64, int64) { moved = true }
		})
		r.want(t, c.code, "write "+place+": ", c.want)
		if moved {
			t.Errorf("%s: the model was loaded first", place)
		}
	}
	run(t, []string{"save", filepath.Join(dir, "none"), out, "--device", "host"}).want(t, 3)
	run(t, []string{"save", path, out, "--device", "host", "--tensors", "nope"}).want(t, 3, "matches no tensor")
	run(t, []string{"save", path, out, "--write-depth", "2000"}).want(t, 2, "write_depth=2000")
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("names: %q", got)
	}
}

func TestInterruptSave(t *testing.T) {
	path, dir := sparseModel(t, 64*units.MiB), t.TempDir()
	out := filepath.Join(dir, "o.safetensors")
	begun := 0
	inSave := func(done int64) bool {
		if done == 0 {
			begun++
		}
		return begun > 1 // the first progress is the load's
	}
	r := run(t, []string{"save", path, out, "--device", "host"}, interruptWhen(os.Interrupt, inSave))
	if r.code == 0 && strings.Contains(r.out, "durable") {
		t.Fatal("the interrupt was passed over")
	}
	r.want(t, 130, "save "+out, "interrupted by SIGINT")
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("names: %q", got)
	}
}

func TestSaveCeiling(t *testing.T) {
	path, dir := tinyModel(t), t.TempDir()
	out := filepath.Join(dir, "o.safetensors")
	args := []string{"save", path, out, "--device", "host", "--ceiling", "--repeat", "2"}
	r := run(t, args)
	if r.code == 9 {
		t.Skip("no direct writes here: ", r.stderr)
	}
	r.want(t, 0, "saves reach ", " of plain writes: ")
	v := decode[struct {
		Raw []float64 `json:"raw_write_gbps"`
	}](t, run(t, append(args, "--json")))
	if len(v.Raw) != 2 || v.Raw[0] <= 0 {
		t.Errorf("%+v", v)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"o.safetensors", "o.safetensors.crc64nvme"}) {
		t.Errorf("names: %q", got)
	}
}
