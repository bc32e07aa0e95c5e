// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"math/bits"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Pages is the set of a file's pages that were in the page cache at one moment.
type Pages struct {
	size int64    // bytes of the file
	all  bool     // every page was cached
	some []uint64 // one bit for each page, if all is false; nil if no page was cached
	// hidden is the number of bytes in cached pages that mincore did not report. mincore leaves out pages that the
	// kernel is still reading, and pages of which a write has filled only a part.
	hidden int64
}

// CachedPages returns the pages of the file that are in the page cache now. If the kernel does not report cached
// pages, the error is of kind Unsupported.
func (f *File) CachedPages() (*Pages, error) {
	p := &Pages{size: f.size}
	r, err := f.Residency(0, f.size)
	if p.all = err == nil && r.Cached >= f.size; p.all || err != nil || r.Cached == 0 {
		return p, err
	}
	p.some = make([]uint64, (f.size/pageSize)/64+1)
	found := int64(0)
	err = f.eachCached(0, f.size, func(lo int64, vec []byte) error {
		for i, v := range vec {
			if page := lo/pageSize + int64(i); v&1 != 0 {
				p.some[page/64] |= 1 << (page % 64)
				found += pageSize
			}
		}
		return nil
	})
	p.hidden = max(r.Cached-found, 0)
	return p, err
}

func (p *Pages) has(page int64) bool {
	return p.all || p.some != nil && p.some[page/64]&(1<<(page%64)) != 0
}

// In counts the bytes of [off, off+n) that were in the page cache at the moment that p describes.
func (p *Pages) In(off, n int64) (sum int64) {
	end := min(off+n, p.size)
	if p.all {
		return max(end-off, 0)
	}
	if p.some == nil {
		return 0
	}
	for page := off / pageSize; page*pageSize < end; page++ {
		if page%64 == 0 && (page+64)*pageSize <= end && off <= page*pageSize {
			sum += int64(bits.OnesCount64(p.some[page/64])) * pageSize
			page += 63
			continue
		}
		if p.has(page) {
			sum += min(end, (page+1)*pageSize) - max(off, page*pageSize)
		}
	}
	return sum
}

// Since counts the bytes of [off, off+n) that entered the page cache after the moment that p describes.
func (f *File) Since(p *Pages, off, n int64) (sum int64, err error) {
	n = min(n, f.size-off)
	if p.In(off, n) == 0 {
		r, err := f.Residency(off, n)
		return min(r.Cached, n), err
	}
	err = f.eachNew(p, off, n, func(lo, hi int64) error {
		sum += min(hi, off+n) - max(lo, off)
		return nil
	})
	return sum, err
}

// came counts the bytes of f that entered the page cache after the moment that p describes. If the file's
// ProbeMethod is ProbeCachestat, came also counts pages that the kernel is reading at this moment.
func (p *Pages) came(f *File) (sum int64, err error) {
	if p.all {
		return 0, nil
	}
	if p.some == nil || f.probe.method != ProbeCachestat {
		return f.Since(p, 0, f.size)
	}
	found := int64(0) // bytes of the pages that mincore reports
	err = f.eachCached(0, f.size, func(lo int64, vec []byte) error {
		for i, v := range vec {
			if v&1 == 0 {
				continue
			}
			found += pageSize
			if at := lo + int64(i)*pageSize; !p.has(at / pageSize) {
				sum += min(pageSize, f.size-at)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	r, err := f.Residency(0, f.size)
	return sum + max(r.Cached-found-p.hidden, 0), err
}

// DropSince asks the kernel to drop those pages of the file that entered the page cache after the moment that p
// describes. Pages that were cached at the moment that p describes, and dirty pages, stay in the page cache. DropSince
// returns the number of bytes in new pages that stayed, because they are dirty, mapped or in use elsewhere.
func (f *File) DropSince(p *Pages) (left int64, err error) {
	if err := f.Pin(); err != nil {
		return 0, err
	}
	defer f.Unpin()
	// The kernel keeps pages while it reads them ahead. They can be dropped a moment later.
	for pause := time.Millisecond; ; pause *= 2 {
		if left, err = p.came(f); left == 0 || err != nil {
			return 0, err
		}
		if err = p.forgetNew(f); err != nil {
			return 0, err
		}
		if left, err = p.came(f); left == 0 || err != nil || pause > longestDrop {
			return left, err
		}
		time.Sleep(pause)
	}
}

// longestDrop is the longest pause between two attempts to drop pages. All pauses together take 31 ms.
const longestDrop = 16 * time.Millisecond

// forget drops the clean pages of [lo, hi), a range of whole pages.
func (f *File) forget(lo, hi int64) error {
	return errs.Wrap("drop page cache", f.path, unix.Fadvise(f.buffered, lo, hi-lo, unix.FADV_DONTNEED))
}

// forgetNew drops the clean pages of f that were not cached when p was taken. mincore does not report pages without
// content, which squashfs leaves if two threads read the same block. So forgetNew also asks cachestat how many pages a
// window has. If there are more than mincore reports, forgetNew asks the kernel to drop the unreported pages too.
func (p *Pages) forgetNew(f *File) error {
	return f.eachCached(0, f.size, func(lo int64, vec []byte) error {
		hidden := false
		if f.probe.method == ProbeCachestat {
			r, err := f.Residency(lo, int64(len(vec))*pageSize)
			if err != nil {
				return err
			}
			hidden = r.Cached > pagesIn(vec)*pageSize
		}
		return eachRun(len(vec), func(i int) bool {
			return (hidden || vec[i]&1 != 0) && !p.has(lo/pageSize+int64(i))
		}, func(first, end int) error {
			return f.forget(lo+int64(first)*pageSize, lo+int64(end)*pageSize)
		})
	})
}

// eachNew calls do for each run of whole pages in [off, off+n) that are cached
// now and were not when p was taken.
func (f *File) eachNew(p *Pages, off, n int64, do func(lo, hi int64) error) error {
	return f.eachCached(off, n, func(lo int64, vec []byte) error {
		return eachRun(len(vec), func(i int) bool {
			return vec[i]&1 != 0 && !p.has(lo/pageSize+int64(i))
		}, func(first, end int) error {
			return do(lo+int64(first)*pageSize, lo+int64(end)*pageSize)
		})
	})
}

// eachRun finds the numbers from 0 to n-1 for which is(i) returns true. It calls do for each run [first, end) of them.
func eachRun(n int, is func(i int) bool, do func(first, end int) error) error {
	for i := 0; i < n; i++ {
		first := i
		for i < n && is(i) {
			i++
		}
		if i > first {
			if err := do(first, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// pagesIn counts the pages that mincore reports in vec.
func pagesIn(vec []byte) (n int64) {
	for _, v := range vec {
		n += int64(v & 1)
	}
	return n
}

// cachedWindow is the size from which a range is halved before its pages are listed.
const cachedWindow = 4 << 20

// eachCached is eachWindow for the ranges in [off, off+n) that have cached pages. It skips the other ranges with
// cachestat, because mincore visits every page, cached or not.
func (f *File) eachCached(off, n int64, do func(lo int64, vec []byte) error) error {
	if f.probe.method != ProbeCachestat {
		return f.eachWindow(off, n, do)
	}
	off, n = off&^(pageSize-1), n+off&(pageSize-1)
	r, err := f.Residency(off, n)
	if err != nil || r.Cached == 0 {
		return err
	}
	if n <= cachedWindow || r.Cached >= n/2 && n <= mincoreWindow {
		return f.eachWindow(off, n, do)
	}
	half := (n/2 + cachedWindow - 1) &^ (cachedWindow - 1)
	if err := f.eachCached(off, half, do); err != nil {
		return err
	}
	return f.eachCached(off+half, n-half, do)
}

// eachWindow asks mincore for the pages of [off, off+n), one window at a time. vec has one byte for each page; lo is
// the offset of the first page.
func (f *File) eachWindow(off, n int64, do func(lo int64, vec []byte) error) error {
	if f.probe.method == ProbeNone {
		return errs.New(errs.Unsupported, "query page cache", f.path, f.probe.why)
	}
	if err := f.Pin(); err != nil {
		return err
	}
	defer f.Unpin()
	end := min(off+n, f.size)
	for lo := off &^ (pageSize - 1); lo < end; lo += mincoreWindow {
		length := min(mincoreWindow, end-lo)
		m, err := unix.Mmap(f.buffered, lo, int(length), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return errs.Wrap("map for mincore", f.path, err)
		}
		vec := make([]byte, (length+pageSize-1)/pageSize)
		_, _, no := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(length),
			uintptr(unsafe.Pointer(&vec[0])))
		if uerr := unix.Munmap(m); no == 0 && uerr != nil {
			return errs.Wrap("unmap after mincore", f.path, uerr)
		}
		if no != 0 {
			return errs.Wrap("mincore", f.path, no)
		}
		if err := do(lo, vec); err != nil {
			return err
		}
	}
	return nil
}
