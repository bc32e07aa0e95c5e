// SPDX-License-Identifier: Apache-2.0

package cufile_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/cufile"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// expect compares the counters with what nebulaio must have counted by itself.
func expect(t *testing.T, s *cufile.Session, what string, want device.DirectCounters) {
	t.Helper()
	want.Known, want.CountedBy = true, device.CountedByNebulaIO
	if c, err := s.Counters(); err != nil || c != want {
		t.Errorf("%s: %+v, %v, want\n%+v", what, c, err, want)
	}
}

// untouched fails where any function of the library's statistics was called.
func untouched(t *testing.T, fake *fakegpu.CuFile) {
	t.Helper()
	if n := fake.Count("stats_calls"); n != 0 {
		t.Errorf("%d calls of the library's statistics", n)
	}
}

func posix(total, failed int64) device.RouteOps {
	return device.RouteOps{Total: total, Posix: total - failed, Errors: failed}
}

// TestCompatOnlyCountsByItself: with libcufile 1.15 the statistics crash some
// processes in compatibility mode, so that nothing may start them there.
func TestCompatOnlyCountsByItself(t *testing.T) {
	r := newRig(t, fakegpu.CuFileOptions{CompatOnly: true})
	f, _ := content(t, 64<<10)
	d := r.open(t, f).(*cufile.File)
	read := func(n, at, want int64) {
		t.Helper()
		if got, err := d.Read(r.buf.Ptr(), 0, n, at); got != want || err != nil {
			t.Fatalf("read: %d, %v", got, err)
		}
	}
	read(4096, 0, 4096)
	if c, err := r.Counters(); err != nil || c.Known || c.Route() != "unknown" {
		t.Errorf("before StartCounting: %+v, %v", c, err)
	}
	if err := r.StartCounting(); err != nil {
		t.Fatal(err)
	}
	expect(t, r.Session, "at the start", device.DirectCounters{})

	// Reads and writes, without alignment, at the end of the file, and failed ones.
	read(4096, 0, 4096)
	read(1001, 12345, 1001)
	read(4096, 64<<10, 0)
	read(0, 0, 0) // nothing is asked of the library
	if n, err := d.Write(r.buf.Ptr(), 0, 512, 0); n != 512 || err != nil {
		t.Fatal(n, err)
	}
	r.fake.FailInErrno("cuFileRead", 1, 5044)
	r.fake.Fail("cuFileWrite", 0, 1, 5044)
	_, e1 := d.Read(r.buf.Ptr(), 0, 512, 0)
	_, e2 := d.Write(r.buf.Ptr(), 0, 512, 0)
	_, e3 := d.Read(r.buf.Ptr(), -1, 512, 0) // refused before the library is asked
	if cufile.Code(e1) != 5044 || cufile.Code(e2) != 5044 || !errs.Is(e3, errs.Invalid) {
		t.Errorf("%v, %v, %v", e1, e2, e3)
	}
	want := device.DirectCounters{Reads: posix(4, 1), Writes: posix(2, 1), ReadBytes: 4096 + 1001, WriteBytes: 512}
	expect(t, r.Session, "reads and writes", want)
	if c, err := r.Counters(); err != nil || c.Route() != device.RouteCompat || c.Basis() == "" {
		t.Errorf("%+v: %s, %q, %v", c, c.Route(), c.Basis(), err)
	}

	// Streams: an operation counts once, when its result is asked for.
	mem := outside(t)
	op := func(i int, size, at int64) *cufile.StreamOp {
		t.Helper()
		o, err := cufile.NewStreamOp(mem[i*64:], size, at, 0)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	in, out, bad := op(0, 5000, 4096), op(1, 100, 0), op(2, 10, 0)
	if err := errors.Join(d.ReadAsync(r.buf.Ptr(), in, 7), d.WriteAsync(r.buf.Ptr(), out, 7)); err != nil {
		t.Fatal(err)
	}
	r.fake.FailInErrno("cuFileRead", 1, 5044)
	if err := d.ReadAsync(r.buf.Ptr(), bad, 7); err != nil {
		t.Fatal(err)
	}
	expect(t, r.Session, "streams that nobody asked about", want)
	for range 2 {
		for o, moved := range map[*cufile.StreamOp]int64{in: 5000, out: 100, bad: 0} {
			if n, err := d.Moved(o); n != moved || (err != nil) != (o == bad) {
				t.Errorf("%d, %v", n, err)
			}
		}
	}
	r.fake.Fail("cuFileReadAsync", 0, 1, 5038)
	r.fake.Fail("cuFileWriteAsync", 0, 1, 5038)
	if e1, e2 := d.ReadAsync(r.buf.Ptr(), bad, 7), d.WriteAsync(r.buf.Ptr(), bad, 7); cufile.Code(e1) != 5038 ||
		cufile.Code(e2) != 5038 {
		t.Errorf("%v, %v", e1, e2)
	}
	want.Reads, want.Writes = want.Reads.Plus(posix(3, 2)), want.Writes.Plus(posix(2, 1))
	want.ReadBytes, want.WriteBytes = want.ReadBytes+5000, want.WriteBytes+100
	expect(t, r.Session, "streams", want)

	// Batches: reads and writes, a request that fails, and a group that is refused.
	b, err := r.NewBatch(8)
	if err != nil {
		t.Fatal(err)
	}
	ops := []cufile.BatchOp{{File: d, Base: r.buf.Ptr(), N: 4096}, {File: d, Base: r.buf.Ptr(), N: 4096, FileOff: 4096},
		{File: d, Opcode: cufile.OpWrite, Base: r.buf.Ptr(), N: 100}, {File: d, Base: r.buf.Ptr(), N: 4096,
			FileOff: 64<<10 - 10}}
	r.fake.Fail("cuFileRead", 1, 1, 5044)
	if err := b.Submit(ops); err != nil {
		t.Fatal(err)
	}
	expect(t, r.Session, "a batch that is not collected", want)
	if events, err := b.Wait(4, time.Second); err != nil || len(events) != 4 {
		t.Fatalf("%v, %v", events, err)
	}
	r.fake.Fail("cuFileBatchIOSubmit", 0, 1, 22) // an errno
	if err := b.Submit(ops[:3]); err == nil {
		t.Error("no error")
	}
	want.Batch, want.BatchBytes = posix(7, 4), 4096+100+10
	expect(t, r.Session, "batches", want)
	if c, err := r.Counters(); err != nil || c.ReadRoute() != device.RouteCompat {
		t.Errorf("%s, %v", c.ReadRoute(), err)
	}

	if err := r.StartCounting(); err != nil {
		t.Fatal(err)
	}
	expect(t, r.Session, "after a second start", device.DirectCounters{})
	if err := errors.Join(b.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	if err := b.Submit(ops[:1]); !errs.Is(err, errs.Closed) {
		t.Error(err)
	}
	if _, err := r.Counters(); !errs.Is(err, errs.Closed) {
		t.Error(err)
	}
	untouched(t, r.fake)
	r.fake.CheckFreed()
}

// TestCompatOnlySessionsCountApart: sessions that run at the same time count
// their own operations each, although another part of the process has the
// driver open and the library is too old to count.
func TestCompatOnlySessionsCountApart(t *testing.T) {
	r := newRig(t, fakegpu.CuFileOptions{CompatOnly: true, Version: 1140,
		Without: []string{"cuFileSetStatsLevel", "cuFileGetStatsLevel", "cuFileStatsStart",
			"cuFileStatsStop", "cuFileStatsReset", "cuFileGetStatsL1", "cuFileGetStatsL2", "cuFileGetStatsL3"}})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.fake.OpenDriver(0)
	var wg sync.WaitGroup
	var sessions []*cufile.Session
	for i := range 4 {
		f, _ := content(t, 8192)
		r.reopen(t)
		s, d := r.Session, r.open(t, f)
		sessions = append(sessions, s)
		if s.Facts()["shared"] != "true" {
			t.Error("the driver is another's")
		}
		if err := s.StartCounting(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			wg.Go(func() {
				for range 10 * (i + 1) {
					if _, err := d.Read(r.buf.Ptr(), 0, 4096, 4096); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	for i, s := range sessions {
		n := int64(30 * (i + 1))
		expect(t, s, "session", device.DirectCounters{Reads: posix(n, 0), ReadBytes: n * 4096})
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTheLibraryCountsWhereARouteIsOpen: as soon as a direct route is possible,
// or nobody knows, the library's own counters are the only truth.
func TestTheLibraryCountsWhereARouteIsOpen(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	none := fakegpu.CuFileOptions{CompatOnly: true}
	for name, c := range map[string]struct {
		options fakegpu.CuFileOptions
		before  func(*rig) error
	}{
		"nvidia-fs":              {options: fakegpu.CuFileOptions{}},
		"P2PDMA":                 {none, func(r *rig) error { return r.lib.SetBoolParameter("use_pci_p2pdma", true) }},
		"P2PDMA of a disk":       {none, func(r *rig) error { r.fake.AddProperties(1<<11, 0); return nil }},
		"P2PDMA as a feature":    {none, func(r *rig) error { r.fake.AddProperties(0, 1<<4); return nil }},
		"a feature nobody knows": {none, func(r *rig) error { r.fake.AddProperties(0, 1<<9); return nil }},
		"properties that fail": {none, func(r *rig) error {
			r.fake.Fail("cuFileDriverGetProperties", 0, 1,
				5030)
			return nil
		}},
		"a parameter that fails": {none, func(r *rig) error {
			r.fake.Fail("cuFileGetParameterBool", 0, 1,
				5030)
			return nil
		}},
		"no such parameter": {options: fakegpu.CuFileOptions{CompatOnly: true,
			Without: []string{"cuFileGetParameterBool"}}},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.Route = fakegpu.P2P
			r := &rig{gpu: g, fake: g.BuildCuFile(c.options), dev: g.Open("cuda:0")}
			r.lib = find(t, r.fake)
			if c.before != nil {
				if err := c.before(r); err != nil {
					t.Fatal(err)
				}
			}
			r.reopen(t)
			buf, err := r.dev.Alloc(4096)
			if err != nil {
				t.Fatal(err)
			}
			defer buf.Free()
			f, _ := content(t, 4096)
			d := r.open(t, f)
			if err := r.StartCounting(); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Read(buf.Ptr(), 0, 4096, 0); err != nil {
				t.Fatal(err)
			}
			counters, err := r.Counters()
			want := device.DirectCounters{Known: true, Reads: device.RouteOps{Total: 1, P2P: 1}, ReadBytes: 4096}
			if err != nil || counters != want || counters.Basis() != "" || r.fake.Count("started") != 1 {
				t.Errorf("%+v, %v, want %+v", counters, err, want)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			r.fake.CheckFreed()
		})
	}
}
