// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/test/effort"
)

// nothing checks that a benchmark left nothing in dir.
func nothing(t *testing.T, dir string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		t.Errorf("%s was left behind", filepath.Join(dir, e.Name()))
	}
}

// small keeps a benchmark short; no test is about speed.
func small(args ...string) []string {
	return append([]string{"bench"}, append(args, "--size", "2MiB", "--ceilings", "/nonexistent/ceilings.json")...)
}

func TestBenchRead(t *testing.T) {
	dir := t.TempDir()
	for _, to := range []string{"host", "pageable", "pinned", "engine"} {
		r := run(t, small("read", dir, "--to", to, "--device", "host", "--verify", "--block-size", "64KiB", "--json"))
		r.want(t, 0)
		f := decode[record.File](t, r)
		if len(f.Runs) != 1 || f.Runs[0].Bytes != 2<<20 || f.Runs[0].Verify == nil || f.Runs[0].Verify.Mismatches != 0 {
			t.Fatalf("%s: %+v", to, f.Runs)
		}
		if f.Version == "" || f.Machine.Kernel == "" || f.Machine.Device.ID != "host" ||
			strings.Join(f.Command[:3], " ") != "nebulaio bench read" {
			t.Errorf("%s: the result does not say how it was made: %+v", to, f)
		}
		if _, err := record.Parse("stdout", []byte(r.out)); err != nil {
			t.Error(err)
		}
	}
	run(t, small("read", dir)).want(t, 0, "verdict ", "\n  rate ", "\n  latency ", "p99.9", "\n  route ", "\n  cache ",
		"bench ceilings")
	run(t, small("read", dir, "--gdsio")).want(t, 0, "IoType: READ XferType: CPUONLY Threads: 4 ", "GiB/sec")
	nothing(t, dir)
}

// What was asked of the engine is what it works with.
func TestBenchSetsTheEngineUp(t *testing.T) {
	dir := t.TempDir()
	r := run(t, small("read", dir, "--to", "engine", "--device", "host", "--workers", "3", "--queue-depth", "5",
		"--block-size", "128KiB", "--json"))
	r.want(t, 0)
	if s := decode[record.File](t, r).Runs[0].Settings; s.Workers != 3 || s.QueueDepth != 5 || s.BlockSize != 128<<10 {
		t.Errorf("%+v", s)
	}
	run(t, small("read", dir, "--to", "engine", "--device", "host", "--block-size", "4KiB")).want(t, 2,
		"max_transfer_size=4096")
	run(t, small("read", dir, "--to", "engine", "--device", "host", "--block-size", "4KiB", "--pattern", "random",
		"--verify")).want(t, 0)
	nothing(t, dir)
}

func TestBenchWrite(t *testing.T) {
	dir := t.TempDir()
	for _, from := range []string{"host", "pinned"} {
		r := run(t, small("write", dir, "--from", from, "--device", "host", "--verify", "--block-size", "64KiB", "--json"))
		r.want(t, 0)
		if f := decode[record.File](t, r); f.Runs[0].Bytes != 2<<20 || f.Runs[0].Verify.Bytes != 2<<20 ||
			!f.Runs[0].Settings.Sync {
			t.Errorf("%+v", f.Runs[0])
		}
	}
	nothing(t, dir)
}

func TestBenchSweeps(t *testing.T) {
	dir := t.TempDir()
	for _, id := range []string{"pattern", "memory"} {
		r := run(t, small("sweep", id, dir, "--device", "host", "--passes", "1", "--json"))
		r.want(t, 0)
		f := decode[record.File](t, r)
		if len(f.Sweeps) != 1 || f.Sweeps[0].ID != id || len(f.Sweeps[0].Points) < 6 || f.Sweeps[0].Answer == "" ||
			f.Sweeps[0].Question == "" {
			t.Errorf("%+v", f.Sweeps)
		}
	}
	run(t, small("sweep", "everything", dir)).want(t, 2,
		`"everything": is not a question; expected pattern, block-size, workers, memory, prefetch or all`)
	nothing(t, dir)
}

func TestBenchTrain(t *testing.T) {
	dir := t.TempDir()
	r := run(t, small("train", dir, "--device", "host", "--sample-size", "64KiB", "--batch", "4", "--step", "1ms",
		"--steps", "5", "--json"))
	r.want(t, 0)
	f := decode[record.File](t, r)
	if f.Train == nil || f.Train.Steps != 5 || f.Train.Bound == "" || len(f.Train.Next) == 0 ||
		f.Train.Step != "wait on host" {
		t.Fatalf("%+v", f.Train)
	}
	run(t, small("train", dir, "--device", "host", "--workload", "bert")).want(t, 2, `--workload "bert"`,
		"unet3d, resnet50 or cosmoflow")
	run(t, small("train", dir, "--device", "host", "--batch", "1000")).want(t, 2, "batch")
	nothing(t, dir)
}

func TestBenchCeilingsAreKeptAndUsed(t *testing.T) {
	effort.SingleThreaded(t)
	dir, kept := t.TempDir(), filepath.Join(t.TempDir(), "deep", "c.json")
	r := run(t, []string{"bench", "ceilings", dir, "--device", "host", "--rounds", "1", "--time", "10ms", "--size", "4MiB",
		"--ceilings", kept, "--json"})
	r.want(t, 0)
	c := decode[record.Ceilings](t, r)
	if _, ok := c.Find(record.MemoryCopy, "host"); !ok {
		t.Errorf("%+v", c)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Fatal(err)
	}
	r = run(t, []string{"bench", "read", dir, "--size", "4MiB", "--to", "pinned", "--device", "host", "--cache", "warm",
		"--route", "buffered", "--ceilings", kept, "--json"})
	r.want(t, 0)
	if f := decode[record.File](t, r); f.Ceilings == nil || f.Runs[0].Share == nil || f.Runs[0].Share.Ratio <= 0 {
		t.Errorf("no share: %+v, notes %v", f.Runs[0].Share, f.Notes)
	}
	if err := os.WriteFile(kept, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, []string{"bench", "read", dir, "--size", "4MiB", "--ceilings", kept}).want(t, 5, kept,
		"fix: measure them again")
	nothing(t, dir)
}

func TestBenchReportsAndCompares(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	a, b := filepath.Join(out, "a.json"), filepath.Join(out, "b.json")
	run(t, small("read", dir, "--out", a, "--html", filepath.Join(out, "a.html"), "--csv",
		filepath.Join(out, "a.csv"))).want(t, 0)
	page, err := os.ReadFile(filepath.Join(out, "a.html"))
	if err != nil || !strings.Contains(string(page), "<svg") {
		t.Errorf("no report with plots: %v", err)
	}
	text, err := os.Open(filepath.Join(out, "a.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	if rows, err := csv.NewReader(text).ReadAll(); err != nil || len(rows) != 2 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	run(t, []string{"bench", "report", a}).want(t, 0, "\n  rate ")

	// The second file is the first one at half its rate.
	raw, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	f, err := record.Parse(a, raw)
	if err != nil {
		t.Fatal(err)
	}
	r := &f.Runs[0]
	r.Seconds, r.GBps, r.IOPS = 2*r.Seconds, r.GBps/2, r.IOPS/2
	r.Last.Seconds, r.Last.GBps, r.First, r.Series = r.Seconds, r.GBps, nil, nil
	raw, err = json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, []string{"bench", "compare", a, a, "--max-regression", "5%"}).want(t, 0)
	run(t, []string{"bench", "compare", a, b}).want(t, 0, "slower")
	run(t, []string{"bench", "compare", a, b, "--max-regression", "5%"}).want(t, 1, "lost 50 %")
	if got := run(t, []string{"bench", "compare", a, b, "--max-regression", "5%", "--json"}); got.code != 1 {
		t.Errorf("exit code %d", got.code)
	} else {
		decode[map[string]any](t, got)
	}
	nothing(t, dir)
}

// Ctrl-C once ends a run with what it has, on stdout as one object.
func TestInterruptedBenchGivesItsResult(t *testing.T) {
	dir := t.TempDir()
	made := false
	r := run(t, small("read", dir, "--time", "1h", "--json"), interruptWhen(os.Interrupt, func(done int64) bool {
		// Progress counts the files first, then the run.
		if done == 2<<20 {
			made = true
		}
		return made && done > 2<<20
	}))
	if r.code != 130 || !strings.Contains(r.stderr, "interrupted by SIGINT") {
		t.Errorf("exit code %d, %s", r.code, r.stderr)
	}
	if f := decode[record.File](t, r); !f.Interrupted || !f.Runs[0].Interrupted || f.Runs[0].Bytes == 0 {
		t.Errorf("%+v", f)
	}
	run(t, small("read", dir), interruptWhen(os.Interrupt, atStart)).want(t, 130, "interrupted by SIGINT")
	nothing(t, dir)
}

func TestBenchSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, "mine", make([]byte, 8192))
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"bench", "read"}, 2, "no path given; expected directories"},
		{[]string{"bench", "read", ""}, 2, `a path is ""`},
		{small("read", dir+"/none"), 3, dir + "/none"},
		{small("read", dir, "--block-size", "1000"), 2, "block-size=1000"},
		{small("read", dir, "--to", "moon"), 2, `--to "moon"`},
		{small("read", dir, "--time", "-1s"), 2, `--time "-1s"`},
		{small("read", dir, "--until-stable", "200%"), 2, "a share such as 0.05 or 5%"},
		{small("read", dir, dir), 2, "is given twice"},
		{[]string{"bench", "read", dir, "--size", "100TB"}, 2, "size="},
		{[]string{"bench", "read", dir, "--size", "60TiB"}, 6, "are free"},
		{small("read", dir, "--to", "pinned", "--device", "cuda:7", "--devices", "off"), 3, "off"},
		{small("read", dir, "--to", "cufile", "--device", "host"), 9, "cuFile"},
		{small("write", file), 2, "never written to"},
		{small("write", dir, "--from", "engine"), 2, `--from "engine"`},
		{[]string{"bench", "compare", file}, 2, "1 file given; expected two"},
		{[]string{"bench", "compare", file, file}, 5, "mine"},
		{[]string{"bench", "report", dir + "/none.json"}, 3, "none.json"},
		{small("read", dir, "--html", dir+"/no/such/a.html"), 3, "a.html"},
		{small("read", dir, "--device", "cuda:0"), 2, "is not used"},
		{small("all", file), 2, "is a file; expected directories"},
		{small("read", dir, "--json", "--gdsio"), 2, "expected one of them"},
	} {
		r := run(t, c.args)
		if r.code != c.code || !strings.Contains(r.stderr, c.text) {
			t.Errorf("%v: exit code %d, want %d with %q\n%s", c.args, r.code, c.code, c.text, r.stderr)
		}
	}
	nothing(t, dir)
}

func TestSparkline(t *testing.T) {
	for _, c := range []struct {
		rates []float64
		want  string
	}{{nil, ""}, {[]float64{0, 0}, "▁▁"}, {[]float64{0, 5, 10}, "▁▄█"}} {
		if got := sparkline(c.rates); got != c.want {
			t.Errorf("%v: %q", c.rates, got)
		}
	}
}

// On a GPU, routes of cuFile are what its counters say, and everything is freed.
func TestBenchOnAGPU(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	g := fakegpu.Build(t, fakegpu.Options{})
	dir := t.TempDir()
	for route, want := range map[int]string{fakegpu.Posix: "cufile_compat", fakegpu.P2P: "cufile_p2p",
		fakegpu.NVFS: "cufile_nvfs", fakegpu.Mixed: "unknown"} {
		c := g.BuildCuFile(fakegpu.CuFileOptions{Route: route})
		r := run(t, small("read", dir, "--to", "cufile", "--verify", "--block-size", "256KiB", "--json"), withGPU(g, c.Path))
		r.want(t, 0)
		f := decode[record.File](t, r)
		if got := f.Runs[0]; len(got.Routes) != 1 || got.Routes[0].Route != want || got.Verify.Mismatches != 0 ||
			got.Verify.Bytes != 2<<20 {
			t.Errorf("%s: %+v, %+v", want, got.Routes, got.Verify)
		}
		run(t, small("read", dir, "--to", "cufile", "--route", "buffered", "--verify", "--block-size", "256KiB"),
			withGPU(g, c.Path)).want(t, 0)
		run(t, small("write", dir, "--from", "cufile", "--block-size", "256KiB"), withGPU(g, c.Path)).want(t, 0)
		c.CheckFreed()
	}
	only := g.BuildCuFile(fakegpu.CuFileOptions{CompatOnly: true})
	for _, args := range [][]string{{"read", "--to"}, {"write", "--from"}} {
		r := run(t, small(args[0], dir, args[1], "cufile", "--block-size", "256KiB", "--json"), withGPU(g, only.Path))
		r.want(t, 0)
		got := decode[record.File](t, r).Runs[0]
		if len(got.Routes) != 1 || got.Routes[0].Route != "cufile_compat" ||
			!strings.Contains(got.Proof, "counted by nebulaio") || only.Count("stats_calls") != 0 {
			t.Errorf("%s: %+v, %q, %q, %d calls of statistics", args[0], got.Routes, got.Proof, got.Notes,
				only.Count("stats_calls"))
		}
	}
	only.CheckFreed()
	refused := g.BuildCuFile(fakegpu.CuFileOptions{Register: 5027})
	run(t, small("read", dir, "--to", "cufile"), withGPU(g, refused.Path)).want(t, 9, "give to cuFile", "fix: ")
	if logs, err := filepath.Glob("cufile*.log"); err != nil || len(logs) > 0 {
		t.Errorf("cuFile's log was left where the user stands: %v, %v", logs, err)
	}
	run(t, small("read", dir, "--to", "cufile"), withGPU(g, "/nonexistent/libcufile.so")).want(t, 9, "libcufile")

	ceilings := filepath.Join(t.TempDir(), "c.json")
	r := run(t, []string{"bench", "ceilings", "--rounds", "1", "--ceilings", ceilings, "--json"}, withGPU(g, ""))
	r.want(t, 0)
	found := map[string]bool{}
	for _, l := range decode[record.Ceilings](t, r).Limits {
		found[l.ID] = true
	}
	for _, id := range []string{record.MemoryCopy, record.H2DPinned, record.D2HPinned, record.H2DPageable,
		record.D2HPageable, record.Loopback} {
		if !found[id] {
			t.Errorf("no limit %s", id)
		}
	}
	train := run(t, small("train", dir, "--sample-size", "64KiB", "--batch", "4", "--step", "1ms", "--steps", "5",
		"--json"), withGPU(g, ""))
	train.want(t, 0)
	if f := decode[record.File](t, train); f.Train.Step != "spin kernel on cuda:0" || f.Train.Timing != "device events" {
		t.Errorf("%+v", f.Train)
	}
	g.CheckFreed()
	nothing(t, dir)
}

// What was measured before something failed is not thrown away.
func TestAFailedBenchPrintsWhatItHas(t *testing.T) {
	effort.SingleThreaded(t)
	g := fakegpu.Build(t, fakegpu.Options{Without: []string{"cuModuleLoadData"}})
	dir := t.TempDir()
	r := run(t, []string{"bench", "sweep", "all", dir, "--size", "2MiB", "--passes", "1", "--ceilings",
		"/nonexistent/c.json", "--json"}, withGPU(g, ""))
	if r.code != 9 || !strings.Contains(r.stderr, "the results so far are printed") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if f := decode[record.File](t, r); len(f.Runs) < 20 || f.Interrupted || len(f.Notes) == 0 {
		t.Errorf("%d runs, interrupted %v, notes %v", len(f.Runs), f.Interrupted, f.Notes)
	}
	nothing(t, dir)
}

// Everything at once, as a first look at a machine.
func TestBenchAll(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	g := fakegpu.Build(t, fakegpu.Options{})
	c := g.BuildCuFile(fakegpu.CuFileOptions{})
	dir, out := t.TempDir(), t.TempDir()
	r := run(t, []string{"bench", "all", dir, "--size", "8MiB", "--time", "5ms", "--rounds", "1", "--ceilings",
		filepath.Join(out, "c.json"), "--html", filepath.Join(out, "all.html"), "--json"}, withGPU(g, c.Path))
	r.want(t, 0)
	f := decode[record.File](t, r)
	if f.Ceilings == nil || len(f.Sweeps) != 5 || f.Train == nil || len(f.Runs) < 12 {
		t.Errorf("%d runs, %d sweeps, train %v, notes %v", len(f.Runs), len(f.Sweeps), f.Train != nil, f.Notes)
	}
	if _, err := record.Parse("stdout", []byte(r.out)); err != nil {
		t.Error(err)
	}
	g.CheckFreed()
	nothing(t, dir)
}
