// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

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
	size  atomic.Int64

	copied int64

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
	if err := d.Check(op); err != nil {
		return nil, err
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
	file, copied, err := draftFile(ctx, s.files, datafile.ID(id), &d)
	if err != nil {
		return nil, &errs.Error{Op: op, Name: d.Key, Err: err}
	}
	// Drafts that begin at the same time each see the space for themselves alone: check the space that is left with
	// all of them.
	if err := s.space.kept(op, d.Key); err != nil {
		_ = file.Abort() // the refusal itself is told
		return nil, err
	}
	out := &draft{s: s, bk: bk, key: d.Key, as: object.MergeAttributes(d.Attributes, nil),
		cond: copyCondition(d.Condition), judge: d.Judge, copied: copied, file: file}
	out.size.Store(d.Size)
	return out, nil
}

// draftFile creates the file of a draft, with the content of the handle that it begins with.
func draftFile(ctx context.Context, files *datafile.Files, id datafile.ID,
	d *object.Draft) (file *datafile.Draft, copied int64,
	err error) {
	if !d.Grows {
		file, err = files.NewDraft(id, d.Size)
		return file, 0, err
	}
	if d.From == nil {
		return files.NewGrowingDraft(ctx, id, nil, 0)
	}
	from, err := d.From.Open(false)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = from.Close() }() // nothing was written through it
	return files.NewGrowingDraft(ctx, id, from, d.From.Info().Size)
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
		return d.size.Load()
	}
	defer d.mu.Unlock()
	if d.ended {
		return 0
	}
	return d.file.Reserved()
}

// Copied implements object.Drafting.
func (d *draft) Copied() int64 { return d.copied }

// Grow implements object.Drafting.
func (d *draft) Grow(ctx context.Context, size int64) error {
	const op = "grow draft"
	end, err := d.s.begin(ctx, op, d.key)
	if err != nil {
		return err
	}
	defer end()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return errs.New(errs.Closed, op, d.key, "the draft has ended")
	}
	if size <= d.size.Load() {
		return nil
	}
	if err := d.s.space.check(op, d.key, size-d.size.Load()); err != nil {
		return err
	}
	if err := d.file.Grow(size); err != nil {
		return err
	}
	d.size.Store(size)
	return nil
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
	return d.s.publish(ctx, publication{op: op, kind: object.ChangePut, bk: d.bk, key: d.key, cond: d.cond, c: w,
		judge: d.judge}, v)
}

// believable refuses impossible values without reading the file.
func (d *draft) believable(op string, c object.Sealed) error {
	if most := d.size.Load(); c.Size < 0 || c.Size > most {
		return object.Fail(op, d.key, object.ErrTooLarge,
			fmt.Sprintf("%d bytes, the draft was made for at most %d", c.Size, most))
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
