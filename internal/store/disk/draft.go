// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// draft is an object that a client writes.
type draft struct {
	s     *Store
	bk    *bucket
	key   string
	as    map[string]string
	cond  object.Condition
	judge object.Judge
	size  int64

	mu    sync.Mutex
	file  *datafile.Draft
	ended bool
}

// NewDraft implements object.Handles.
func (s *Store) NewDraft(ctx context.Context, d object.Draft) (object.Drafting, error) {
	const op = "create draft"
	end, err := s.begin(ctx, op, d.Key)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := object.CheckNew(op, d.Key, d.Attributes); err != nil {
		return nil, err
	}
	if d.Size < 0 {
		return nil, errs.New(errs.Invalid, op, d.Key, fmt.Sprintf("size %d, expected 0 or more", d.Size))
	}
	bk, err := s.find(op, d.Bucket)
	if err != nil {
		return nil, err
	}
	if err := s.space.check(op, d.Key, d.Size); err != nil {
		return nil, err
	}
	id, err := s.fileIDs.take(s)
	if err != nil {
		return nil, err
	}
	file, err := s.files.NewDraft(datafile.ID(id), d.Size)
	if err != nil {
		return nil, &errs.Error{Op: op, Name: d.Key, Err: err}
	}
	// Drafts that begin at the same time each see the space for themselves alone: check the space that is left with
	// all of them.
	if err := s.space.kept(op, d.Key); err != nil {
		_ = file.Abort() // the refusal itself is told
		return nil, err
	}
	return &draft{s: s, bk: bk, key: d.Key, as: object.MergeAttributes(d.Attributes, nil), cond: copyCondition(d.Condition),
		judge: d.Judge, size: d.Size, file: file}, nil
}

// copyCondition returns a copy of a condition, which is checked later.
func copyCondition(c object.Condition) object.Condition {
	if c.IfSize != nil {
		n := *c.IfSize
		c.IfSize = &n
	}
	if c.IfModified != nil {
		t := *c.IfModified
		c.IfModified = &t
	}
	return c
}

// Open implements object.Drafting.
func (d *draft) Open(direct bool) (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.file.Open(direct)
}

// Reserved implements object.Drafting. Reserved does not wait for a commit in progress.
func (d *draft) Reserved() int64 {
	if !d.mu.TryLock() {
		return d.size
	}
	defer d.mu.Unlock()
	if d.ended {
		return 0
	}
	return d.file.Reserved()
}

// Path implements object.Drafting.
func (d *draft) Path() string { return d.file.Path() }

// Commit implements object.Drafting.
func (d *draft) Commit(ctx context.Context, c object.Sealed) (object.Info, error) {
	const op = "commit draft"
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return object.Info{}, errs.New(errs.Closed, op, d.key, "the draft has ended")
	}
	if err := d.believable(op, c); err != nil {
		return object.Info{}, err
	}
	end, err := d.s.begin(ctx, op, d.key)
	if err != nil {
		_ = d.abort() // what stays is removed by the next recovery
		return object.Info{}, err
	}
	defer end()
	if err := d.file.Seal(ctx, c.Size); err != nil {
		d.ended = !errors.Is(err, object.ErrWriterLeft) && !errors.Is(err, object.ErrInvalidSums)
		return object.Info{}, &errs.Error{Op: op, Name: d.key, Err: err}
	}
	d.ended = true
	defer d.file.Close() // only now may the file be written to again, by those who may
	w := &content{Written: object.Written{Size: c.Size, CRC64: c.CRC64}}
	if c.Size > 0 {
		w.file, w.sums = d.file.Writer(), append([]uint64{}, c.Sums...)
	} else {
		_ = d.file.Writer().Abort() // content of no bytes needs no file
	}
	v := w.version(object.CRC64ETag(c.CRC64, c.Size, 1), d.as)
	if c.Size > 0 {
		v.Flags |= record.FlagDeclared
	}
	return d.s.publish(ctx, publication{op: op, bk: d.bk, key: d.key, cond: d.cond, c: w, judge: d.judge}, v)
}

// believable refuses impossible values without reading the file.
func (d *draft) believable(op string, c object.Sealed) error {
	if c.Size < 0 || c.Size > d.size {
		return object.Fail(op, d.key, object.ErrTooLarge,
			fmt.Sprintf("%d bytes, the draft was made for at most %d", c.Size, d.size))
	}
	if n := record.BlocksOf(c.Size); int64(len(c.Sums)) != n {
		return object.Fail(op, d.key, object.ErrInvalidSums, fmt.Sprintf("%d sums, %d bytes have %d", len(c.Sums), c.Size, n))
	}
	if got := record.JoinSums(d.s.join, c.Sums, c.Size); got != c.CRC64 {
		return object.Fail(op, d.key, object.ErrInvalidSums,
			fmt.Sprintf("the sums of the blocks make %016x, the sum of the content is said to be %016x", got, c.CRC64))
	}
	return nil
}

// Abort implements object.Drafting.
func (d *draft) Abort() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.abort()
}

func (d *draft) abort() error {
	if d.ended {
		return nil
	}
	d.ended = true
	return d.file.Abort()
}

// Remains implements object.Drafting.
func (d *draft) Remains() bool { return d.file.Remains() }

// CanDraft returns nil if NewDraft works in this store, or the reason why not. CanDraft creates a draft to find out,
// and removes it again.
func (s *Store) CanDraft(ctx context.Context) error {
	const op = "create draft"
	end, err := s.begin(ctx, op, s.opts.Dir)
	if err != nil {
		return err
	}
	defer end()
	id, err := s.fileIDs.take(s)
	if err != nil {
		return err
	}
	d, err := s.files.NewDraft(datafile.ID(id), 0)
	if err != nil {
		return err
	}
	return d.Abort()
}
