// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Storage describes the file system and devices below an open file, and whether it can be proven that the bytes of the
// file come from a disk.
type Storage struct {
	FS FSType // file system type, as in the mount table
	// Falls reports whether the file system can silently serve an O_DIRECT read from the page cache. If Falls is set,
	// only a look at the page cache after the read shows the real route.
	Falls bool
	// Hidden is the reason why this machine cannot see whether bytes below the page cache come from a disk. Hidden is
	// empty if the bytes are known to come from disks.
	Hidden string
	// local is set if the result holds for one file or one moment only, so that it is not cached.
	local bool
}

// Proves reports whether every O_DIRECT read or write on this storage is known to bypass the page cache and reach a
// disk.
func (s Storage) Proves() bool { return s.Hidden == "" && !s.Falls && !s.FS.Memory }

// lookedUp is the storage of one open file, looked up at its first use.
type lookedUp struct {
	once  sync.Once
	found Storage
}

func (l *lookedUp) of(fd int) Storage {
	l.once.Do(func() { l.found = StorageOf(fd) })
	return l.found
}

// Storage describes the file system and the devices below the file. The first call of Storage examines the file, which
// must be open; later calls return the same result.
func (f *File) Storage() Storage {
	if f.remote != nil {
		return Storage{FS: f.fs}
	}
	if f.Pin() == nil {
		defer f.Unpin()
	}
	return f.storage.of(f.buffered)
}

// Storage describes the file system and the devices below the file. The first call of Storage examines the file, which
// must be open; later calls return the same result.
func (e *Editable) Storage() Storage { return e.storage.of(e.fd) }

// Storage describes the file system and the devices below the file. The first call of Storage examines the file, which
// must be open; later calls return the same result.
func (d *Replacement) Storage() Storage { return d.storage.of(d.buffered) }

// Storage describes the file system and the devices below the file. The first call of Storage examines the Sink, which
// must be open; later calls return the same result.
func (s *Sink) Storage() Storage { return s.storage.of(s.buffered) }

// overlay is the name of the union file system of containers.
const overlay = "overlayfs"

// deepest is the largest number of layers that are examined, such as a loop device on a file on a loop device.
const deepest = 8

// StorageOf describes the file system and the devices below the open file fd. StorageOf reads the mount table and
// sysfs, which takes about 0.1 ms. Use the type Storages to cache the results of StorageOf.
func StorageOf(fd int) Storage { return storageOf(fd, 0) }

func storageOf(fd, depth int) Storage {
	s := Storage{FS: fsType(fd)}
	if depth > deepest {
		s.Hidden = "too many layers lie below the file"
		return s
	}
	var st unix.Statx_t
	const mask = unix.STATX_BASIC_STATS | unix.STATX_DIOALIGN | unix.STATX_MNT_ID
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, mask, &st); err != nil {
		s.Falls, s.Hidden, s.local = true, fmt.Sprintf("statx: %v", err), true
		return s
	}
	m := findMount(fd, &st)
	if m.fs != "" && !s.FS.Memory && s.FS.Name != overlay {
		s.FS.Name = m.fs
	}
	switch name := s.FS.Name; {
	case s.FS.Memory:
		return s
	case name == overlay:
		return overlayStorage(s, fd, m, &st, depth)
	case hides(name) != "":
		// Network file systems obey O_DIRECT. FUSE processes, hosts and zfs may not.
		s.Hidden, s.Falls = hides(name), !strings.Contains(hides(name), "a server gives")
		return s
	default:
		s.Falls = !keepsDirect(name, st.Mask&unix.STATX_DIOALIGN != 0)
	}
	s.Hidden, s.local = devicesHide(fd, &st, m, s.FS.Name, depth)
	return s
}

// keepsDirect reports whether O_DIRECT reads of a file system never use the page cache. xfs never falls back. ext4
// falls back for journalled, encrypted, inline and verity data; statx reports this if it supports STATX_DIOALIGN
// (told).
func keepsDirect(fs string, told bool) bool {
	return fs == "xfs" || told && (fs == "ext4" || fs == "ext3")
}

// hides returns the reason why a file system does not show the storage below it, or "".
func hides(fs string) string {
	switch {
	case fs == "fuse" || strings.HasPrefix(fs, "fuse.") || fs == "fuseblk":
		return fs + ": a process gives the bytes, out of storage or out of memory"
	case fs == "virtiofs" || fs == "9p" || fs == "vboxsf" || fs == "vmhgfs":
		return fs + ": another machine or its host gives the bytes, out of storage or out of memory"
	case fs == "zfs":
		return "zfs: it has a cache of its own, of which the kernel tells nothing"
	case slices.Contains([]string{"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "gpfs", "beegfs", "wekafs",
		"afs", "orangefs", "pvfs2", "coda", "panfs"}, fs):
		return fs + ": a server gives the bytes, out of storage or out of memory"
	}
	return ""
}

// devicesHide returns the reason why the block devices below a file do not show where bytes come from, or "".
func devicesHide(fd int, st *unix.Statx_t, m mount, fs string, depth int) (why string, local bool) {
	dirs := devicesOf(fd, st, m, fs)
	if len(dirs) == 0 {
		return "which device lies below " + fs + " is not told", true
	}
	for _, dir := range dirs {
		why, l := deviceHides(dir, depth)
		if local = local || l; why != "" {
			return why, local
		}
	}
	return "", local
}

// devicesOf lists the directories in sysfs of the devices that hold the file.
func devicesOf(fd int, st *unix.Statx_t, m mount, fs string) []string {
	if st.Dev_major != 0 {
		return blockDir(st.Dev_major, st.Dev_minor)
	}
	if fs == "btrfs" {
		// Files of btrfs have the device number of a subvolume. sysfs lists the devices of the file system.
		if id, ok := btrfsID(fd); ok {
			if dirs, _ := filepath.Glob("/sys/fs/btrfs/" + id + "/devices/*"); len(dirs) > 0 {
				return dirs
			}
		}
	}
	var out []string
	for source := range strings.SplitSeq(m.source, ":") {
		var dev unix.Stat_t
		if !strings.HasPrefix(source, "/dev/") || unix.Stat(source, &dev) != nil || dev.Mode&unix.S_IFMT != unix.S_IFBLK {
			return nil
		}
		out = append(out, blockDir(unix.Major(dev.Rdev), unix.Minor(dev.Rdev))...)
	}
	return out
}

func blockDir(major, minor uint32) []string {
	dir := fmt.Sprintf("/sys/dev/block/%d:%d", major, minor)
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	return []string{dir}
}

// deviceHides is devicesHide for one block device and the devices below it. local means that the result may change at
// any time.
func deviceHides(dir string, depth int) (why string, local bool) {
	if depth > deepest {
		return "too many layers lie below the file", true
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Sprintf("sysfs does not show the device below: %v", err), true
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		dir = filepath.Dir(dir)
	}
	name := filepath.Base(dir)
	for prefix, what := range map[string]string{
		"nbd":   "a server gives its blocks",
		"rbd":   "a server gives its blocks",
		"drbd":  "another machine may give its blocks",
		"ublkb": "a process gives its blocks",
		"zram":  "it is memory",
		"ram":   "it is memory",
	} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" && rest[0] >= '0' && rest[0] <= '9' {
			return fmt.Sprintf("it lies on %s: %s", name, what), false
		}
	}
	if strings.HasPrefix(name, "loop") {
		return loopHides(dir, name, depth), true
	}
	below, _ := filepath.Glob(filepath.Join(dir, "slaves/*"))
	for _, s := range below {
		why, l := deviceHides(s, depth+1)
		if local = local || l; why != "" {
			return why, local
		}
	}
	return "", local
}

// loopHides returns the reason why the image of a loop device may be in the page cache, or "".
func loopHides(dir, name string, depth int) string {
	image := word(filepath.Join(dir, "loop/backing_file"))
	if word(filepath.Join(dir, "loop/dio")) != "1" {
		return fmt.Sprintf("it lies on %s, which reads its image %s through the page cache (losetup --direct-io=on "+
			"changes that)", name, image)
	}
	fd, err := unix.Open(image, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Sprintf("it lies on %s, whose image %s cannot be looked at: %v", name, image, err)
	}
	defer unix.Close(fd)
	switch s := storageOf(fd, depth+1); {
	case s.FS.Memory:
		return fmt.Sprintf("it lies on %s, whose image %s is in memory (%s)", name, image, s.FS.Name)
	case s.Hidden != "":
		return fmt.Sprintf("it lies on %s, and its image %s: %s", name, image, s.Hidden)
	case s.Falls:
		return fmt.Sprintf("it lies on %s, and %s below its image %s may read through the page cache", name, s.FS.Name, image)
	}
	return ""
}

// word reads a short text file, "" if it is missing.
func word(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}

// btrfsInfo is BTRFS_IOC_FS_INFO, btrfsInfoSize the size of its argument.
const (
	btrfsInfo     = 0x8400941f
	btrfsInfoSize = 1024
)

// btrfsID returns the UUID of a btrfs file system in the format of sysfs.
func btrfsID(fd int) (string, bool) {
	var arg [btrfsInfoSize]byte
	if err := ioctl(fd, btrfsInfo, arg[:]); err != nil {
		return "", false
	}
	id := arg[16:32]
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), true
}

// Storages caches the results of StorageOf by device, for one second. Results that can change while a file system is
// mounted, such as those for loop devices, are not cached. The zero value of Storages is ready to use. A Storages is
// safe for concurrent use.
type Storages struct {
	mu    sync.Mutex
	all   map[storageKey]knownStorage
	asked map[storageKey]chan struct{} // calls of StorageOf that are running, the last one of each key; closed at its end
}

type storageKey struct {
	dev  uint64
	name string // name of the file system, because device numbers are reused
}

type knownStorage struct {
	Storage
	at time.Time
}

const (
	storageAge   = time.Second
	mostStorages = 256
)

// Of returns the cached result of StorageOf, or calls StorageOf if no result is cached.
func (s *Storages) Of(fd int) Storage {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return StorageOf(fd)
	}
	return s.of(fd, storageKey{st.Dev, fsType(fd).Name})
}

// OfFile returns the same as Of for a local file, which must be open. The device and the type of the file system are
// known since the file was opened, so OfFile makes no system call if a result is cached.
func (s *Storages) OfFile(f *File) Storage { return s.of(f.buffered, storageKey{f.dev, f.fs.Name}) }

// Later returns a function that finds out what OfFile returns, and caches it for a call of OfFile. The function has a
// descriptor of its own, so f may be closed before the function ends. The caller must call the function. Later returns
// nil if the result is cached already, or if there is no descriptor left.
func (s *Storages) Later(f *File) func() {
	key := storageKey{f.dev, f.fs.Name}
	s.mu.Lock()
	k, ok := s.all[key]
	s.mu.Unlock()
	if ok && time.Since(k.at) < storageAge {
		return nil
	}
	if f.Pin() != nil {
		return nil
	}
	defer f.Unpin()
	fd, err := unix.FcntlInt(uintptr(f.buffered), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil
	}
	return func() {
		s.of(fd, key)
		_ = unix.Close(fd)
	}
}

// of answers from the cache. If another call is finding out about the same file system, of waits for its result.
func (s *Storages) of(fd int, key storageKey) Storage {
	now := time.Now()
	s.mu.Lock()
	asked := s.asked[key]
	if asked != nil {
		s.mu.Unlock()
		<-asked
		s.mu.Lock()
	}
	k, ok := s.all[key]
	if ok && now.Sub(k.at) < storageAge {
		s.mu.Unlock()
		return k.Storage
	}
	ended := make(chan struct{})
	if s.asked == nil {
		s.asked = map[storageKey]chan struct{}{}
	}
	s.asked[key] = ended
	s.mu.Unlock()
	defer close(ended)

	found := StorageOf(fd)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[key] == ended {
		delete(s.asked, key)
	}
	if found.local {
		return found
	}
	if s.all == nil || len(s.all) >= mostStorages {
		s.all = map[storageKey]knownStorage{}
	}
	s.all[key] = knownStorage{found, now}
	return found
}
