// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/abi"
	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// arrived fails the test unless tensors lo to hi are in the destination.
func (c *caller) arrived(lo, hi uint64) {
	c.Helper()
	f, err := os.ReadFile(c.desc.Files[0].Path)
	c.must(err)
	for _, x := range c.desc.Tensors[lo:hi] {
		if !bytes.Contains(f, c.mem[x.Offset:x.Offset+x.Size]) {
			c.Errorf("%s is ready and differs", x.Name)
		}
	}
}

func TestReadyTensorsAreCountedWhileTheLoadRuns(t *testing.T) {
	c, g, load := heldLoad(t)
	for _, d := range []time.Duration{0, time.Millisecond} {
		if n, running, err := c.LoadReady(load, 0, d); n != 0 || !running || err != nil {
			t.Errorf("a slice of %v: %d ready, running %v, %v", d, n, running, err)
		}
	}
	g.Release()
	all := uint64(len(c.desc.Tensors))
	for known := uint64(0); known < all; {
		n, running, err := c.LoadReady(load, known, -1)
		if n <= known || running || err != nil {
			t.Fatalf("%d ready after %d, running %v, %v", n, known, running, err)
		}
		c.arrived(known, n)
		known = n
	}
	for _, known := range []uint64{all, all + 1, 1<<64 - 1} {
		if n, running, err := c.LoadReady(load, known, -1); n != all || running || err != nil {
			t.Errorf("beyond the last: %d ready, running %v, %v", n, running, err)
		}
	}
	if _, _, _, err := c.Wait(load, -1); err != nil {
		t.Error(err)
	}
	for _, h := range []uint64{c.model, c.system, 0, 999} {
		if _, _, err := c.LoadReady(h, 0, 0); !errs.Is(err, errs.Closed) {
			t.Errorf("handle %d: %v", h, err)
		}
	}
	c.release(load, c.model, c.system)
	g.CheckFreed()
}

func TestReadyTellsTheErrorOfACancelledLoad(t *testing.T) {
	c, g, load := heldLoad(t)
	c.must(c.Cancel(load))
	running, known, err := true, uint64(0), error(nil)
	for running || err == nil {
		g.Hold(1)
		known, running, err = c.LoadReady(load, known, time.Millisecond)
	}
	if abi.Status(err) != int32(errs.Cancelled) || known == uint64(len(c.desc.Tensors)) {
		t.Errorf("%d ready, %v", known, err)
	}
	c.arrived(0, known)
	c.release(load, c.model, c.system)
	g.CheckFreed()
}

func TestVerifyIsAnOptionOfALoad(t *testing.T) {
	c := newCaller(t, `{"devices":"off"}`, "")
	path := c.desc.Files[0].Path
	if _, err := c.StartLoad(c.model, c.dst(), 0, `{"verify":true}`); !errs.Is(err, errs.NotFound) ||
		!strings.Contains(err.Error(), "inspect "+path+" --checksum") {
		t.Fatalf("without checksums: %v", err)
	}
	sums, err := c.StartChecksums(c.model)
	c.must(err)
	if running, done, total, err := c.Wait(sums, -1); running || err != nil || done != total || total == 0 {
		t.Errorf("sums: running %v, %d of %d, %v", running, done, total, err)
	}
	if _, _, err := c.LoadReady(sums, 0, 0); !errs.Is(err, errs.Invalid) {
		t.Errorf("sums have no tensors to be ready: %v", err)
	}
	text, err := c.Report(sums)
	if err != nil || !strings.Contains(string(text), checksum.Path(path)) {
		t.Errorf("%s %v", text, err)
	}
	c.must(c.Release(sums))
	if _, err := c.StartChecksums(sums); !errs.Is(err, errs.Closed) {
		t.Errorf("sums of a handle that is no model: %v", err)
	}
	load := func() (string, error) {
		h, err := c.StartLoad(c.model, c.dst(), 0, `{"verify":true}`)
		c.must(err)
		_, _, _, failed := c.Wait(h, -1)
		r, err := c.Report(h)
		c.must(err)
		c.must(c.Release(h))
		return string(r), failed
	}
	if r, err := load(); err != nil || !strings.Contains(r, `"verify":{"algorithm":"crc64nvme"`) {
		t.Errorf("%v: %s", err, r)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	c.must(err)
	defer f.Close()
	before, err := f.Stat()
	c.must(err)
	_, err = f.WriteAt([]byte{0x5a, 0xa5, 0x5a}, 1<<20)
	c.must(err)
	c.must(os.Chtimes(path, before.ModTime(), before.ModTime())) // rot leaves no trace
	if _, err := load(); !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "block 1,") ||
		!strings.Contains(err.Error(), "it holds tensor") {
		t.Errorf("damaged: %v", err)
	}
}

func TestSelectionsShareTheOpenFiles(t *testing.T) {
	c := newCaller(t, `{"devices":"off"}`, `{"device":"host"}`)
	path := c.desc.Files[0].Path
	c.must(os.Rename(path, path+".moved")) // no selection opens it again
	names := func(h uint64) (out []string) {
		text, err := c.Describe(h)
		c.must(err)
		var d description
		c.must(json.Unmarshal(text, &d))
		for _, x := range d.Tensors {
			out = append(out, x.Name)
		}
		return out
	}
	one, err := c.SelectModel(c.model, `{"tensors":["large"]}`)
	c.must(err)
	exact, err := c.SelectModel(c.model, `{"names":["large","large"]}`)
	c.must(err)
	for _, h := range []uint64{one, exact} {
		if got := names(h); !slices.Equal(got, []string{"large"}) {
			t.Errorf("selected %v", got)
		}
	}
	two := []string{c.desc.Tensors[2].Name, c.desc.Tensors[1].Name}
	o, err := json.Marshal(map[string]any{"names": two})
	c.must(err)
	both, err := c.SelectModel(c.model, string(o))
	c.must(err)
	if slices.Reverse(two); !slices.Equal(names(both), two) { // in the order of the file
		t.Errorf("selected %v", names(both))
	}
	c.must(c.Release(both))
	c.must(c.Release(exact))
	load, err := c.StartLoad(one, c.dst(), 0, "")
	c.must(err)
	if _, _, _, err := c.Wait(load, -1); err != nil {
		t.Fatal(err)
	}
	f, err := os.ReadFile(path + ".moved")
	c.must(err)
	if !bytes.Contains(f, c.mem[filePhase(c):][:4<<20]) {
		t.Error("the selection differs")
	}
	for o, kind := range map[string]errs.Kind{
		`{"tensors":["nothing"]}`: errs.NotFound, `{"device":"host"}`: errs.Invalid, `{"lenient":true}`: errs.Invalid,
		`{"more":["x"]}`: errs.Invalid,
		`{"files":[1]}`:  errs.Invalid, `{"files":[-1]}`: errs.Invalid, `{"names":["lar*"]}`: errs.NotFound,
		`{"names":["large"],"tensors":["*"]}`: errs.Invalid, `{"colour":1}`: errs.Invalid,
	} {
		if h, err := c.SelectModel(c.model, o); !errs.Is(err, kind) {
			t.Errorf("%s: handle %d, %v", o, h, err)
		}
	}
	if err := c.Release(c.model); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "selections of it are still open") {
		t.Errorf("released under its selection: %v", err)
	}
	for _, h := range []uint64{load, one, c.model} {
		c.must(c.Release(h))
	}
	if _, err := c.SelectModel(c.model, ""); !errs.Is(err, errs.Closed) {
		t.Errorf("selected from a released model: %v", err)
	}
	c.must(c.Release(c.system))
}

// filePhase is where a single tensor lies in its destination: it keeps the
// file's offset within a page.
func filePhase(c *caller) int64 {
	for _, x := range c.desc.Tensors {
		if x.Name == "large" {
			return x.Offset % 4096
		}
	}
	return -1
}

func TestSeveralPathsAreOneModel(t *testing.T) {
	c := newCaller(t, `{"devices":"off"}`, "")
	first, second := c.desc.Files[0].Path, filepath.Join(t.TempDir(), "second.safetensors")
	b, err := os.ReadFile(first)
	c.must(err)
	c.must(os.WriteFile(second, b, 0o600))
	o, err := json.Marshal(map[string]any{"device": "host", "more": []string{second}})
	c.must(err)
	both, err := c.OpenModel(c.system, first, string(o))
	c.must(err)
	text, err := c.Describe(both)
	c.must(err)
	var d description
	c.must(json.Unmarshal(text, &d))
	if len(d.Files) != 2 || d.Files[0].Path != first || d.Files[1].Path != second ||
		len(d.Tensors) != 2*len(c.desc.Tensors) {
		t.Errorf("%+v", d.Files)
	}
	part, err := c.SelectModel(both, `{"files":[1],"tensors":["large","*"]}`)
	c.must(err)
	text, err = c.Describe(part)
	c.must(err)
	d = description{}
	c.must(json.Unmarshal(text, &d))
	if len(d.Files) != 1 || d.Files[0].Path != second || len(d.Tensors) != len(c.desc.Tensors) || d.Tensors[0].File != 0 {
		t.Errorf("%+v", d)
	}
	if _, err := c.OpenModel(c.system, first, `{"files":[0]}`); !errs.Is(err, errs.Invalid) {
		t.Errorf("files when a model is opened: %v", err)
	}
	if _, err := c.OpenModel(c.system, first, `{"names":["large"]}`); !errs.Is(err, errs.Invalid) {
		t.Errorf("names when a model is opened: %v", err)
	}
	if _, err := c.OpenModel(c.system, first, `{"more":["/nowhere/x.safetensors"]}`); !errs.Is(err, errs.NotFound) {
		t.Errorf("a second path that does not exist: %v", err)
	}
	for _, h := range []uint64{part, both, c.model, c.system} {
		c.must(c.Release(h))
	}
}
