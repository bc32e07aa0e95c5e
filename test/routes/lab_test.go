// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// place is a file on one file system, with the known properties of that file system.
type place struct {
	name   string // of the place
	fs     string // that the report must name
	path   string
	traced string // the file whose pages the kernel caches; of overlays the one below
	disk   string // block device in sysfs whose reads are counted, "" none
	hidden bool   // nobody can tell where bytes below the page cache come from
	memory bool   // the file system lives in memory
	packed bool   // compressed: the disk delivers fewer bytes than are read
	direct bool   // direct reads never fall back
	fixed  bool   // read-only
}

const fileSize = 8 << 20

// content is the content of the file: all pages differ, and each compresses well.
var content = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	line := strings.Repeat("x", 503)
	for i := 0; b.Len() < fileSize; i++ {
		fmt.Fprintf(&b, "%07d:%s\n", i, line)
	}
	return b.Bytes()[:fileSize]
})

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// lab creates file systems below one directory and removes them again.
type lab struct {
	t       *testing.T
	dir     string
	skipped []string
	loops   []string // made and not detached yet
}

// detach detaches loop devices. Those that are mounted are detached with their mount.
func (l *lab) detach() {
	for _, dev := range l.loops {
		if err := run("losetup", "--detach", dev); err != nil {
			l.t.Error(err)
		}
	}
	l.loops = nil
}

// missing records a file system that is not available here.
func (l *lab) missing(name string, err error) {
	l.skipped = append(l.skipped, fmt.Sprintf("%s: %v", name, err))
}

func (l *lab) sub(name string) string {
	p := filepath.Join(l.dir, name)
	if err := os.MkdirAll(p, 0o755); err != nil {
		l.t.Fatal(err)
	}
	return p
}

// mounted unmounts a mount when the test ends.
func (l *lab) mounted(point string) {
	l.t.Cleanup(func() {
		if err := unix.Unmount(point, 0); err != nil {
			l.t.Errorf("unmount %s: %v", point, err)
			_ = unix.Unmount(point, unix.MNT_DETACH)
		}
	})
}

// loop attaches a loop device to an image and returns its name, such as "loop3".
func (l *lab) loop(image string, dio bool) (string, error) {
	out, err := exec.Command("losetup", "--find", "--show", "--direct-io="+map[bool]string{true: "on", false: "off"}[dio],
		image).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("losetup: %w: %s", err, out)
	}
	dev := strings.TrimSpace(string(out))
	l.loops = append(l.loops, dev)
	name := filepath.Base(dev)
	if got, _ := os.ReadFile("/sys/block/" + name + "/loop/dio"); dio && strings.TrimSpace(string(got)) != "1" {
		return "", fmt.Errorf("the loop device does not take direct I/O here")
	}
	return name, nil
}

// disk creates a file system on a loop device, with the file on it.
func (l *lab) disk(p place, dio bool, size int64, mkfs []string, options string) (place, error) {
	image, point := filepath.Join(l.dir, p.name+".img"), l.sub(p.name)
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return p, err
	}
	if err := os.Truncate(image, size); err != nil {
		return p, err
	}
	if err := run(mkfs[0], append(mkfs[1:], image)...); err != nil {
		return p, err
	}
	dev, err := l.loop(image, dio)
	if err != nil {
		return p, err
	}
	if err := unix.Mount("/dev/"+dev, point, p.fs, 0, options); err != nil {
		return p, fmt.Errorf("mount %s: %w", p.fs, err)
	}
	l.mounted(point)
	p.disk, p.path = "/sys/block/"+dev, filepath.Join(point, "model")
	p.traced = p.path
	return p, write(p.path, content())
}

// packed creates a read-only file system of a folder with the file in it.
func (l *lab) packed(p place, pack func(folder, image string) []string) (place, error) {
	image, point, folder := filepath.Join(l.dir, p.name+".img"), l.sub(p.name), l.sub(p.name+".folder")
	if err := write(filepath.Join(folder, "model"), content()); err != nil {
		return p, err
	}
	cmd := pack(folder, image)
	if err := run(cmd[0], cmd[1:]...); err != nil {
		return p, err
	}
	dev, err := l.loop(image, true)
	if err != nil {
		return p, err
	}
	if err := unix.Mount("/dev/"+dev, point, p.fs, unix.MS_RDONLY, ""); err != nil {
		return p, fmt.Errorf("mount %s: %w", p.fs, err)
	}
	l.mounted(point)
	p.disk, p.path, p.fixed = "/sys/block/"+dev, filepath.Join(point, "model"), true
	p.traced = p.path
	return p, nil
}

func write(path string, data []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}

// places creates every file system that this machine supports.
func (l *lab) places() []place {
	var out []place
	add := func(p place, err error) {
		if err != nil {
			l.missing(p.name, err)
			return
		}
		out = append(out, p)
	}
	const small, large = 64 << 20, 512 << 20
	ext4 := []string{"mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"}
	add(l.disk(place{name: "ext4", fs: "ext4", direct: true}, true, small, ext4, ""))
	add(l.disk(place{name: "ext3", fs: "ext3", direct: true}, true, small, []string{"mkfs.ext3", "-q", "-F"}, ""))
	add(l.disk(place{name: "ext2", fs: "ext2", direct: true}, true, small, []string{"mkfs.ext2", "-q", "-F"}, ""))
	add(l.disk(place{name: "ext4-journalled", fs: "ext4"}, true, small, ext4, "data=journal"))
	add(l.disk(place{name: "xfs", fs: "xfs", direct: true}, true, large, []string{"mkfs.xfs", "-q", "-f"}, ""))
	btrfs := []string{"mkfs.btrfs", "-q", "-f"}
	add(l.disk(place{name: "btrfs", fs: "btrfs"}, true, large, btrfs, ""))
	add(l.disk(place{name: "btrfs-zstd", fs: "btrfs", packed: true}, true, large, btrfs, "compress-force=zstd"))
	add(l.disk(place{name: "loop-buffered", fs: "ext4", hidden: true, direct: true}, false, small, ext4, ""))
	add(l.packed(place{name: "squashfs", fs: "squashfs", packed: true}, func(folder, image string) []string {
		return []string{"mksquashfs", folder, image, "-quiet", "-no-progress", "-noappend"}
	}))
	add(l.packed(place{name: "erofs", fs: "erofs"}, func(folder, image string) []string {
		return []string{"mkfs.erofs", "--quiet", image, folder}
	}))
	l.detach()
	add(l.tmpfs())
	add(l.overlay(out))
	add(l.fuse(out))
	return out
}

// mayMount checks whether mounts are allowed at all. Root in a container often may not mount.
func (l *lab) mayMount() error {
	point := l.sub("try")
	if err := unix.Mount("tmpfs", point, "tmpfs", 0, ""); err != nil {
		return err
	}
	return unix.Unmount(point, 0)
}

func (l *lab) tmpfs() (place, error) {
	p := place{name: "tmpfs", fs: "tmpfs", memory: true}
	point := l.sub(p.name)
	if err := unix.Mount("tmpfs", point, "tmpfs", 0, ""); err != nil {
		return p, err
	}
	l.mounted(point)
	p.path = filepath.Join(point, "model")
	return p, write(p.path, content())
}

// overlay joins a layer on the lab's ext4 with an empty layer.
func (l *lab) overlay(have []place) (place, error) {
	p := place{name: "overlay", fs: "overlayfs", direct: true}
	i := slices.IndexFunc(have, func(p place) bool { return p.name == "ext4" })
	if i < 0 {
		return p, fmt.Errorf("it needs ext4")
	}
	base, point := filepath.Dir(have[i].path), l.sub(p.name)
	for _, d := range []string{"lower", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
			return p, err
		}
	}
	p.disk, p.path, p.traced = have[i].disk, filepath.Join(point, "model"), filepath.Join(base, "lower/model")
	if err := write(p.traced, content()); err != nil {
		return p, err
	}
	options := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", base, base, base)
	if err := unix.Mount("overlay", point, "overlay", 0, options); err != nil {
		return p, err
	}
	l.mounted(point)
	p.fixed = true // the first write copies the file up
	return p, nil
}

// fuse shows a folder of the lab's ext4 through a FUSE process.
func (l *lab) fuse(have []place) (place, error) {
	p := place{name: "fuse", fs: "fuse", hidden: true, fixed: true}
	i := slices.IndexFunc(have, func(p place) bool { return p.name == "ext4" })
	if i < 0 {
		return p, fmt.Errorf("it needs ext4")
	}
	base, point := l.under(have[i], "shown"), l.sub(p.name)
	if err := write(filepath.Join(base, "model"), content()); err != nil {
		return p, err
	}
	// The process ends with the test's, and with it the last user of the mounts.
	daemon := exec.Command("bindfs", "-f", "--no-allow-other", base, point)
	daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := daemon.Start(); err != nil {
		return p, err
	}
	l.t.Cleanup(func() { _ = daemon.Wait() }) // it ends when its mount is taken down
	tick, end := time.NewTicker(10*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for st := (unix.Statfs_t{}); st.Type != unix.FUSE_SUPER_MAGIC; _ = unix.Statfs(point, &st) {
		select {
		case <-tick.C:
		case <-end:
			return p, errors.Join(fmt.Errorf("bindfs has not mounted in 20 s"), daemon.Process.Kill())
		}
	}
	l.mounted(point)
	p.path = filepath.Join(point, "model")
	p.traced = p.path
	return p, nil
}

func (l *lab) under(p place, name string) string {
	dir := filepath.Join(filepath.Dir(p.path), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		l.t.Fatal(err)
	}
	return dir
}

// resident returns the residency of each page of a file, by mincore alone.
func resident(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, fileSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	vec := make([]byte, fileSize/4096)
	if _, _, no := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), fileSize,
		uintptr(unsafe.Pointer(&vec[0]))); no != 0 {
		t.Fatal(no)
	}
	for i := range vec {
		vec[i] &= 1
	}
	return vec
}

func count(vec []byte) (n int64) {
	for _, v := range vec {
		n += int64(v) * 4096
	}
	return n
}

// fetched returns the bytes that a disk has delivered so far, by its own counter.
func fetched(t *testing.T, disk string) int64 {
	t.Helper()
	b, err := os.ReadFile(disk + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(strings.Fields(string(b))[2], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n * 512
}
