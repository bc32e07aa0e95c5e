// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Residency counts the bytes of a file range that are in the page cache.
type Residency struct {
	Cached int64 // bytes of the range in the page cache
	Dirty  int64 // bytes of the range that are dirty or under write-back; -1 if unknown
}

// ProbeMethod is the method that finds which pages of a file are in the page cache.
type ProbeMethod string

const (
	// ProbeCachestat uses cachestat(2), which needs Linux 6.5 or later.
	ProbeCachestat ProbeMethod = "cachestat"
	// ProbeMincore uses mincore(2) on a mapping of the file. mincore does not report dirty pages.
	ProbeMincore ProbeMethod = "mincore"
	// ProbeNone means that the kernel does not report which pages are cached. The kernel hides cached pages of files
	// that the process neither owns nor may write.
	ProbeNone ProbeMethod = "none"
)

// prober answers residency questions for one open file.
type prober struct {
	method ProbeMethod
	why    string
	// span is the number of bytes at the start of the file that found describes; 0 if found is unknown.
	span  int64
	found Residency
}

var pageSize = int64(os.Getpagesize())

// newProber picks the best method that works on fd, by trying it on the first span bytes of the file. The range is at
// least one page.
func newProber(fd int, fs FSType, span int64) prober {
	if fs.Name == overlay {
		// The pages belong to the file in the lower layer. A mapping reaches this file; cachestat does not and
		// reports no cached page.
		if mayKnow(fd) {
			return prober{method: ProbeMincore, why: "cachestat does not see through overlayfs"}
		}
		return prober{method: ProbeNone,
			why: "cachestat does not see through overlayfs, and mincore does not tell files of others"}
	}
	var cs unix.Cachestat_t
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: 0, Len: uint64(max(span, pageSize))}, &cs, 0)
	if err == nil {
		return prober{method: ProbeCachestat, span: span, found: residencyOf(&cs, span)}
	}
	if err == unix.EPERM {
		return prober{method: ProbeNone,
			why: "the kernel tells the page-cache state of a file only to its owner and to those who may write it"}
	}
	// If the process may not know the state, mincore claims that every page is resident.
	if mayKnow(fd) {
		return prober{method: ProbeMincore, why: fmt.Sprintf("cachestat: %v", err)}
	}
	return prober{method: ProbeNone, why: fmt.Sprintf("cachestat: %v, and mincore does not tell files of others", err)}
}

func mayKnow(fd int) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return false
	}
	uid := os.Geteuid()
	if uid == 0 || int(st.Uid) == uid {
		return true
	}
	return unix.Faccessat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.W_OK, unix.AT_EACCESS) == nil
}

// Probe returns the method that finds the cached pages of the file. If the method is not ProbeCachestat, Probe also
// returns the reason.
func (f *File) Probe() (ProbeMethod, string) { return f.probe.method, f.probe.why }

// ForceProbe makes f use the method m, for tests.
func (f *File) ForceProbe(m ProbeMethod) { f.probe = prober{method: m, why: "asked for"} }

// Residency counts the bytes of [off, off+n) that are in the page cache. Residency extends the range to whole pages
// and cuts the range at the end of the file. If the file's ProbeMethod is ProbeNone, Residency fails with kind
// Unsupported.
func (f *File) Residency(off, n int64) (Residency, error) {
	if err := f.Pin(); err != nil {
		return Residency{}, err
	}
	defer f.Unpin()
	end := min(off+n, f.size)
	off = off &^ (pageSize - 1)
	if end <= off {
		return Residency{}, nil
	}
	switch f.probe.method {
	case ProbeCachestat:
		return f.cachestat(off, end-off)
	case ProbeMincore:
		return f.mincore(off, end-off)
	}
	return Residency{}, errs.New(errs.Unsupported, "query page cache", f.path, f.probe.why)
}

func (f *File) cachestat(off, n int64) (Residency, error) {
	var cs unix.Cachestat_t
	if err := unix.Cachestat(uint(f.buffered), &unix.CachestatRange{Off: uint64(off), Len: uint64(n)}, &cs,
		0); err != nil {
		return Residency{}, errs.Wrap("cachestat", f.path, err)
	}
	return residencyOf(&cs, n), nil
}

// residencyOf converts the answer of cachestat for a range of n bytes.
func residencyOf(cs *unix.Cachestat_t, n int64) Residency {
	return Residency{
		Cached: min(int64(cs.Cache)*pageSize, n),
		Dirty:  min(int64(cs.Dirty+cs.Writeback)*pageSize, n),
	}
}

// openSpan is the largest size in bytes of a file of which FromDescriptors asks for all cached pages. The kernel visits
// each cached page, and most reads of a larger file need only a part of the file.
const openSpan = 4 << 20

// spanAtOpen returns the number of bytes at the start of a file of size bytes whose cached pages FromDescriptors asks
// for: the whole of a file of at most openSpan bytes, and the first page of a larger file. The first page shows whether
// the file was read recently.
func spanAtOpen(size int64) int64 {
	if size <= openSpan {
		return size
	}
	return pageSize
}

// ResidencyAtOpen counts the bytes of [off, off+n) of f that were in the page cache when f was opened, without a system
// call. The second result is false if this number is unknown. FromDescriptors asks about a whole file of at most 4 MiB
// and about the first page of a larger file, and Open does not ask. If only some of the pages asked about were cached,
// or some were dirty, the number of a part is unknown.
func ResidencyAtOpen(f *File, off, n int64) (Residency, bool) {
	p := &f.probe
	end := min(off+n, f.size)
	off = off &^ (pageSize - 1)
	if p.span == 0 || off < 0 || end > p.span || p.found.Dirty != 0 {
		return Residency{}, false
	}
	switch {
	case end <= off || p.found.Cached == 0:
		return Residency{}, true
	case p.found.Cached >= p.span:
		return Residency{Cached: end - off}, true
	}
	return Residency{}, false
}

// mincoreWindow is the largest range in bytes of one mincore call.
const mincoreWindow = 256 << 20

func (f *File) mincore(off, n int64) (Residency, error) {
	r := Residency{Dirty: -1}
	err := f.eachWindow(off, n, func(_ int64, vec []byte) error {
		for _, v := range vec {
			r.Cached += int64(v&1) * pageSize
		}
		return nil
	})
	r.Cached = min(r.Cached, n)
	return r, err
}

// DropCache writes the file's dirty pages back and asks the kernel to drop its clean pages. DropCache returns the
// bytes that are still cached: pages that are mapped or in use elsewhere stay. The kernel itself may hold single pages
// for a moment, so DropCache asks again for up to 20 ms.
func (f *File) DropCache() (left int64, err error) {
	if f.remote != nil {
		return 0, nil // a remote file has no cached pages
	}
	if f.fs.Memory {
		return f.size, errs.New(errs.Unsupported, "drop page cache", f.path, f.fs.Name+" keeps files in memory")
	}
	if err := f.Pin(); err != nil {
		return 0, err
	}
	defer f.Unpin()
	if err := unix.Fdatasync(f.buffered); err != nil {
		return 0, errs.Wrap("sync before dropping the page cache", f.path, err)
	}
	for pause := time.Millisecond; ; pause *= 4 {
		if err := unix.Fadvise(f.buffered, 0, 0, unix.FADV_DONTNEED); err != nil {
			return 0, errs.Wrap("drop page cache", f.path, err)
		}
		r, err := f.Residency(0, f.size)
		if err != nil || r.Cached == 0 || pause > 16*time.Millisecond {
			return r.Cached, err
		}
		time.Sleep(pause)
	}
}

// ExpectRandom turns the kernel's readahead for the file off if the parameter `random` is true, and on if it is false.
func (f *File) ExpectRandom(random bool) {
	if f.remote != nil {
		return
	}
	if f.Pin() != nil {
		return
	}
	defer f.Unpin()
	advice := unix.FADV_NORMAL
	if random {
		advice = unix.FADV_RANDOM
	}
	_ = unix.Fadvise(f.buffered, 0, 0, advice)
}
