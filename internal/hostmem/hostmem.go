// SPDX-License-Identifier: Apache-2.0

// Package hostmem maps page-aligned host memory outside the Go heap.
//
// Package hostmem asks the kernel for huge pages and reports how much memory is really in huge pages.
package hostmem

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// HugePage is the size of a transparent huge page in bytes: 2 MiB on all supported platforms.
const HugePage = 2 << 20

// Region is a private anonymous mapping aligned to HugePage.
type Region struct {
	raw     []byte // the whole mapping, with slack for alignment
	mem     []byte
	promise *promise
}

// Map maps `size` bytes of host memory, rounded up to a multiple of HugePage, and asks the kernel for huge pages. The
// kernel allocates a page of the mapping when it is first touched. Forked children do not inherit the mapping, because
// copy-on-write after a fork would give this process new pages in place of the pages that are pinned for a device. If
// the machine or a cgroup has too little memory, Map fails with kind NoMemory; otherwise the kernel would kill the
// process later.
func Map(size int64) (*Region, error) { return MapFor("map host memory", "", size) }

// MapFor does the same as Map, but its errors name the purpose of the memory. The parameter `what` names the operation
// in errors, such as "map staging memory". The parameter `fix` is the advice in errors on how to need less memory; if
// it is empty, errors have general advice.
func MapFor(what, fix string, size int64) (*Region, error) {
	if size <= 0 {
		return nil, errs.New(errs.Invalid, what, strconv.FormatInt(size, 10), "is not a positive number of bytes")
	}
	if size > most {
		return nil, withFix(refusal(what, size, 0, 0, FindAvailable("/")), fix)
	}
	n := (size + HugePage - 1) &^ (HugePage - 1)
	r := &Region{}
	r.promise = &promise{size: n, open: r.absent, region: r}
	if err := process.promise(what, r.promise); err != nil {
		return nil, withFix(err, fix)
	}
	raw, err := unix.Mmap(-1, 0, int(n+HugePage), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		process.release(r.promise)
		return nil, &errs.Error{Kind: errs.NoMemory, Op: what, Name: fmt.Sprintf("%d bytes", n), Err: err,
			Fix: "lower buffer_pool_size, or raise the memory limit of this process"}
	}
	skip := -uintptr(unsafe.Pointer(&raw[0])) & (HugePage - 1)
	mem := raw[skip : skip+uintptr(n) : skip+uintptr(n)]
	// The kernel may ignore both calls. The mapping then still works, slower or inherited by forked children. Stats
	// shows the huge pages really obtained.
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	_ = unix.Madvise(raw, unix.MADV_DONTFORK)
	process.mu.Lock()
	r.raw, r.mem = raw, mem
	process.mu.Unlock()
	return r, nil
}

// withFix replaces the advice of a refusal by fix and keeps its advice about the cgroup.
func withFix(err error, fix string) error {
	if e, ok := err.(*errs.Error); ok && fix != "" {
		e.Fix = fix + ", or free memory" + cgroupAdvice(e.Fix)
	}
	return err
}

// absent counts the bytes of the region that have no page yet. The caller holds the ledger's lock.
func (r *Region) absent() int64 {
	if r.mem == nil {
		return r.promise.size
	}
	return Span{At: addressOf(r.mem), Len: int64(len(r.mem))}.absent()
}

// Bytes returns the memory of the region; its start is aligned to HugePage.
func (r *Region) Bytes() []byte { return r.mem }

// AdviseHuge asks the kernel to use huge pages for the part of b that consists of whole huge pages. The parameter b
// may be any memory that will soon be written completely. AdviseHuge does not change pages that already exist.
func AdviseHuge(b []byte) {
	if len(b) < 2*HugePage {
		return
	}
	skip := -uintptr(unsafe.Pointer(&b[0])) & (HugePage - 1)
	if inner := b[skip:]; len(inner) >= HugePage {
		_ = unix.Madvise(inner[:len(inner)&^(HugePage-1)], unix.MADV_HUGEPAGE)
	}
}

// AdviseSmall asks the kernel to use ordinary pages, not huge pages, for the memory b. No page of b may have been
// touched before AdviseSmall.
func AdviseSmall(b []byte) { _ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) }

// Touch allocates every page of the memory b, with the given number of concurrent workers, and changes no byte of b.
// Several workers are faster, because the kernel zeroes each page. The memory b begins at a page.
func Touch(b []byte, workers int) {
	if len(b) == 0 {
		return
	}
	step := (len(b)/max(workers, 1) + HugePage) &^ (HugePage - 1)
	var wg sync.WaitGroup
	for lo := 0; lo < len(b); lo += step {
		part := b[lo:min(lo+step, len(b))]
		wg.Go(func() {
			if unix.Madvise(part, unix.MADV_POPULATE_WRITE) != nil { // before Linux 5.14
				touchEach(part)
			}
		})
	}
	wg.Wait()
}

// touchEach writes to each page of the memory b what the page has.
func touchEach(b []byte) {
	for i := 0; i+4 <= len(b); i += 4096 {
		atomic.AddUint32((*uint32)(unsafe.Pointer(&b[i])), 0)
	}
}

// Unmap returns the memory of the region to the kernel. The region must not be used after Unmap.
func (r *Region) Unmap() error {
	if r.raw == nil {
		return nil
	}
	process.release(r.promise) // from here on the ledger does not look at the pages
	err := unix.Munmap(r.raw)
	r.raw, r.mem = nil, nil
	return errs.Wrap("unmap host memory", "", err)
}

// Stats counts the bytes of a region that have memory pages, and the bytes in huge pages.
type Stats struct {
	Resident  int64 // bytes in memory
	HugePages int64 // bytes in transparent huge pages, which are part of Resident
}

// Stats asks the kernel which pages of the region are in memory, and which of them are huge pages. Stats scans the
// page map if the kernel supports it (Linux 6.7), else reads /proc/self/smaps. Reading /proc/self/smaps is slow in
// processes with many mappings.
func (r *Region) Stats() (Stats, error) {
	lo := uint64(uintptr(unsafe.Pointer(&r.mem[0])))
	if s, err := scan(lo, lo+uint64(len(r.mem))); err == nil {
		return s, nil
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return Stats{}, errs.Wrap("read memory map", "/proc/self/smaps", err)
	}
	defer f.Close()
	return scanSmaps(f, lo, lo+uint64(len(r.mem)))
}

// scanSmaps adds up the mappings that overlap [lo, hi). There can be several, because the kernel splits a mapping for
// advice.
func scanSmaps(in io.Reader, lo, hi uint64) (Stats, error) {
	var s Stats
	inside := false
	sc := bufio.NewScanner(in)
	for sc.Scan() {
		line := sc.Text()
		if a, b, ok := mapRange(line); ok {
			inside = a < hi && b > lo
			continue
		}
		if !inside {
			continue
		}
		if v, ok := kbField(line, "Rss:"); ok {
			s.Resident += v
		}
		if v, ok := kbField(line, "AnonHugePages:"); ok {
			s.HugePages += v
		}
	}
	return s, sc.Err()
}

func mapRange(line string) (lo, hi uint64, ok bool) {
	head, _, _ := strings.Cut(line, " ")
	a, b, found := strings.Cut(head, "-")
	if !found {
		return 0, 0, false
	}
	lo, err1 := strconv.ParseUint(a, 16, 64)
	hi, err2 := strconv.ParseUint(b, 16, 64)
	return lo, hi, err1 == nil && err2 == nil
}

func kbField(line, key string) (int64, bool) {
	rest, ok := strings.CutPrefix(line, key)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
	return n << 10, err == nil
}
