// SPDX-License-Identifier: Apache-2.0

package cufile_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/cufile"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// rig is a session over the fake libraries, with one registered buffer.
type rig struct {
	*cufile.Session
	gpu  *fakegpu.GPU
	fake *fakegpu.CuFile
	lib  *cufile.Library
	dev  device.Device
	buf  device.Buffer
}

const bufferSize = 1 << 20

func newRig(t *testing.T, o fakegpu.CuFileOptions) *rig {
	t.Helper()
	g := fakegpu.Build(t, fakegpu.Options{})
	r := &rig{gpu: g, fake: g.BuildCuFile(o), dev: g.Open("cuda:0")}
	r.lib = find(t, r.fake)
	r.reopen(t)
	var err error
	if r.buf, err = r.dev.Alloc(bufferSize); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		r.buf.Free()
		r.gpu.CheckIdle()
	})
	return r
}

func (r *rig) reopen(t *testing.T) {
	t.Helper()
	s, err := r.lib.Open(r.dev.(cufile.Contexts), r.dev.Info())
	if err != nil {
		t.Fatal(err)
	}
	r.Session = s
}

func find(t *testing.T, f *fakegpu.CuFile) *cufile.Library {
	t.Helper()
	l, err := cufile.Find(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// content is a file of n random bytes, open for reading and writing.
func content(t *testing.T, n int) (*os.File, []byte) {
	t.Helper()
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	name := filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, b
}

func (r *rig) open(t *testing.T, f *os.File) device.DirectFile {
	t.Helper()
	d, err := r.OpenFile(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestReadsAndWritesAreExact(t *testing.T) {
	r := newRig(t, fakegpu.CuFileOptions{})
	f, want := content(t, 300_000)
	un, err := r.Register(r.buf)
	if err != nil {
		t.Fatal(err)
	}
	d := r.open(t, f)
	for _, c := range []struct{ bufOff, n, fileOff, want int64 }{
		{0, 4096, 0, 4096}, {8192, 100_000, 4096, 100_000}, {3, 17, 5, 17}, {0, 300_000, 299_999, 1}, {0, 10, 300_000, 0}, {0,
			10, 400_000, 0}, {0, 0, 0, 0},
	} {
		got, err := d.Read(r.buf.Ptr(), c.bufOff, c.n, c.fileOff)
		if err != nil || got != c.want {
			t.Errorf("read of %+v: %d bytes, %v", c, got, err)
			continue
		}
		if c.want > 0 && !bytes.Equal(r.gpu.Bytes(r.buf.Ptr()+device.Ptr(c.bufOff), got), want[c.fileOff:c.fileOff+got]) {
			t.Errorf("read of %+v: other bytes", c)
		}
	}
	mem := r.gpu.Bytes(r.buf.Ptr(), bufferSize)
	for i := range mem {
		mem[i] = byte(i * 7)
	}
	if n, err := d.Write(r.buf.Ptr(), 100, 5000, 250_000); n != 5000 || err != nil {
		t.Errorf("write: %d, %v", n, err)
	}
	copy(want[250_000:], mem[100:5100])
	if now, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(now, want) {
		t.Errorf("the file is not what was written (%v)", err)
	}
	if v := r.fake.Count("unregistered"); v != 0 {
		t.Errorf("%d operations on memory that is not registered", v)
	}
	// Another base is another, unregistered, piece of memory to the library.
	if n, err := d.Read(r.buf.Ptr()+4096, 0, 4096, 0); n != 4096 || err != nil || r.fake.Count("unregistered") != 1 {
		t.Errorf("%d, %v, %d unregistered", n, err, r.fake.Count("unregistered"))
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.Read(r.buf.Ptr(), 0, 1, 0); !errs.Is(err, errs.Closed) {
		t.Errorf("read of a closed file: %v", err)
	}
	for range 2 {
		if err := un(); err != nil {
			t.Error(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	r.fake.CheckFreed()
	if _, err := f.Stat(); err != nil {
		t.Errorf("the caller's descriptor was closed: %v", err)
	}
}

func TestCloseEndsWhatIsLeft(t *testing.T) {
	r := newRig(t, fakegpu.CuFileOptions{})
	f, _ := content(t, 4096)
	un, err := r.Register(r.buf)
	if err != nil {
		t.Fatal(err)
	}
	d := r.open(t, f)
	if err := r.StartCounting(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	r.fake.CheckFreed()
	if err := errors.Join(un(), d.Close()); err != nil {
		t.Errorf("ending what Close ended: %v", err)
	}
	_, e1 := r.OpenFile(int(f.Fd()))
	_, e2 := r.Register(r.buf)
	_, e3 := r.Counters()
	_, e4 := d.Read(r.buf.Ptr(), 0, 1, 0)
	for i, err := range []error{e1, e2, e3, e4, r.StartCounting()} {
		if !errs.Is(err, errs.Closed) {
			t.Errorf("call %d after Close: %v", i, err)
		}
	}
	if r.Facts()["version"] != "1.15.1" {
		t.Errorf("facts after Close: %v", r.Facts())
	}
}

func TestCountersTellTheRoute(t *testing.T) {
	r := newRig(t, fakegpu.CuFileOptions{})
	f, _ := content(t, 1<<20)
	d := r.open(t, f)
	if c, err := r.Counters(); err != nil || c.Known || c.Route() != "unknown" {
		t.Errorf("before StartCounting: %+v, %v", c, err)
	}
	for route, want := range map[int]string{fakegpu.Posix: "compat", fakegpu.P2P: "p2p", fakegpu.NVFS: "nvfs",
		fakegpu.Mixed: "mixed"} {
		r.fake.SetRoute(route)
		if err := r.StartCounting(); err != nil {
			t.Fatal(err)
		}
		if c, err := r.Counters(); err != nil || c.Route() != "none" {
			t.Errorf("%s: at the start %+v, %v", want, c, err)
		}
		for i := range int64(4) {
			if _, err := d.Read(r.buf.Ptr(), 0, 4096, i*4096); err != nil {
				t.Fatal(err)
			}
		}
		c, err := r.Counters()
		if err != nil || c.Route() != want || !c.Known || c.Reads.Total != 4 || c.ReadBytes != 4*4096 || c.Writes.Total != 0 {
			t.Errorf("%s: %+v, %v", want, c, err)
		}
	}
	if _, err := d.Write(r.buf.Ptr(), 0, 512, 0); err != nil {
		t.Fatal(err)
	}
	r.fake.FailInErrno("cuFileRead", 1, 5044)
	if _, err := d.Read(r.buf.Ptr(), 0, 512, 0); err == nil {
		t.Error("no error")
	}
	if c, err := r.Counters(); err != nil || c.Writes.Total != 1 || c.WriteBytes != 512 || c.Reads.Errors != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	l1, e1 := r.lib.StatsL1()
	l2, e2 := r.lib.StatsL2()
	if err := errors.Join(e1, e2); err != nil || l1.Read.OK != 16 || l1.ReadBytes != 16*4096 || l1.Write.OK != 1 ||
		l2.Basic != *l1 || l2.ReadSizes[0] != 16 || l2.WriteSizes[0] != 1 {
		t.Errorf("%v: level 1 %+v, level 2 %+v", err, l1, l2)
	}
	if err := r.lib.StatsReset(); err != nil {
		t.Error(err)
	}
	if l1, err := r.lib.StatsL1(); err != nil || l1.Read.OK != 0 {
		t.Errorf("after a reset %+v, %v", l1, err)
	}
}

// TestSessionsCountForThemselves: the first to close does not stop the other,
// and neither takes the other for a stranger.
func TestSessionsCountForThemselves(t *testing.T) {
	r := newRig(t, fakegpu.CuFileOptions{})
	first := r.Session
	f, _ := content(t, 4096)
	if err := first.StartCounting(); err != nil {
		t.Fatal(err)
	}
	r.reopen(t)
	d := r.open(t, f)
	read := func() {
		t.Helper()
		if _, err := d.Read(r.buf.Ptr(), 0, 4096, 0); err != nil {
			t.Fatal(err)
		}
	}
	read()
	if err := r.StartCounting(); err != nil {
		t.Fatal(err)
	}
	read()
	if c, err := first.Counters(); err != nil || c.Reads.Total != 2 {
		t.Errorf("the first: %+v, %v", c, err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	read()
	if c, err := r.Counters(); err != nil || c.Reads.Total != 2 {
		t.Errorf("the second: %+v, %v", c, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	r.fake.CheckFreed()
	// With the first gone, the second alone raises the level again.
	r.reopen(t)
	if err := r.StartCounting(); err != nil {
		t.Error(err)
	}
}

func TestSettingsOfOthersStay(t *testing.T) {
	r := newRig(t, fakegpu.CuFileOptions{})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.fake.OpenDriver(0)
	r.reopen(t)
	err := r.StartCounting()
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(errs.FixOf(err), "cufile_stats") ||
		r.fake.Count("stats_level") != 0 || r.fake.Count("started") != 0 {
		t.Errorf("%v, level %d", err, r.fake.Count("stats_level"))
	}
	for name, err := range map[string]error{"size": r.lib.SetSizeParameter("max_io_threads", 8),
		"bool": r.lib.SetBoolParameter("allow_compat_mode", false), "string": r.lib.SetStringParameter("log_dir", "/tmp")} {
		if cufile.Code(err) != 5026 || !errs.Is(err, errs.Invalid) ||
			!strings.Contains(err.Error(), "cuFileUseCount") { // refused before the library was asked
			t.Errorf("%s: %v", name, err)
		}
	}
	// Where the other counts by route already, we count along and leave it on.
	if err := errors.Join(r.lib.SetStatsLevel(3), r.lib.StatsStart(), r.StartCounting(), r.Close()); err != nil {
		t.Error(err)
	}
	if r.fake.Count("stats_level") != 3 || r.fake.Count("started") != 1 {
		t.Error("the other's counting was turned off")
	}
}

func TestParametersAndFacts(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	fake := g.BuildCuFile(fakegpu.CuFileOptions{Version: 1150})
	l := find(t, fake)
	if err := errors.Join(l.SetSizeParameter("max_io_threads", 1<<40), l.SetBoolParameter("use_pci_p2pdma", true),
		l.SetStringParameter("log_dir", "/some where")); err != nil {
		t.Fatal(err)
	}
	n, e1 := l.SizeParameter("max_io_threads")
	b, e2 := l.BoolParameter("use_pci_p2pdma")
	s, e3 := l.StringParameter("log_dir")
	if err := errors.Join(e1, e2, e3); err != nil || n != 1<<40 || !b || s != "/some where" {
		t.Errorf("%d %v %q %v", n, b, s, err)
	}
	if _, err := l.SizeParameter("no_such"); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "max_io_threads") {
		t.Error(err)
	}
	if _, err := l.Properties(); cufile.Code(err) != 5001 {
		t.Errorf("properties of a driver that is not open: %v", err)
	}
	dev := g.Open("cuda:0")
	sess, err := l.Open(dev.(cufile.Contexts), dev.Info())
	if err != nil {
		t.Fatal(err)
	}
	defer sess.Close()
	for k, want := range map[string]string{"version": "1.15", "nvfs_version": "2.28", "nvfs_supports": "nvme",
		"control": "compat_allowed", "features": "dynamic_routing, batch, streams, parallel_io",
		"max_direct_io_size_kb": "16384", "allow_compat_mode": "true", "use_pci_p2pdma": "true", "log_dir": "/some where",
		"io_batchsize": "0", "logging_level": "ERROR"} {
		if got := sess.Facts()[k]; got != want {
			t.Errorf("%s is %q, want %q", k, got, want)
		}
	}
}

func TestCloseWaitsForReads(t *testing.T) {
	r := newRig(t, fakegpu.CuFileOptions{})
	f, _ := content(t, 1<<20)
	d := r.open(t, f)
	var wg sync.WaitGroup
	for i := range int64(8) {
		wg.Go(func() {
			for {
				if _, err := d.Read(r.buf.Ptr(), i*4096, 4096, i*4096); err != nil {
					if !errs.Is(err, errs.Closed) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	r.fake.CheckFreed()
}

func TestLook(t *testing.T) {
	dir := t.TempDir()
	env := func(string) string { return dir }
	if f := cufile.Look(env, "libno-such-thing.so.0"); f.Found || f.Fix == "" {
		t.Errorf("%+v", f)
	}
	if err := os.WriteFile(filepath.Join(dir, "libno-such-thing.so.0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := cufile.Look(env, "libno-such-thing.so.0"); !f.Found || !strings.Contains(f.Detail, dir) {
		t.Errorf("%+v", f)
	}
	if f := cufile.Look(func(string) string { return "" }, filepath.Join(dir, "libno-such-thing.so.0")); !f.Found {
		t.Errorf("%+v", f)
	}
	for _, n := range cufile.LibraryNames() {
		if !strings.Contains(n, "libcufile.so") || strings.Contains(n, "//") {
			t.Errorf("the name %q", n)
		}
	}
}
