// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func create(t *testing.T, path string, size int64) *Replacement {
	t.Helper()
	d, err := Create(path, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Abandon)
	return d
}

func publish(t *testing.T, d *Replacement) Identity {
	t.Helper()
	id, err := d.Seal()
	if err != nil {
		t.Fatal(err)
	}
	release, err := d.Publish()
	release()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func listed(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	if err := EachName(dir, func(n string) { names = append(names, n) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestReplacementBecomesTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	data := []byte("hello, world")
	d := create(t, path, int64(len(data)))
	if got := listed(t, dir); len(got) != 1 || !isTemporary(got[0]) {
		t.Fatalf("names: %q", got)
	}
	if err := d.WriteBuffered(data, 0); err != nil {
		t.Fatal(err)
	}
	id := publish(t, d)
	if got, _ := os.ReadFile(path); !bytes.Equal(got, data) {
		t.Fatalf("content: %q", got)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Identity() != id {
		t.Errorf("identity: %+v, expected %+v", f.Identity(), id)
	}
	d.Abandon() // does nothing now
	if got := listed(t, dir); !slices.Equal(got, []string{"f"}) {
		t.Errorf("names: %q", got)
	}
}

func TestReplacementDirectTailIsCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	d := create(t, path, 5000)
	if ok, why := d.Direct(); !ok {
		t.Skipf("no direct writes here: %+v", why)
	}
	mem, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	for i := range mem {
		mem[i] = byte(i % 251)
	}
	if err := d.WriteDirect(mem, 0); err != nil {
		t.Fatal(err)
	}
	publish(t, d)
	if got, _ := os.ReadFile(path); !bytes.Equal(got, mem[:5000]) {
		t.Fatalf("%d bytes, expected 5000 as written", len(got))
	}
}

func TestReplacementKeepsPermissions(t *testing.T) {
	dir := t.TempDir()
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	mode := func(path string) os.FileMode {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return st.Mode().Perm()
	}
	fresh := filepath.Join(dir, "fresh")
	publish(t, create(t, fresh, 1))
	if m := mode(fresh); m != 0o640 {
		t.Errorf("a new file has %o, expected what umask leaves", m)
	}
	if err := os.Chmod(fresh, 0o604); err != nil {
		t.Fatal(err)
	}
	publish(t, create(t, fresh, 1))
	if m := mode(fresh); m != 0o604 {
		t.Errorf("a replaced file has %o, expected what it had", m)
	}
}

func TestReplacementFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"far", "near"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "near", "link")
	if err := os.Symlink("../far/file", link); err != nil {
		t.Fatal(err)
	}
	for range 2 { // dangling at first, then not
		d := create(t, link, 3)
		if err := d.WriteBuffered([]byte("abc"), 0); err != nil {
			t.Fatal(err)
		}
		publish(t, d)
		if to, err := os.Readlink(link); err != nil || to != "../far/file" {
			t.Fatalf("the link: %q, %v", to, err)
		}
		if b, _ := os.ReadFile(filepath.Join(dir, "far", "file")); string(b) != "abc" {
			t.Fatalf("the target: %q", b)
		}
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(loop, 1); !errors.Is(err, unix.ELOOP) {
		t.Errorf("loop: %v", err)
	}
}

// TestReplacementGoesUpFromWhereALinkLeads: ".." behind a linked directory is the
// parent of what the link leads to, in a path and in a link.
func TestReplacementGoesUpFromWhereALinkLeads(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "real", "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"alias": "real/sub", "real/sub/link": "../f"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	want := filepath.Join(dir, "real", "f")
	for _, path := range []string{dir + "/alias/link", dir + "/alias/../f"} {
		d := create(t, path, 1)
		if d.Target() != want || filepath.Dir(d.temp) != filepath.Join(dir, "real") {
			t.Errorf("%s: %s by way of %s, expected %s", path, d.Target(), d.temp, want)
		}
		if d.Linked() != strings.HasSuffix(path, "link") {
			t.Errorf("%s: linked is %v", path, d.Linked())
		}
		publish(t, d)
		if got := listed(t, dir); !slices.Equal(got, []string{"alias", "real"}) {
			t.Errorf("%s: names %q", path, got)
		}
	}
	t.Chdir(filepath.Join(dir, "real", "sub"))
	if d := create(t, "../f", 1); d.Target() != "../f" && d.Target() != filepath.Join(dir, "real", "f") {
		t.Errorf("relative: %s", d.Target())
	}
	if _, err := Create(dir+"/none/../f", 1); !errs.Is(err, errs.NotFound) {
		t.Errorf("up from nowhere: %v", err)
	}
}

func TestReplacementRefusesAMountedFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(path, path, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("mounts are not allowed here: %v", err)
	}
	defer unix.Unmount(path, 0)
	if _, err := Create(path, 1); !errs.Is(err, errs.Unsupported) || errs.FixOf(err) == "" {
		t.Errorf("err: %v", err)
	}
	if got := listed(t, dir); !slices.Equal(got, []string{"f"}) {
		t.Errorf("names: %q", got)
	}
}

// TestPublishedFileIsNotLocked: a child that was forked while the file was
// written has the descriptor, and with it would keep the lock.
func TestPublishedFileIsNotLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	d := create(t, path, 1)
	inherited, err := unix.Dup(d.buffered)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited)
	publish(t, d)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("the published file is still locked: %v", err)
	}
}

// TestSyncTellsWhatItCouldNotDo: procfs cannot sync a directory.
func TestSyncTellsWhatItCouldNotDo(t *testing.T) {
	for dir, want := range map[string]bool{"/proc": false, t.TempDir(): true} {
		d, err := OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if err := d.Sync(); err != nil || d.Synced() != want {
			t.Errorf("%s: %v, synced is %v, expected %v", dir, err, d.Synced(), want)
		}
	}
}

func TestReplacementRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		kind errs.Kind
		says string
	}{
		dir:                           {errs.Invalid, "a directory"},
		"":                            {errs.Invalid, "no name"},
		dir + "/x/":                   {errs.Invalid, "no name"},
		"/dev/null":                   {errs.Invalid, "a device"},
		pipe:                          {errs.Invalid, "a pipe"},
		dir + "/none/f":               {errs.NotFound, "no directory"},
		pipe + "/f":                   {errs.Invalid, "is no directory"},
		"/proc/nebulaio-cannot-write": {errs.Unsupported, "a file system of the kernel"},
	} {
		_, err := Create(path, 10)
		if err == nil || (want.kind != 0 && (!errs.Is(err, want.kind) || !strings.Contains(err.Error(), want.says))) {
			t.Errorf("%q: %v, expected %v with %q", path, err, want.kind, want.says)
		}
	}
	if got := listed(t, dir); !slices.Equal(got, []string{"pipe"}) {
		t.Errorf("names: %q", got)
	}
}

func TestLongNames(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("n", 255))
	publish(t, create(t, path, 1))
	if got := listed(t, dir); len(got) != 1 || len(got[0]) != 255 {
		t.Errorf("names: %q", got)
	}
}

// TestSweepKnowsTheLiving: a draft that somebody holds stays, one that nobody
// holds goes, and so does nothing else.
func TestSweepKnowsTheLiving(t *testing.T) {
	dir := t.TempDir()
	live := create(t, filepath.Join(dir, "live"), 10)
	others := []string{".f.0123456789abcdef.nebulaio.tmp", ".f.0123456789abcdeF.nebulaio.tmp",
		"f.0123456789abcdef.nebulaio.tmp", ".f.012345678.nebulaio.tmp", ".0123456789abcdef.nebulaio.tmp",
		".f.0123456789abcdef.tmp"}
	for _, n := range others {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, ".d.0123456789abcdef.nebulaio.tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	n, err := Sweep(dir)
	if err != nil || n != 1 {
		t.Fatalf("%d removed, %v; expected the one that was left", n, err)
	}
	want := append([]string{filepath.Base(live.temp), ".d.0123456789abcdef.nebulaio.tmp"}, others[1:]...)
	slices.Sort(want)
	if got := listed(t, dir); !slices.Equal(got, want) {
		t.Errorf("names: %q, expected %q", got, want)
	}
	if d := create(t, filepath.Join(dir, "next"), 1); d.Swept() != 0 {
		t.Errorf("swept %d", d.Swept())
	}
}

func TestPublishNoticesThatItsFileIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := create(t, path, 3)
	if err := os.Remove(d.temp); err != nil {
		t.Fatal(err)
	}
	release, err := d.Publish()
	release()
	if !errs.Is(err, errs.IO) {
		t.Fatalf("err: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "old" {
		t.Errorf("content: %q", b)
	}
}

func TestLockDir(t *testing.T) {
	dir := t.TempDir()
	first, err := LockDir(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if !first.Locked() {
		t.Skip("directories are not locked here")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := LockDir(ctx, dir); !errs.Is(err, errs.Cancelled) {
		t.Errorf("a lock that is held: %v", err)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	stop(errors.New("enough"))
	if _, err := LockDir(ctx, dir); !errs.Is(err, errs.Cancelled) || !strings.Contains(err.Error(), "enough") {
		t.Errorf("a lock that is held, and a cause: %v", err)
	}
	second := make(chan *Dir)
	go func() {
		d, err := LockDir(context.Background(), dir)
		if err != nil {
			t.Error(err)
		}
		second <- d
	}()
	if err := first.Sync(); err != nil {
		t.Error(err)
	}
	first.Close()
	(<-second).Close()
}

// limitEnv makes TestReplacementChild try to write PATH under the limit that it names.
const limitEnv = "NEBULAIO_TEST_LIMIT"

// TestReplacementChild is the process of tests that need a limit or a user of its own.
func TestReplacementChild(t *testing.T) {
	path := os.Getenv(limitEnv)
	if path == "" {
		t.Skip("runs in a process of its own")
	}
	switch os.Getenv(limitEnv + "_KIND") {
	case "size":
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}); err != nil {
			t.Fatal(err)
		}
	case "user":
		if err := unix.Setresuid(65534, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Create(path, 4<<20)
	os.Stdout.WriteString("said: " + errs.KindOf(err).String() + ": " + err.Error() + "\n")
}

func inChild(t *testing.T, kind, path string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestReplacementChild$")
	cmd.Env = append(os.Environ(), limitEnv+"="+path, limitEnv+"_KIND="+kind)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func TestLimitOfFileSizes(t *testing.T) {
	dir := t.TempDir()
	out := inChild(t, "size", filepath.Join(dir, "f"))
	if !strings.Contains(out, "said: i/o error: ") || !strings.Contains(out, "ulimit -f") ||
		!strings.Contains(out, "4194304 bytes") {
		t.Errorf("said %s", out)
	}
	if got := listed(t, dir); len(got) != 0 {
		t.Errorf("names: %q", got)
	}
}

func TestReadOnlyTargets(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become a user who may not write")
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // the test's own
		t.Fatal(err)
	}
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o755, 0o777} { // the directory is closed, then only the file
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if out := inChild(t, "user", path); !strings.Contains(out, "said: permission denied: ") ||
			!strings.Contains(out, "the file that is there may not be written") {
			t.Errorf("said %s", out)
		}
		if mode == 0o755 {
			if out := inChild(t, "user", filepath.Join(dir, "new")); !strings.Contains(out,
				"may not be made or replaced in "+dir) || !strings.Contains(out, "fix: ") {
				t.Errorf("said %s", out)
			}
		}
		if got := listed(t, dir); !slices.Equal(got, []string{"f"}) {
			t.Errorf("names: %q", got)
		}
	}
	if b, _ := os.ReadFile(path); string(b) != "old" {
		t.Errorf("content: %q", b)
	}
}

// mounted gives a file system of its own with little room, and makes it
// read-only where asked.
func mounted(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("cannot mount a file system of its own: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func TestFullAndReadOnlyFileSystems(t *testing.T) {
	dir := mounted(t, "size=2m")
	path := filepath.Join(dir, "f")
	d := create(t, path, 1<<20)
	if err := d.WriteBuffered([]byte("old"), 0); err != nil {
		t.Fatal(err)
	}
	publish(t, d)
	_, err := Create(path, 8<<20)
	if !errs.Is(err, errs.IO) || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "8388608 bytes") ||
		!strings.Contains(err.Error(), "are free in "+dir) || errs.FixOf(err) == "" {
		t.Errorf("full: %v", err)
	}
	if got := listed(t, dir); !slices.Equal(got, []string{"f"}) {
		t.Errorf("names: %q", got)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Skip(err)
	}
	_, err = Create(filepath.Join(dir, "g"), 10)
	if !errs.Is(err, errs.Permission) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("read-only: %v", err)
	}
	if _, err = Create(path, 10); !errs.Is(err, errs.Permission) {
		t.Errorf("read-only, replacing: %v", err)
	}
	if b, _ := os.ReadFile(path); !bytes.HasPrefix(b, []byte("old")) {
		t.Errorf("content: %q", b[:3])
	}
}

// TestFullDiskTellsWhatIsFree: ext4 takes what there is before it gives up.
func TestFullDiskTellsWhatIsFree(t *testing.T) {
	dir := t.TempDir()
	image, disk := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	if err := errors.Join(os.WriteFile(image, make([]byte, 8<<20), 0o600), os.Mkdir(disk, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][]string{{"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, disk}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no disk to fill: %v: %s", err, out)
		}
	}
	defer func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	}()
	_, err := Create(filepath.Join(disk, "f"), 1<<30)
	if !errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), ", 0 are free") {
		t.Errorf("err: %v", err)
	}
}

// TestSealsDiffer: two files sealed in the same moment are two versions.
func TestSealsDiffer(t *testing.T) {
	dir := t.TempDir()
	seen := map[int64]bool{}
	for range 20 {
		id, err := create(t, filepath.Join(dir, "f"), 1).Seal()
		if err != nil {
			t.Fatal(err)
		}
		if seen[id.MtimeNs] {
			t.Fatalf("the time %v was given before", time.Unix(0, id.MtimeNs))
		}
		seen[id.MtimeNs] = true
	}
}
