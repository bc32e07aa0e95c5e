// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Reader is a data file that is open for reading. The content of an open Reader stays readable even if the file is
// moved or removed.
type Reader struct {
	f    *Files
	e    *entry
	size int64
	sums func() ([]uint64, error)
	have []uint64 // the sums that Load has loaded
	// OnDamage is called with each damage that a read of this Reader finds, before the read returns. OnDamage may be
	// nil, and must be set before the first Section.
	OnDamage func(*Damage)

	mu     sync.Mutex
	closed bool
}

// OpenRead opens a data file for reading the first `size` bytes. The function sums returns the checksums of the file's
// blocks. The Reader calls the function sums when it first needs a checksum, and not again while the file stays open.
// If the file is missing or shorter than size, OpenRead returns a *Damage.
func (f *Files) OpenRead(id ID, size int64, sums func() ([]uint64, error)) (*Reader, error) {
	const op = "open"
	if err := checkSize(op, id.String(), 0, size); err != nil {
		return nil, err
	}
	e, err := f.cache.acquire(id)
	switch {
	case missing(err):
		return nil, &Damage{ID: id, File: f.Path(id), N: size, What: "missing", Err: err}
	case rotten(err):
		return nil, &Damage{ID: id, File: f.Path(id), N: size, What: "unreadable", Err: err}
	case err != nil:
		return nil, errs.Wrap(op, f.Path(id), err)
	}
	if e.size < size {
		d := &Damage{ID: id, File: f.Path(id), Off: e.size, N: size - e.size, What: "short"}
		f.cache.drop(e) // who puts the file right need not restart the store
		f.cache.release(e)
		return nil, d
	}
	return &Reader{f: f, e: e, size: size, sums: sums}, nil
}

// Load loads the block checksums now and keeps them, so that later reads do not call the function sums of OpenRead.
// Load must be called before the first Section. If no later read will compare anything, Load loads nothing, unless
// strict is set. The caller sets strict if it will call Reader.Strict or Writer.Copy, because these methods always
// compare.
func (r *Reader) Load(strict bool) error {
	if !strict && (r.f.opts.Verify == VerifyNever || r.e.allRight(blocks(r.size))) {
		return nil
	}
	sums, err := r.e.load(r.sums)
	r.have = sums
	return err
}

// Size returns the size that was passed to OpenRead.
func (r *Reader) Size() int64 { return r.size }

// ID returns the ID of the file.
func (r *Reader) ID() ID { return r.e.id }

// Section returns a body that reads n bytes of the file, beginning at offset off. Section fails with an error that
// wraps object.ErrInvalidRange if the range is not within the file. The returned body stays valid after the Reader is
// closed.
func (r *Reader) Section(off, n int64) (object.Body, error) {
	return r.section(off, n, whenPolicy)
}

// Strict is like Section, but compares every block with its checksum, regardless of the verification policy and of
// earlier comparisons. A caller that computes new checksums of the bytes must use Strict: otherwise damaged bytes would
// get matching checksums.
func (r *Reader) Strict(off, n int64) (object.Body, error) { return r.section(off, n, always) }

// Unchecked is like Section, but compares nothing. A caller of Unchecked authenticates the bytes itself.
func (r *Reader) Unchecked(off, n int64) (object.Body, error) { return r.section(off, n, never) }

func (r *Reader) section(off, n int64, c comparing) (object.Body, error) {
	if err := r.within(off, n); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errs.New(errs.Closed, "read", r.f.Path(r.e.id), "the reader is closed")
	}
	r.f.cache.again(r.e)
	return &body{r: r, off: off, end: off + n, comparing: c}, nil
}

// within refuses a range that is not within the file.
func (r *Reader) within(off, n int64) error {
	if off < 0 || n < 0 || off > r.size || n > r.size-off {
		return object.Fail("read", r.f.Path(r.e.id), object.ErrInvalidRange,
			fmt.Sprintf("%d bytes at offset %d of %d", n, off, r.size))
	}
	return nil
}

// Close ends the reading; bodies that Section returned stay valid.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errs.New(errs.Closed, "close", r.f.Path(r.e.id), "the reader is closed already")
	}
	r.closed = true
	r.f.cache.release(r.e)
	return nil
}

// damage reports a damage to OnDamage and returns it.
func (r *Reader) damage(off, n int64, what string, err error) error {
	d := &Damage{ID: r.e.id, File: r.f.Path(r.e.id), Off: off, N: n, What: what, Err: err}
	if r.OnDamage != nil {
		r.OnDamage(d)
	}
	return d
}

// extent returns the offset and the length of block i.
func (r *Reader) extent(i int64) (off, n int64) {
	off = i * Block
	return off, min(Block, r.size-off)
}

// sumOf returns the expected sum of block i.
func (r *Reader) sumOf(i int64) (uint64, error) {
	sums := r.have
	if sums == nil {
		var err error
		if sums, err = r.e.load(r.sums); err != nil {
			return 0, err
		}
	}
	if int64(len(sums)) != blocks(r.size) {
		off, n := r.extent(i)
		return 0, r.damage(off, n, "checksum", errs.New(errs.Corrupt, "verify", "",
			fmt.Sprintf("there are %d sums for %d bytes, expected %d", len(sums), r.size, blocks(r.size))))
	}
	return sums[i], nil
}

// check reads and compares block i, in pieces that fit the core's cache.
func (r *Reader) check(i int64) error {
	want, err := r.sumOf(i)
	if err != nil {
		return err
	}
	r.f.checks <- struct{}{}
	defer func() { <-r.f.checks }()
	p := r.f.buffers.check()
	defer r.f.buffers.checks.Put(p)
	off, n := r.extent(i)
	var got uint64
	for at := off; at < off+n; {
		q := p[:min(checkPiece, off+n-at)]
		if err := r.readFull(q, at); err != nil {
			return err
		}
		at += int64(len(q))
		got = r.f.join.After(got, int64(len(q))) ^ checksum.Of(q)
	}
	return r.compare(i, got, want)
}

// compare compares the sum of block i with the expected one.
func (r *Reader) compare(i int64, got, want uint64) error {
	if got != want {
		off, n := r.extent(i)
		return r.damage(off, n, "checksum", errs.New(errs.Corrupt, "verify", "",
			fmt.Sprintf("the sum is %016x, expected %016x", got, want)))
	}
	r.e.remember(i, blocks(r.size))
	return nil
}

// withBlock reads and compares block i, and passes the compared bytes to use.
func (r *Reader) withBlock(i int64, use func([]byte) error) error {
	want, err := r.sumOf(i)
	if err != nil {
		return err
	}
	r.f.checks <- struct{}{}
	defer func() { <-r.f.checks }()
	b := r.f.buffers.block()
	defer r.f.buffers.blocks.Put(b)
	off, n := r.extent(i)
	if err := r.readFull(b[:n], off); err != nil {
		return err
	}
	if err := r.compare(i, checksum.Of(b[:n]), want); err != nil {
		return err
	}
	return use(b[:n])
}

// readFull fills p with the bytes at off, or returns the reason why not.
func (r *Reader) readFull(p []byte, off int64) error {
	n, err := r.e.file.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case errors.Is(err, io.EOF):
		return r.damage(off+int64(n), int64(len(p)-n), "short", nil)
	case rotten(err):
		return r.damage(off, int64(len(p)), "unreadable", err)
	}
	return errs.Wrap("read", r.f.Path(r.e.id), err)
}
