// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/lend"
)

// Entry is one user's hold on an entry of the cache. While an Entry is held, its content stays readable and its file
// keeps its name, even if the entry is evicted. Each Entry from Lookup, Peek or Admit must be released.
type Entry struct {
	v        *version
	released atomic.Bool
}

// Identity returns the identity of the content.
func (e *Entry) Identity() object.Identity { return e.v.id }

// Release ends the hold. Further calls of Release do nothing.
func (e *Entry) Release() {
	if !e.released.Swap(true) {
		e.v.s.release(e.v)
	}
}

// Evicted reports whether the entry was evicted or dropped, so that Lookup does not return it any more.
func (e *Entry) Evicted() bool {
	e.v.s.index.mu.Lock()
	defer e.v.s.index.mu.Unlock()
	return e.v.gone
}

// Missing returns the absent parts of r, in ascending order. Each part has whole blocks, so it may be larger than r.
// Neighbouring blocks are one part. Missing ignores the part of r that is outside the content.
func (e *Entry) Missing(r object.Range) []object.Range {
	v := e.v
	off, end := max(r.Off, 0), v.id.Size
	if r.N < end-off {
		end = off + r.N
	}
	if off >= end || r.N <= 0 {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []object.Range
	for i := off / object.SumBlock; i*object.SumBlock < end; i++ {
		if v.blocks.have.has(i) {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Off+out[n-1].N == i*object.SumBlock {
			out[n-1].N += v.size(i)
		} else {
			out = append(out, object.Range{Off: i * object.SumBlock, N: v.size(i)})
		}
	}
	return out
}

// Section returns a reader of the range r. Section fails with object.ErrInvalidRange if r is outside the content, and
// with ErrAbsent if a block of r is absent. The Body ends with an error that wraps object.ErrDamaged before any byte of
// a damaged block; the block is then absent. The Body also implements object.Verifier. The Body holds the content by
// itself, so it may outlive the Entry. The caller closes the Body.
func (e *Entry) Section(r object.Range) (object.Body, error) {
	const op = "read cache"
	v := e.v
	if r.Off < 0 || r.N < 0 || r.Off > v.id.Size || r.N > v.id.Size-r.Off {
		return nil, object.Fail(op, v.name(), object.ErrInvalidRange,
			fmt.Sprintf("%d bytes at offset %d of %d", r.N, r.Off, v.id.Size))
	}
	if m := e.Missing(r); len(m) > 0 {
		return nil, absent(op, v.name(), fmt.Sprintf("%d bytes at offset %d are absent", m[0].N, m[0].Off))
	}
	v.s.index.mu.Lock()
	v.s.index.hold(v)
	v.s.index.mu.Unlock()
	return &body{v: v, off: r.Off, end: r.Off + r.N}, nil
}

// Sums returns the CRC-64/NVME checksums of n blocks from block `first` on. Sums fails with ErrAbsent if one of them is
// absent. At the end of the content, Sums returns fewer than n.
func (e *Entry) Sums(first, n int64) ([]uint64, error) {
	v := e.v
	if first < 0 || n < 0 || first > v.all() {
		return nil, errs.New(errs.Invalid, "sums", v.name(),
			fmt.Sprintf("%d from block %d on, there are %d blocks", n, first, v.all()))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	sums := make([]uint64, min(n, v.all()-first))
	for i := range sums {
		if !v.blocks.have.has(first + int64(i)) {
			return nil, absent("sums", v.name(), fmt.Sprintf("block %d is absent", first+int64(i)))
		}
		sums[i] = v.blocks.sums[first+int64(i)]
	}
	return sums, nil
}

// Whole reports whether all blocks are present.
func (e *Entry) Whole() bool {
	v := e.v
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.blocks.count == v.all()
}

// Inline returns the content if it is whole and stored in the database. The caller must not change it.
func (e *Entry) Inline() ([]byte, bool) {
	v := e.v
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.inline || v.id.Size > 0 && !v.blocks.have.has(0) {
		return nil, false
	}
	return v.blocks.data, true
}

// Path returns the path of the content's file, for messages. Path is empty if the content is inline.
func (e *Entry) Path() string {
	v := e.v
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.inline || v.file == 0 {
		return v.spill
	}
	return v.s.files.path(v.file)
}

// Open opens the content's file for reading, with O_DIRECT if direct is true. The content must be whole. Inline content
// is first copied to a file that lives as long as anybody holds the entry. The caller closes the file, and holds the
// Entry as long as the file's name is needed. With Options.ReadOnlyMount, nobody can reopen the descriptor for writing.
// Open fails with kind Unsupported if the file system has no descriptors or no O_DIRECT, and with object.ErrBusy if
// somebody keeps a lease on the file. Open compares no checksums.
func (e *Entry) Open(direct bool) (*os.File, error) {
	const op = "hand out"
	v := e.v
	if !e.Whole() {
		return nil, absent(op, v.name(), "the content is not whole")
	}
	if !v.s.files.native() {
		return nil, errs.New(errs.Unsupported, op, v.name(), "the files of the cache are not the operating system's, and "+
			"have no descriptors").WithFix("read the bytes through the cache")
	}
	if v.inline {
		v.mu.Lock()
		err := v.copyOut(op)
		v.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
	flags := 0
	if direct {
		flags = unix.O_DIRECT
	}
	path := e.Path()
	file, err := v.s.files.lent.Open(path, flags)
	switch {
	case errors.Is(err, lend.ErrBusy):
		return nil, taken(op, path, err)
	case err != nil:
		return nil, undirected(op, path, direct, err)
	}
	return file, nil
}

// copyOut writes inline content to a file of its own. The caller holds v.mu.
func (v *version) copyOut(op string) error {
	if v.spill != "" {
		return nil
	}
	n, err := v.s.files.ids.take(v.s.meta)
	if err != nil {
		return err
	}
	path := v.s.files.path(n)
	if err := os.MkdirAll(v.s.files.folder(n), 0o700); err != nil {
		return fail(op, path, err)
	}
	if err := os.WriteFile(path, v.blocks.data, 0o600); err != nil {
		_ = os.Remove(path)
		return fail(op, path, err)
	}
	v.spill = path
	return nil
}

// Proven records how the whole content was verified, such as "crc64nvme". The record is written with the next flush. If
// a block is dropped as damaged, the proof is removed.
func (e *Entry) Proven(how string) {
	if len(how) > maxProof {
		how = how[:maxProof]
	}
	e.mark(func(v *version) { v.proof = how })
}

// Proof returns what Proven recorded last, or "".
func (e *Entry) Proof() string {
	e.v.s.index.mu.Lock()
	defer e.v.s.index.mu.Unlock()
	return e.v.proof
}

// Foreign records whether other nodes of the cluster own the content, so that it is evicted before content of ours. The
// mark is one for the whole entry, because entries are evicted as a whole: content of which this node owns an extent is
// not foreign.
func (e *Entry) Foreign(is bool) {
	e.mark(func(v *version) {
		v.foreign = is
		v.s.index.requeue(v)
	})
}

// mark changes an entry's marks, and lets the flusher write them.
func (e *Entry) mark(change func(*version)) {
	s := e.v.s
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	change(e.v)
	if e.v.known && e.v.file != 0 {
		s.index.dirty[e.v] = struct{}{}
	}
}

// Flush makes all blocks of the entry durable that are present now.
func (e *Entry) Flush(ctx context.Context) error { return e.v.s.writer.flush(ctx, e.v, false) }

// Drop evicts the entry, even if it is pinned: for example, because its content has proved to be wrong. The content
// stays readable until the Entry is released, but Put fails with ErrAbsent. When Drop returns nil, the removal is
// durable.
func (e *Entry) Drop() error {
	e.v.s.drop(e.v)
	return e.v.s.writer.flush(context.Background(), e.v, false)
}
