// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio"
)

// loadsJSON is the documented shape of load --json.
type loadsJSON struct {
	Loads []struct {
		nebulaio.ModelReport
		Dropped *struct {
			Left *int64 `json:"left_bytes"`
		} `json:"cache_dropped"`
	} `json:"loads"`
	Summary map[string]float64 `json:"summary"`
}

func TestLoadText(t *testing.T) {
	path := tinyModel(t)
	r := run(t, []string{"load", path, "--device", "host"})
	r.want(t, 0, "device    host (memory of this machine; no GPU was used)\n", "path      "+path+"\n",
		"tensors   54 in 1 file\n",
		"(5775 bytes)\n", "\ntotal ", "\nopen ", "\nalloc ", "\ntransfer ", "\nroute ", "100.0 %", "\nstage ", "\nlimiting ",
		"\nengine ", " workers, chunks of 2.00 MiB, ", "note: the device is host memory: no GPU took part\n")
	if strings.Contains(r.out, "load 1 of") || strings.Contains(r.out, "summary") {
		t.Errorf("a single load has lines of a series:\n%s", r.out)
	}
}

func TestLoadSaysWhyNoGPU(t *testing.T) {
	path := tinyModel(t)
	const line = "not used: gpu on this machine: GPUs were not looked for: the mode is off; fix: use mode auto or " +
		"require\n"
	run(t, []string{"load", path, "--devices", "off"}).want(t, 0, line)
	if r := run(t, []string{"load", path, "--devices", "off", "--device", "host"}); strings.Contains(r.out,
		"not used: gpu") {
		t.Errorf("host was asked for by name:\n%s", r.out)
	}
	run(t, []string{"load", path, "--devices", "off", "--device", "cuda"}).want(t, 3, "cuda:0", "the mode is off",
		"\n  fix: use mode auto or require\n")
}

func TestLoadRepeat(t *testing.T) {
	path := tinyModel(t)
	r := run(t, []string{"load", path, "--device", "host", "--repeat", "3"})
	r.want(t, 0, "load 1 of 3: 5.64 KiB to host in ", "load 3 of 3: ", "\nsummary   3 loads, 16.92 KiB: min ", ", median ",
		", max ", " in transfer, ")
	if n := strings.Count(r.out, "\ndevice "); n != 1 {
		t.Errorf("%d report tables, want that of the last load alone", n)
	}
}

func TestLoadJSON(t *testing.T) {
	path := tinyModel(t)
	r := run(t, []string{"load", path, "--device", "host", "--repeat", "2", "--json"}, terminal)
	r.want(t, 0)
	v := decode[loadsJSON](t, r)
	if len(v.Loads) != 2 {
		t.Fatalf("%d loads, want 2", len(v.Loads))
	}
	for _, l := range v.Loads {
		if l.Path != path || l.Tensors != 54 || l.Bytes != 5775 || l.Device.ID != "host" || l.Seconds <= 0 ||
			l.Dropped != nil {
			t.Errorf("report %+v", l)
		}
	}
	a, b := v.Loads[0], v.Loads[1]
	s := v.Summary
	if s["loads"] != 2 || s["bytes"] != 11550 || s["seconds"] != a.Seconds+b.Seconds {
		t.Errorf("summary %v of %v and %v seconds", s, a.Seconds, b.Seconds)
	}
	if s["min_gbps"] != min(a.GBps, b.GBps) || s["max_gbps"] != max(a.GBps, b.GBps) ||
		s["median_gbps"] != (a.GBps+b.GBps)/2 {
		t.Errorf("summary %v of %v and %v GB/s", s, a.GBps, b.GBps)
	}
}

func TestLoadSharded(t *testing.T) {
	dir, files := shardedModel(t)
	if len(files) < 3 {
		t.Fatalf("%d shards, want several", len(files))
	}
	v := decode[loadsJSON](t, run(t, []string{"load", dir, "--device", "host", "--json"}))
	if l := v.Loads[0]; l.Tensors != 54 || l.Bytes != 5775 || len(l.Files) != len(files) {
		t.Errorf("%d tensors, %d bytes, %d files", l.Tensors, l.Bytes, len(l.Files))
	}
	index := filepath.Join(dir, "model.safetensors.index.json")
	run(t, []string{"load", index, "--device", "host"}).want(t, 0, "tensors   54 in ")
}

func TestLoadTensors(t *testing.T) {
	path := tinyModel(t)
	v := decode[loadsJSON](t, run(t, []string{"load", path, "--device", "host", "--json", "--tensors", "bool.*",
		"--tensors", "f64.*"}))
	if l := v.Loads[0]; l.Tensors != 5 || l.Bytes != 93+736 {
		t.Errorf("%d tensors and %d bytes, want 5 and 829", l.Tensors, l.Bytes)
	}
	run(t, []string{"load", path, "--tensors", "none.*"}).want(t, 3, `"none.*"`, "matches no tensor",
		"  fix: list the names with: nebulaio inspect ")
	run(t, []string{"load", path, "--tensors", "[a"}).want(t, 2, `"[a"`, "is not a glob")
}

func TestLoadDropCache(t *testing.T) {
	path := tinyModel(t)
	r := run(t, []string{"load", path, "--device", "host", "--drop-cache", "--json"})
	if r.code == 9 {
		t.Skip("the temporary directory is on a file system without a page cache to drop: " + r.stderr)
	}
	if l := decode[loadsJSON](t, r).Loads[0]; l.Dropped == nil || l.Dropped.Left == nil {
		t.Errorf("no word of the dropped page cache: %s", r.out)
	}
	run(t, []string{"load", path, "--device", "host", "--drop-cache"}).want(t, 0,
		"\ncache     page cache dropped before the load")
	run(t, []string{"load", path, "--device", "host", "--drop-cache", "--repeat", "2"}).want(t, 0,
		"; page cache dropped before the load")
}

func TestDroppedSaysWhatStayed(t *testing.T) {
	if got := (&droppedJSON{Left: 8192}).String(); got != "page cache dropped before the load, 8.00 KiB (8192 bytes) "+
		"stayed" {
		t.Error(got)
	}
}

// terminal makes stderr one.
func terminal(w *World) { w.StderrIsTerminal = true }

// steps is a clock that goes on by d with each look.
func steps(d time.Duration) func(*World) {
	now := time.Unix(0, 0)
	return func(w *World) { w.Now = func() time.Time { now = now.Add(d); return now } }
}

func TestLoadProgress(t *testing.T) {
	path := tinyModel(t)
	args := []string{"load", path, "--device", "host"}
	r := run(t, args, terminal, steps(time.Second))
	first, last := "\r0 B of 5.64 KiB    0 %", "5.64 KiB of 5.64 KiB  100 %  "
	if !strings.HasPrefix(r.stderr, first) || !strings.Contains(r.stderr, "\r"+last) {
		t.Errorf("stderr %q, want it to start with %q and to reach %q", r.stderr, first, last)
	}
	if lines := strings.Split(r.stderr, "\r"); len(lines) < 4 || strings.Trim(lines[len(lines)-2], " ") != "" ||
		lines[len(lines)-1] != "" {
		t.Errorf("the line is not cleared: %q", r.stderr)
	}
	if strings.Contains(r.stderr, "\n") {
		t.Errorf("more than one line: %q", r.stderr)
	}
	run(t, args).want(t, 0)                                       // piped: quiet
	run(t, append(args, "--json"), terminal).want(t, 0)           // for a program: quiet
	run(t, []string{"load", path + "x"}, terminal).want(t, 3, "") // nothing to show
}

func TestProgressText(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		elapsed     time.Duration
		want        string
	}{
		{0, 4 << 30, 0, "0 B of 4.00 GiB    0 %"},
		{1 << 30, 4 << 30, time.Second, "1.00 GiB of 4.00 GiB   25 %  1.07 GB/s  ETA 3s"},
		{4 << 30, 4 << 30, 2 * time.Second, "4.00 GiB of 4.00 GiB  100 %  2.15 GB/s  ETA 0s"},
		{1, 1 << 50, time.Hour, "1 B of 1048576.00 GiB    0 %  0.0 MB/s"},
		{0, 0, time.Second, "0 B"},
	} {
		if got := progressText(c.done, c.total, c.elapsed); got != c.want {
			t.Errorf("%d of %d in %v: %q, want %q", c.done, c.total, c.elapsed, got, c.want)
		}
	}
}

func TestLoadNoTensors(t *testing.T) {
	path := writeFile(t, "empty.safetensors", rawModel("{}", 0))
	run(t, []string{"load", path, "--device", "host"}).want(t, 0, "tensors   0 in 1 file", "bytes     0 B\n")
}

func TestLoadLenient(t *testing.T) {
	path := writeFile(t, "spaced.safetensors", rawModel(`  {"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":1}}`,
		2))
	run(t, []string{"load", path, "--device", "host"}).want(t, 5, path)
	run(t, []string{"load", path, "--device", "host", "--lenient"}).want(t, 0, "tensors   1 in 1 file")
	run(t, []string{"inspect", path}).want(t, 5, path)
	run(t, []string{"inspect", path, "--lenient"}).want(t, 0, "U8")
}

func TestLoadStopsWhenNobodyReads(t *testing.T) {
	path := tinyModel(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full: ", err)
	}
	defer full.Close()
	r := run(t, []string{"load", path, "--device", "host", "--repeat", "1000000000"}, func(w *World) { w.Stdout = full })
	r.want(t, 6, "write standard output: no space left on device")
}

// A model larger than memory is refused before a byte is read; the kernel would
// kill the command otherwise.
func TestLoadLargerThanMemory(t *testing.T) {
	const size = int64(8) << 40
	header := fmt.Sprintf(`{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, size, size)
	path := filepath.Join(t.TempDir(), "huge.safetensors")
	if err := os.WriteFile(path, append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(8+len(header))+size); err != nil {
		t.Skipf("no sparse file of 8 TiB: %v", err)
	}
	run(t, []string{"load", path, "--device", "host"}).want(t, 8, "8.00 TiB are needed", "are available", "fix: ")
}
