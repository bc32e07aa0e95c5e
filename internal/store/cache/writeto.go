// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"errors"
	"io"
	"sync"

	"github.com/nebulaio/nebulaio/internal/object"
)

const (
	chunk    = 64 << 10  // bytes that are copied from memory at once
	passed   = 256 << 10 // bytes that are written from the memory of a flight at once
	mostLent = 64        // writers that use the memory of flights at the same time
)

var chunks = sync.Pool{New: func() any {
	b := make([]byte, chunk)
	return &b
}}

// WriteTo implements io.WriterTo. Bytes on the disk go to a socket by sendfile.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	var total int64
	p := chunks.Get().(*[]byte)
	defer chunks.Put(p)
	for {
		if done, err := b.over(); done {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return total, err
		}
		if b.disk != nil && b.disk.Len() > 0 {
			n, err := b.disk.WriteTo(w)
			total += n
			if n > 0 {
				if b.whole && b.tally.begun && !b.tally.passed {
					b.tally.skip(b.v, n)
				}
				b.moved(n)
			}
			if err == nil {
				b.dropDisk()
				continue
			}
			if !errors.Is(err, object.ErrDamaged) { // the writer failed
				b.err = err
				return total, err
			}
			if err := b.recover(err); err != nil {
				return total, err
			}
			continue
		}
		n, err := b.pass(w, *p)
		total += n
		if n > 0 && total <= blockSize && err == nil {
			err = flush(w)
			b.err = err
			if b.now != nil {
				b.now.f.launch() // the client has the first bytes
			}
		}
		if err != nil {
			return total, err
		}
	}
}

// flush sends the bytes of the first block that came from elsewhere than the disk, if w has a buffer: the next ones may
// take long.
func flush(w io.Writer) error {
	if f, ok := w.(interface{ Flush() error }); ok {
		return f.Flush()
	}
	return nil
}

// pass writes some bytes by the next way, or none if another way has to be tried. Bytes of a flight are written from
// the memory of the flight, unless too many writers do the same: a client that does not read would hold the memory.
func (b *body) pass(w io.Writer, p []byte) (int64, error) {
	lent := &b.v.b.s.lent
	flying := b.far == nil && b.disk == nil && b.now != nil
	if flying && lent.Add(1) <= mostLent {
		defer lent.Add(-1)
		at, have, err := b.next()
		if err != nil || at == nil {
			return 0, b.recover(err)
		}
		n, err := w.Write(have[:min(len(have), passed)])
		b.given(have[:n])
		b.now.give(at)
		if n > 0 {
			b.moved(int64(n))
		}
		b.err = err
		return int64(n), err
	}
	if flying {
		lent.Add(-1)
	}
	n, err := b.some(p[:min(int64(len(p)), b.end-b.pos)])
	if n == 0 {
		return 0, err
	}
	k, err := w.Write(p[:n])
	b.err = err
	return int64(k), err
}
