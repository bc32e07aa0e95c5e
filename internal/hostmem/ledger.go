// SPDX-License-Identifier: Apache-2.0

package hostmem

import (
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// ledger counts memory that was promised and has no pages yet. A mapping gets its pages when they are first written.
// So each of several promises can fit alone, and all together can kill the process. The ledger refuses such promises.
type ledger struct {
	mu       sync.Mutex
	find     func() Available
	promises map[*promise]struct{}
	mapped   int64 // bytes of all promises, with pages or without
	// credit is the number of bytes that may be promised until expires without asking the kernel again. It is a small
	// share of the available memory, so the error is small.
	credit  int64
	expires time.Time
}

// promise is memory of one owner that will be written.
type promise struct {
	size int64
	// open returns the number of bytes that have no pages yet. The caller holds the ledger's lock.
	open   func() int64
	region *Region // nil if the memory was not mapped by this package
}

// process is the ledger of this process. There is one, because memory limits hold for the whole process.
var process = &ledger{find: func() Available { return FindAvailable("/") }, promises: map[*promise]struct{}{}}

const (
	// creditShare: one part in creditShare of the available memory is granted without asking the kernel again.
	creditShare = 16
	creditTime  = 50 * time.Millisecond
	// marginShare and mostMargin set the memory that stays free: one part in marginShare, at most mostMargin bytes.
	// Page tables take 1/512 of the mapped memory, and heaps grow while memory is filled.
	marginShare = 32
	mostMargin  = 256 << 20
)

// promise records size bytes, or refuses them with kind NoMemory.
func (l *ledger) promise(what string, p *promise) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); p.size > 0 && (p.size > l.credit || now.After(l.expires)) {
		if err := l.check(what, p.size, now); err != nil {
			return err
		}
	}
	l.credit -= p.size
	l.promises[p] = struct{}{}
	l.mapped += p.size
	return nil
}

// check compares need with the available memory. The caller holds mu.
func (l *ledger) check(what string, need int64, now time.Time) error {
	have := l.find()
	if !have.Known {
		l.credit, l.expires = most, now.Add(creditTime)
		return nil
	}
	usable := have.Bytes - min(have.Bytes/marginShare, mostMargin)
	// Only if memory is short, the pages of all promises are counted.
	open := l.mapped
	if need > usable-open {
		open = 0
		for p := range l.promises {
			open += p.open()
		}
	}
	if left := usable - open; need > left {
		return refusal(what, need, max(left, 0), open, have)
	}
	l.credit, l.expires = max(need, (usable-open)/creditShare), now.Add(creditTime)
	return nil
}

func (l *ledger) release(p *promise) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.promises[p]; ok {
		delete(l.promises, p)
		l.mapped -= p.size
	}
}

// raiseLimit is the end of the advice if a cgroup has too little memory.
const raiseLimit = "; raise the limit of the cgroup (docker run --memory, resources.limits.memory, MemoryMax=)"

// cgroupAdvice returns raiseLimit if fix ends with it.
func cgroupAdvice(fix string) string {
	if strings.HasSuffix(fix, raiseLimit) {
		return raiseLimit
	}
	return ""
}

// refusal returns the error that names the needed and the available memory.
func refusal(what string, need, left, open int64, have Available) error {
	why := fmt.Sprintf("%s are needed and %s are available: %s has %s", size(need), size(left), have.Limit,
		size(have.Bytes))
	if open > 0 {
		why += fmt.Sprintf(", %s of it promised to earlier allocations of this process", size(open))
	}
	fix := "load fewer tensors or a slice, load to a GPU, lower buffer_pool_size, or free memory"
	if have.Limit != "this machine" {
		fix += raiseLimit
	}
	return errs.New(errs.NoMemory, what, "", why).WithFix(fix)
}

// size formats a number of bytes for people.
func size(n int64) string {
	for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if one := int64(1) << (40 - 10*i); n >= one {
			return fmt.Sprintf("%.2f %s", float64(n)/float64(one), unit)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// Promise records that `size` bytes of memory will soon be written, so that later requests for memory do not count
// them as available. Promise is for memory that is not a Region of package hostmem. The iterator `places` yields the
// address ranges of the bytes. The function `left` returns the number of bytes that are not written yet; any goroutine
// may call this function. Promise does not count bytes that already have memory pages, or bytes of a Region. If the
// bytes without memory pages exceed the available memory, Promise fails with kind NoMemory. After success, the caller
// must call the function `done` when the bytes are written or no longer needed.
func Promise(what string, size int64, places iter.Seq[Span], left func() int64) (done func(), err error) {
	if size <= 0 {
		return func() {}, nil
	}
	// The caller of missing holds the ledger's lock.
	missing := sync.OnceValue(func() int64 { return process.missing(places) })
	p := &promise{size: size, open: func() int64 { return min(left(), missing()) }}
	if err = process.promise(what, p); err != nil {
		process.mu.Lock()
		p.size = min(missing(), size)
		process.mu.Unlock()
		if p.size < size {
			err = process.promise(what, p)
		}
	}
	return func() { process.release(p) }, err
}

// missing counts the bytes of places that are not in a Region and have no page. The caller holds mu.
func (l *ledger) missing(places iter.Seq[Span]) (n int64) {
	for s := range places {
		if s.Len > 0 && !l.owns(s) {
			n += s.absent()
		}
	}
	return n
}

// owns reports whether s is in a Region. The caller holds mu.
func (l *ledger) owns(s Span) bool {
	for p := range l.promises {
		if p.region == nil || p.region.mem == nil {
			continue
		}
		if lo := addressOf(p.region.mem); s.At >= lo && s.At < lo+uintptr(len(p.region.mem)) {
			return true
		}
	}
	return false
}

// Span is a range of addresses in this process's memory.
type Span struct {
	At  uintptr
	Len int64
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// absent counts the bytes that have no page yet.
func (s Span) absent() int64 {
	page := uint64(unix.Getpagesize())
	lo := uint64(s.At) &^ (page - 1)
	hi := (uint64(s.At) + uint64(s.Len) + page - 1) &^ (page - 1)
	found, err := scan(lo, hi)
	if err != nil {
		found.Resident = presentPages(lo, hi, page)
	}
	return min(max(int64(hi-lo)-found.Resident, 0), s.Len)
}

// presentPages counts resident bytes with mincore, for kernels before 6.7.
func presentPages(lo, hi, page uint64) (resident int64) {
	vec := make([]byte, 64<<10)
	for lo < hi {
		n := min(hi-lo, uint64(len(vec))*page)
		if _, _, no := unix.Syscall(unix.SYS_MINCORE, uintptr(lo), uintptr(n), uintptr(unsafe.Pointer(&vec[0]))); no != 0 {
			return resident
		}
		for _, v := range vec[:n/page] {
			resident += int64(v&1) * int64(page)
		}
		lo += n
	}
	return resident
}
