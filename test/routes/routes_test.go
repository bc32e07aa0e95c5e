// SPDX-License-Identifier: Apache-2.0

// Package routes_test proves that the reports of loads are true on every file system that this machine can mount. It
// compares them with sources that the engine does not control: mincore, the disks' own counters and the kernel's
// trace of the page cache.
package routes_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
	"github.com/nebulaio/nebulaio/test/effort"
)

// situation is a state of the page cache and a request.
type situation struct {
	name  string
	state string // "warm", "cold", "half", "dirty"
	route report.Route
	cache report.CachePolicy
	io    transfer.IO
}

var situations = []situation{
	{"warm", "warm", report.RouteAuto, report.CacheAuto, ""},
	{"cold", "cold", report.RouteAuto, report.CacheAuto, ""},
	{"half", "half", report.RouteAuto, report.CacheAuto, ""},
	{"dirty", "dirty", report.RouteAuto, report.CacheAuto, ""},
	{"cold-direct", "cold", report.RouteDirect, report.CacheAuto, ""},
	{"cold-direct-bypass", "cold", report.RouteDirect, report.CacheBypass, ""},
	{"warm-direct", "warm", report.RouteDirect, report.CacheAuto, ""},
	{"half-direct", "half", report.RouteDirect, report.CacheAuto, ""},
	{"dirty-direct", "dirty", report.RouteDirect, report.CacheAuto, ""},
	{"cold-uring", "cold", report.RouteDirect, report.CacheAuto, transfer.IOUring},
	{"cold-bypass", "cold", report.RouteAuto, report.CacheBypass, ""},
	{"half-bypass", "half", report.RouteAuto, report.CacheBypass, ""},
	{"cold-buffered-bypass", "cold", report.RouteBuffered, report.CacheBypass, ""},
	{"half-buffered-bypass", "half", report.RouteBuffered, report.CacheBypass, ""},
	{"cold-buffered", "cold", report.RouteBuffered, report.CacheKeep, ""},
}

// fewest is the number of situations that must run if the user is root and the machine has the tools and the kernel
// features.
const fewest = 60

// inNamespace is set in a process with its own mount namespace.
const inNamespace = "NEBULAIO_TEST_MOUNTS"

// aside runs the test in a process with its own mount namespace, so that the kernel removes the mounts however the
// process ends.
func aside(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v="+
		strconv.FormatBool(testing.Verbose()), "-test.count=1")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("this process may not mount: %v", err)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestReportsTellTheTruth(t *testing.T) {
	effort.Slow(t)
	if os.Geteuid() != 0 {
		t.Skip("mounting file systems needs root")
	}
	if os.Getenv(inNamespace) == "" {
		aside(t)
		return
	}
	l := &lab{t: t, dir: t.TempDir()}
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), l.mayMount()); err != nil {
		t.Skipf("this process may not mount: %v", err)
	}
	places := l.places()
	for _, s := range l.skipped {
		t.Log("not tried: ", s)
	}
	tr := newTracer(t, l)
	ran := 0
	for _, p := range places {
		for _, s := range situations {
			for _, staged := range []bool{false, true} {
				if staged && s.io == "" && s.name != "cold" && s.name != "cold-direct-bypass" || !staged && s.io != "" {
					continue // one way to the destination is enough for the others
				}
				name := fmt.Sprintf("%s/%s", p.name, s.name)
				if staged {
					name += "/staged"
				}
				t.Run(name, func(t *testing.T) {
					if judge(t, tr, p, s, staged) {
						ran++
					}
				})
			}
		}
	}
	t.Logf("%d situations on %d file systems", ran, len(places))
	if ran < fewest {
		t.Errorf("%d situations ran, expected %d; as root with mkfs.xfs, mkfs.btrfs, mksquashfs and bindfs", ran, fewest)
	}
}

// bring brings the file's pages into a state.
func bring(t *testing.T, p place, state string) {
	t.Helper()
	f, err := os.OpenFile(p.path, map[bool]int{true: os.O_RDONLY, false: os.O_RDWR}[p.fixed || state != "dirty"], 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	if p.memory {
		return
	}
	for range 20 { // pages that are being written stay for a moment
		_ = unix.Fsync(fd)
		if p.traced != p.path {
			flush(t, p.traced)
		}
		if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		if count(resident(t, p.path)) == 0 {
			break
		}
	}
	if n := count(resident(t, p.path)); n > 0 {
		t.Fatalf("%d bytes stay in the page cache", n)
	}
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM) // nothing is read ahead
	buf := make([]byte, fileSize)
	switch state {
	case "warm":
		_, err = f.ReadAt(buf, 0)
	case "half":
		_, err = f.ReadAt(buf[:fileSize/2], 0)
	case "dirty":
		_, err = f.WriteAt(content()[fileSize/4:fileSize/2], fileSize/4)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func flush(t *testing.T, path string) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_ = f.Sync()
}

// slack is the tolerance of a comparison: the ends of a read, and pages that the kernel or another process touches
// meanwhile.
const slack = 64 << 10

// judge performs one load and compares its report with the measurements.
func judge(t *testing.T, tr *tracer, p place, s situation, staged bool) bool {
	if s.state == "dirty" && (p.fixed || p.memory) {
		t.Skip("the file cannot be written here")
	}
	f, err := vfs.Open(p.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if ok, why := f.Direct(); !ok && s.route == report.RouteDirect {
		t.Skipf("no direct reads: %s", why.Reason)
	}
	bring(t, p, s.state)
	f.Close() // its times may have changed
	if f, err = vfs.Open(p.path); err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	before := resident(t, p.path)
	var read int64
	if p.disk != "" {
		read = fetched(t, p.disk)
	}
	var r report.Report
	load := func() { r = loaded(t, f, s, staged) }
	added := int64(-1)
	if tr != nil && p.traced != "" && !p.memory {
		added = tr.during(t, p.traced, load)
	} else {
		load()
	}
	if p.disk != "" {
		read = fetched(t, p.disk) - read
	}
	after := resident(t, p.path)
	m := measured{place: p, situation: s, before: count(before), read: read, added: added, report: r}
	for i := range after {
		if after[i] != 0 && before[i] == 0 {
			m.grown += 4096
		}
		if after[i] == 0 && before[i] != 0 {
			m.lost += 4096
		}
	}
	m.check(t)
	return true
}

// loaded loads the file into host memory and compares every byte.
func loaded(t *testing.T, f *vfs.File, s situation, staged bool) report.Report {
	t.Helper()
	e, err := transfer.New(transfer.Options{IO: s.io, PoolSize: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	in := host.New()
	var dev device.Device = in
	if staged {
		dev = host.Staged()
	}
	b, err := dev.Alloc(fileSize)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	tf, err := e.Start(t.Context(), transfer.Request{Device: dev, Files: []*vfs.File{f}, Route: s.route, Cache: s.cache,
		Segments: []transfer.Segment{{Len: fileSize, Dst: b.Ptr()}}})
	if err == nil {
		err = tf.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(in.Map(b.Ptr(), fileSize), content()) {
		t.Error("the bytes differ")
	}
	return tf.Report()
}

// measured is one load with the measurements from outside.
type measured struct {
	place
	situation
	before, grown, lost int64 // bytes in the page cache: at first, more, fewer
	read                int64 // that the disk delivered
	added               int64 // bytes that came into the page cache, -1 not known
	report              report.Report
}

func (m measured) check(t *testing.T) {
	t.Helper()
	by := map[report.RouteTaken]int64{}
	for _, r := range m.report.Routes {
		by[r.Route] += r.Bytes
	}
	cached, direct, buffered := by["page_cache"], by["direct"], by["buffered"]
	unproven := by["direct_unproven"] + by["buffered_unproven"]
	through := buffered + by["buffered_unproven"]
	t.Logf("cached before %d, grown %d, lost %d, disk %d, into the page cache %d; report: %v", m.before, m.grown, m.lost,
		m.read, m.added, by)
	lie := func(format string, args ...any) {
		t.Helper()
		t.Errorf(format, args...)
	}
	file := m.report.Files[0]
	if file.FS != m.fs && !(m.fs == "fuse" && (file.FS == "fuse.bindfs" || file.FS == "fuse")) {
		lie("the file system is called %s, expected %s", file.FS, m.fs)
	}
	if sum := cached + direct + buffered + unproven; sum != fileSize {
		lie("the routes add up to %d", sum)
	}
	switch {
	case m.hidden && direct+buffered > 0:
		lie("%d bytes are said to be direct or buffered, and nobody can know that", direct+buffered)
	case m.hidden != (file.Unproven != ""):
		lie("unproven: %q", file.Unproven)
	case !m.hidden && unproven > 0:
		lie("%d bytes are unproven, and could be proven", unproven)
	}
	m.checkCache(t, lie, cached, direct, through)
	m.checkDisk(t, lie, cached, direct, buffered)
}

// checkCache compares the report with the page cache.
func (m measured) checkCache(t *testing.T, lie func(string, ...any), cached, direct, through int64) {
	t.Helper()
	if m.memory {
		if cached != fileSize {
			lie("%d bytes came from a file system in memory", cached)
		}
		return
	}
	if cached > m.before+slack {
		lie("%d bytes are said to have been cached, and %d were", cached, m.before)
	}
	added := m.added
	if added < 0 {
		if m.cache == report.CacheBypass {
			added = through // it was dropped, and nobody saw it
		} else {
			added = m.grown
		}
	}
	if added > through+slack || through > added+slack {
		lie("%d bytes are said to have come through the page cache, %d did", through, added)
	}
	if m.direct && m.route == report.RouteDirect && m.fs != "overlayfs" && !m.hidden && direct < fileSize-slack {
		lie("%d bytes are said to be direct, and all were", direct)
	}
	if m.cache == report.CacheBypass {
		if left := m.report.Files[0].Left; max(left, m.grown)-min(left, m.grown) > slack {
			lie("%d bytes are said to be left in the page cache, %d are", left, m.grown)
		}
		if m.grown > slack {
			lie("%d bytes stay in the page cache behind a load that was to bypass it", m.grown)
		}
	}
	if m.lost > slack {
		lie("%d bytes that were cached before are gone", m.lost)
	}
}

// checkDisk compares the report with the bytes that the disk delivered.
func (m measured) checkDisk(t *testing.T, lie func(string, ...any), cached, direct, buffered int64) {
	t.Helper()
	if m.disk == "" || m.hidden {
		return
	}
	if claimed := direct + buffered; !m.packed && m.read < claimed-slack {
		lie("%d bytes are said to come from storage, which delivered %d", claimed, m.read)
	}
	// The file system reads maps and journals of its own besides: only a part that is said to have been cached can be a
	// lie.
	if cached > 0 && m.read > fileSize-cached+2<<20 {
		lie("%d bytes are said to have been cached, and storage delivered %d", cached, m.read)
	}
}
