// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"crypto/md5" //nolint:gosec // S3 servers name content by its MD5
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// plainBody reads a range of content that is not kept. If the range is the whole content, the last block is given to
// the reader only after the content has been compared with what the upstream says about it. Content of at most one
// block is always read and compared as a whole.
type plainBody struct {
	b        *bucket
	id       object.Identity
	about    *upstream.About // nil if only the identity is known
	ctx      context.Context
	pos, end int64
	src      io.ReadCloser // nil: not opened yet
	err      error

	whole bool   // pos was 0 and end the size
	small bool   // the content has at most one block
	crc   uint64 // of the bytes that were read
	sum   hash.Hash
	held  []byte // the last block, compared
}

// newPlainBody returns a plainBody. The parameter src may be nil.
func newPlainBody(ctx context.Context, b *bucket, id object.Identity, about *upstream.About, r object.Range,
	src io.ReadCloser) *plainBody {
	p := &plainBody{b: b, id: id, about: about, ctx: ctx, pos: r.Off, end: r.Off + r.N, src: src}
	p.whole = about != nil && r.Off == 0 && r.N == id.Size && r.N > 0
	p.small = about != nil && id.Size <= blockSize && r.N > 0
	if !p.whole && !p.small {
		return p
	}
	if looksLikeMD5(id.ETag) && (id.Size <= alsoMD5 || !about.Sums()) && !b.otherETags() {
		p.sum = md5.New() //nolint:gosec // compared with the upstream's own MD5
	} else if s, ok := about.Sum32(); ok && !about.HasCRC64 {
		p.sum = s.New()
	}
	return p
}

// Len implements object.Body.
func (p *plainBody) Len() int64 { return p.end - p.pos }

// open opens the source.
func (p *plainBody) open() error {
	if p.src != nil || p.pos == p.end || p.err != nil {
		return p.err
	}
	began := p.b.s.now()
	off, n := p.pos, p.end-p.pos
	if p.small {
		off, n = 0, p.id.Size
	}
	src, err := p.b.From.Fetch(p.ctx, p.id, off, n)
	if err != nil {
		p.err = p.b.told(p.id, err)
		return p.err
	}
	p.b.answered(began)
	p.src = src
	return nil
}

// Verify implements object.Verifier. Verify compares content of at most one block.
func (p *plainBody) Verify() error {
	if err := p.open(); err != nil {
		return err
	}
	if (p.whole && p.Len() <= blockSize || p.small) && p.held == nil && p.pos < p.end {
		p.err = p.hold()
	}
	return p.err
}

// hold reads the last block and compares the whole content.
func (p *plainBody) hold() error {
	held := make([]byte, p.Len())
	if p.small {
		held = make([]byte, p.id.Size)
	}
	for n := 0; n < len(held); {
		k, err := p.src.Read(held[n:])
		p.b.received(object.ServedUpstream, k)
		n += k
		if err != nil && n < len(held) {
			return p.failed(err)
		}
	}
	p.count(held)
	if _, err := p.b.judge(p.about, p.crc, p.sum); err != nil {
		p.b.s.counts.wrong.Add(1)
		p.b.changed(p.id.Key)
		return err
	}
	if p.held = held; p.small {
		p.held = held[p.pos:p.end]
	}
	return nil
}

// count adds bytes to the checksums of the content.
func (p *plainBody) count(data []byte) {
	p.crc = p.b.s.join.After(p.crc, int64(len(data))) ^ checksum.Of(data)
	if p.sum != nil {
		p.sum.Write(data)
	}
}

// failed returns the error of a read that ended early.
func (p *plainBody) failed(err error) error {
	if errors.Is(err, io.EOF) {
		err = object.Fail("read", p.b.name(p.id.Key), upstream.ErrUnavailable, fmt.Sprintf("%d bytes are missing", p.Len()))
	}
	return p.b.told(p.id, err)
}

// Read implements io.Reader.
func (p *plainBody) Read(to []byte) (int, error) {
	if p.pos == p.end {
		return 0, io.EOF
	}
	if err := p.Verify(); err != nil {
		return 0, err
	}
	if p.held != nil {
		n := copy(to, p.held[int64(len(p.held))-p.Len():])
		p.pos += int64(n)
		return n, nil
	}
	most := p.Len()
	if p.whole {
		most -= blockSize // the rest is read by hold
	}
	n, err := p.src.Read(to[:min(int64(len(to)), most)])
	p.b.received(object.ServedUpstream, n)
	if n == 0 && err != nil {
		p.err = p.failed(err)
		return 0, p.err
	}
	if p.whole {
		p.count(to[:n])
	}
	p.pos += int64(n)
	return n, nil
}

// WriteTo implements io.WriterTo.
func (p *plainBody) WriteTo(w io.Writer) (int64, error) {
	buf := chunks.Get().(*[]byte)
	defer chunks.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{p}, *buf)
}

// Close implements io.Closer.
func (p *plainBody) Close() error {
	if p.src == nil {
		return nil
	}
	err := p.src.Close()
	p.src, p.err = nil, object.Fail("read", p.b.name(p.id.Key), object.ErrClosed, "")
	return err
}
