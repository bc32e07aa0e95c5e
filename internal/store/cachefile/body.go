// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"errors"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/sendfile"
)

// aheadBy is the number of bytes that are read ahead of the block that is compared.
const aheadBy = 2 * object.SumBlock

// piece is the number of bytes that are compared or copied at a time, so that they stay in the core's cache.
const piece = 256 << 10

// body is a range of an entry that a client reads. A body holds no memory while it waits for its reader.
type body struct {
	v        *version
	off, end int64
	asked    int64 // read-ahead was requested for all bytes before this offset
	plain    bool  // the writer is no socket
	closed   bool
	err      error
}

// Len returns the number of bytes that are not read yet.
func (b *body) Len() int64 { return b.end - b.off }

// Close ends the body's hold on the entry; further calls of Close do nothing.
func (b *body) Close() error {
	if !b.closed {
		b.closed = true
		b.v.s.release(b.v)
	}
	return nil
}

// Verify compares the next block with its checksum, if that was not done before, and returns no bytes.
func (b *body) Verify() error {
	if b.off == b.end {
		return nil
	}
	_, err := b.ready(1)
	return err
}

// ready returns how many of the next bytes may be returned to the reader: at least one, at most limit.
func (b *body) ready(limit int64) (int64, error) {
	if b.closed {
		return 0, errs.New(errs.Closed, "read cache", b.v.name(), "the body is closed")
	}
	if b.err != nil {
		return 0, b.err
	}
	end := b.off + min(limit, b.end-b.off)
	right := b.v.compared(b.off, end)
	if right <= b.off {
		i := b.off / object.SumBlock
		b.ahead((i + 1) * object.SumBlock)
		if err := b.v.check(i); err != nil {
			b.err = err
			return 0, err
		}
		right = (i + 1) * object.SumBlock
	}
	return min(right, end) - b.off, nil
}

// compared returns the offset before which all bytes from off on were compared.
func (v *version) compared(off, end int64) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := off / object.SumBlock
	for i*object.SumBlock < end && v.blocks.seen.has(i) {
		i++
	}
	return i * object.SumBlock
}

// check reads block i and compares it with its sum. A block that does not match is dropped.
func (v *version) check(i int64) error {
	const op = "read cache"
	v.mu.Lock()
	b := v.blocks
	have, want, data := b.have.has(i), b.sums[i], b.data
	v.mu.Unlock()
	if !have {
		return object.Fail(op, v.name(), both{object.ErrDamaged, ErrAbsent}, fmt.Sprintf("block %d was dropped", i))
	}
	got, what, err := v.sum(b, i, data)
	if what == "" && err != nil {
		return err
	}
	if what == "" && got != want {
		what, err = "checksum", fmt.Errorf("the sum is %016x, expected %016x", got, want)
	}
	if what == "" {
		v.mu.Lock()
		if b.have.has(i) && b.sums[i] == want {
			b.seen.set(i)
		}
		v.mu.Unlock()
		return nil
	}
	v.damage(i, want)
	return &damageError{id: v.id, block: i, what: what, cause: err}
}

// sum reads block i and returns its sum. The text `what` names damage that is not the sum's.
func (v *version) sum(b *blocks, i int64, data []byte) (sum uint64, what string, err error) {
	if v.inline {
		return checksum.Of(data), "", nil
	}
	p := v.s.memory.lend()
	defer v.s.memory.back(p)
	off, n := i*object.SumBlock, v.size(i)
	for at := off; at < off+n; {
		q := p[:min(piece, off+n-at)]
		if what, err := v.readFull(b, q, at); err != nil {
			return 0, what, err
		}
		at += int64(len(q))
		sum = v.s.memory.join.After(sum, int64(len(q))) ^ checksum.Of(q)
	}
	return sum, "", nil
}

// readFull fills q with the bytes at off. The text `what` names damage; it is empty for other errors.
func (v *version) readFull(b *blocks, q []byte, off int64) (what string, err error) {
	if v.inline {
		v.mu.Lock()
		n := copy(q, b.data[min(off, int64(len(b.data))):])
		v.mu.Unlock()
		if n < len(q) {
			return "short", io.ErrUnexpectedEOF
		}
		return "", nil
	}
	n, err := b.file.ReadAt(q, off)
	switch {
	case n == len(q):
		return "", nil
	case errors.Is(err, io.EOF):
		return "short", err
	case rotten(err):
		return "unreadable", err
	}
	return "", fail("read cache", v.s.files.path(v.file), err)
}

// read fills q with compared bytes at off.
func (b *body) read(q []byte, off int64) error {
	what, err := b.v.readFull(b.v.blocks, q, off)
	if what != "" {
		err = b.rotted(off, what, err)
	}
	return err
}

// rotted drops a block that matched its sum before and cannot be read any more.
func (b *body) rotted(off int64, what string, cause error) error {
	i := off / object.SumBlock
	b.v.mu.Lock()
	b.v.blocks.seen.clear(i)
	sum := b.v.blocks.sums[i]
	b.v.mu.Unlock()
	b.v.damage(i, sum)
	return &damageError{id: b.v.id, block: i, what: what, cause: cause}
}

// ahead asks the kernel to read the blocks from off while the block before is compared and sent.
func (b *body) ahead(off int64) {
	from, to := max(off, b.asked), min(off+aheadBy, b.end)
	if to > from && b.v.blocks.fd >= 0 {
		_ = b.v.blocks.file.Prefetch(from, to-from) // a hint
		b.asked = to
	}
}

// Read copies the next bytes to p, and first compares their block with its checksum.
func (b *body) Read(p []byte) (int, error) {
	if b.off == b.end && !b.closed {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := b.ready(int64(len(p)))
	if err != nil {
		return 0, err
	}
	if err := b.read(p[:n], b.off); err != nil {
		b.err = err
		return 0, err
	}
	b.off += n
	return int(n), nil
}

// WriteTo writes the remaining bytes to w. If w is a socket, or a bufio.Writer in front of one, WriteTo uses sendfile.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	begin := b.off
	for b.off < b.end {
		n, err := b.ready(b.end - b.off)
		if err != nil {
			return b.off - begin, err
		}
		to := b.off + n
		if !b.plain {
			err = b.send(w, to)
		}
		if err == nil {
			err = b.copy(w, to)
		}
		if err != nil {
			b.err = err
			return b.off - begin, err
		}
	}
	return b.off - begin, nil
}

// copy copies the bytes before offset `to` through memory.
func (b *body) copy(w io.Writer, to int64) error {
	if b.off >= to {
		return nil
	}
	p := b.v.s.memory.lend()
	defer b.v.s.memory.back(p)
	for b.off < to {
		q := p[:min(piece, to-b.off)]
		if err := b.read(q, b.off); err != nil {
			return err
		}
		n, err := w.Write(q)
		b.off += int64(n)
		if err != nil {
			return err
		}
		if n < len(q) {
			return io.ErrShortWrite
		}
	}
	return nil
}

// send sends the bytes before offset `to` by sendfile, or sets plain and sends none.
func (b *body) send(w io.Writer, to int64) error {
	if b.v.blocks.fd < 0 {
		b.plain = true
		return nil
	}
	sent, err := sendfile.Send(w, b.v.blocks.fd, &b.off, to)
	var failed *sendfile.Failure
	switch {
	case err == nil:
		b.plain = !sent
	case sendfile.Ended(err):
		return b.rotted(b.off, "short", nil)
	case rotten(err):
		return b.rotted(b.off, "unreadable", err)
	case errors.As(err, &failed):
		return errs.Wrap("send", b.v.name(), failed.Err)
	}
	return err
}
