// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
	"github.com/nebulaio/nebulaio/report"
)

// The tests here hold the report to the truth: whatever the file, its file
// system or the kernel do, it says which way the bytes came and which way was
// not open.

func refusal(r report.Report, what string) *report.Refusal {
	for i := range r.Refusals {
		if r.Refusals[i].What == what {
			return &r.Refusals[i]
		}
	}
	return nil
}

// wantRoutes fails the test unless the bytes came as given and nothing else.
func wantRoutes(t *testing.T, r report.Report, want map[report.RouteTaken]int64) {
	t.Helper()
	sum := int64(0)
	for _, x := range r.Routes {
		if x.Bytes != want[x.Route] {
			t.Errorf("route %s took %d bytes, expected %d", x.Route, x.Bytes, want[x.Route])
		}
		if x.Chunks <= 0 || x.Bytes <= 0 {
			t.Errorf("an empty route is listed: %+v", x)
		}
		sum += x.Bytes
	}
	if sum != r.Bytes {
		t.Errorf("the routes add up to %d of %d bytes", sum, r.Bytes)
	}
}

func warm(t *testing.T, f *vfs.File) {
	t.Helper()
	if _, err := f.ReadAt(make([]byte, f.Size()), 0); err != nil {
		t.Fatal(err)
	}
}

func equal(t *testing.T, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatal("bytes differ")
	}
}

func TestPathUnalignedTailIsDirectToo(t *testing.T) {
	for _, tail := range []int64{1, 511, 513, 4095} {
		path, want := writeFile(t, 1*units.MiB+tail, uint64(50+tail))
		f := openFile(t, path)
		requireDirect(t, f)
		dropped(t, f)
		e := newEngine(t, small)
		got, r := load(t, e, host.Staged(), f, report.RouteDirect, report.CacheAuto)
		equal(t, got, want)
		wantRoutes(t, r, map[report.RouteTaken]int64{report.RouteTakenDirect: f.Size()})
		if res, err := f.Residency(0, f.Size()); err != nil || res.Cached != 0 {
			t.Errorf("a direct load left %d bytes in the page cache: %v", res.Cached, err)
		}
	}
}

func TestPathDirtyPagesGoThroughThePageCacheAndAreNoted(t *testing.T) {
	path, _ := writeFile(t, 2*units.MiB, 51)
	f := openFile(t, path)
	requireDirect(t, f)
	dropped(t, f)
	want := bytes.Repeat([]byte("dirty!!\n"), int(2*units.MiB/8))
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	f = openFile(t, path) // the new version
	if res, err := f.Residency(0, f.Size()); err != nil || res.Dirty <= 0 {
		t.Skipf("the kernel wrote the pages back at once: %+v %v", res, err)
	}
	got, r := load(t, newEngine(t, small), host.Staged(), f, report.RouteAuto, report.CacheAuto)
	equal(t, got, want)
	wantRoutes(t, r, map[report.RouteTaken]int64{report.RouteTakenCache: f.Size()})
	if text := strings.Join(r.Notes, "\n"); !strings.Contains(text, "2.00 MiB lay in pieces with dirty pages") {
		t.Errorf("notes: %q", text)
	}
}

func TestPathDirectRefusedByTheFile(t *testing.T) {
	path, want := writeFile(t, 1*units.MiB, 52)
	refuse := map[string]func(t *testing.T) *vfs.File{
		"ext4 with data journalling": func(t *testing.T) *vfs.File {
			dir := filepath.Dir(path)
			p := filepath.Join(dir, "journalled")
			x, err := os.Create(p)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			const journalData = 0x4000 // FS_JOURNAL_DATA_FL
			flags, err := unix.IoctlGetInt(int(x.Fd()), unix.FS_IOC_GETFLAGS)
			if err == nil {
				err = unix.IoctlSetPointerInt(int(x.Fd()), unix.FS_IOC_SETFLAGS, flags|journalData)
			}
			if err != nil {
				t.Skipf("the file system has no journalled files for us: %v", err)
			}
			if _, err := x.Write(want); err != nil {
				t.Fatal(err)
			}
			f := openFile(t, p)
			if ok, _ := f.Direct(); ok {
				t.Skip("this kernel reads journalled files directly")
			}
			return f
		},
		"found out by the first read": func(t *testing.T) *vfs.File {
			f := openFile(t, path)
			f.RefuseDirect("the file system declined", "another one")
			return f
		},
	}
	for name, open := range refuse {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			_, why := f.Direct()
			if why == nil || why.Reason == "" || why.Fix == "" {
				t.Fatalf("refused without a reason or a fix: %+v", why)
			}
			dropped(t, f)
			e := newEngine(t, small)
			got, r := load(t, e, host.Staged(), f, report.RouteAuto, report.CacheAuto)
			equal(t, got, want)
			if routeBytes(r, report.RouteTakenDirect) != 0 || routeBytes(r, report.RouteTakenBuffered) == 0 {
				t.Errorf("routes: %+v", r.Routes)
			}
			if x := refusal(r, "direct"); x == nil || x.On != f.Path() || x.Reason != why.Reason || x.Fix != why.Fix {
				t.Errorf("refusal: %+v", x)
			}
			if r.Files[0].Direct {
				t.Error("the report says that direct reads are possible")
			}
			_, err := e.Start(context.Background(), Request{Device: host.Staged(), Files: []*vfs.File{f},
				Route: report.RouteDirect})
			if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), why.Reason) ||
				!strings.Contains(errs.FixOf(err), "route auto") {
				t.Errorf("route direct: %v", err)
			}
		})
	}
}

// With the page cache hidden, the reader asks for what is cached and takes the
// rest past the page cache.
func TestPathResidencyHidden(t *testing.T) {
	path, want := writeFile(t, 2*units.MiB+5, 53)
	for dname, dev := range devices() {
		for _, method := range []vfs.ProbeMethod{vfs.ProbeNone, vfs.ProbeMincore} {
			t.Run(dname+"/"+string(method), func(t *testing.T) {
				f := openFile(t, path)
				requireDirect(t, f)
				e := newEngine(t, small)
				var got []byte
				var r report.Report
				// Without a probe, the load asks by reading. A fast disk may then have read the whole file ahead.
				for range 20 {
					f.ForceProbe(vfs.ProbeCachestat)
					dropped(t, f)
					if res, err := f.Residency(0, f.Size()); err != nil || res.Cached != 0 {
						t.Fatalf("still cached: %+v %v", res, err)
					}
					f.ForceProbe(method)
					got, r = load(t, e, dev, f, report.RouteAuto, report.CacheBypass)
					equal(t, got, want)
					if method != vfs.ProbeNone || routeBytes(r, report.RouteTakenDirect) > 0 {
						break
					}
				}
				// In place, the ragged end is buffered. Asking for cached bytes
				// makes the kernel read ahead, so that some are found then.
				if n := routeBytes(r, report.RouteTakenDirect); n == 0 || (n < f.Size()-4096 && method != vfs.ProbeNone) {
					t.Errorf("cold: %d of %d bytes were direct: %+v", n, f.Size(), r.Routes)
				}
				if x := refusal(r, "residency"); x == nil || x.Reason == "" || x.Fix == "" {
					t.Errorf("refusal: %+v", x)
				}
				if r.Files[0].Probe != string(method) {
					t.Errorf("the report names probe %q", r.Files[0].Probe)
				}

				f.ForceProbe(vfs.ProbeCachestat)
				dropped(t, f)
				f.ForceProbe(method)
				vfstest.Hold(t, path, 0, 1*units.MiB)
				got, r = load(t, e, dev, f, report.RouteAuto, report.CacheBypass)
				equal(t, got, want)
				if c := routeBytes(r, report.RouteTakenCache); c < 1*units.MiB || (c > 1*units.MiB && method != vfs.ProbeNone) {
					t.Errorf("half: %d bytes of %d came from the page cache: %+v", c, f.Size(), r.Routes)
				}

				vfstest.Hold(t, path, 0, f.Size())
				got, r = load(t, e, dev, f, report.RouteAuto, report.CacheBypass)
				equal(t, got, want)
				wantRoutes(t, r, map[report.RouteTaken]int64{report.RouteTakenCache: f.Size()})
			})
		}
	}
}

// mountOverlay mounts an overlay over a folder with a file, in a mount
// namespace of this thread alone, and returns the file's name in it.
func mountOverlay(t *testing.T, data []byte) string {
	t.Helper()
	dir := diskDir(t)
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	lower, err := os.Create(filepath.Join(dir, "lower", "model"))
	if err != nil {
		t.Fatal(err)
	}
	defer lower.Close()
	if _, err := lower.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := lower.Sync(); err != nil { // an overlay does not sync what lies below it
		t.Fatal(err)
	}
	runtime.LockOSThread() // never unlocked: the thread and its namespace end with the test
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		t.Skipf("mounting an overlay needs privileges that this process has not: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skipf("mounts cannot be made private: %v", err)
	}
	merged := filepath.Join(dir, "merged")
	abs, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	opts := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", abs, abs, abs)
	if err := unix.Mount("overlay", merged, "overlay", 0, opts); err != nil {
		t.Skipf("no overlay here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(merged, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return filepath.Join(merged, "model")
}

// Container images are overlays. The page cache belongs to the file below, and
// asking the upper one about it must not be taken for an answer.
func TestPathOverlay(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdef"), int(2*units.MiB/16))
	path := mountOverlay(t, want)
	f := openFile(t, path)
	if f.FS().Name != "overlayfs" {
		t.Fatalf("the file system is called %q", f.FS().Name)
	}
	e := newEngine(t, small)

	release := vfstest.Hold(t, path, 0, f.Size())
	got, r := load(t, e, host.Staged(), f, report.RouteAuto, report.CacheAuto)
	equal(t, got, want)
	wantRoutes(t, r, map[report.RouteTaken]int64{report.RouteTakenCache: f.Size()})
	got, r = load(t, e, host.Staged(), f, report.RouteBuffered, report.CacheAuto)
	equal(t, got, want)
	wantRoutes(t, r, map[report.RouteTaken]int64{report.RouteTakenCache: f.Size()})
	release()

	if ok, why := f.Direct(); !ok {
		t.Skipf("no direct reads on this overlay: %s", why.Reason)
	}
	dropped(t, f)
	got, r = load(t, e, host.Staged(), f, report.RouteAuto, report.CacheBypass)
	equal(t, got, want)
	if unix.Gettid() == unix.Getpid() { // the mount table of a process is that of its first thread
		wantRoutes(t, r, map[report.RouteTaken]int64{report.RouteTakenDirect: f.Size()})
		return
	}
	// The mount is one of this test's thread alone: what lies below it cannot be seen.
	wantRoutes(t, r, map[report.RouteTaken]int64{report.RouteTakenDirectUnproven: f.Size()})
	if r.Files[0].Unproven == "" {
		t.Error("the report does not say why the route is not proven")
	}
}

func TestPathSaysThatNoGPUTookPart(t *testing.T) {
	path, _ := writeFile(t, 4096, 54)
	_, r := load(t, newEngine(t, small), host.New(), openFile(t, path), report.RouteAuto, report.CacheAuto)
	if r.Device.ID != "host" || !strings.Contains(strings.Join(r.Notes, "\n"), "no GPU took part") {
		t.Errorf("%+v %q", r.Device, r.Notes)
	}
	if r.Engine.StagingUsed || r.Engine.StagingState != "unused" {
		t.Errorf("bytes were read into place, and the report says %+v", r.Engine)
	}
}

// inMidLoad starts a load, stops it when its first copy is under way, does
// something to the file and lets it go on.
func inMidLoad(t *testing.T, io IO, route report.Route, size int64, change func(path string)) (path string, err error,
	got, want []byte) {
	t.Helper()
	path, want = writeFile(t, size, 55)
	g, d := fakegpu.OpenOne(t)
	o := small
	o.IO = io
	e := newEngine(t, o)
	f := openFile(t, path)
	requireDirect(t, f)
	if route == report.RouteDirect {
		dropped(t, f)
	}
	b := alloc(t, d, f.Size())
	g.Hold(0)
	tr := start(t, e, context.Background(), whole(d, f, b.Ptr(), route))
	g.Await("copies_held", 1)
	change(path)
	g.Release()
	err = tr.Err()
	if n := g.Count("copies_in_flight"); n != 0 {
		t.Errorf("Done is closed with %d copies in flight", n)
	}
	return path, err, g.Bytes(b.Ptr(), f.Size()), want
}

func TestPathFileTruncatedInMidLoad(t *testing.T) {
	for name, reader := range readers {
		for _, left := range []int64{2 * units.MiB, 2*units.MiB + 100} {
			t.Run(fmt.Sprintf("%s/%d", name, left), func(t *testing.T) {
				path, err, _, _ := inMidLoad(t, reader.io, reader.route, 3*units.MiB, func(path string) {
					if err := os.Truncate(path, left); err != nil {
						t.Fatal(err)
					}
				})
				if !errs.Is(err, errs.IO) {
					t.Fatalf("got %v, of kind %v", err, errs.KindOf(err))
				}
				for _, part := range []string{path, fmt.Sprint("ended at offset ", left),
					fmt.Sprint("was ", 3*units.MiB, " bytes long"), "truncated"} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("the error does not have %q: %v", part, err)
					}
				}
			})
		}
	}
}

func TestPathFileChangedInMidLoad(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"new time": func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(1_000_000_000, 0)) },
		"longer": func(path string) error {
			return os.Truncate(path, 4*units.MiB)
		},
		"rewritten": func(path string) error {
			w, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer w.Close()
			if _, err = w.WriteAt([]byte("another version"), 2*units.MiB); err != nil {
				return err
			}
			return os.Chtimes(path, time.Time{}, time.Unix(1_000_000_001, 0)) // the clock may be too coarse to have moved
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, err, _, _ := inMidLoad(t, IOAuto, report.RouteAuto, 3*units.MiB, func(path string) {
				if err := change(path); err != nil {
					t.Fatal(err)
				}
			})
			if !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), path) ||
				!strings.Contains(err.Error(), "changed while it was being read") || errs.FixOf(err) == "" {
				t.Fatalf("got %v", err)
			}
		})
	}
}

// A file that is removed or replaced by renaming stays what it was for those
// who have it open: the load ends well, with the bytes of the old version.
func TestPathFileUnlinkedInMidLoad(t *testing.T) {
	for name, reader := range readers {
		t.Run(name, func(t *testing.T) {
			_, err, got, want := inMidLoad(t, reader.io, reader.route, 3*units.MiB, func(path string) {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			equal(t, got, want)
		})
	}
}

// A second cold load of the same file is a sign that there will be a third.
func TestPathAutoKeepsAFileThatIsColdAgain(t *testing.T) {
	path, want := writeFile(t, 2*units.MiB, 56)
	f := openFile(t, path)
	requireDirect(t, f)
	e := newEngine(t, small)
	for _, c := range []struct {
		name       string
		seen, cold bool
		route      report.RouteTaken
	}{
		{"first", false, true, report.RouteTakenDirect},
		{"cold again", true, true, report.RouteTakenBuffered},
		{"warm again", true, false, report.RouteTakenCache},
	} {
		if c.cold {
			dropped(t, f)
		} else {
			vfstest.Hold(t, path, 0, f.Size())
		}
		d := host.Staged()
		b := alloc(t, d, f.Size())
		req := whole(d, f, b.Ptr(), report.RouteAuto)
		req.Cache, req.Seen = report.CacheAuto, []bool{c.seen}
		tr := start(t, e, context.Background(), req)
		if err := tr.Err(); err != nil {
			t.Fatal(err)
		}
		equal(t, bytesOf(b), want)
		r := tr.Report()
		if n := routeBytes(r, c.route); n != f.Size() {
			t.Errorf("%s: %d of %d bytes were %s: %+v", c.name, n, f.Size(), c.route, r.Routes)
		}
		if said := strings.Contains(strings.Join(r.Notes, "\n"), "was cold again"); said != (c.seen && c.cold) {
			t.Errorf("%s: notes %q", c.name, r.Notes)
		}
	}
}

// TestPathOfAFreshFile: the plan of a fresh file uses what the opening found, and the report what the reads found.
func TestPathOfAFreshFile(t *testing.T) {
	path, want := writeFile(t, 2*units.MiB, 61)
	local := openFile(t, path)
	requireDirect(t, local)
	e := newEngine(t, small)
	for _, c := range []struct {
		fresh bool
		route report.RouteTaken
	}{{true, report.RouteTakenDirect}, {false, report.RouteTakenCache}} {
		dropped(t, local)
		f := passedFile(t, path, local.Size())
		release := vfstest.Hold(t, path, 0, f.Size()) // the pages come after the opening
		d := host.Staged()
		b := alloc(t, d, f.Size())
		req := whole(d, f, b.Ptr(), report.RouteAuto)
		req.Cache, req.Fresh = report.CacheAuto, c.fresh
		tr := start(t, e, context.Background(), req)
		if err := tr.Err(); err != nil {
			t.Fatal(err)
		}
		equal(t, bytesOf(b), want)
		if r := tr.Report(); routeBytes(r, c.route) != f.Size() {
			t.Errorf("fresh %v: expected %s, got %+v", c.fresh, c.route, r.Routes)
		}
		release()
	}
}

// passedFile opens a file as the client of a door gets it.
func passedFile(t *testing.T, path string, size int64) *vfs.File {
	t.Helper()
	fds := [2]int{}
	for i, flags := range []int{0, unix.O_DIRECT} {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds[i] = fd
	}
	f, err := vfs.FromDescriptors(vfs.Descriptors{Name: path, Buffered: fds[0], Direct: fds[1], Size: size})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestPathBypassLeavesThePageCacheAsFound(t *testing.T) {
	path, want := writeFile(t, 2*units.MiB, 57)
	f := openFile(t, path)
	requireDirect(t, f)
	e := newEngine(t, small)
	dropped(t, f)
	for range 3 {
		got, r := load(t, e, host.Staged(), f, report.RouteAuto, report.CacheBypass)
		equal(t, got, want)
		wantRoutes(t, r, map[report.RouteTaken]int64{report.RouteTakenDirect: f.Size()})
	}
	if res, err := f.Residency(0, f.Size()); err != nil || res.Cached != 0 {
		t.Errorf("%d bytes are in the page cache: %v", res.Cached, err)
	}
}

func TestPathKeepReadsThroughThePageCache(t *testing.T) {
	path, want := writeFile(t, 2*units.MiB, 58)
	f := openFile(t, path)
	requireDirect(t, f)
	e := newEngine(t, small)
	dropped(t, f)
	got, r := load(t, e, host.Staged(), f, report.RouteAuto, report.CacheKeep)
	equal(t, got, want)
	if n := routeBytes(r, report.RouteTakenDirect); n != 0 {
		t.Errorf("%d bytes went past the page cache", n)
	}
	// A kernel that is short of memory drops some pages at any time.
	if res, err := f.Residency(0, f.Size()); err != nil || res.Cached < f.Size()*3/4 {
		t.Errorf("%d of %d bytes were kept: %v", res.Cached, f.Size(), err)
	}
}

func TestPathEmptyAndOddRequests(t *testing.T) {
	path, want := writeFile(t, 10_000, 59)
	f := openFile(t, path)
	e := newEngine(t, small)
	d := host.Staged()
	b := alloc(t, d, f.Size())
	tr := start(t, e, context.Background(), Request{Device: d, Files: []*vfs.File{f},
		Segments: []Segment{{Off: 5}, {Off: f.Size()}}})
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	if done, total := tr.Progress(); done != 0 || total != 0 {
		t.Errorf("progress %d of %d", done, total)
	}
	tr = start(t, e, context.Background(), Request{Device: d, Files: []*vfs.File{f},
		Segments: []Segment{{Off: 9_999, Len: 1, Dst: b.Ptr()}}})
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	equal(t, bytesOf(b)[:1], want[9_999:])
	for _, s := range []Segment{{File: 1, Len: 1}, {File: -1, Len: 1}, {Off: -1, Len: 1}, {Len: -1}, {Len: f.Size() + 1},
		{Off: f.Size(), Len: 1}, {Off: 1 << 62, Len: 1 << 62}, {Off: f.Size() + 1}} {
		if _, err := e.Start(context.Background(), Request{Device: d, Files: []*vfs.File{f},
			Segments: []Segment{s}}); !errs.Is(err, errs.Invalid) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// A file that cannot be opened any more says nothing about the other files of its file system.
func TestPathAClosedFileDoesNotSpeakForOthers(t *testing.T) {
	gone, _ := writeFile(t, units.MiB, 60)
	other, _ := writeFile(t, units.MiB, 61)
	pool := vfs.NewPool(1)
	f := openFile(t, gone)
	pool.Adopt(f)
	g := openFile(t, other)
	pool.Adopt(g) // closes the descriptors of f
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	var below vfs.Storages
	if s := newTruth(f, report.RouteAuto, report.CacheAuto, &below).storage(); !s.Falls {
		t.Errorf("the file that is gone: %+v", s)
	}
	got, want := newTruth(g, report.RouteAuto, report.CacheAuto, &below).storage(), vfs.StorageOf(int(g.BufferedFD()))
	if got.Hidden != want.Hidden || got.Falls != want.Falls || got.FS.Name != want.FS.Name {
		t.Errorf("the other file: %+v, expected %+v", got, want)
	}
}
