// SPDX-License-Identifier: Apache-2.0

package train

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
	"github.com/nebulaio/nebulaio/test/closing"
)

// content is what sample n of a test's data set holds.
func content(n, size int64) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(int64(i)*7 + n*13 + n>>8)
	}
	if size >= 8 {
		binary.LittleEndian.PutUint64(b, uint64(n))
	}
	return b
}

// writtenSet writes files with so many samples each and opens them.
func writtenSet(t *testing.T, size int64, each ...int) []*vfs.File {
	t.Helper()
	dir := vfstest.DiskDir(t)
	var files []*vfs.File
	n := int64(0)
	for i, samples := range each {
		var all []byte
		for range samples {
			all = append(all, content(n, size)...)
			all = append(all, make([]byte, Stride(size)-size)...)
			n++
		}
		path := filepath.Join(dir, fmt.Sprintf("part%d", i))
		if err := os.WriteFile(path, all, 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, vfstest.Open(t, path))
	}
	return files
}

func newEngine(t *testing.T) *transfer.Engine {
	t.Helper()
	e, err := transfer.New(transfer.Options{PoolSize: 2 << 20, MaxTransfer: 128 << 10, Workers: 2, QueueDepth: 4,
		Poison: true})
	return closing.AtEnd(t, e, err)
}

// base is a small run that works everywhere.
func base(d device.Device, files []*vfs.File) Config {
	return Config{Device: d, Files: files, SampleBytes: 5000, Batch: 3, StepTime: time.Millisecond, Steps: 9, Workers: 2,
		Prefetch: 2, Alone: 2, Memory: Pinned, Route: "buffered"}
}

// witness looks at device memory while a batch lies there.
type witness struct {
	mu      sync.Mutex
	batches []int
	seen    map[int64]int
	bad     int
}

func (w *witness) look(p Config, bytesAt func(device.Ptr, int64) []byte) hooks {
	w.seen = map[int64]int{}
	return hooks{step: func(batch int, at device.Ptr) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.batches = append(w.batches, batch)
		o := epochs{random: p.Pattern == Random, seed: p.Seed}
		for _, f := range p.Files {
			o.total += f.Size() / Stride(p.SampleBytes)
		}
		for i := range p.Batch {
			want, stride := o.sample(int64(batch*p.Batch+i)), Stride(p.SampleBytes)
			if p.Memory == Loader { // its batches have no gaps
				stride = p.SampleBytes
			}
			got := bytesAt(at+device.Ptr(int64(i)*stride), p.SampleBytes)
			if p.Memory == Loader && p.Pattern == Random { // an order of its own: each sample names itself
				want = int64(binary.LittleEndian.Uint64(got))
			}
			if !bytes.Equal(got, content(want, p.SampleBytes)) {
				w.bad++
			}
			w.seen[want]++
		}
	}}
}

func (w *witness) check(t *testing.T, batches int, samples, epochs int) {
	t.Helper()
	if len(w.batches) != batches {
		t.Errorf("%d batches were consumed, expected %d", len(w.batches), batches)
	}
	for i, b := range w.batches {
		if b != i {
			t.Fatalf("batches came in the order %v", w.batches)
		}
	}
	if w.bad > 0 {
		t.Errorf("%d samples in device memory are not those of their batch", w.bad)
	}
	if len(w.seen) != samples {
		t.Errorf("%d of %d samples were used", len(w.seen), samples)
	}
	for n, times := range w.seen {
		if times != epochs {
			t.Errorf("sample %d was used %d times in %d epochs", n, times, epochs)
		}
	}
}

func TestEachStepHasTheBytesOfItsOwnSamples(t *testing.T) {
	files := writtenSet(t, 5000, 4, 7, 4) // 15 samples, 5 batches of 3: two epochs in 10 steps
	directOK, _ := files[0].Direct()
	for _, dev := range []string{"gpu", "staged", "in place"} {
		for _, memory := range []string{Pageable, Pinned, Engine, Loader} {
			for _, route := range []string{"buffered", "direct", "auto"} {
				for _, pattern := range []string{Sequential, Random} {
					if route == "direct" && !directOK {
						continue
					}
					t.Run(strings.Join([]string{dev, memory, route, pattern}, "/"), func(t *testing.T) {
						var d device.Device = host.Staged()
						if dev == "in place" {
							d = host.New()
						}
						look := host.New().Map
						var g *fakegpu.GPU
						if dev == "gpu" {
							g = fakegpu.Build(t, fakegpu.Options{})
							d, look = g.Open("cuda:0"), g.Bytes
						}
						c := base(d, files)
						c.Memory, c.Route, c.Pattern, c.Seed, c.Prefetch = memory, route, pattern, 42, len(pattern)%3
						if memory == Engine || memory == Loader {
							c.Engine, c.Host = newEngine(t), host.New()
						}
						var w witness
						got, err := run(t.Context(), c, w.look(c, look))
						if err != nil {
							t.Fatal(err)
						}
						w.check(t, 10, 15, 2)
						sane(t, got, c)
						if g != nil && memory == Pageable && g.Count("pageable_copies") == 0 {
							t.Error("no copy came from pageable memory")
						}
						if g != nil && memory != Pageable && g.Count("pageable_copies") != 0 {
							t.Error("a copy came from pageable memory")
						}
						var bytes int64
						for _, r := range got.Routes {
							// Reads into place take the ragged end of a sample through the page cache.
							ragged := dev == "in place" && (memory == Engine || memory == Loader)
							if route == "direct" && r.Route != "direct" && !ragged || route == "buffered" && r.Route == "direct" {
								t.Errorf("route %s was asked for and %s taken", route, r.Route)
							}
							bytes += r.Bytes
						}
						if want := int64(30 * 5000); bytes != want {
							t.Errorf("routes account for %d bytes, expected %d: %+v", bytes, want, got.Routes)
						}
					})
				}
			}
		}
	}
}

func sane(t *testing.T, got record.Train, c Config) {
	t.Helper()
	if got.Steps != 9 || got.Warmup != 1 || got.Batch != 3 || got.BatchBytes != 15000 || got.Interrupted ||
		got.Workload != "custom" {
		t.Errorf("%+v", got)
	}
	if got.AU <= 0 || got.AU > 1 || got.Seconds <= 0 || got.SamplesPerSec <= 0 || got.GBps <= 0 || got.Isolated <= 0 ||
		got.Copy <= 0 || got.Target < 0.00099 {
		t.Errorf("figures: %+v", got)
	}
	timing, step := "host clock", "wait on host"
	if c.Device.Info().Kind == device.CUDA {
		timing, step = "device events", "spin kernel on cuda:0"
	}
	if got.Timing != timing || got.Step != step {
		t.Errorf("timing %q, step %q", got.Timing, got.Step)
	}
	if len(got.Trace) != 10 || got.Bound == "" || got.Why == "" || len(got.Next) == 0 {
		t.Errorf("%d steps in the trace, bound %q", len(got.Trace), got.Bound)
	}
	last := 0.0
	for i, s := range got.Trace {
		if s.Begin < last || s.End < s.Begin || s.Ready > s.Begin {
			t.Errorf("step %d of the trace: %+v after %v", i, s, last)
		}
		last = s.End
	}
}

// On the fake GPU time is made up, so figures are exact: a copy takes 5 ms and
// a step 2 ms, so each step waits 3 ms.
func TestFiguresAreTheDevicesOwn(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	g.CopyTakes(5 * time.Millisecond)
	c := base(g.Open("cuda:0"), writtenSet(t, 5000, 15))
	c.StepTime, c.Steps = 2*time.Millisecond, 20
	got, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if got < want*0.999 || got > want*1.001 {
			t.Errorf("%s is %v, expected %v", what, got, want)
		}
	}
	near("target", got.Target, 0.002)
	near("idle", got.Idle, 0.003)
	near("idle p99", got.IdleP99, 0.003)
	near("AU", got.AU, 0.4)
	near("seconds", got.Seconds, 0.1)
	near("samples a second", got.SamplesPerSec, 600)
	near("GB/s", got.GBps, 20*15000/0.1/1e9)
	if got.Timing != "device events" {
		t.Errorf("timing %q", got.Timing)
	}
}

// newClock returns a clock that moves on by d and tells the time after it. Nothing else moves the clock.
func newClock() (pass func(d time.Duration) time.Time) {
	var mu sync.Mutex
	clock := time.Unix(0, 0)
	return func(d time.Duration) time.Time {
		mu.Lock()
		defer mu.Unlock()
		clock = clock.Add(d)
		return clock
	}
}

// Time is made up: a read takes an hour, a look at the clock a millisecond, and
// without prefetch no read happens while a step runs.
func TestASlowLoaderIsNamed(t *testing.T) {
	pass := newClock()
	h := hooks{
		now:  func() time.Time { return pass(time.Millisecond) },
		read: func(int64, []byte) error { pass(time.Hour); return nil },
	}
	// Without timing events, else the steps' own clock is the fake driver's.
	g := fakegpu.Build(t, fakegpu.Options{Without: []string{"cuEventElapsedTime_v2"}})
	c := base(g.Open("cuda:0"), writtenSet(t, 5000, 15))
	c.Prefetch, c.Limits = 0, Limits{CPUs: 8}
	got, err := run(t.Context(), c, h)
	if err != nil {
		t.Fatal(err)
	}
	if got.Bound != string(bottleneck.Storage) || got.Isolated < 3*3600 || got.Idle < 3*3600 || got.Target <= 0 ||
		got.Target > 1 || got.AU > 0.001 {
		t.Errorf("%+v", got)
	}
	if got.Timing != "host clock" || len(got.Notes) == 0 || !strings.Contains(got.Notes[0], "cuEventElapsedTime_v2") {
		t.Errorf("timing %q, notes %q", got.Timing, got.Notes)
	}
	if !strings.Contains(got.Next[0], "raise workers from 2 until") {
		t.Errorf("advice %q", got.Next)
	}
}

func TestColdEpochsComeFromStorage(t *testing.T) {
	files := writtenSet(t, 5000, 15)
	if left, err := files[0].DropCache(); err != nil || left != 0 {
		t.Skipf("this file system keeps %d bytes: %v", left, err)
	}
	files[0].ExpectRandom(true)
	c := base(host.New(), files)
	c.Drop, c.Steps, c.Warmup, c.Workers, c.Prefetch = true, 15, -1, 1, 0 // three epochs
	var w witness
	got, err := run(t.Context(), c, w.look(c, host.New().Map))
	if err != nil {
		t.Fatal(err)
	}
	w.check(t, 15, 15, 3)
	missed := int64(0)
	for _, r := range got.Routes {
		if r.Route == "buffered" {
			missed = r.Bytes
		}
	}
	if missed < 2*15*5000 {
		t.Errorf("%d bytes came from storage in three cold epochs of %d: %+v", missed, 15*5000, got.Routes)
	}
}

func TestTheLoaderAloneReadsWhatTheRunDoesNot(t *testing.T) {
	var mu sync.Mutex
	var seen []int64
	c := base(host.New(), writtenSet(t, 5000, 40)) // the run takes 30
	c.Workers = 1
	_, err := run(t.Context(), c, hooks{read: func(n int64, _ []byte) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, n)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	// Three rounds of a batch for each place (there is room for one more only), the run, two rounds more.
	alone := "30 31 32 33 34 35 36 37 38 "
	if got, want := fmt.Sprint(seen), "["+alone+alone+alone+"0 1 2 "; !strings.HasPrefix(got, want) ||
		!strings.HasSuffix(got+" ", " 29 "+strings.TrimSuffix(alone+alone, " ")+"] ") {
		t.Errorf("read %v, expected %s ... 29 and two rounds more", seen, want)
	}
}

// The first batch of each round takes ten times as long as the others, as first
// reads into new memory may. The loop leaves its first batch out, and so do the rounds.
func TestTheLoaderAloneIsWarmedUp(t *testing.T) {
	pass := newClock()
	h := hooks{
		now: func() time.Time { return pass(0) },
		read: func(n int64, _ []byte) error {
			if n < 33 { // the run, and the first batch of a round
				pass(100 * time.Millisecond)
			} else {
				pass(10 * time.Millisecond)
			}
			return nil
		},
	}
	g := fakegpu.Build(t, fakegpu.Options{Without: []string{"cuEventElapsedTime_v2"}})
	c := base(g.Open("cuda:0"), writtenSet(t, 5000, 40))
	c.Workers, c.Prefetch = 1, 0
	got, err := run(t.Context(), c, h)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.IsolatedRounds) != roundsBefore+roundsAfter {
		t.Errorf("%d rounds, expected %d", len(got.IsolatedRounds), roundsBefore+roundsAfter)
	}
	for i, s := range append(got.IsolatedRounds, got.Isolated) {
		if s < 0.0299 || s > 0.0301 {
			t.Errorf("round %d: %v seconds for a batch, expected 0.03: the first one was counted", i, s)
		}
	}
}
