// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	// sumStreams is the number of streams that the sums of a queue share. A sum is much shorter than the copy before
	// it, but takes some microseconds to begin and to be reported. With a few streams, copies wait for no sum.
	sumStreams = 4
	// sumThreads is the constant THREADS of crc64.cu.
	sumThreads = 256
	// slabSize is the size of one allocation of host memory for results, in bytes.
	slabSize = 256 << 10
	// mostTiles is the largest number of tiles of a sum.
	mostTiles = slabSize / 8
)

// sums holds the streams and the memory that the sums of one queue share. Kernels write their results, eight bytes
// each, directly to host memory.
type sums struct {
	mu      sync.Mutex
	streams []uintptr
	turn    int
	slabs   []*slab
}

// slab is host memory that kernels write to. Its parts are never reused.
type slab struct {
	mem        []byte
	at         uint64 // its address on the device
	used       int
	registered bool
}

// sum is the event after a kernel, with the kernel's results.
type sum struct {
	q       *queue
	stream  uintptr
	mark    mark
	results []uint64
	at      uint64 // the device address of results
	n       int    // number of tiles of the last Start
}

// NewSum implements device.Summer.
func (q *queue) NewSum(tiles int) (device.Sum, error) {
	const op = "make sums on"
	if tiles < 1 || tiles > mostTiles {
		return nil, errs.New(errs.Invalid, op, q.dev.info.ID, fmt.Sprintf("%d tiles; expected 1 to %d", tiles, mostTiles))
	}
	if err := q.dev.drv.lacks(op, q.dev.info.ID, q.dev.drv.fn.memHostGetDevicePointer); err != nil {
		return nil, err
	}
	if _, err := q.dev.loadCRC64(); err != nil {
		return nil, err
	}
	s := &sum{q: q}
	if err := q.sums.place(s, tiles); err != nil {
		return nil, errs.Wrap(op, q.dev.info.ID, err)
	}
	m, err := q.NewMark()
	if err != nil {
		return nil, errs.Wrap(op, q.dev.info.ID, err)
	}
	s.mark = *m.(*mark)
	return s, nil
}

func (g *Device) loadCRC64() (uintptr, error) {
	return g.load(&g.crc64, crc64PTX, "nebulaio_crc64")
}

// place assigns a stream and memory for results to s.
func (y *sums) place(s *sum, tiles int) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	g := s.q.dev
	if len(y.streams) < sumStreams {
		var stream uintptr
		err := g.drv.withContext(g.ctx, func() error {
			return g.drv.check("cuStreamCreate", g.drv.fn.streamCreate.Call(ptr(&stream), streamNonBlocking))
		})
		if err != nil {
			return err
		}
		y.streams = append(y.streams, stream)
	}
	if n := len(y.slabs); n == 0 || len(y.slabs[n-1].mem)-y.slabs[n-1].used < 8*tiles {
		b, err := g.newSlab()
		if err != nil {
			return err
		}
		y.slabs = append(y.slabs, b)
	}
	b := y.slabs[len(y.slabs)-1]
	s.results = unsafe.Slice((*uint64)(unsafe.Pointer(&b.mem[b.used])), tiles)
	s.at = b.at + uint64(b.used)
	b.used += 8 * tiles
	s.stream = y.streams[y.turn%len(y.streams)]
	y.turn++
	return nil
}

// newSlab allocates and pins a slab, and gets its device address.
func (g *Device) newSlab() (*slab, error) {
	mem, err := unix.Mmap(-1, 0, slabSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		return nil, errs.Wrap("map memory for results", "", err)
	}
	b, d := &slab{mem: mem}, g.drv
	err = d.withContext(g.ctx, func() error {
		err := d.check("cuMemHostRegister", d.fn.memHostRegister.Call(ptr(&mem[0]), len(mem),
			registerPortable|registerMapped))
		if err != nil {
			return err
		}
		b.registered = true
		return d.check("cuMemHostGetDevicePointer", d.fn.memHostGetDevicePointer.Call(ptr(&b.at), ptr(&mem[0]), 0))
	})
	if err != nil {
		return nil, errors.Join(err, b.free(g))
	}
	return b, nil
}

func (b *slab) free(g *Device) error {
	var err error
	if b.registered {
		err = g.drv.withContext(g.ctx, func() error {
			return g.drv.check("cuMemHostUnregister", g.drv.fn.memHostUnregister.Call(ptr(&b.mem[0])))
		})
	}
	return errors.Join(err, unix.Munmap(b.mem))
}

// close frees the streams and slabs. No sum may be queued any more.
func (y *sums) close(g *Device) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	var all []error
	for _, s := range y.streams {
		all = append(all, g.endStream(s))
	}
	for _, b := range y.slabs {
		all = append(all, b.free(g))
	}
	y.streams, y.slabs = nil, nil
	return errors.Join(all...)
}

// Start implements device.Sum. Start queues three steps on a stream: a wait for the mark m, a checksum kernel with
// one thread block for each tile of memory, and an event.
func (s *sum) Start(m device.Mark, p device.Ptr, n, first, size int64) error {
	const op = "sum on"
	g, behind := s.q.dev, (*mark)(nil)
	if behind, _ = m.(*mark); behind == nil || behind.q.dev != g {
		return errs.New(errs.Invalid, op, g.info.ID, "the mark is of another device")
	}
	if n < 1 || first < 1 || first > size || size > device.SumTile || p == 0 {
		return errs.New(errs.Invalid, op, g.info.ID,
			fmt.Sprintf("%d bytes at 0x%x in tiles of %d and %d; expected some bytes, and tiles of at most %d, the first not "+
				"the largest", n, uint64(p), first, size, device.SumTile))
	}
	tiles := int64(1)
	if n > first {
		tiles += (n - first + size - 1) / size
	}
	if tiles > int64(len(s.results)) {
		return errs.New(errs.Invalid, op, g.info.ID, fmt.Sprintf("%d tiles; there is room for %d", tiles, len(s.results)))
	}
	fn, err := g.loadCRC64()
	if err != nil {
		return err
	}
	d, args := g.drv, [5]uint64{uint64(p), uint64(n), uint64(first), uint64(size), s.at}
	params := [5]unsafe.Pointer{ptr(&args[0]), ptr(&args[1]), ptr(&args[2]), ptr(&args[3]),
		ptr(&args[4])} // the driver copies what they point to before it returns
	s.n = int(tiles)
	err = d.withContext(g.ctx, func() error {
		if behind.recorded {
			if err := d.check("cuStreamWaitEvent", d.fn.streamWaitEvent.Call(s.stream, behind.event, 0)); err != nil {
				return err
			}
		}
		if err := d.check("cuLaunchKernel", d.fn.launchKernel.Call(fn, uintptr(tiles), 1, 1, sumThreads, 1, 1, 0, s.stream,
			ptr(&params), 0)); err != nil {
			return err
		}
		s.mark.recorded = true
		err := d.check("cuEventRecord", d.fn.eventRecord.Call(s.mark.event, s.stream))
		if err != nil {
			// The kernel runs, but its own event cannot be waited for.
			err = errors.Join(err, d.check("cuStreamSynchronize", d.fn.streamSynchronize.Call(s.stream)))
		}
		return err
	})
	return errs.Wrap(op, g.info.ID, err)
}

func (s *sum) Done() (bool, error) { return s.mark.Done() }

// Wait polls the CUDA event of the checksum computation more often than Mark.Wait does, because a checksum kernel is
// short.
func (s *sum) Wait() error {
	ts := unix.NsecToTimespec(int64(pollEvery / 2 / time.Nanosecond))
	for {
		done, err := s.mark.Done()
		if err != nil {
			// The event does not show whether the kernel has ended.
			d := s.q.dev.drv
			return errs.Wrap("sum on", s.q.dev.info.ID, errors.Join(err, d.withContext(s.q.dev.ctx, func() error {
				return d.check("cuStreamSynchronize", d.fn.streamSynchronize.Call(s.stream))
			})))
		}
		if done {
			return nil
		}
		_ = unix.Nanosleep(&ts, nil) // woken early is as good
	}
}

func (s *sum) Tiles() []uint64 { return s.results[:s.n] }

// Close destroys the CUDA event of the Sum. The memory of the computed checksums is freed when the queue is closed.
func (s *sum) Close() error { return s.mark.Close() }
