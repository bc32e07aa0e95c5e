// SPDX-License-Identifier: Apache-2.0

// Package uring is a small io_uring binding for file reads.
//
// Package uring exists because the published Go bindings for io_uring do not link with current Go. NebulaIO uses
// io_uring only for reads.
package uring

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	offSQRing = 0
	offSQEs   = 0x10000000

	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13

	featSingleMmap = 1 << 0

	enterGetEvents = 1

	opReadFixed = 4
	opRead      = 22

	registerBuffers = 0
)

// params mirrors struct io_uring_params.
type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFd uint32
	resv                                                                   [3]uint32
	sqOff                                                                  sqOffsets
	cqOff                                                                  cqOffsets
}

type sqOffsets struct {
	head, tail, ringMask, ringEntries, flags, dropped, array, resv1 uint32
	userAddr                                                        uint64
}

type cqOffsets struct {
	head, tail, ringMask, ringEntries, overflow, cqes, flags, resv1 uint32
	userAddr                                                        uint64
}

// sqe mirrors struct io_uring_sqe, cqe struct io_uring_cqe.
type sqe struct {
	opcode, flags     uint8
	ioprio            uint16
	fd                int32
	off, addr         uint64
	len, rwFlags      uint32
	userData          uint64
	bufIndex, persona uint16
	spliceFd          int32
	addr3, pad        uint64
}

type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

// Ring is one pair of a submission queue and a completion queue. Only the OS thread that made a ring may use it, so
// the caller locks its goroutine to the thread.
type Ring struct {
	fd               int
	ringMem, sqeMem  []byte
	sqHead, sqTail   *uint32
	cqHead, cqTail   *uint32
	sqMask, cqMask   uint32
	sqes             []sqe
	cqes             []cqe
	queued, inFlight uint32
	fixed            bool
}

// New makes a ring for at most `entries` reads in flight. If the kernel or the container forbids io_uring, the error
// is of kind Unsupported.
func New(entries uint32) (*Ring, error) {
	p := params{flags: setupSingleIssuer | setupDeferTaskrun}
	fd, err := setup(entries, &p)
	if err == unix.EINVAL { // kernels before 6.1
		p = params{}
		fd, err = setup(entries, &p)
	}
	if err != nil {
		return nil, &errs.Error{Kind: errs.Unsupported, Op: "set up io_uring", Err: err,
			Fix: "allow io_uring_setup in the seccomp profile and set kernel.io_uring_disabled=0"}
	}
	r := &Ring{fd: fd}
	if p.features&featSingleMmap == 0 {
		_ = unix.Close(fd)
		return nil, errs.New(errs.Unsupported, "set up io_uring", "", "the kernel is older than 5.4 (no single-mmap rings)")
	}
	if err := r.mapRings(&p); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

func setup(entries uint32, p *params) (int, error) {
	fd, _, no := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
	if no != 0 {
		return -1, no
	}
	return int(fd), nil
}

func (r *Ring) mapRings(p *params) error {
	size := max(int(p.sqOff.array)+int(p.sqEntries)*4, int(p.cqOff.cqes)+int(p.cqEntries)*int(unsafe.Sizeof(cqe{})))
	var err error
	if r.ringMem, err = unix.Mmap(r.fd, offSQRing, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return errs.Wrap("map io_uring", "", err)
	}
	if r.sqeMem, err = unix.Mmap(r.fd, offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(sqe{})), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return errs.Wrap("map io_uring entries", "", err)
	}
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.ringMem[off])) }
	r.sqHead, r.sqTail, r.sqMask = word(p.sqOff.head), word(p.sqOff.tail), *word(p.sqOff.ringMask)
	r.cqHead, r.cqTail, r.cqMask = word(p.cqOff.head), word(p.cqOff.tail), *word(p.cqOff.ringMask)
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&r.sqeMem[0])), p.sqEntries)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&r.ringMem[p.cqOff.cqes])), p.cqEntries)
	// Slot i of the indirection array always names entry i.
	array := unsafe.Slice(word(p.sqOff.array), p.sqEntries)
	for i := range array {
		array[i] = uint32(i)
	}
	return nil
}

// RegisterBuffers registers bufs with the kernel, which saves a page lookup for each read. RegisterBuffers needs a
// sufficient RLIMIT_MEMLOCK. If RegisterBuffers fails, reads without registered buffers still work.
func (r *Ring) RegisterBuffers(bufs [][]byte) error {
	iov := make([]unix.Iovec, len(bufs))
	for i, b := range bufs {
		iov[i].Base = &b[0]
		iov[i].SetLen(len(b))
	}
	_, _, no := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), registerBuffers, uintptr(unsafe.Pointer(&iov[0])),
		uintptr(len(iov)), 0, 0)
	if no != 0 {
		return &errs.Error{Kind: errs.Unsupported, Op: "register io_uring buffers", Err: no,
			Fix: "raise RLIMIT_MEMLOCK (ulimit -l)"}
	}
	r.fixed = true
	return nil
}

// Fixed reports whether RegisterBuffers succeeded.
func (r *Ring) Fixed() bool { return r.fixed }

// InFlight returns the number of reads that were queued and that Reap has not reported yet.
func (r *Ring) InFlight() int { return int(r.inFlight) }

// Read queues a read of len(buf) bytes at offset off of fd, and returns false if the ring is full. The memory of buf
// must be outside the Go heap and stay valid until Reap has reported the read's token. The parameter `index` is the
// position of buf in the list that was given to RegisterBuffers, or -1 if buf is not registered.
func (r *Ring) Read(fd int, buf []byte, off int64, index int, token uint64) bool {
	tail := *r.sqTail
	if tail-atomic.LoadUint32(r.sqHead) >= uint32(len(r.sqes)) {
		return false
	}
	e := &r.sqes[tail&r.sqMask]
	*e = sqe{opcode: opRead, fd: int32(fd), off: uint64(off), addr: uint64(uintptr(unsafe.Pointer(&buf[0]))),
		len: uint32(len(buf)), userData: token}
	if r.fixed && index >= 0 {
		e.opcode, e.bufIndex = opReadFixed, uint16(index)
	}
	atomic.StoreUint32(r.sqTail, tail+1)
	r.queued++
	r.inFlight++
	return true
}

// Wait submits the queued reads and blocks until at least n reads have completed. If n is 0, Wait submits the queued
// reads and does not block.
func (r *Ring) Wait(n int) error {
	for {
		var flags uintptr
		if n > 0 {
			flags = enterGetEvents
		}
		sub, _, no := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.queued), uintptr(n), flags, 0, 0)
		if no == unix.EINTR || no == unix.EAGAIN || no == unix.EBUSY {
			if n > 0 && r.ready() >= n {
				return nil
			}
			continue
		}
		if no != 0 {
			return errs.Wrap("io_uring_enter", "", no)
		}
		r.queued -= uint32(sub)
		if r.queued == 0 {
			return nil
		}
	}
}

// Ready returns the number of completed reads that Reap would report now.
func (r *Ring) Ready() int { return r.ready() }

func (r *Ring) ready() int { return int(atomic.LoadUint32(r.cqTail) - *r.cqHead) }

// Reap calls f for each completed read. The function f receives the token that was given to Read, and res, which is
// the number of bytes read or a negative errno.
func (r *Ring) Reap(f func(token uint64, res int32)) {
	head, tail := *r.cqHead, atomic.LoadUint32(r.cqTail)
	for ; head != tail; head++ {
		c := r.cqes[head&r.cqMask]
		atomic.StoreUint32(r.cqHead, head+1)
		r.inFlight--
		f(c.userData, c.res)
	}
}

// Close frees the ring. Reap must have reported all reads before Close, because the kernel could still write into
// their buffers.
func (r *Ring) Close() error {
	if r.ringMem != nil {
		_ = unix.Munmap(r.ringMem)
	}
	if r.sqeMem != nil {
		_ = unix.Munmap(r.sqeMem)
	}
	r.ringMem, r.sqeMem = nil, nil
	return errs.Wrap("close io_uring", "", unix.Close(r.fd))
}
