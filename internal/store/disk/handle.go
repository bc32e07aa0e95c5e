// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

var _ object.Handles = (*Store)(nil)

// Handle implements object.Handles.
func (s *Store) Handle(ctx context.Context, ref object.Ref) (h object.Handle, err error) {
	const op = "open"
	err = s.withContent(ctx, op, ref, func(bk *bucket, v *record.Version, latest bool) error {
		h, err = s.handOut(op, bk, ref.Key, v, latest)
		return err
	})
	return h, err
}

// handOut makes a handle on the content of a version under the key's lock.
func (s *Store) handOut(op string, bk *bucket, key string, v *record.Version, latest bool) (object.Handle, error) {
	i, err := s.fullInfo(bk, key, v, latest)
	if err != nil {
		return nil, err
	}
	if v.File == 0 {
		b, err := s.inlineOf(op, i, v)
		if err != nil {
			return nil, err
		}
		h := &inlineHandle{s: s, info: i, data: b}
		if len(b) > 0 {
			h.sums = []uint64{v.CRC}
		}
		return h, nil
	}
	out, err := s.files.HandOut(datafile.ID(v.File), v.Size, func() ([]uint64, error) { return metadb.LoadSums(s.db, v) })
	if err != nil {
		var d *datafile.Damage
		switch {
		case errors.As(err, &d):
			s.fileDamage(i, v, d)
		case errs.KindOf(err) == errs.Corrupt:
			s.damage(object.Damage{Ref: object.Ref{Bucket: i.Bucket, Key: i.Key, Version: i.Version},
				File: s.files.Path(datafile.ID(v.File)), N: v.Size, What: "checksum"})
			return nil, object.Fail(op, key, layout.Both{Sentinel: object.ErrDamaged, Cause: err}, "")
		}
		return nil, &errs.Error{Op: op, Name: key, Err: err}
	}
	return &fileHandle{info: i, out: out}, nil
}

// Reopenable returns nil if descriptors from Handle cannot be reopened for writing, or the reason why they can.
// Without a read-only mount, root and the user of this process can reopen a client's descriptor for writing.
func (s *Store) Reopenable() error { return s.files.Reopenable() }

// fileHandle is a handle of content in a data file.
type fileHandle struct {
	info object.Info
	out  *datafile.Handout
}

// Info implements object.Handle.
func (h *fileHandle) Info() object.Info { return h.info.Clone() }

// Inline implements object.Handle.
func (h *fileHandle) Inline() ([]byte, bool) { return nil, false }

// Sums implements object.Handle.
func (h *fileHandle) Sums(first, n int64) ([]uint64, error) { return h.out.Sums(first, n) }

// Open implements object.Handle.
func (h *fileHandle) Open(direct bool) (*os.File, error) { return h.out.Open(direct) }

// Path implements object.Handle.
func (h *fileHandle) Path() string { return h.out.Path() }

// Close implements object.Handle.
func (h *fileHandle) Close() error { return h.out.Close() }

// inlineHandle is a handle of inline content, which is also in a file while somebody needs one.
type inlineHandle struct {
	s    *Store
	info object.Info
	data []byte
	sums []uint64

	mu     sync.Mutex
	spill  *datafile.Handout
	closed bool
}

// Info implements object.Handle.
func (h *inlineHandle) Info() object.Info { return h.info.Clone() }

// Inline implements object.Handle.
func (h *inlineHandle) Inline() ([]byte, bool) { return h.data, true }

// Sums implements object.Handle.
func (h *inlineHandle) Sums(first, n int64) ([]uint64, error) {
	return datafile.Window(h.info.Key, h.sums, first, n)
}

// Open implements object.Handle.
func (h *inlineHandle) Open(direct bool) (*os.File, error) {
	const op = "spill"
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errs.New(errs.Closed, op, h.info.Key, "the handle is closed")
	}
	if h.spill == nil {
		if err := h.write(op); err != nil {
			return nil, err
		}
	}
	return h.spill.Open(direct)
}

// write spills the content.
func (h *inlineHandle) write(op string) error {
	end, err := h.s.begin(context.Background(), op, h.info.Key)
	if err != nil {
		return err
	}
	defer end()
	if err := h.s.space.check(op, h.info.Key, int64(len(h.data))); err != nil {
		return err
	}
	id, err := h.s.fileIDs.take(h.s)
	if err != nil {
		return err
	}
	h.spill, err = h.s.files.Spill(datafile.ID(id), h.data, h.sums)
	return err
}

// Path implements object.Handle.
func (h *inlineHandle) Path() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.spill == nil {
		return ""
	}
	return h.spill.Path()
}

// Close implements object.Handle.
func (h *inlineHandle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.spill == nil {
		return nil
	}
	return h.spill.Close()
}
