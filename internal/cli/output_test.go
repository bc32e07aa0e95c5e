// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/report"
)

func TestMessage(t *testing.T) {
	inner := errs.New(errs.IO, "read", "/m", "it ended").WithFix("copy it again")
	for _, c := range []struct {
		err  error
		want string
	}{
		{inner, "read /m: it ended"},
		{errs.Wrap("load", "/d", inner), "load /d: read /m: it ended"},
		{fmt.Errorf("shard 3: %w", inner), "shard 3: read /m: it ended"},
		{errs.Wrap("load", "/d", fmt.Errorf("shard 3: %w", inner)), "load /d: shard 3: read /m: it ended"},
		{errors.Join(inner, errors.New("and more")), "read /m: it ended; and more"},
		{errors.Join(nil, inner), "read /m: it ended"},
	} {
		if got := errs.MessageOf(c.err); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		if fix := errs.FixOf(c.err); fix != "copy it again" {
			t.Errorf("%v: fix %q", c.err, fix)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"model.layers.0": "model.layers.0",
		"modèle 模型":      "modèle 模型",
		"a\tb\x1b[31m":   `a\tb\x1b[31m`,
		"\xff\u202e":     `\xff\u202e`,
		"\ufffd":         "\ufffd",
	} {
		if got := printable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestInterruptedNamesTheSignal(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errs.New(errs.Cancelled, "interrupted by", "SIGINT", ""))
	err := interrupted(ctx, errs.Wrap("open model", "/m", ctx.Err()))
	if got := errs.MessageOf(err); got != "open model /m: interrupted by SIGINT" || !errs.Is(err, errs.Cancelled) {
		t.Errorf("%q of kind %v", got, errs.KindOf(err))
	}
	if other := errors.New("other"); interrupted(ctx, other) != other {
		t.Error("another error was changed")
	}
}

func TestSummarize(t *testing.T) {
	load := func(gbps float64) loadJSON {
		var r nebulaio.ModelReport
		r.Bytes, r.Seconds, r.GBps, r.OpenSeconds, r.AllocSeconds = 10, 2, gbps, 0.25, 0.25
		return loadJSON{ModelReport: r}
	}
	for _, c := range []struct {
		rates            []float64
		low, middle, top float64
	}{
		{[]float64{3}, 3, 3, 3},
		{[]float64{4, 1}, 1, 2.5, 4},
		{[]float64{9, 1, 2}, 1, 2, 9},
	} {
		var all []loadJSON
		for _, r := range c.rates {
			all = append(all, load(r))
		}
		n := len(all)
		want := summaryJSON{Loads: n, Bytes: int64(10 * n), MinGBps: c.low, MedianGBps: c.middle, MaxGBps: c.top,
			Seconds: 2 * float64(n), TotalSeconds: 2.5 * float64(n)}
		if got := summarize(all); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestRefusalLines(t *testing.T) {
	got := refusalLines([]report.Refusal{
		{What: "direct", On: "/a", Reason: "no O_DIRECT", Fix: "use ext4"},
		{What: "direct", On: "/b", Reason: "no O_DIRECT", Fix: "use ext4"},
		{What: "direct", On: "/c", Reason: "other"},
		{What: "direct", On: "/d", Reason: "no O_DIRECT", Fix: "use ext4"},
	})
	want := []string{"not used: direct on /a and 2 more: no O_DIRECT; fix: use ext4", "not used: direct on /c: other"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestReportOfGPU prints what no machine without a GPU can make.
func TestReportOfGPU(t *testing.T) {
	var r nebulaio.ModelReport
	r.Path, r.Tensors, r.OpenSeconds, r.AllocSeconds = "/m", 311, 0.001, 0.009
	r.Device = report.Device{ID: "cuda:0", Kind: report.CUDADevice, Model: "NVIDIA H200"}
	r.Bytes, r.Seconds, r.GBps = 1_500_000_000, 0.04, 37.5
	r.Routes = []report.RouteShare{{Route: "page_cache", Bytes: 1_125_000_000, GBps: 40},
		{Route: "direct", Bytes: 375_000_000, GBps: 9.4}}
	r.Stages = []report.Stage{{Stage: "plan", Busy: 0.0002}, {Stage: "copy", Busy: 0.2, Span: 0.039, GBps: 38.4}}
	r.Limiting = "copy to device"
	r.Files = make([]report.File, 2)
	r.Engine = report.Engine{Workers: 12, QueueDepth: 8, ChunkSize: 4 << 20, IO: "uring", StagingSize: 128 << 20,
		StagingUsed: true, HugePages: 128 << 20, StagingState: "pinned"}
	var b bytes.Buffer
	printLoad(&b, loadJSON{ModelReport: r})
	const want = `device    cuda:0 (NVIDIA H200)
path      /m
tensors   311 in 2 files
bytes     1.40 GiB (1500000000 bytes)
total     50.0 ms, 30.0 GB/s
open      1.0 ms
alloc     9.0 ms
transfer  40.0 ms, 37.5 GB/s

route            bytes   share       rate
page_cache    1.05 GiB  75.0 %  40.0 GB/s
direct      357.63 MiB  25.0 %  9.40 GB/s

stage      busy     span       rate
plan     200 µs        -          -
copy   200.0 ms  39.0 ms  38.4 GB/s

limiting  copy to device
engine    12 workers, chunks of 4.00 MiB, direct reads: uring, queue depth 8; staging 128.00 MiB (128.00 MiB in huge pages, pinned)
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}
