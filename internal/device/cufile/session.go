// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"errors"
	"fmt"
	"sync"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Session is one user of the cuFile driver for one device. A Session implements device.Direct.
type Session struct {
	lib    *Library
	ctx    Contexts
	info   device.Info
	shared bool       // another part of the process had the driver open before us
	own    *ownCounts // counts in place of the library; nil if the library counts

	mu       sync.Mutex // guards the fields below
	closed   bool
	files    map[*File]struct{}
	buffers  map[device.Ptr]struct{}
	batches  map[*Batch]struct{}
	counting bool
	base     device.DirectCounters
}

// Open opens the cuFile driver for one device. All calls of the Session run through ctx, which makes the device's
// CUDA context current.
func (l *Library) Open(ctx Contexts, info device.Info) (*Session, error) {
	s := &Session{lib: l, ctx: ctx, info: info, files: map[*File]struct{}{}, buffers: map[device.Ptr]struct{}{},
		batches: map[*Batch]struct{}{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	n, _ := l.UseCount()
	if l.held {
		n-- // our own held user
	}
	s.shared = n > l.sessions
	if !l.held {
		if err := ctx.WithContext(l.DriverOpen); err != nil {
			return nil, errs.Wrap("open cuFile for", info.ID, err)
		}
	}
	l.held = false
	l.sessions++
	if l.compatOnly() {
		s.own = newOwnCounts()
	}
	return s, nil
}

func (s *Session) gone(op string) error {
	return errs.New(errs.Closed, op, s.info.ID, "cuFile was closed for it")
}

// Version returns the release of libcufile, such as "1.15".
func (s *Session) Version() string { return s.lib.Version() }

// Facts returns the current properties and parameters of the cuFile driver by name.
func (s *Session) Facts() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return map[string]string{"version": s.lib.Version(), "library": s.lib.Name()}
	}
	f := s.lib.facts()
	f["shared"] = fmt.Sprint(s.shared)
	return f
}

// OpenFile implements device.Direct.
func (s *Session) OpenFile(fd int) (device.DirectFile, error) {
	const op = "open for cuFile descriptor"
	if fd < 0 {
		return nil, errs.New(errs.Invalid, op, fmt.Sprint(fd), "is not an open file; expected 0 or more")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.gone(op)
	}
	f := &File{s: s, fd: fd}
	err := s.ctx.WithContext(func() (err error) {
		f.handle, err = s.lib.registerFile(fd)
		return err
	})
	if err != nil {
		return nil, errs.Wrap(op, fmt.Sprint(fd), err)
	}
	s.files[f] = struct{}{}
	return f, nil
}

// Register implements device.Direct.
func (s *Session) Register(b device.Buffer) (func() error, error) {
	base, size := b.Ptr(), b.Size()
	op := fmt.Sprintf("register %d bytes with cuFile on", size)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.gone(op)
	}
	if base == 0 || size <= 0 {
		return nil, errs.New(errs.Invalid, op, s.info.ID, "the buffer is freed or empty; expected one that is allocated")
	}
	if err := s.ctx.WithContext(func() error { return s.lib.registerBuffer(base, size) }); err != nil {
		return nil, errs.Wrap(op, s.info.ID, err)
	}
	s.buffers[base] = struct{}{}
	return sync.OnceValue(func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.unregister(base)
	}), nil
}

// unregister removes the registration of a buffer, unless it is already removed. The caller holds mu.
func (s *Session) unregister(base device.Ptr) error {
	if _, ok := s.buffers[base]; !ok {
		return nil // Close did it
	}
	delete(s.buffers, base)
	err := s.ctx.WithContext(func() error { return s.lib.forgetBuffer(base) })
	return errs.Wrap("unregister a buffer with cuFile on", s.info.ID, err)
}

// StartCounting implements device.Direct. StartCounting does not reset the counters of libcufile, because other parts
// of the process may need them. Counters returns the counts of libcufile minus the values that StartCounting has
// read. If only cuFile's compatibility mode is possible, the Session counts operations itself and does not start
// libcufile's statistics.
func (s *Session) StartCounting() error {
	const op = "count cuFile's routes on"
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.gone(op)
	}
	if s.own != nil {
		s.counting, s.base = true, s.own.counters()
		return nil
	}
	if err := s.lib.CanCount(); err != nil {
		return errs.Wrap(op, s.info.ID, err)
	}
	if !s.counting {
		if err := s.lib.startCounting(s.shared); err != nil {
			return errs.Wrap(op, s.info.ID, err)
		}
		s.counting = true
	}
	now, err := s.lib.StatsL3()
	if err != nil {
		s.counting = false
		return errs.Wrap(op, s.info.ID, errors.Join(err, s.lib.stopCounting()))
	}
	s.base = now.of(s.info.UUID)
	return nil
}

// Counters implements device.Direct.
func (s *Session) Counters() (device.DirectCounters, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return device.DirectCounters{}, s.gone("read cuFile's counters of")
	}
	if !s.counting {
		return device.DirectCounters{}, nil
	}
	if s.own != nil {
		return s.own.counters().Minus(s.base), nil
	}
	now, err := s.lib.StatsL3()
	if err != nil {
		return device.DirectCounters{}, errs.Wrap("read cuFile's counters of", s.info.ID, err)
	}
	return now.of(s.info.UUID).Minus(s.base), nil
}

// Close implements device.Direct.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var all []error
	for b := range s.batches {
		all = append(all, b.destroy())
	}
	for f := range s.files {
		all = append(all, f.forget())
	}
	for base := range s.buffers {
		all = append(all, s.unregister(base))
	}
	if s.counting && s.own == nil {
		all = append(all, s.lib.stopCounting())
	}
	s.lib.mu.Lock()
	defer s.lib.mu.Unlock()
	s.lib.sessions--
	if s.lib.batched && s.lib.sessions == 0 {
		// With libcufile 1.15, two of three processes crashed when they closed the driver after batches. Processes
		// that leave the driver open end cleanly.
		s.lib.held = true
	} else {
		all = append(all, s.ctx.WithContext(s.lib.DriverClose))
	}
	return errs.Wrap("close cuFile for", s.info.ID, errors.Join(all...))
}

// File is an open file that is registered with libcufile. A File implements device.DirectFile.
type File struct {
	s      *Session
	fd     int
	handle Handle
	queued queuedOps // stream operations, if the session counts by itself

	use    sync.RWMutex // reads and writes hold the read lock
	closed bool
}

// Read implements device.DirectFile.
func (f *File) Read(base device.Ptr, bufOff, n, fileOff int64) (int64, error) {
	return f.move("read through cuFile descriptor", false, f.s.lib.readAt, base, bufOff, n, fileOff)
}

// Write implements device.DirectFile.
func (f *File) Write(base device.Ptr, bufOff, n, fileOff int64) (int64, error) {
	const op = "write through cuFile descriptor"
	done, err := f.move(op, true, f.s.lib.writeAt, base, bufOff, n, fileOff)
	if err == nil && done != n {
		err = errs.New(errs.IO, op, fmt.Sprint(f.fd), fmt.Sprintf("%d of %d bytes at offset %d were written", done, n,
			fileOff)).
			WithFix("check the free space of the file system")
	}
	return done, err
}

func (f *File) move(op string, write bool, call func(Handle, device.Ptr, int64, int64, int64) (int64, error),
	base device.Ptr,
	bufOff, n, fileOff int64) (int64, error) {
	name := fmt.Sprint(f.fd)
	if base == 0 || bufOff < 0 || n < 0 || fileOff < 0 || bufOff > 1<<62 || fileOff > 1<<62-n {
		return 0, errs.New(errs.Invalid, op, name,
			fmt.Sprintf("%d bytes at offset %d of the file, offset %d behind 0x%x; expected an address and offsets of 0 or more",
				n, fileOff, bufOff, uint64(base)))
	}
	f.use.RLock()
	defer f.use.RUnlock()
	if f.closed {
		return 0, errs.New(errs.Closed, op, name, "it was closed for cuFile")
	}
	if n == 0 {
		return 0, nil
	}
	var done int64
	err := f.s.ctx.WithContext(func() (err error) {
		done, err = call(f.handle, base, bufOff, n, fileOff)
		if err == nil && done > n {
			done, err = 0, errs.New(errs.Device, "cuFile", "", fmt.Sprintf("the library says %d bytes for %d asked", done, n))
		}
		f.s.own.moved(write, done, err)
		return err
	})
	if err != nil {
		return done, &errs.Error{Kind: errs.KindOf(err), Op: op, Name: name,
			Msg: fmt.Sprintf("%d bytes at offset %d", n, fileOff), Err: err}
	}
	return done, nil
}

// Close implements device.DirectFile.
func (f *File) Close() error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return f.forget()
}

// forget waits for running reads and writes, then removes the registration once. The caller holds the session's lock.
func (f *File) forget() error {
	f.use.Lock()
	defer f.use.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	f.queued.drop()
	delete(f.s.files, f)
	return f.s.ctx.WithContext(func() error { f.s.lib.forgetFile(f.handle); return nil })
}
