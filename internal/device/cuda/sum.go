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
	one := [1]device.SumStart{{Sum: s, Ptr: p, N: n, First: first, Size: size}}
	return s.q.startSums(s.stream, m, one[:], &s.mark)
}

// StartAll implements device.SumBatcher. The kernels go to one stream, between one wait and one event.
func (q *queue) StartAll(after device.Mark, all []device.SumStart, end device.Mark) error {
	last, _ := end.(*mark)
	if last == nil || last.q.dev != q.dev || len(all) == 0 {
		return errs.New(errs.Invalid, "sum on", q.dev.info.ID,
			fmt.Sprintf("%d sums with the end %T; expected one or more, and a mark of this device", len(all), end))
	}
	return q.startSums(q.sums.next(), after, all, last)
}

// next returns the stream for the next sums. The queue has made a sum, so there is a stream.
func (y *sums) next() uintptr {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.turn++
	return y.streams[y.turn%len(y.streams)]
}

// startSums queues the kernels of all sums on a stream, behind the mark m and before the mark last.
func (q *queue) startSums(stream uintptr, m device.Mark, all []device.SumStart, last *mark) error {
	const op = "sum on"
	g, behind := q.dev, (*mark)(nil)
	if behind, _ = m.(*mark); behind == nil || behind.q.dev != g {
		return errs.New(errs.Invalid, op, g.info.ID, "the mark is of another device")
	}
	fn, err := g.loadCRC64()
	if err != nil {
		return err
	}
	for i := range all {
		if err := q.checkSum(&all[i]); err != nil {
			return errs.Wrap(op, g.info.ID, err)
		}
	}
	d := g.drv
	err = d.withContext(g.ctx, func() error {
		if behind.recorded {
			if err := d.check("cuStreamWaitEvent", d.fn.streamWaitEvent.Call(stream, behind.event, 0)); err != nil {
				return err
			}
		}
		var err error
		for i := range all {
			if err = g.launchSum(fn, stream, &all[i]); err != nil {
				break
			}
		}
		if err == nil {
			last.recorded, last.sums = true, stream
			err = d.check("cuEventRecord", d.fn.eventRecord.Call(last.event, stream))
		}
		if err != nil {
			// Kernels may run, but no event tells their end.
			err = errors.Join(err, d.check("cuStreamSynchronize", d.fn.streamSynchronize.Call(stream)))
		}
		return err
	})
	return errs.Wrap(op, g.info.ID, err)
}

// checkSum checks the arguments of a sum.
func (q *queue) checkSum(x *device.SumStart) error {
	s, _ := x.Sum.(*sum)
	if s == nil || s.q.dev != q.dev {
		return errs.New(errs.Invalid, "", "", "the sum is of another device")
	}
	if x.N < 1 || x.First < 1 || x.First > x.Size || x.Size > device.SumTile || x.Ptr == 0 {
		return errs.New(errs.Invalid, "", "",
			fmt.Sprintf("%d bytes at 0x%x in tiles of %d and %d; expected some bytes, and tiles of at most %d, the first not "+
				"the largest", x.N, uint64(x.Ptr), x.First, x.Size, device.SumTile))
	}
	if n := tilesOf(x); n > int64(len(s.results)) {
		return errs.New(errs.Invalid, "", "", fmt.Sprintf("%d tiles; there is room for %d", n, len(s.results)))
	}
	return nil
}

// tilesOf returns the number of tiles into which a sum divides its bytes.
func tilesOf(x *device.SumStart) int64 {
	if x.N <= x.First {
		return 1
	}
	return 1 + (x.N-x.First+x.Size-1)/x.Size
}

// launchSum queues the kernel of one sum.
func (g *Device) launchSum(fn, stream uintptr, x *device.SumStart) error {
	s := x.Sum.(*sum)
	args := [5]uint64{uint64(x.Ptr), uint64(x.N), uint64(x.First), uint64(x.Size), s.at}
	params := [5]unsafe.Pointer{ptr(&args[0]), ptr(&args[1]), ptr(&args[2]), ptr(&args[3]),
		ptr(&args[4])} // the driver copies what they point to before it returns
	s.n = int(tilesOf(x))
	return g.drv.check("cuLaunchKernel", g.drv.fn.launchKernel.Call(fn, uintptr(s.n), 1, 1, sumThreads, 1, 1, 0, stream,
		ptr(&params), 0))
}

func (s *sum) Done() (bool, error) { return s.mark.Done() }

// Wait polls the CUDA event of the checksum computation more often than Mark.Wait does, because a checksum kernel is
// short.
func (s *sum) Wait() error {
	ts := unix.NsecToTimespec(int64(pollEvery / 2 / time.Nanosecond))
	for {
		done, err := s.mark.Done()
		if err != nil {
			if ended := s.mark.Wait(); ended != nil {
				err = ended
			}
			return errs.Wrap("sum on", s.q.dev.info.ID, err)
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
