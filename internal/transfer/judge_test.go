// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// slowJudge is an engine with a fake libcufile that can go directly. It judges direct paths as told, but not before
// the test calls decide.
func slowJudge(t *testing.T, judged DirectPath) (r *cuRig, decide func()) {
	t.Helper()
	r = newCuRig(t, tiny(report.CuFileSync), fakegpu.CuFileOptions{Route: fakegpu.P2P}, judged)
	decided := make(chan struct{})
	r.e.main.opts.DirectPath = func(string, device.Info) DirectPath {
		<-decided
		return judged
	}
	return r, func() { close(decided) }
}

// begin begins to load a whole cold file to the GPU of r.
func begin(t *testing.T, r *cuRig, f *vfs.File) *Load {
	t.Helper()
	q := whole(r.dev, f, alloc(t, r.dev, f.Size()).Ptr(), report.RouteAuto)
	q.Cache = report.CacheBypass
	return start(t, r.e, context.Background(), q)
}

// TestALoadDoesNotWaitForAJudgement loads a file of less than a window while its direct path is being judged. The load
// ends before the judgement, and its report has the reason all the same.
func TestALoadDoesNotWaitForAJudgement(t *testing.T) {
	path, want := writeFile(t, 3*units.MiB+5, 141)
	for reason, judged := range map[string]DirectPath{
		"a virtual disk": {Reason: "a virtual disk", Fix: "an NVMe disk"},
		"3.00 MiB were read while it was found out": {Plausible: true},
	} {
		r, decide := slowJudge(t, judged)
		f := openFile(t, path)
		requireDirect(t, f)
		dropped(t, f)
		r.e.Foresee(r.dev, f)
		tr := begin(t, r, f)
		if err := tr.Err(); err != nil {
			t.Fatal(err)
		}
		decide()
		rep := tr.Report()
		wantRoutes(t, rep, map[report.RouteTaken]int64{report.RouteTakenDirect: int64(len(want))})
		if !bytes.Equal(r.gpu.Bytes(tr.req.Segments[0].Dst, f.Size()), want) {
			t.Error("other bytes arrived")
		}
		if x := refusal(rep, "cufile"); x == nil || !strings.Contains(x.Reason, reason) || x.Fix == "" || x.On != path {
			t.Errorf("expected the reason %q, got %+v", reason, x)
		}
	}
}

// TestALoadGoesAheadForOneWindow loads a file of more than a window while its direct path is being judged. The load
// reads the first window at once. The rest is read by cuFile, after the judgement.
func TestALoadGoesAheadForOneWindow(t *testing.T) {
	const rest = 3 * units.MiB
	path, want := writeFile(t, plan.WindowSize+rest, 142)
	r, decide := slowJudge(t, DirectPath{Plausible: true})
	f := openFile(t, path)
	requireDirect(t, f)
	dropped(t, f)
	r.e.Foresee(r.dev, f)
	tr := begin(t, r, f)
	for done := int64(0); done < plan.WindowSize && !ended(tr); done, _ = tr.Progress() {
		runtime.Gosched()
	}
	if done, _ := tr.Progress(); done != plan.WindowSize {
		t.Errorf("%d bytes arrived before the judgement, expected one window", done)
	}
	decide()
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	rep := tr.Report()
	wantRoutes(t, rep, map[report.RouteTaken]int64{report.RouteTakenDirect: plan.WindowSize,
		report.RouteTakenCuFileP2P: rest})
	if !bytes.Equal(r.gpu.Bytes(tr.req.Segments[0].Dst, f.Size()), want) {
		t.Error("other bytes arrived")
	}
	if x := refusal(rep, "cufile"); x == nil || !strings.Contains(x.Reason, "64.00 MiB were read while") {
		t.Errorf("the report says %+v", x)
	}
}

// TestAJudgementOutlivesTheFile judges the path of a passed file that is closed meanwhile. The path still leads to it.
func TestAJudgementOutlivesTheFile(t *testing.T) {
	path, _ := writeFile(t, 4096, 143)
	requireDirect(t, openFile(t, path))
	dropped(t, openFile(t, path))
	r, decide := slowJudge(t, DirectPath{})
	slow := r.e.main.opts.DirectPath
	led := make(chan error, 1)
	r.e.main.opts.DirectPath = func(at string, d device.Info) DirectPath {
		p := slow(at, d)
		_, err := os.ReadFile(at)
		led <- err
		return p
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := vfs.FromDescriptors(vfs.Descriptors{Name: "s3://b/k", Buffered: fd, Direct: -1, Refused: "none", Size: 4096})
	if err != nil {
		t.Fatal(err)
	}
	r.e.Foresee(r.dev, f)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	decide()
	if err := <-led; err != nil {
		t.Error(err)
	}
}

// TestReportsOfClosedFilesTellTheReason closes a file between the end of a load and its report. The report has the
// judgement of the open file, and asks nothing of the closed one.
func TestReportsOfClosedFilesTellTheReason(t *testing.T) {
	path, want := writeFile(t, 300_000, 144)
	judged := DirectPath{Reason: "a virtual disk", Fix: "an NVMe disk"}
	for name, lens := range map[string][]int64{"ahead": {300_000}, "packed": {100_000, 4, 199_996}} {
		t.Run(name, func(t *testing.T) {
			r, decide := slowJudge(t, judged)
			slow := r.e.main.opts.DirectPath
			asked := atomic.Int32{}
			r.e.main.opts.DirectPath = func(at string, d device.Info) DirectPath {
				asked.Add(1)
				return slow(at, d)
			}
			f, err := vfs.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			requireDirect(t, f)
			dropped(t, f)
			r.e.Foresee(r.dev, f)
			b := alloc(t, r.dev, f.Size()+64)
			var segs []Segment
			var off int64
			for i, n := range lens {
				segs = append(segs, Segment{Off: off, Len: n, Dst: b.Ptr() + device.Ptr(off+16*int64(i))})
				off += n
			}
			tr := start(t, r.e, context.Background(), Request{Device: r.dev, Files: []*vfs.File{f},
				Route: report.RouteAuto, Cache: report.CacheBypass, Segments: segs, Gap: DefaultGap})
			if err := errors.Join(tr.Err(), f.Close()); err != nil {
				t.Fatal(err)
			}
			decide()
			x := refusal(tr.Report(), "cufile")
			if x == nil || x.Reason != judged.Reason || x.On != path {
				t.Errorf("the report says %+v", x)
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("direct paths were judged %d times, expected once", n)
			}
			if !bytes.Equal(r.gpu.Bytes(b.Ptr(), lens[0]), want[:lens[0]]) {
				t.Error("other bytes arrived")
			}
		})
	}
}
