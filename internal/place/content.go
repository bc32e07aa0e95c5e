// SPDX-License-Identifier: Apache-2.0

package place

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Sizes of what a comparison reads at once.
const (
	readRange = 32 << 20
	readBlock = 1 << 20
)

// reads compares contents with a bounded number of reads and buffers.
type reads struct {
	c     Comparison
	gate  chan struct{}
	read  atomic.Int64
	join  *checksum.Joiner
	block sync.Pool
}

// newReads limits the reads to the connections of a client. A read of both sides holds two of its connections, and a
// client has twice as many as it says.
func newReads(c Comparison) *reads {
	for _, t := range []Tree{c.A, c.B} {
		if t.Client != nil {
			c.Reads = min(c.Reads, t.Client.Pinned(s3.Info{}).Parallel())
		}
	}
	return &reads{c: c, gate: make(chan struct{}, c.Reads), join: checksum.NewJoiner(),
		block: sync.Pool{New: func() any { b := make([]byte, readBlock); return &b }}}
}

// compare returns the finding for one key.
func (r *reads) compare(ctx context.Context, p Pair) Finding {
	f := Finding{Key: p.Key(), SizeA: -1, SizeB: -1, At: -1, How: "size"}
	if p.A != nil {
		f.SizeA = p.A.Size
	}
	if p.B != nil {
		f.SizeB = p.B.Size
	}
	switch {
	case p.B == nil:
		f.Outcome, f.How = AbsentB, ""
	case p.A == nil:
		f.Outcome, f.How = AbsentA, ""
	case f.SizeA != f.SizeB:
		f.Outcome = Different
	case f.SizeA == 0:
		f.Outcome = Same
	default:
		if err := r.contents(ctx, p, &f); err != nil {
			f.Outcome, f.Err = Failed, err
		}
	}
	return f
}

// contents compares two contents of the same size.
func (r *reads) contents(ctx context.Context, p Pair, f *Finding) error {
	a, err := r.open(ctx, r.c.A, p.A)
	if err != nil {
		return err
	}
	defer a.close()
	b, err := r.open(ctx, r.c.B, p.B)
	if err != nil {
		return err
	}
	defer b.close()
	same := false
	switch {
	case r.c.Read || a.algorithm == "" && b.algorithm == "":
		f.How = "read"
		f.At, err = r.both(ctx, a, b, f.SizeA)
		same = f.At < 0
	case a.algorithm == b.algorithm:
		f.How = a.algorithm
		same = a.sum == b.sum
	default:
		with, of := a, b // of is read, and compared with the checksum of with
		if with.algorithm == "" {
			with, of = b, a
		}
		f.How = with.algorithm + "+read"
		var sum uint64
		sum, err = r.sum(ctx, of, with.algorithm, f.SizeA)
		same = sum == with.sum
	}
	if err == nil {
		err = a.unchanged()
	}
	if err == nil {
		err = b.unchanged()
	}
	if f.Outcome = Different; same {
		f.Outcome = Same
	}
	return err
}

// content is one side of a comparison.
type content struct {
	name      string
	object    *s3.Object
	file      *os.File
	size      int64
	modified  time.Time
	algorithm string // of a checksum of the whole content that can be trusted; empty: none
	sum       uint64
}

func (r *reads) open(ctx context.Context, t Tree, e *Entry) (*content, error) {
	c := &content{name: t.nameOf(e), size: e.Size}
	if !t.Remote() {
		var err error
		if c.file, err = os.Open(e.Name); err != nil {
			return nil, errs.Wrap("read", c.name, err)
		}
		info, err := c.file.Stat()
		if err == nil && info.Size() != e.Size {
			err = changed(c.name)
		}
		if err != nil {
			c.close()
			return nil, errs.Wrap("read", c.name, err)
		}
		c.modified = info.ModTime()
		return c, nil
	}
	i, err := t.Client.Head(ctx, t.Bucket, e.Name, "")
	if err != nil {
		return nil, err
	}
	if i.Size != e.Size {
		return nil, changed(c.name)
	}
	c.algorithm, c.sum = i.Whole()
	c.object = t.Client.Pinned(i)
	return c, nil
}

func changed(name string) error {
	return errs.New(errs.IO, "read", name, "it has changed since it was listed").WithFix("compare it again")
}

// unchanged reports an error if a file was written while it was read. An object is pinned to one version.
func (c *content) unchanged() error {
	if c.file == nil {
		return nil
	}
	info, err := c.file.Stat()
	if err != nil {
		return errs.Wrap("read", c.name, err)
	}
	if info.Size() != c.size || !info.ModTime().Equal(c.modified) {
		return changed(c.name)
	}
	return nil
}

func (c *content) close() {
	if c.file != nil {
		_ = c.file.Close() // it was only read
	}
}

// fetch opens a range.
func (c *content) fetch(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	if c.file != nil {
		return io.NopCloser(io.NewSectionReader(c.file, off, n)), nil
	}
	return c.object.Fetch(ctx, off, n)
}

// enter waits for a free read; false means that ctx has ended.
func (r *reads) enter(ctx context.Context) bool {
	select {
	case r.gate <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// ranges calls do for each range of a content, several at once. The first error ends the others.
func (r *reads) ranges(ctx context.Context, size int64, do func(ctx context.Context, i int, off, n int64) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wait sync.WaitGroup
	var mu sync.Mutex
	var first error
	for i, off := 0, int64(0); off < size; i, off = i+1, off+readRange {
		if !r.enter(ctx) {
			break
		}
		wait.Go(func() {
			defer func() { <-r.gate }()
			if err := do(ctx, i, off, min(readRange, size-off)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
					cancel(err)
				}
			}
		})
	}
	wait.Wait()
	if first != nil {
		return first
	}
	return context.Cause(ctx)
}

// errDiffers ends a comparison at the first difference.
var errDiffers = fmt.Errorf("the contents differ")

// both reads both sides and returns the offset of a block that differs, or -1.
func (r *reads) both(ctx context.Context, a, b *content, size int64) (at int64, err error) {
	var mu sync.Mutex
	at = -1
	err = r.ranges(ctx, size, func(ctx context.Context, _ int, off, n int64) error {
		left, err := a.fetch(ctx, off, n)
		if err != nil {
			return err
		}
		defer left.Close()
		right, err := b.fetch(ctx, off, n)
		if err != nil {
			return err
		}
		defer right.Close()
		x, y := r.block.Get().(*[]byte), r.block.Get().(*[]byte)
		defer r.block.Put(x)
		defer r.block.Put(y)
		for done := int64(0); done < n; {
			m := min(readBlock, n-done)
			if err := r.full(a.name, left, (*x)[:m]); err != nil {
				return err
			}
			if err := r.full(b.name, right, (*y)[:m]); err != nil {
				return err
			}
			if !bytes.Equal((*x)[:m], (*y)[:m]) {
				mu.Lock()
				defer mu.Unlock()
				if at < 0 || off+done < at {
					at = off + done
				}
				return errDiffers
			}
			done += m
		}
		return nil
	})
	if err == errDiffers || at >= 0 {
		err = nil
	}
	return at, err
}

// full fills p, and counts its bytes.
func (r *reads) full(name string, from io.Reader, p []byte) error {
	n, err := io.ReadFull(from, p)
	r.progress(n)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return changed(name) // it has become shorter
	}
	return errs.Wrap("read", name, err)
}

func (r *reads) progress(n int) {
	if total := r.read.Add(int64(n)); r.c.Progress != nil {
		r.c.Progress(total)
	}
}

// sum reads one side and returns its checksum.
func (r *reads) sum(ctx context.Context, c *content, algorithm string, size int64) (uint64, error) {
	add, after := r.summing(algorithm)
	parts := make([]uint64, (size+readRange-1)/readRange)
	err := r.ranges(ctx, size, func(ctx context.Context, i int, off, n int64) error {
		from, err := c.fetch(ctx, off, n)
		if err != nil {
			return err
		}
		defer from.Close()
		x := r.block.Get().(*[]byte)
		defer r.block.Put(x)
		for done := int64(0); done < n; {
			m := min(readBlock, n-done)
			if err := r.full(c.name, from, (*x)[:m]); err != nil {
				return err
			}
			parts[i] = add(parts[i], (*x)[:m])
			done += m
		}
		return nil
	})
	var sum uint64
	for i, p := range parts {
		sum = after(sum, min(readRange, size-int64(i)*readRange)) ^ p
	}
	return sum, err
}

// summing returns how a checksum goes on, and how it moves over n bytes of another sum.
func (r *reads) summing(algorithm string) (add func(sum uint64, p []byte) uint64,
	after func(sum uint64, n int64) uint64) {
	if algorithm == "crc64nvme" {
		return func(sum uint64, p []byte) uint64 { return r.join.After(sum, int64(len(p))) ^ checksum.Of(p) }, r.join.After
	}
	polynomial := uint32(crc32.IEEE)
	if algorithm == "crc32c" {
		polynomial = crc32.Castagnoli
	}
	table, join := crc32.MakeTable(polynomial), checksum.NewJoiner32(polynomial)
	return func(sum uint64, p []byte) uint64 { return uint64(crc32.Update(uint32(sum), table, p)) },
		func(sum uint64, n int64) uint64 { return uint64(join.After(uint32(sum), n)) }
}
