// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/devicetest"
	devices "github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
)

// inChild marks a test that runs in its own process. cuFile takes its configuration from the environment at the start
// of the process, and the end of the process is part of the test. The value of inChild names the child's last step.
const inChild = "NEBULAIO_GPU_TEST_CHILD"

// again runs this test in its own process, which may use compatibility mode.
func again(t *testing.T, last string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	logs := t.TempDir()
	config := filepath.Join(logs, "cufile.json")
	text, err := json.Marshal(map[string]any{"logging": map[string]any{"dir": logs, "level": "NOTICE"},
		"properties": map[string]any{"allow_compat_mode": true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inChild+"="+last, "CUFILE_ENV_PATH_JSON="+config)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	names, _ := filepath.Glob(filepath.Join(logs, "*.log"))
	for _, n := range names {
		if b, err := os.ReadFile(n); err == nil {
			t.Logf("%s:\n%.4000s", filepath.Base(n), b)
		}
	}
	switch {
	case err != nil:
		t.Errorf("the process ended with %v", err)
	case bytes.Contains(out, []byte("--- SKIP")):
		before, _, _ := bytes.Cut(out, []byte("--- SKIP"))
		reasons := logged.FindAllSubmatch(before, -1)
		if len(reasons) == 0 {
			t.Skip("the process skipped the test without a reason")
		}
		t.Skip(string(reasons[len(reasons)-1][1]))
	}
}

// logged matches a line that a test has logged.
var logged = regexp.MustCompile(`_test\.go:\d+: (.+)`)

// direct opens cuFile for the first GPU. Both are left open if the child is to end that way.
func direct(t *testing.T) (device.Device, device.Direct) {
	t.Helper()
	set, err := devices.New(devices.Options{Mode: device.Require})
	if err != nil {
		t.Skipf("no GPU: %v", err)
	}
	dev, err := set.Open(t.Context(), "cuda:0")
	if err != nil {
		t.Fatal(err)
	}
	d, err := set.OpenDirect(t.Context(), dev)
	if errs.Is(err, errs.Unsupported) {
		t.Skipf("no cuFile: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(inChild) == "close" {
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if err := set.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Logf("cuFile %s: %v", d.Version(), d.Facts())
	return dev, d
}

// openFile registers a file. Without udev's database cuFile registers none.
func openFile(t *testing.T, d device.Direct, path string, flags int) device.DirectFile {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_DIRECT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.OpenFile(fd)
	if err != nil && (strings.Contains(err.Error(), "(5027)") || strings.Contains(err.Error(), "(5008)")) {
		t.Skipf("cuFile registers no file here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		unix.Close(fd)
	})
	return f
}

func TestDirectReadsAndWritesAreExact(t *testing.T) {
	if os.Getenv(inChild) == "" {
		again(t, "close")
		return
	}
	const size = 16 << 20
	dev, d := direct(t)
	name := filepath.Join(dir(t), "content")
	want := vfstest.Write(t, name, size, 7)
	host, q, b := devicetest.HostBytes(t, size), devicetest.Queue(t, dev), devicetest.Buffer(t, dev, size)
	back := func() []byte {
		t.Helper()
		clear(host)
		if err := q.CopyOut(host, b.Ptr()); err != nil {
			t.Fatal(err)
		}
		if err := q.Drain(); err != nil {
			t.Fatal(err)
		}
		return host
	}
	unregister, err := d.Register(b)
	if err != nil {
		t.Fatal(err)
	}
	defer unregister()
	f := openFile(t, d, name, unix.O_RDWR)
	counting := d.StartCounting()

	if n, err := f.Read(b.Ptr(), 0, size, 0); n != size || err != nil || !bytes.Equal(back(), want) {
		t.Fatalf("one read: %d bytes, %v, or other bytes", n, err)
	}
	for i := int64(15); i >= 0; i-- { // to other places than they came from
		if n, err := f.Read(b.Ptr(), i<<20, 1<<20, (15-i)<<20); n != 1<<20 || err != nil {
			t.Fatalf("read %d: %d bytes, %v", i, n, err)
		}
	}
	got := back()
	for i := range 16 {
		if !bytes.Equal(got[i<<20:(i+1)<<20], want[(15-i)<<20:(16-i)<<20]) {
			t.Errorf("MiB %d differs", i)
		}
	}
	if n, err := f.Read(b.Ptr(), 3, 1001, 12345); n != 1001 || err != nil ||
		!bytes.Equal(back()[3:1004], want[12345:13346]) {
		t.Errorf("a read without alignment: %d bytes, %v, or other bytes", n, err)
	}
	if n, err := f.Read(b.Ptr(), 0, 4096, size); n != 0 || err != nil {
		t.Errorf("a read at the end: %d bytes, %v", n, err)
	}

	rand.NewChaCha8([32]byte{8}).Read(host)
	saved := bytes.Clone(host)
	if err := q.CopyIn(b.Ptr(), host); err != nil {
		t.Fatal(err)
	}
	if err := q.Drain(); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(filepath.Dir(name), "written")
	w := openFile(t, d, out, unix.O_RDWR|unix.O_CREAT)
	if n, err := w.Write(b.Ptr(), 0, size, 0); n != size || err != nil {
		t.Fatalf("write: %d bytes, %v", n, err)
	}
	if now, err := os.ReadFile(out); err != nil || !bytes.Equal(now, saved) {
		t.Errorf("the file that was written differs (%v)", err)
	}

	c, err := d.Counters()
	t.Logf("%s: %+v, %v, %v", c.Route(), c, err, counting)
	if errs.Is(counting, errs.Unsupported) {
		return
	}
	if counting != nil || err != nil || !c.Known || c.Reads.Total == 0 || c.Writes.Total == 0 || c.ReadBytes < 2*size ||
		c.WriteBytes < size {
		t.Errorf("counters %+v, %v, %v", c, err, counting)
	}
	if compatOnly(d) {
		reads := device.RouteOps{Total: 19, Posix: 19}
		if want := (device.DirectCounters{Known: true, CountedBy: device.CountedByNebulaIO, Reads: reads,
			ReadBytes: 2*size + 1001,
			Writes:    device.RouteOps{Total: 1, Posix: 1}, WriteBytes: size}); c != want || c.Route() != device.RouteCompat {
			t.Errorf("without nvidia-fs and P2PDMA the counters are %+v, want %+v", c, want)
		}
	}
}

// compatOnly reports whether cuFile has no direct route here. NebulaIO then counts itself, and the library's
// statistics stay off, because they could crash the process.
func compatOnly(d device.Direct) bool {
	facts := d.Facts()
	return facts["nvfs_version"] == "0.0" && facts["nvfs_supports"] == "none" &&
		!strings.Contains(facts["features"], "p2p") && facts["use_pci_p2pdma"] == "false"
}

// TestDirectLeftOpenEndsCleanly ends a process while the cuFile driver is open and counting, like a program that
// forgets to close it.
func TestDirectLeftOpenEndsCleanly(t *testing.T) {
	if os.Getenv(inChild) == "" {
		again(t, "leave")
		return
	}
	_, d := direct(t)
	if err := d.StartCounting(); err != nil {
		t.Skipf("no statistics: %v", err)
	}
}

// TestDoctorProof runs the built command that the bundle names.
func TestDoctorProof(t *testing.T) {
	program := os.Getenv("NEBULAIO_CLI")
	if program == "" {
		t.Skip("NEBULAIO_CLI does not name the command")
	}
	if s := open(t, nebulaio.Options{}).Survey(); s.NoGPU != "" {
		t.Skip(s.NoGPU)
	}
	where := dir(t)
	name := filepath.Join(where, "content")
	generate(t, name, "qwen3-0.6b", 1, 0)
	for _, path := range []string{name, where} {
		cmd := exec.CommandContext(t.Context(), program, "doctor", path, "--json")
		cmd.Dir = where
		out, err := cmd.Output() // a finding that is FAIL ends it with 1
		var v struct{ Proof *facts.Proof }
		if json.Unmarshal(out, &v) != nil || v.Proof == nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("%+v", v.Proof)
		if !v.Proof.Done && v.Proof.Error == "" && v.Proof.Skipped == "" {
			t.Error("the proof neither succeeded nor says why not")
		}
		if v.Proof.Done && v.Proof.Counters.Known && v.Proof.Counters.Reads.Total < 16 {
			t.Errorf("%d reads were counted", v.Proof.Counters.Reads.Total)
		}
	}
	if left, err := os.ReadDir(where); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
