// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/internal/checksum"
)

// keys lists the keys below a prefix of the bucket.
func (r *rig) keys(t *testing.T, prefix string) []string {
	t.Helper()
	var all []string
	for o := range r.m.ListObjects(t.Context(), "box", minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		all = append(all, strings.TrimPrefix(o.Key, prefix))
	}
	return all
}

// names lists the files below a directory.
func (r *rig) names(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(r.path(dir), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(r.path(dir), path)
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// TestCopiesOfOneFile copies files of several sizes to a bucket, inside of it, back, and through pipes.
func TestCopiesOfOneFile(t *testing.T) {
	r := copyRig(t)
	for _, size := range []int{0, 1, 4 << 20, 4<<20 + 1, 21<<20 + 5} {
		content := noise(size)
		src := r.write(t, "src", content)
		r.run(t, "cp", src, "s3://box/a").want(t, 0, "verified  crc64nvme")
		wantObject(t, r.m, "box", "a", content)
		r.run(t, "cp", "s3://box/a", "s3://box/folder/").want(t, 0, "way       server")
		wantObject(t, r.m, "box", "folder/a", content)
		back := r.path("back")
		res := r.run(t, "cp", "s3://box/folder/a", back, "--checksum-file", "--json")
		res.want(t, 0)
		if j := decode[copyJSON](t, res); j.Verified != "crc64nvme" || j.Bytes != int64(size) || j.Way != "http" {
			t.Errorf("%d bytes: %+v", size, j)
		}
		sameBytes(t, back, content)
		sums, err := checksum.Read(back, int64(size))
		if err != nil || sums == nil || sums.Whole() != checksum.Of(content) {
			t.Errorf("%d bytes: the checksum file has %v, %v", size, sums, err)
		}
		var out bytes.Buffer
		run(t, []string{"cp", "s3://box/a", "-"}, env(r.vars), func(w *World) { w.Stdout = &out }).want(t, 0)
		if !bytes.Equal(out.Bytes(), content) {
			t.Errorf("%d bytes: standard output has %d other bytes", size, out.Len())
		}
		run(t, []string{"cp", "-", "s3://box/in"}, env(r.vars), func(w *World) { w.Stdin = bytes.NewReader(content) }).want(t,
			0)
		wantObject(t, r.m, "box", "in", content)
		r.run(t, "cp", src, r.path("copy")).want(t, 0, "way       file")
		sameBytes(t, r.path("copy"), content)
	}
	if got := r.names(t, "cache"); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
}

// TestWhatWasCompared downloads an object that has no checksum of ours, but an ETag that is an MD5.
func TestWhatWasCompared(t *testing.T) {
	r := copyRig(t)
	content := noise(6 << 20)
	sum := md5.Sum(content)
	if _, err := r.m.PutObject(t.Context(), "box", "plain", bytes.NewReader(content), int64(len(content)),
		minio.PutObjectOptions{DisableMultipart: true}); err != nil {
		t.Fatal(err)
	}
	o, err := r.m.StatObject(t.Context(), "box", "plain", minio.StatObjectOptions{})
	if err != nil || o.ETag != hex.EncodeToString(sum[:]) {
		t.Fatalf("%+v, %v", o, err)
	}
	r.run(t, "cp", "s3://box/plain", r.path("plain")).want(t, 0, "verified  crc64nvme")
	sameBytes(t, r.path("plain"), content)
}

// TestFoldersAreNotTakenForFiles explains each mistake about folders.
func TestFoldersAreNotTakenForFiles(t *testing.T) {
	r := copyRig(t)
	put(t, r.m, "box", "d/a", []byte("a"))
	r.write(t, "dir/x", []byte("x"))
	r.run(t, "cp", "s3://box/d", r.path("out")).want(t, 2, "--recursive")
	r.run(t, "cp", "s3://box/d/", r.path("out")).want(t, 2, "--recursive")
	r.run(t, "cp", r.path("dir"), "s3://box/z").want(t, 2, "--recursive")
	r.run(t, "cp", "s3://box/none", r.path("out")).want(t, 3, "s3://box/none")
	r.run(t, "cp", "-r", "s3://box/none", r.path("out")).want(t, 3, "nothing is there")
	r.run(t, "sync", "s3://box/d/a", r.path("out")).want(t, 2, "expected a folder")
	r.run(t, "cp", "s3://box/d/a", r.path("no/such/dir")).want(t, 3, "make the directory first")
	r.run(t, "cp", "-r", "s3://box/d", "s3://box/d/e").want(t, 2, "inside it")
	r.run(t, "cp", r.path("dir/x"), r.path("dir/x")).want(t, 2, "the same file")
	r.run(t, "cp", "s3://box/d/a", "s3://box/d/a").want(t, 2, "the same object")
	r.run(t, "cp", "s3://box/d/a", "/dev/null").want(t, 2, "neither a file nor a directory")
	r.run(t, "cp", "s3://box/d/a", r.path("dir")).want(t, 0)
	sameBytes(t, r.path("dir/a"), []byte("a"))
	if _, err := os.Lstat(r.path("out")); err == nil {
		t.Error("a copy that failed left something behind")
	}
}

// TestSyncCopiesWhatDiffers covers new, changed, equal, filtered and deleted files, in both directions.
func TestSyncCopiesWhatDiffers(t *testing.T) {
	r := copyRig(t)
	for _, name := range []string{"a", "b/c", "b/d.tmp", "e"} {
		r.write(t, "src/"+name, []byte("content of "+name))
	}
	put(t, r.m, "box", "dst/old", []byte("old"))
	put(t, r.m, "box", "dst/keep.tmp", []byte("keep"))
	sync := func(more ...string) result {
		return r.run(t, append([]string{"sync", r.path("src"), "s3://box/dst", "--exclude", "*.tmp"}, more...)...)
	}
	sync("--delete", "--dry-run").want(t, 0, "would copy "+r.path("src/a"), "would delete s3://box/dst/old",
		"3 files to copy")
	if got := r.keys(t, "dst/"); !slices.Equal(got, []string{"keep.tmp", "old"}) {
		t.Errorf("a dry run left %q", got)
	}
	sync("--delete").want(t, 0, "3 copied, 0 the same, 1 deleted")
	if got := r.keys(t, "dst/"); !slices.Equal(got, []string{"a", "b/c", "e", "keep.tmp"}) {
		t.Errorf("sync left %q", got)
	}
	sync().want(t, 0, "0 copied, 3 the same")

	// Equal size, another content, an old time: only --checksum sees it.
	r.write(t, "src/e", []byte("CONTENT of e"))
	if err := os.Chtimes(r.path("src/e"), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	sync().want(t, 0, "0 copied")
	sync("--checksum", "--json").want(t, 0, `"copied": 1`, `"same": 2`)
	wantObject(t, r.m, "box", "dst/e", []byte("CONTENT of e"))

	down := func(more ...string) result {
		return r.run(t, append([]string{"sync", "s3://box/dst", r.path("down")}, more...)...)
	}
	down().want(t, 0, "4 copied")
	r.write(t, "down/more", []byte("x"))
	down("--checksum").want(t, 0, "0 copied, 4 the same, 0 deleted")
	down("--delete").want(t, 0, "0 copied, 4 the same, 1 deleted")
	if got := r.names(t, "down"); !slices.Equal(got, []string{"a", "b/c", "e", "keep.tmp"}) {
		t.Errorf("sync left %q", got)
	}
	r.run(t, "sync", "s3://box/dst", "s3://box/again", "--include", "*", "--exclude", "b/*").want(t, 0, "3 copied")
	r.run(t, "sync", "s3://box/dst", "s3://box/again", "--checksum").want(t, 0, "1 copied, 3 the same")
}

// TestKeysStayBelowTheDestination refuses each key that would be a file elsewhere, and copies the others.
func TestKeysStayBelowTheDestination(t *testing.T) {
	r := copyRig(t)
	outside := r.path("outside")
	if err := os.MkdirAll(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"in/good", "in/a//b", "in/" + strings.Repeat("n", 256), "in/sub/file", "in/link/x"} {
		put(t, r.m, "box", key, []byte(key))
	}
	if err := os.MkdirAll(r.path("dst"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, r.path("dst/link")); err != nil {
		t.Fatal(err)
	}
	res := r.run(t, "cp", "-r", "s3://box/in", r.path("dst"))
	res.want(t, 2, "3 files failed", "an empty part between two slashes", "a part of 256 bytes", "link")
	if got := r.names(t, "outside"); len(got) > 0 {
		t.Errorf("files outside of the destination: %q", got)
	}
	sameBytes(t, r.path("dst/good"), []byte("in/good"))
	sameBytes(t, r.path("dst/sub/file"), []byte("in/sub/file"))

	// A file where a directory has to be, and the other way around.
	put(t, r.m, "box", "clash/good", []byte("x"))
	put(t, r.m, "box", "clash/good2/x", []byte("x"))
	r.write(t, "dst/good2", []byte("x"))
	r.run(t, "cp", "-r", "s3://box/clash", r.path("dst")).want(t, 2, "a file and a directory")
}

// TestDamagedDraftIsReadAgain cuts and changes what a killed download left.
func TestDamagedDraftIsReadAgain(t *testing.T) {
	r := copyRig(t)
	content := noise(40 << 20)
	put(t, r.m, "box", "k", content)
	dst := r.path("k")
	draft, journal := r.path(".k.nebulaio-draft"), r.path(".k.nebulaio-journal")
	damage := map[string]func() error{
		"cut draft": func() error { return os.Truncate(draft, 3<<20+5) },
		"flipped bit": func() error {
			f, err := os.OpenFile(draft, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			for off := int64(0); off < 40<<20; off += 1 << 20 {
				if _, err := f.WriteAt([]byte{^content[off]}, off); err != nil {
					return err
				}
			}
			return nil
		},
		"no draft":        func() error { return os.Remove(draft) },
		"no journal":      func() error { return os.Remove(journal) },
		"hostile journal": func() error { return os.WriteFile(journal, noise(1<<20), 0o666) },
		"cut journal":     func() error { return os.Truncate(journal, 200) },
	}
	for what, do := range damage {
		cmd := r.start(t, "cp", "s3://box/k", dst)
		r.after(25<<20, func() { _ = cmd.Process.Kill() })
		if cmd.Wait() == nil {
			t.Fatalf("%s: cp ended before it was killed", what)
		}
		r.after(0, nil)
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		r.run(t, "cp", "s3://box/k", dst).want(t, 0)
		sameBytes(t, dst, content)
		if err := os.Remove(dst); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSourceThatChangesIsRefused appends to a file while it is uploaded.
func TestSourceThatChangesIsRefused(t *testing.T) {
	r := copyRig(t)
	src := r.write(t, "src", noise(40<<20))
	r.after(1000, func() {
		f, err := os.OpenFile(src, os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = f.Write([]byte("more"))
			f.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
	r.run(t, "cp", src, "s3://box/k", "--concurrency", "1").want(t, 6, "changed while it was being copied")
	if got := r.keys(t, "k"); len(got) > 0 {
		t.Errorf("the object was made: %q", got)
	}
	for u := range r.m.ListIncompleteUploads(t.Context(), "box", "", true) {
		t.Errorf("the upload of %s is left", u.Key)
	}
}

// TestFullDiskIsExplained downloads to a disk that is too small.
func TestFullDiskIsExplained(t *testing.T) {
	r := copyRig(t)
	put(t, r.m, "box", "k", noise(8<<20))
	small := r.path("disk")
	if err := os.Mkdir(small, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", small, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("a small disk needs root: %v", err)
	}
	defer syscall.Unmount(small, syscall.MNT_DETACH)
	r.run(t, "cp", "s3://box/k", filepath.Join(small, "k")).want(t, 6, "no space left", "free space")
	put(t, r.m, "box", "s/1", noise(3<<20))
	r.run(t, "sync", "s3://box/s", small).want(t, 6, "no space left")
	for _, name := range r.names(t, "disk") {
		if !strings.HasPrefix(filepath.Base(name), ".k.nebulaio-") {
			t.Errorf("left behind: %s", name)
		}
	}
}

// TestInterruptedCopySaysHowToGoOn sends SIGINT.
func TestInterruptedCopySaysHowToGoOn(t *testing.T) {
	r := copyRig(t)
	content := noise(40 << 20)
	put(t, r.m, "box", "k", content)
	cmd := r.start(t, "cp", "s3://box/k", r.path("k"), "--limit-rate", "30MiB")
	r.after(20<<20, func() { _ = cmd.Process.Signal(os.Interrupt) })
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	r.after(0, nil)
	res := r.run(t, "cp", "s3://box/k", r.path("k"), "--json")
	res.want(t, 0)
	if j := decode[copyJSON](t, res); j.Resumed == 0 {
		t.Errorf("nothing was resumed: %+v", j)
	}
	sameBytes(t, r.path("k"), content)
}
