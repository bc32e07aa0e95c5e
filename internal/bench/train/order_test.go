// SPDX-License-Identifier: Apache-2.0

package train

import (
	"slices"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestEachEpochHasEachSampleOnce(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 4, 5, 15, 16, 17, 100, 1023, 1024, 1025} {
		for _, random := range []bool{false, true} {
			o := epochs{total: n, random: random, seed: 7}
			var rows [][]int64
			for e := range int64(3) {
				row := make([]int64, n)
				for i := range row {
					row[i] = o.sample(e*n + int64(i))
				}
				rows = append(rows, slices.Clone(row))
				slices.Sort(row)
				for i, v := range row {
					if v != int64(i) {
						t.Fatalf("%d samples, random %v, epoch %d: not each once: %v", n, random, e, rows[e])
					}
				}
			}
			if same := slices.Equal(rows[0], rows[1]) && slices.Equal(rows[1], rows[2]); n >= 15 && same == random {
				t.Errorf("%d samples, random %v: epochs are alike: %v", n, random, same)
			}
		}
	}
	a, b := epochs{total: 1 << 40, random: true, seed: 1}, epochs{total: 1 << 40, random: true, seed: 2}
	again := a
	if a.sample(5) != again.sample(5) || a.sample(5) == b.sample(5) {
		t.Error("a seed is to give one order, another seed another")
	}
	if o := (epochs{total: 10}); o.epoch(9) != 0 || o.epoch(10) != 1 {
		t.Error("epochs do not end where they should")
	}
}

func TestStride(t *testing.T) {
	for size, want := range map[int64]int64{1: 1, 100: 100, 4095: 4095, 4096: 4096, 4097: 8192, 114_660: 114_688} {
		if got := Stride(size); got != want {
			t.Errorf("samples of %d bytes lie %d apart, expected %d", size, got, want)
		}
	}
}

func TestSamplesDoNotSpanFiles(t *testing.T) {
	files := writtenSet(t, 5000, 2, 0, 3)
	l, err := newLayout(files, 5000, Stride(5000))
	if err != nil || l.total != 5 {
		t.Fatalf("%+v, %v", l, err)
	}
	for n, want := range []struct {
		file int
		off  int64
	}{{0, 0}, {0, 8192}, {2, 0}, {2, 8192}, {2, 16384}} {
		if f, off := l.at(int64(n)); f != want.file || off != want.off {
			t.Errorf("sample %d is at %d of file %d, expected %+v", n, off, f, want)
		}
	}
}

func TestFigures(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	var f figures
	f.warmup = 1
	f.add(ms(50), ms(50), ms(10)) // the warm-up: a slow first batch is left out
	for range 98 {
		f.add(ms(0), ms(0), ms(10))
	}
	f.add(ms(0), ms(100), ms(10))
	f.add(ms(0), ms(20), ms(10))
	got := record.Train{Batch: 2, BatchBytes: 2e6}
	f.fill(&got)
	if got.Steps != 100 || !near(got.Seconds, 1.12) || !near(got.AU, 1/1.12) || !near(got.Target, 0.01) ||
		!near(got.Idle, 0.0012) ||
		!near(got.IdleP99, 0.02) || !near(got.SamplesPerSec, 200/1.12) || !near(got.GBps, 0.2/1.12) {
		t.Errorf("%+v", got)
	}
	if s := got.Trace[0]; !near(s.Ready, 0.05) || !near(s.Begin, 0.05) || !near(s.End, 0.06) {
		t.Errorf("the first step is at %+v", s)
	}
	for range 300 {
		f.add(0, 0, ms(1))
	}
	f.fill(&got)
	if len(got.Trace) != 200 || got.Steps != 400 {
		t.Errorf("%d steps on the time line of %d", len(got.Trace), got.Steps)
	}
	var none record.Train
	(&figures{warmup: 1}).fill(&none)
	if none.AU != 0 || none.Seconds != 0 || none.Steps != 0 {
		t.Errorf("nothing measured: %+v", none)
	}
	one := figures{}
	one.add(ms(3), ms(3), ms(9))
	one.fill(&none)
	if none.Steps != 1 || !near(none.AU, 0.75) || !near(none.IdleP99, 0.003) {
		t.Errorf("one step without a warm-up: %+v", none)
	}
}

func near(a, b float64) bool { return a > b*0.999 && a < b*1.001 }

func TestWorkloads(t *testing.T) {
	w, err := Workload("unet3d", "a100")
	if err != nil || w.Batch != 7 || w.SampleBytes != 146_600_628 || w.StepTime != 636*time.Millisecond ||
		w.WantedAU != 0.9 {
		t.Errorf("%+v, %v", w, err)
	}
	if r := w.Rate(); !near(r, 1.6135e9) {
		t.Errorf("it needs %v bytes a second", r)
	}
	if w, err := Workload("CosmoFlow", ""); err != nil || w.Accelerator != "h100" || w.WantedAU != 0.7 {
		t.Errorf("%+v, %v", w, err)
	}
	if w, err := Workload("resnet50", "H100"); err != nil || w.Batch != 400 || w.StepTime != 224*time.Millisecond {
		t.Errorf("%+v, %v", w, err)
	}
	for _, c := range [][2]string{{"bert", ""}, {"unet3d", "tpu"}, {"", ""}} {
		if _, err := Workload(c[0], c[1]); !errs.Is(err, errs.NotFound) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if (Spec{}).Rate() != 0 {
		t.Error("a step of no time has a rate")
	}
}
