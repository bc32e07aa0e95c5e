// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Inline is the largest size, in bytes, of content that a handle returns inline.
const Inline = 16 << 10

var _ object.Handles = (*Store)(nil)

// NewIn returns an empty store that writes files for its handles into dir. Each handle has a file of its own; the
// objects stay in memory.
func NewIn(dir string) *Store {
	s := New()
	s.dir = dir
	return s
}

func (s *Store) noFiles(op, name string) error {
	return errs.New(errs.Unsupported, op, name, "the store has no directory for files")
}

// sumsOf are the sums of the blocks of data.
func sumsOf(data []byte) []uint64 {
	var sums []uint64
	for len(data) > 0 {
		n := min(len(data), object.SumBlock)
		sums = append(sums, checksum.Of(data[:n]))
		data = data[n:]
	}
	return sums
}

// Handle implements object.Handles.
func (s *Store) Handle(ctx context.Context, ref object.Ref) (object.Handle, error) {
	const op = "open"
	if err := s.enter(ctx, op, ref.Bucket); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	b, v, err := s.content(op, ref)
	if err != nil {
		return nil, err
	}
	h := &handle{s: s, info: b.describe(v), data: v.data, sums: v.sums}
	if h.sums == nil {
		h.sums = sumsOf(v.data)
	}
	if len(v.data) > Inline && s.dir != "" {
		return h, h.spill(op)
	}
	return h, nil
}

// handle is the content of one version, handed out.
type handle struct {
	s    *Store
	info object.Info
	data []byte
	sums []uint64

	mu     sync.Mutex
	path   string
	closed bool
}

// Info implements object.Handle.
func (h *handle) Info() object.Info { return h.info.Clone() }

// Inline implements object.Handle.
func (h *handle) Inline() ([]byte, bool) {
	if len(h.data) > Inline {
		return nil, false
	}
	return h.data, true
}

// Sums implements object.Handle.
func (h *handle) Sums(first, n int64) ([]uint64, error) {
	all := int64(len(h.sums))
	if first < 0 || n < 0 || first > all {
		return nil, errs.New(errs.Invalid, "sums", h.info.Key,
			fmt.Sprintf("%d from block %d on, there are %d blocks", n, first, all))
	}
	return h.sums[first : first+min(n, all-first)], nil
}

// Open implements object.Handle.
func (h *handle) Open(direct bool) (*os.File, error) {
	const op = "hand out"
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return nil, errs.New(errs.Closed, op, h.info.Key, "the handle is closed")
	case h.s.dir == "":
		return nil, h.s.noFiles(op, h.info.Key)
	}
	if h.path == "" {
		if err := h.spill(op); err != nil {
			return nil, err
		}
	}
	return describe(op, h.path, unix.O_RDONLY, direct)
}

// spill makes the file.
func (h *handle) spill(op string) error {
	f, err := os.CreateTemp(h.s.dir, "handle-*")
	if err != nil {
		return errs.Wrap(op, h.info.Key, err)
	}
	h.path = f.Name()
	_, err = f.Write(h.data)
	return errs.Wrap(op, h.path, errors.Join(err, f.Close()))
}

// describe opens a fresh description of a file.
func describe(op, path string, flags int, direct bool) (*os.File, error) {
	if direct {
		flags |= unix.O_DIRECT
	}
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if direct && errors.Is(err, unix.EINVAL) {
		return nil, errs.New(errs.Unsupported, op, path, "the file system has no way past its page cache (O_DIRECT)")
	}
	if err != nil {
		return nil, errs.Wrap(op, path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Path implements object.Handle.
func (h *handle) Path() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.path
}

// Close implements object.Handle.
func (h *handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.path == "" {
		h.closed = true
		return nil
	}
	h.closed = true
	return errs.Wrap("close", h.path, os.Remove(h.path))
}

// NewDraft implements object.Handles.
func (s *Store) NewDraft(ctx context.Context, d object.Draft) (object.Drafting, error) {
	const op = "create draft"
	if err := object.CheckNew(op, d.Key, d.Attributes); err != nil {
		return nil, err
	}
	if err := d.Check(op); err != nil {
		return nil, err
	}
	if err := s.enter(ctx, op, d.Bucket); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	b, err := s.find(op, d.Bucket)
	if err != nil {
		return nil, err
	}
	if s.dir == "" {
		return nil, s.noFiles(op, d.Key)
	}
	f, err := os.CreateTemp(s.dir, "draft-*")
	if err != nil {
		return nil, errs.Wrap(op, d.Key, err)
	}
	first, copied := f.Truncate, int64(0)
	if d.Grows {
		first = func(int64) error { return nil }
	}
	if from, ok := d.From.(*handle); ok {
		copied = int64(len(from.data))
		first = func(int64) error { _, err := f.Write(from.data); return err }
	}
	if err = errors.Join(first(d.Size), f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return nil, errs.Wrap(op, f.Name(), err)
	}
	d.Attributes = maps.Clone(d.Attributes)
	return &draft{s: s, b: b, d: d, copied: copied, path: f.Name()}, nil
}

// draft is an object that a client writes.
type draft struct {
	s    *Store
	b    *bucket
	d    object.Draft
	path string
	// copied is the number of bytes of the source.
	copied int64
	ended  bool
}

// Open implements object.Drafting.
func (w *draft) Open(direct bool) (*os.File, error) {
	const op = "open draft"
	if w.ended {
		return nil, errs.New(errs.Closed, op, w.d.Key, "the draft has ended")
	}
	flags := unix.O_WRONLY
	if w.d.Grows {
		flags = unix.O_RDWR
	}
	return describe(op, w.path, flags, direct)
}

// Copied implements object.Drafting.
func (w *draft) Copied() int64 { return w.copied }

// Grow implements object.Drafting.
func (w *draft) Grow(ctx context.Context, size int64) error {
	if w.ended {
		return errs.New(errs.Closed, "grow draft", w.d.Key, "the draft has ended")
	}
	w.d.Size = max(w.d.Size, size)
	return context.Cause(ctx)
}

// Reserved implements object.Drafting.
func (w *draft) Reserved() int64 {
	var st unix.Stat_t
	if w.ended || unix.Stat(w.path, &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

// Remains implements object.Drafting. Remains always returns false, because the model forgets the file of an ended
// draft.
func (w *draft) Remains() bool { return false }

// Path implements object.Drafting.
func (w *draft) Path() string { return w.path }

// Abort implements object.Drafting.
func (w *draft) Abort() error {
	if w.ended {
		return nil
	}
	w.ended = true
	return errs.Wrap("abort draft", w.path, os.Remove(w.path))
}

// Commit implements object.Drafting. Commit stores the bytes without comparing them with the client's checksums.
func (w *draft) Commit(ctx context.Context, c object.Sealed) (object.Info, error) {
	const op = "commit draft"
	if w.ended {
		return object.Info{}, errs.New(errs.Closed, op, w.d.Key, "the draft has ended")
	}
	if err := w.believable(op, c); err != nil {
		return object.Info{}, err
	}
	data, err := w.read(op, c.Size)
	if errors.Is(err, object.ErrWriterLeft) || errors.Is(err, object.ErrInvalidSums) {
		return object.Info{}, err
	}
	defer w.Abort()
	if err != nil {
		return object.Info{}, err
	}
	s, d := w.s, &w.d
	if err := s.enter(ctx, op, d.Bucket); err != nil {
		return object.Info{}, err
	}
	defer s.mu.Unlock()
	b, err := s.still(op, d.Bucket, w.b)
	if err != nil {
		return object.Info{}, err
	}
	if err := holds(op, d.Key, d.Condition, b.current(d.Key)); err != nil {
		return object.Info{}, err
	}
	return s.judged(op, b, d.Judge, &version{data: data, sums: append([]uint64{}, c.Sums...), info: object.Info{
		Bucket: d.Bucket, Key: d.Key, Size: c.Size, ETag: object.CRC64ETag(c.CRC64, c.Size, 1), CRC64: c.CRC64,
		Attributes: object.MergeAttributes(d.Attributes, nil),
	}})
}

func (w *draft) believable(op string, c object.Sealed) error {
	if c.Size < 0 || c.Size > w.d.Size {
		return object.Fail(op, w.d.Key, object.ErrTooLarge,
			fmt.Sprintf("%d bytes, the draft was made for at most %d", c.Size, w.d.Size))
	}
	if n := (c.Size + object.SumBlock - 1) / object.SumBlock; int64(len(c.Sums)) != n {
		return object.Fail(op, w.d.Key, object.ErrInvalidSums,
			fmt.Sprintf("%d sums, %d bytes have %d", len(c.Sums), c.Size, n))
	}
	join := checksum.NewJoiner()
	var whole uint64
	for i, sum := range c.Sums {
		whole = join.After(whole, min(object.SumBlock, c.Size-int64(i)*object.SumBlock)) ^ sum
	}
	if whole != c.CRC64 {
		return object.Fail(op, w.d.Key, object.ErrInvalidSums,
			fmt.Sprintf("the sums of the blocks make %016x, the sum of the content is said to be %016x", whole, c.CRC64))
	}
	return nil
}

// read takes the content, once nobody can write to the file any more: the kernel then grants a read lease.
func (w *draft) read(op string, size int64) ([]byte, error) {
	f, err := os.Open(w.path)
	if err != nil {
		return nil, errs.Wrap(op, w.path, err)
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); errors.Is(err, unix.EAGAIN) {
		return nil, &errs.Error{Kind: errs.Invalid, Op: op, Name: w.path, Err: object.ErrWriterLeft,
			Msg: "a description that was opened for writing is left",
			Fix: "close every descriptor of the file, unmap it, and commit again"}
	} else if err != nil {
		return nil, errs.Wrap(op, w.path, err)
	}
	data := make([]byte, size)
	if n, err := io.ReadFull(f, data); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, object.Fail(op, w.path, object.ErrInvalidSums,
			fmt.Sprintf("the file has %d bytes, %d are to be committed", n, size))
	} else if err != nil {
		return nil, errs.Wrap(op, w.path, err)
	}
	return data, nil
}
