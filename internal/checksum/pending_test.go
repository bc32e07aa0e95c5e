// SPDX-License-Identifier: Apache-2.0

package checksum

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// made writes a file and returns its sums and its identity.
func made(t *testing.T, path, content string) (*Sums, ID) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	id, err := identify(path)
	if err != nil {
		t.Fatal(err)
	}
	return &Sums{Size: int64(len(content)), Block: MinBlock, Blocks: []uint64{Of([]byte(content))}}, id
}

func TestPendingComesBeforePlain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	sums, id := made(t, path, "content")
	stale := &Sums{Size: 7, Block: MinBlock, Blocks: []uint64{1}}
	if _, err := stale.Write(path); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(path, 7); err != nil || got.Blocks[0] != 1 {
		t.Fatalf("plain: %v, %v", got, err)
	}
	if err := sums.WritePending(path, id); err != nil {
		t.Fatal(err)
	}
	other := ID{Inode: id.Inode, MtimeNs: id.MtimeNs + 1}
	if err := stale.WritePending(path, other); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFor(path, 7, id); err != nil || got.Blocks[0] != sums.Blocks[0] {
		t.Fatalf("pending: %v, %v", got, err)
	}
	if n, err := Sweep(filepath.Dir(path), []string{"f", "f.crc64nvme", filepath.Base(Pending(path, id)),
		filepath.Base(Pending(path, other))}); n != 2 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	left, _ := os.ReadDir(filepath.Dir(path))
	if len(left) != 2 {
		t.Errorf("left: %v", left)
	}
	if got, err := Read(path, 7); err != nil || got.Blocks[0] != sums.Blocks[0] {
		t.Fatalf("promoted: %v, %v", got, err)
	}
}

// TestReadForNoticesAReplacement: sums with the plain name are of the file that
// has its name now, not of one that was opened before.
func TestReadForNoticesAReplacement(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	_, old := made(t, path, "before")
	sums, _ := made(t, path+".new", "behind")
	if _, err := sums.Write(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFor(path, 6, old); !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("err: %v", err)
	}
	if _, err := Read(path, 6); err != nil {
		t.Errorf("the new one: %v", err)
	}
}

// TestSweepLeavesWhatIsNotItsOwn: in a directory of many users, what a killed
// save of one left must not make those of all others fail.
func TestSweepLeavesWhatIsNotItsOwn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	sums, id := made(t, path, "content")
	gone := ID{Inode: id.Inode + 1, MtimeNs: id.MtimeNs}
	var names []string
	for _, id := range []ID{gone, id} {
		if err := sums.WritePending(path, id); err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.Base(Pending(path, id)))
	}
	// A name in an immutable directory may not even be changed by root.
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const immutable = 0x10
	old, err := unix.IoctlGetInt(int(d.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, old|immutable)
	}
	if err != nil {
		if os.Geteuid() == 0 {
			t.Skipf("root may change everything here: %v", err)
		}
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(dir, 0o700)
	} else {
		defer unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, old)
	}
	if n, err := Sweep(dir, names); n != 0 || err != nil {
		t.Errorf("%d changed, %v", n, err)
	}
	if got, err := ReadFor(path, 7, id); err != nil || got.Blocks[0] != sums.Blocks[0] {
		t.Errorf("%v, %v", got, err)
	}
}

// TestSumsOfAReplacedFileAreNotWritten: whoever sums a large file for minutes
// must not put the result beside what a save has put in place meanwhile.
func TestSumsOfAReplacedFileAreNotWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	made(t, path, "before")
	old, err := Compute(t.Context(), path, MinBlock, nil)
	if err != nil {
		t.Fatal(err)
	}
	fresh, id := made(t, path+".new", "behind")
	if err := fresh.WritePending(path, id); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if err := Promote(path, id); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Write(path); !errs.Is(err, errs.IO) || errs.FixOf(err) == "" {
		t.Errorf("err: %v", err)
	}
	if got, err := Read(path, 6); err != nil || got.Blocks[0] != fresh.Blocks[0] {
		t.Errorf("the sums are not those of the file: %v, %v", got, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
}

// TestLongNames: a name that leaves no room for those of its sums is refused
// where they are to be written, and has none everywhere else.
func TestLongNames(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []int{211, 212, 223, 245, 246, 255} {
		path := filepath.Join(dir, strings.Repeat("n", n))
		sums, id := made(t, path, "content")
		fits := n <= 211
		if _, err := sums.Write(path); (err == nil) != fits || err != nil &&
			(!errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "at most 211")) {
			t.Errorf("%d: write: %v", n, err)
		}
		if n == 223 { // as others make them
			if err := os.WriteFile(Path(path), sums.Encode(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want := errs.NotFound
		if n == 211 || n == 223 {
			want = 0
		}
		if _, err := ReadFor(path, 7, id); errs.KindOf(err) != want {
			t.Errorf("%d: read: %v", n, err)
		}
		if _, moved, err := Retire(path); err != nil || moved != fits {
			t.Errorf("%d: retire: %v, moved is %v", n, err, moved)
		}
		if _, err := os.Lstat(Path(path)); n == 223 && err == nil {
			t.Error("sums stay beside a file that they are not of")
		}
	}
}

func TestRetire(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	sums, id := made(t, path, "content")
	if _, moved, err := Retire(path); moved || err != nil {
		t.Fatalf("without sums: %v, %v", moved, err)
	}
	if _, err := sums.Write(path); err != nil {
		t.Fatal(err)
	}
	got, moved, err := Retire(path)
	if !moved || err != nil || got != id {
		t.Fatalf("%v, %v, %v", got, moved, err)
	}
	if s, err := Read(path, 7); err != nil || !slices.Equal(s.Blocks, sums.Blocks) {
		t.Errorf("the old version has lost its sums: %v", err)
	}
	Discard(path, id)
	if _, err := sums.Write(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, moved, err := Retire(path); moved || err != nil {
		t.Fatalf("without a file: %v, %v", moved, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestSumsBesideALinkAndItsTarget: both places are looked at.
func TestSumsBesideALinkAndItsTarget(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "f"), filepath.Join(dir, "link")
	sums, _ := made(t, path, "content")
	if err := os.Symlink("f", link); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{path, link} {
		if _, err := sums.Write(at); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(link, 7); err != nil {
			t.Errorf("sums beside %s: %v", at, err)
		}
		if _, err := Forget(at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Read(link, 7); !errs.Is(err, errs.NotFound) {
		t.Errorf("none: %v", err)
	}
}

func FuzzPending(f *testing.F) {
	f.Add("model.safetensors.crc64nvme.0000000000000abc-00000000000000ff")
	f.Add(".crc64nvme.0000000000000abc-00000000000000ff")
	f.Add("a.crc64nvme")
	f.Add("a.crc64nvme.0000000000000ABC-00000000000000ff")
	f.Add("a.crc64nvme.+000000000000abc-00000000000000ff")
	f.Fuzz(func(t *testing.T, name string) {
		file, id, ok := pendingOf(name)
		if ok && !strings.Contains(file, "/") && (file == "" || filepath.Base(Pending(file, id)) != name) {
			t.Errorf("%q is taken for %q of %+v", name, file, id)
		}
		if IsPending(name) != ok {
			t.Errorf("%q", name)
		}
	})
}
