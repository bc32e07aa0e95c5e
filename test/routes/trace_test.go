// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tracer counts the pages that the kernel adds to the page cache of one file. The trace also shows pages that are
// dropped right after a read.
type tracer struct{ dir string }

const addEvent = "events/filemap/mm_filemap_add_to_page_cache"

// newTracer mounts tracefs and creates its own trace instance. It returns nil if tracefs is not available.
func newTracer(t *testing.T, l *lab) *tracer {
	t.Helper()
	root := l.sub("tracing")
	if err := unix.Mount("tracefs", root, "tracefs", 0, ""); err != nil {
		t.Logf("no tracefs (%v): what went through the page cache is judged by residency alone", err)
		return nil
	}
	l.mounted(root)
	dir := filepath.Join(root, fmt.Sprintf("instances/nebulaio-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Logf("no trace instance: %v", err)
		return nil
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	tr := &tracer{dir: dir}
	if tr.set("buffer_size_kb", "8192") != nil || tr.set(addEvent+"/filter", "i_ino == 1") != nil {
		t.Log("the kernel does not trace the page cache")
		return nil
	}
	return tr
}

func (tr *tracer) set(file, value string) error {
	return os.WriteFile(filepath.Join(tr.dir, file), []byte(value), 0o644)
}

// during counts the bytes that enter the page cache of path while do runs.
func (tr *tracer) during(t *testing.T, path string, do func()) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	for _, s := range [][2]string{{"trace", ""}, {addEvent + "/filter", fmt.Sprintf("i_ino == %d", st.Ino)},
		{addEvent + "/enable", "1"}, {"tracing_on", "1"}} {
		if err := tr.set(s[0], s[1]); err != nil {
			t.Fatal(err)
		}
	}
	do()
	if err := tr.set(addEvent+"/enable", "0"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(tr.dir, "trace"))
	if err != nil {
		t.Fatal(err)
	}
	// Files of other file systems have the same inode number: of each btrfs, the first file is 257.
	dev := " dev " + superblock(t, path) + " "
	pages := map[int64]bool{} // a page that is dropped and comes again counts once
	for line := range strings.Lines(string(text)) {
		_, event, ok := strings.Cut(line, "mm_filemap_add_to_page_cache:")
		if !ok || !strings.Contains(event, dev) {
			continue
		}
		first := number(event, "ofs=") / 4096
		for i := range int64(1) << min(number(event, "order="), 20) {
			if (first+i)*4096 < fileSize {
				pages[first+i] = true
			}
		}
	}
	return int64(len(pages)) * 4096
}

// superblock returns the device number of the file system that contains path, as the kernel's trace names it. stat
// returns another number on btrfs: one for each subvolume.
func superblock(t *testing.T, path string) string {
	t.Helper()
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &st); err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == strconv.FormatUint(st.Mnt_id, 10) {
			return f[2]
		}
	}
	t.Fatalf("%s: no mount %d in mountinfo", path, st.Mnt_id)
	return ""
}

// number returns the number after a word, or 0 if there is none.
func number(text, word string) int64 {
	_, rest, ok := strings.Cut(text, word)
	if !ok {
		return 0
	}
	n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	return n
}
