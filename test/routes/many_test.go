// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
	"github.com/nebulaio/nebulaio/test/effort"
)

// loaderFile is set in a process that loads a part of a file; see TestLoaderProcess.
const loaderFile = "NEBULAIO_TEST_LOADER"

// manySize is the size of the file that many processes load: three windows, the last one not full.
const manySize = 160 << 20

// errand is the work of one loading process.
type errand struct {
	Path     string
	Off, Len int64
	Cache    report.CachePolicy
	Staged   bool
	GPU      bool // a fake one
}

// outcome is the result of one loading process.
type outcome struct {
	Sum    string // SHA-256 of the loaded bytes
	Report report.Report
}

// TestLoaderProcess is no test: it is the body of the processes that TestProcessesReadTheDiskOnce starts. It begins at
// the first line on its input, prints "begun" when the first bytes have arrived, and its outcome at the end.
func TestLoaderProcess(t *testing.T) {
	text := os.Getenv(loaderFile)
	if text == "" {
		t.Skip("it is run by TestProcessesReadTheDiskOnce")
	}
	var w errand
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.Open(w.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	vfs.Expect(f)
	req := transfer.Request{Device: host.New(), Files: []*vfs.File{f}, Cache: w.Cache}
	content := host.New().Map
	switch {
	case w.Staged:
		req.Device = host.Staged()
	case w.GPU:
		gpu, dev := fakegpu.OpenOne(t)
		req.Device, content = dev, gpu.Bytes
	}
	b, err := req.Device.Alloc(w.Len)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	e, err := transfer.New(transfer.Options{PoolSize: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	req.Segments = []transfer.Segment{{Off: w.Off, Len: w.Len, Dst: b.Ptr()}}
	req.Parts = []transfer.Part{{Dst: b.Ptr(), Len: 8 << 20}}
	load, err := e.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := load.Ready(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	fmt.Println("begun")
	if err := load.Err(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content(b.Ptr(), w.Len))
	out, err := json.Marshal(outcome{Sum: hex.EncodeToString(sum[:]), Report: load.Report()})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("outcome %s\n", out)
}

// loader is a process that loads.
type loader struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	all strings.Builder
}

// newLoader starts a process and waits until it has opened the file.
func newLoader(t *testing.T, w errand) *loader {
	t.Helper()
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	l := &loader{t: t, cmd: exec.Command(os.Args[0], "-test.run=^TestLoaderProcess$", "-test.v", "-test.count=1")}
	l.cmd.Env = append(os.Environ(), loaderFile+"="+string(text))
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	l.out = bufio.NewReader(out)
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l.line("ready")
	return l
}

// line reads lines up to one that begins with a word, and returns the rest of it.
func (l *loader) line(word string) string {
	l.t.Helper()
	for {
		s, err := l.out.ReadString('\n')
		l.all.WriteString(s)
		if rest, ok := strings.CutPrefix(s, word); ok {
			return strings.TrimSpace(rest)
		}
		if err != nil {
			l.t.Fatalf("the process ended before %q: %v\n%s", word, err, l.all.String())
		}
	}
}

// start lets the process begin its load.
func (l *loader) start() {
	l.t.Helper()
	if _, err := io.WriteString(l.in, "go\n"); err != nil {
		l.t.Fatal(err)
	}
}

// finish waits for the end of the process and checks the loaded bytes.
func (l *loader) finish(want []byte) report.Report {
	l.t.Helper()
	var o outcome
	if err := json.Unmarshal([]byte(l.line("outcome")), &o); err != nil {
		l.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, l.out)
	if err := l.cmd.Wait(); err != nil {
		l.t.Fatal(err)
	}
	if sum := sha256.Sum256(want); o.Sum != hex.EncodeToString(sum[:]) {
		l.t.Error("a process loaded other bytes")
	}
	return o.Report
}

// kill ends the process at once, as kill -9 does.
func (l *loader) kill() {
	l.t.Helper()
	if err := l.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		l.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, l.out)
	_ = l.cmd.Wait() // it was killed
}

// disk is a file on a disk of its own.
type disk struct {
	place
	data []byte
}

// chill drops the file from the page cache.
func (d *disk) chill(t *testing.T) {
	t.Helper()
	f, err := vfs.Open(d.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if left, err := f.DropCache(); err != nil || left > 0 {
		t.Fatalf("%d bytes stay in the page cache: %v", left, err)
	}
}

// slow announces a load of the whole file that does not move on, until the test ends. Other loads meet it at every
// byte, whenever they run.
func (d *disk) slow(t *testing.T) (*vfs.File, *vfs.Interest) {
	t.Helper()
	f, err := vfs.Open(d.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	i, why := vfs.NewInterest(f)
	if i == nil {
		t.Fatalf("no agreement on %s: %v", d.name, why)
	}
	t.Cleanup(i.Close)
	if err := i.Want(0, manySize); err != nil {
		t.Fatal(err)
	}
	return f, i
}

// bytesBy returns the bytes of a route in a report.
func bytesBy(r report.Report, routes ...report.RouteTaken) (n int64) {
	for _, x := range r.Routes {
		if slices.Contains(routes, x.Route) {
			n += x.Bytes
		}
	}
	return n
}

// fromDisk returns the bytes that storage delivered by the reports.
func fromDisk(all ...report.Report) (n int64) {
	for _, r := range all {
		n += bytesBy(r, report.RouteTakenDirect, report.RouteTakenBuffered)
	}
	return n
}

// padded returns the bytes that storage delivered by the reports, and that the loads did not need: parts of blocks that
// a load read for others.
func padded(all ...report.Report) (n int64) {
	for _, r := range all {
		n += r.Read - bytesBy(r, report.FileRoutes()...)
	}
	return n
}

// once checks that the disk delivered the file once: not more than a twentieth more by the disk's own counter.
func (d *disk) once(t *testing.T, before int64) {
	t.Helper()
	if n := fetched(t, d.disk) - before; n < manySize*9/10 || n > manySize*21/20 {
		t.Errorf("the disk delivered %d bytes, want one time %d", n, manySize)
	}
}

func (d *disk) whole(staged bool) errand {
	return errand{Path: d.path, Len: manySize, Staged: staged}
}

// TestProcessesReadTheDiskOnce lets many processes load one cold file. Reports and contents are compared with the
// disk's own counter.
func TestProcessesReadTheDiskOnce(t *testing.T) {
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
	data := make([]byte, 0, manySize)
	for i := 0; len(data) < manySize; i++ {
		data = append(data, content()...)
		copy(data[len(data)-fileSize:], fmt.Sprintf("part %d", i))
	}
	ext4 := []string{"mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"}
	for _, kind := range []struct {
		place
		mkfs []string
	}{{place{name: "ext4", fs: "ext4", direct: true}, ext4},
		{place{name: "xfs", fs: "xfs", direct: true}, []string{"mkfs.xfs", "-q", "-f"}}} {
		p, err := l.disk(kind.place, true, 512<<20, kind.mkfs, "")
		if err != nil {
			t.Logf("not tried: %s: %v", kind.name, err)
			continue
		}
		d := &disk{place: p, data: data}
		if err := write(filepath.Join(filepath.Dir(p.path), "many"), data); err != nil {
			t.Fatal(err)
		}
		d.path = filepath.Join(filepath.Dir(p.path), "many")
		t.Run(p.name+"/together", d.together)
		t.Run(p.name+"/killed", d.killed)
		t.Run(p.name+"/late", d.late)
		t.Run(p.name+"/parts", d.parts)
		t.Run(p.name+"/alone", d.alone)
		t.Run(p.name+"/truth", d.truth)
		t.Run(p.name+"/memory", d.shareMemory)
		t.Run(p.name+"/memory/killed", d.killMember)
		t.Run(p.name+"/memory/stopped", d.stopMember)
	}
	l.detach()
}

// together starts four loads at once. The disk delivers the file once, and the reports say who read what.
func (d *disk) together(t *testing.T) {
	d.chill(t)
	d.slow(t)
	var all []*loader
	for k := range 4 {
		all = append(all, newLoader(t, d.whole(k%2 == 1)))
	}
	before := fetched(t, d.disk)
	for _, l := range all {
		l.start()
	}
	var shared, taken int64
	var reports []report.Report
	for _, l := range all {
		r := l.finish(d.data)
		reports = append(reports, r)
		s := r.Files[0].Shared
		if s == nil || !slices.Contains(s.Processes, os.Getpid()) || s.DirectBytes > 0 ||
			s.Apart == "" {
			t.Fatalf("sharing %+v, want a load of process %d seen and nothing read past the page cache", s, os.Getpid())
		}
		shared, taken = shared+s.DiskBytes, taken+s.CacheBytes
		if r.Files[0].Cache != report.CacheAuto {
			t.Errorf("cache policy %s, want auto", r.Files[0].Cache)
		}
	}
	d.once(t, before)
	if shared < manySize*9/10 || shared > manySize*21/20 || taken < 2*manySize {
		t.Errorf("the reports say that %d bytes came from the disk and %d from others, of 4 x %d", shared, taken, manySize)
	}
	if n := fromDisk(reports...); n < manySize*9/10 || n > manySize*21/20 {
		t.Errorf("by their routes, the loads read %d bytes from the disk, want %d", n, manySize)
	}
}

// killed ends one of three loads in the middle. The others go on, and the disk delivers the file once.
func (d *disk) killed(t *testing.T) {
	d.chill(t)
	d.slow(t)
	victim := newLoader(t, d.whole(false))
	others := []*loader{newLoader(t, d.whole(false)), newLoader(t, d.whole(true))}
	before := fetched(t, d.disk)
	victim.start()
	for _, l := range others {
		l.start()
	}
	victim.line("begun")
	victim.kill()
	for _, l := range others {
		l.finish(d.data)
	}
	d.once(t, before)
}

// late starts a second load when the first has begun, and a third when the first has ended.
func (d *disk) late(t *testing.T) {
	d.chill(t)
	d.slow(t)
	before := fetched(t, d.disk)
	first := newLoader(t, d.whole(false))
	first.start()
	first.line("begun")
	second := newLoader(t, d.whole(true))
	second.start()
	first.finish(d.data)
	third := newLoader(t, d.whole(false))
	third.start()
	second.finish(d.data)
	if r := third.finish(d.data); fromDisk(r) > manySize/20 {
		t.Errorf("the last load read %d bytes from the disk, want none", fromDisk(r))
	}
	d.once(t, before)
}

// parts loads the two halves of the file in two processes. None of them needs the other's bytes.
func (d *disk) parts(t *testing.T) {
	d.chill(t)
	f, err := vfs.Open(d.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	i, why := vfs.NewInterest(f)
	if i == nil {
		t.Fatal(why)
	}
	defer i.Close()
	const half = manySize / 2
	if err := i.Want(half, half); err != nil {
		t.Fatal(err)
	}
	l := newLoader(t, errand{Path: d.path, Len: half})
	l.start()
	r := l.finish(d.data[:half])
	s := r.Files[0].Shared
	if n := bytesBy(r, report.RouteTakenDirect); n < half-slack || s == nil || s.DiskBytes+s.CacheBytes > 0 {
		t.Errorf("%d of %d bytes were read past the page cache, sharing %+v, want all", n, half, s)
	}
}

// alone loads the file in one process, past the page cache.
func (d *disk) alone(t *testing.T) {
	d.chill(t)
	before := fetched(t, d.disk)
	l := newLoader(t, d.whole(false))
	l.start()
	r := l.finish(d.data)
	if n := bytesBy(r, report.RouteTakenDirect); n < manySize-slack || r.Files[0].Shared != nil {
		t.Errorf("%d of %d bytes were read past the page cache, sharing %+v", n, manySize, r.Files[0].Shared)
	}
	d.once(t, before)
}

// truth lets three processes meet as they happen to run, and compares their reports with the disk's counter.
func (d *disk) truth(t *testing.T) {
	d.chill(t)
	before := fetched(t, d.disk)
	all := []*loader{newLoader(t, d.whole(false)), newLoader(t, d.whole(true)),
		newLoader(t, errand{Path: d.path, Off: manySize / 4, Len: manySize / 2})}
	for _, l := range all {
		l.start()
	}
	reports := []report.Report{all[0].finish(d.data), all[1].finish(d.data),
		all[2].finish(d.data[manySize/4:][:manySize/2])}
	n := fetched(t, d.disk) - before
	if said := fromDisk(reports...) + padded(reports...); said > n+slack || said < n-n/50-slack {
		t.Errorf("the reports say that %d bytes came from the disk, the disk says %d", said, n)
	}
}
