// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"errors"
	"io"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/sendfile"
)

// aheadBy is the number of bytes that are read ahead of the block that is compared.
const aheadBy = 2 * Block

// body is a range of a file that a client reads. A body holds no memory while it waits for its reader, so thousands
// of slow readers cost little: a block is compared in a buffer that is returned before the block is sent from the
// page cache. Sending 1 MiB to a socket takes 85 µs of a core with sendfile, and 330 µs with read and write.
type body struct {
	r        *Reader
	off, end int64
	right    int64 // this body has compared all bytes before this offset
	asked    int64 // read-ahead was requested for all bytes before this offset
	comparing
	plain  bool // the writer is no socket
	closed bool
	err    error
}

// comparing says when a body compares blocks with their checksums.
type comparing byte

const (
	whenPolicy comparing = iota // as the policy of the files requires
	always                      // every block, whatever the policy and whatever was compared before
	never                       // none
)

// Len returns the number of bytes that are not read yet.
func (b *body) Len() int64 { return b.end - b.off }

// Close releases the body's file; further calls of Close do nothing.
func (b *body) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	b.r.f.cache.release(b.r.e)
	return nil
}

// Verify compares the next block with its checksum, if the verification policy requires it, and returns no bytes. An
// HTTP server calls Verify before it sends the response header, so that it can still reply with an error. A block that
// Verify has compared is not compared again when it is read.
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
		return 0, errs.New(errs.Closed, "read", b.r.f.Path(b.r.e.id), "the body is closed")
	}
	if b.err != nil {
		return 0, b.err
	}
	end := b.off + min(limit, b.end-b.off)
	policy := b.r.f.opts.Verify
	if b.comparing == never || policy == VerifyNever && b.comparing != always {
		return end - b.off, nil
	}
	right := b.right
	if policy == VerifyFirst && b.comparing != always {
		i := b.off / Block
		for i*Block < end && b.r.e.compared(i) {
			i++
		}
		right = max(right, i*Block)
	}
	if right <= b.off {
		i := b.off / Block
		b.ahead((i + 1) * Block)
		if err := b.r.check(i); err != nil {
			b.err = err
			return 0, err
		}
		right = (i + 1) * Block
	}
	b.right = right
	return min(right, end) - b.off, nil
}

// ahead asks the kernel to read the blocks from off while the block before is compared and sent. Many devices read
// only 128 KiB ahead by themselves, and all bodies of a file share one read-ahead state.
func (b *body) ahead(off int64) {
	from, to := max(off, b.asked), min(off+aheadBy, b.end)
	if to > from && b.r.e.fd >= 0 {
		_ = b.r.e.file.Prefetch(from, to-from) // a hint
		b.asked = to
	}
}

// Read copies the next bytes to p; if the verification policy requires it, Read first compares their blocks with the
// checksums.
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
	if err := b.r.readFull(p[:n], b.off); err != nil {
		b.err = err
		return 0, err
	}
	b.off += n
	return int(n), nil
}

// WriteTo writes the remaining bytes to w. If w is a socket, or a bufio.Writer in front of a socket, WriteTo uses
// sendfile. If w wraps a connection, w must forward ReadFrom to the connection; otherwise the bytes are copied through
// memory.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	begin := b.off
	for b.off < b.end {
		n, err := b.ready(b.end - b.off)
		if err != nil {
			return b.off - begin, err
		}
		to := b.off + n
		if !b.plain {
			if err := b.send(w, to); err != nil {
				b.err = err
				return b.off - begin, err
			}
		}
		if err := b.copy(w, to); err != nil {
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
	b.r.f.buffers.users.Add(1)
	defer b.r.f.buffers.users.Add(-1)
	p := b.r.f.buffers.piece()
	defer b.r.f.buffers.done(p)
	for b.off < to {
		q := p.b[:min(int64(len(p.b)), to-b.off)]
		if err := b.r.readFull(q, b.off); err != nil {
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
	if b.r.e.fd < 0 {
		b.plain = true
		return nil
	}
	sent, err := sendfile.Send(w, b.r.e.fd, &b.off, to)
	var failed *sendfile.Failure
	switch {
	case err == nil:
		b.plain = !sent
	case sendfile.Ended(err):
		return b.r.damage(b.off, to-b.off, "short", nil)
	case rotten(err):
		return b.r.damage(b.off, to-b.off, "unreadable", err)
	case errors.As(err, &failed):
		return errs.Wrap("send", b.r.f.Path(b.r.e.id), failed.Err)
	}
	return err
}
