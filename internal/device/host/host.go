// SPDX-License-Identifier: Apache-2.0

// Package host implements a device over this process's own memory.
//
// The host device is asynchronous like a GPU: copies run later, on a queue. Tests on the host device find errors in
// the order of copies, as tests on a GPU do.
package host

import (
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
)

// Device is a host device that does not implement device.Mapper, as the function Staged returns it. Bytes reach a
// host.Device only through staging and copies, as they reach a GPU.
type Device struct{ info device.Info }

// New returns the host device with device.Mapper, so that files can be read directly into its memory.
func New() *InPlace { return &InPlace{Device{info: info()}} }

// Staged returns a host device that does not implement device.Mapper, so files are not read directly into its memory.
// Every byte for the staged host device goes through staging and an asynchronous copy, so that the code path of a GPU
// runs without a GPU.
func Staged() *Device { return &Device{info: info()} }

// InPlace is the host device with device.Mapper: files can be read directly into its memory.
type InPlace struct{ Device }

// Map returns the n bytes at address p as a slice.
func (*InPlace) Map(p device.Ptr, n int64) []byte { return bytesAt(p, n) }

func info() device.Info {
	var si unix.Sysinfo_t
	total := int64(0)
	if unix.Sysinfo(&si) == nil {
		total = int64(si.Totalram) * int64(si.Unit)
	}
	return device.Info{ID: "host", Kind: device.Host, Model: "host memory (no GPU)", NUMANode: -1, TotalMemory: total,
		Facts: map[string]string{"cpus": strconv.Itoa(runtime.NumCPU())}}
}

// Info returns the description of the host device.
func (d *Device) Info() device.Info { return d.info }

// Alloc maps size bytes of memory, with huge pages if the kernel grants them.
func (d *Device) Alloc(size int64) (device.Buffer, error) {
	r, err := hostmem.Map(size)
	if err != nil {
		return nil, err
	}
	return &buffer{region: r, size: size}, nil
}

// Register does nothing, because the CPU reads all host memory at the same speed.
func (d *Device) Register([]byte) (func() error, error) { return func() error { return nil }, nil }

// Close does nothing, because callers free their buffers.
func (d *Device) Close() error { return nil }

type buffer struct {
	region *hostmem.Region
	size   int64
}

func (b *buffer) Ptr() device.Ptr { return device.Ptr(uintptr(unsafe.Pointer(&b.region.Bytes()[0]))) }
func (b *buffer) Size() int64     { return b.size }
func (b *buffer) Free() error     { return b.region.Unmap() }

// bytesAt returns the n bytes at p as a slice. The memory must be outside the Go heap or pinned, so that its address
// does not change.
func bytesAt(p device.Ptr, n int64) []byte {
	a := uintptr(p)
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&a))), n)
}

// NewQueue starts a goroutine that executes copies in order.
func (d *Device) NewQueue() (device.Queue, error) {
	q := &queue{}
	q.cond.L = &q.mu
	go q.run()
	return q, nil
}

// op is a copy or, if do is set, other work that the queue runs in order.
type op struct {
	dst, src []byte
	do       func()
	seq      uint64
}

// queue is an unbounded list of operations, with the number of the last one that has ended.
type queue struct {
	mu     sync.Mutex
	cond   sync.Cond
	ops    []op
	queued uint64
	done   uint64
	closed bool
}

func (q *queue) run() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.ops) == 0 && !q.closed {
			q.cond.Wait()
		}
		if len(q.ops) == 0 {
			return
		}
		o := q.ops[0]
		q.ops = q.ops[1:]
		q.mu.Unlock()
		if copy(o.dst, o.src); o.do != nil {
			o.do()
		}
		q.mu.Lock()
		q.done = o.seq
		q.cond.Broadcast()
	}
}

// push queues o and returns its number.
func (q *queue) push(o op) (uint64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, errs.New(errs.Closed, "copy", "host", "the queue is closed")
	}
	q.queued++
	o.seq = q.queued
	q.ops = append(q.ops, o)
	q.cond.Broadcast()
	return o.seq, nil
}

// await waits until the operation with the number seq has ended.
func (q *queue) await(seq uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.done < seq {
		q.cond.Wait()
	}
}

// CopyIn queues a copy from src to the device's host memory.
func (q *queue) CopyIn(dst device.Ptr, src []byte) error {
	_, err := q.push(op{dst: bytesAt(dst, int64(len(src))), src: src})
	return err
}

// CopyOut queues a copy from the device's host memory to dst.
func (q *queue) CopyOut(dst []byte, src device.Ptr) error {
	_, err := q.push(op{dst: dst, src: bytesAt(src, int64(len(dst)))})
	return err
}

// After fails for any stream other than 0, because host memory has no CUDA streams.
func (q *queue) After(stream uint64) error {
	if stream != 0 {
		return errs.New(errs.Invalid, "order after stream", fmt.Sprintf("0x%x", stream),
			"host memory has no streams; expected 0")
	}
	return nil
}

// Drain waits until all queued work has ended.
func (q *queue) Drain() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.done != q.queued {
		q.cond.Wait()
	}
	return nil
}

// Close waits until all queued work has ended, then ends the queue's goroutine.
func (q *queue) Close() error {
	q.mu.Lock()
	q.closed = true
	q.cond.Broadcast()
	q.mu.Unlock()
	return q.Drain()
}

// NewMark creates a mark of the queue.
func (q *queue) NewMark() (device.Mark, error) { return &mark{q: q}, nil }

type mark struct {
	q   *queue
	seq uint64
}

func (m *mark) Record() error {
	m.q.mu.Lock()
	defer m.q.mu.Unlock()
	m.seq = m.q.queued
	return nil
}

func (m *mark) Wait() error {
	m.q.await(m.seq)
	return nil
}

func (m *mark) Done() (bool, error) {
	m.q.mu.Lock()
	defer m.q.mu.Unlock()
	return m.q.done >= m.seq, nil
}

func (m *mark) Close() error { return nil }
