// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/bench/dataset"
	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/data/order"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/uring"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// lanes moves blocks one by one. Each worker owns a contiguous share of the blocks. Each lane of a worker has one
// request in flight and its own OS thread, so exactly workers times queue depth requests are in flight.
type lanes struct {
	Job
	route   Route
	space   *space
	order   order.Permutation
	endless bool
	meter   *meter

	workers []*worker
	all     []*lane
	mem     *hostmem.Region
	dev     device.Buffer
	unpin   func() error
	targets [][]*dataset.Target // of a write, as the set's groups and files
	cu      cufile              // of Memory CuFile
	procs   int                 // GOMAXPROCS before
	notes   []string
}

// worker is a share of the blocks and the lanes that process it.
type worker struct {
	lo, n  int64
	cursor atomic.Int64
	left   atomic.Int32 // lanes that have not done their last block
	queue  device.Queue
}

// next returns the number of the next visit, or false if the share is done.
func (w *worker) next(l *lanes) (int64, bool) {
	if l.meter.stopped.Load() || w.n == 0 {
		return 0, false
	}
	i := w.cursor.Add(1) - 1
	if i >= w.n {
		if !l.endless {
			return 0, false
		}
		i %= w.n
	}
	return w.lo + i, true
}

// lane is one request in flight, or with io_uring the slots of one ring.
type lane struct {
	l      *lanes
	w      *worker
	slots  []slot
	tally  *tally
	marks  []device.Mark
	reader readerOf
	ring   *uring.Ring
	err    error

	expect, back []byte // scratch of verification
}

// slot is a host buffer and its address on the device.
type slot struct {
	mem []byte
	dev device.Ptr
}

func newLanes(ctx context.Context, j Job, route Route) (_ *lanes, err error) {
	s := j.Spec
	if s.Memory != Host && j.Device == nil {
		return nil, errs.New(errs.Invalid, "benchmark", string(s.Memory), "needs a device")
	}
	l := &lanes{Job: j, route: route, space: newSpace(j.Set, s.BlockSize)}
	if s.Pattern == Random {
		l.order = order.NewPermutation(l.space.total, s.Seed+1)
	}
	l.endless = s.Passes == 0 && (route == Direct || s.Cache != Cold || s.Op == Write)
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if s.Op == Write {
		if err := l.openTargets(); err != nil {
			return nil, err
		}
	}
	if err := l.takeMemory(); err != nil {
		return nil, err
	}
	if err := l.deal(); err != nil {
		return nil, err
	}
	if s.Memory == CuFile {
		if err := l.openCuFile(ctx); err != nil {
			return nil, err
		}
	}
	if s.Op == Read && route == Buffered {
		for _, f := range j.Set.Files() {
			f.ExpectRandom(s.Pattern == Random)
		}
	}
	return l, nil
}

func (l *lanes) openTargets() error {
	l.targets = make([][]*dataset.Target, len(l.Set.Groups))
	for i, g := range l.Set.Groups {
		for _, f := range g.Files {
			t, err := dataset.OpenTarget(f.Path())
			if err != nil {
				return err
			}
			l.targets[i] = append(l.targets[i], t)
		}
	}
	return nil
}

// slotSize is a block rounded up to whole pages.
func (l *lanes) slotSize() int64 { return (l.Spec.BlockSize + 4095) &^ 4095 }

func (l *lanes) inFlight() int { return l.Spec.Workers * l.Spec.QueueDepth }

// takeMemory maps, touches and, if the run needs it, pins the buffers. The time for this is not measured.
func (l *lanes) takeMemory() (err error) {
	n := int64(l.inFlight()) * l.slotSize()
	if l.mem, err = hostmem.Map(n); err != nil {
		return err
	}
	if l.Spec.SmallPages {
		hostmem.AdviseSmall(l.mem.Bytes())
	}
	hostmem.Touch(l.mem.Bytes(), runtime.NumCPU())
	if l.Spec.Op == Write {
		// Content that neither compresses nor repeats within a slot.
		l.Set.Content(0, 0, 0, l.mem.Bytes()[:n])
	}
	if l.Spec.Memory == Host {
		return nil
	}
	if l.Spec.Memory == Pinned {
		if l.unpin, err = l.Device.Register(l.mem.Bytes()); err != nil {
			return err
		}
	}
	if l.Device.Info().Kind == device.Host {
		l.notes = append(l.notes, "the device is host memory: nothing is pinned and nothing crosses a bus")
	}
	if l.dev, err = l.Device.Alloc(n); err != nil {
		return err
	}
	if l.Spec.Op == Write {
		q, err := l.Device.NewQueue()
		if err != nil {
			return err
		}
		return errors.Join(q.CopyIn(l.dev.Ptr(), l.mem.Bytes()[:n]), q.Close())
	}
	return nil
}

// deal gives each worker its share of the blocks and its lanes.
func (l *lanes) deal() error {
	s := l.Spec
	per := l.space.total / int64(s.Workers)
	extra := l.space.total % int64(s.Workers)
	at := int64(0)
	for k := range s.Workers {
		w := &worker{lo: at, n: per}
		if int64(k) < extra {
			w.n++
		}
		at += w.n
		l.workers = append(l.workers, w)
		if s.Memory != Host {
			q, err := l.Device.NewQueue()
			if err != nil {
				return err
			}
			w.queue = q
		}
		count, each := s.QueueDepth, 1
		if s.IO == Uring {
			count, each = 1, s.QueueDepth
		}
		for range count {
			ln, err := l.newLane(w, each)
			if err != nil {
				return err
			}
			l.all = append(l.all, ln)
		}
	}
	return nil
}

func (l *lanes) newLane(w *worker, slots int) (*lane, error) {
	ln := &lane{l: l, w: w, tally: newTally()}
	first := 0
	for _, o := range l.all {
		first += len(o.slots)
	}
	for i := range slots {
		off := int64(first+i) * l.slotSize()
		sl := slot{mem: l.mem.Bytes()[off : off+l.slotSize()]}
		if l.dev != nil {
			sl.dev = l.dev.Ptr() + device.Ptr(off)
			mark, err := w.queue.NewMark()
			if err != nil {
				return nil, err
			}
			ln.marks = append(ln.marks, mark)
		}
		ln.slots = append(ln.slots, sl)
	}
	if l.Spec.Verify {
		ln.expect, ln.back = make([]byte, l.slotSize()), make([]byte, l.slotSize())
	}
	return ln, nil
}

// pass sends every lane over its worker's share once.
func (l *lanes) pass(ctx context.Context, m *meter) error {
	l.meter = m
	// A lane sits in the kernel most of the time; without a place of its own
	// it would wait for one when it comes back.
	if l.procs == 0 {
		l.procs = runtime.GOMAXPROCS(0)
		runtime.GOMAXPROCS(max(l.procs, len(l.all)+2))
	}
	for _, w := range l.workers {
		w.cursor.Store(0)
		w.left.Store(int32(len(l.all) / len(l.workers)))
	}
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	for _, ln := range l.all {
		ready.Add(1)
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ln.err = ln.open()
			ready.Done()
			<-begin
			if ln.err == nil {
				ln.err = ln.run()
			}
			if ln.err != nil {
				m.stopped.Store(true)
			}
			ln.shut()
			// A worker without a block has done nothing: it is not the first.
			if ln.w.left.Add(-1) == 0 && ln.w.n > 0 {
				m.workerDone()
			}
		})
	}
	ready.Wait()
	m.start() // threads are there: now it counts
	close(begin)
	done.Wait()
	for _, ln := range l.all {
		if ln.err != nil {
			return ln.err
		}
	}
	return l.sync()
}

// sync makes written data durable. Its time counts as part of the run.
func (l *lanes) sync() error {
	if l.Spec.Op != Write || l.Spec.NoSync {
		return nil
	}
	for _, g := range l.targets {
		for _, t := range g {
			if err := t.Sync(); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish merges the counts of the lanes and reads back what was written.
func (l *lanes) finish(r *record.Run) error {
	if l.Spec.Verify && l.Spec.Op == Write && !r.Interrupted && r.Settings.Limit == "bytes" {
		if err := l.readBack(); err != nil {
			return err
		}
	}
	if l.Spec.Memory == CuFile {
		if err := l.cu.report(r); err != nil {
			return err
		}
	}
	m := l.meter
	switch {
	case l.Spec.Verify && m.verified == 0:
		// Nothing compared is not the same as no difference.
		r.Notes = append(r.Notes, "contents were not compared: what is written is read back only after whole passes (give "+
			"--passes, not --time)")
	case l.Spec.Verify:
		r.Verify = &record.Verify{Bytes: m.verified, Mismatches: m.mismatches, First: m.firstBad, Where: l.where()}
		r.Notes = append(r.Notes, "contents were compared during the run: the rate includes that work")
		if l.Spec.Op == Read && !l.Set.Known && l.route == Buffered {
			r.Notes = append(r.Notes, "the expected content is unknown: it was compared with the page cache, through which "+
				"it was read")
		}
	}
	r.Notes = append(r.Notes, l.notes...)
	return nil
}

func (l *lanes) where() string {
	switch {
	case l.Spec.Op == Write:
		return "storage, read back"
	case l.Spec.Memory == Host:
		return "host memory"
	}
	return "device memory, copied back"
}

func (l *lanes) close() error {
	all := []error{l.cu.close()}
	for _, ln := range l.all {
		for _, mk := range ln.marks {
			all = append(all, mk.Close())
		}
		ln.reader.close()
	}
	for _, w := range l.workers {
		if w.queue != nil {
			all = append(all, w.queue.Close())
		}
	}
	if l.dev != nil {
		all = append(all, l.dev.Free())
	}
	if l.unpin != nil {
		all = append(all, l.unpin())
	}
	if l.mem != nil {
		all = append(all, l.mem.Unmap())
	}
	for _, g := range l.targets {
		for _, t := range g {
			all = append(all, t.Close())
		}
	}
	if l.procs > 0 {
		runtime.GOMAXPROCS(l.procs)
	}
	return errors.Join(all...)
}

// readerOf is the lane's own open description of a file that the lane reads through the page cache. The kernel keeps
// the state of readahead per open description.
type readerOf struct {
	file *vfs.File
	r    *vfs.Reader
}

func (o *readerOf) of(f *vfs.File) (*vfs.Reader, error) {
	if o.file == f {
		return o.r, nil
	}
	o.close()
	r, err := f.NewReader(false)
	if err != nil {
		return nil, err
	}
	o.file, o.r = f, r
	return r, nil
}

func (o *readerOf) close() {
	o.r.Close()
	o.file, o.r = nil, nil
}

// block is the i-th visit's block.
func (l *lanes) block(i int64) block {
	if l.Spec.Pattern == Random {
		i = l.order.At(i)
	}
	return l.space.block(i)
}

func (l *lanes) file(b block) *vfs.File { return l.Set.Groups[b.group].Files[b.file] }

func (b block) String() string { return fmt.Sprintf("%d bytes at offset %d", b.len, b.off) }
