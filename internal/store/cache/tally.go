// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"io"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// tally computes the CRC-64/NVME of the bytes that a reader of whole content has got. The bytes may come from several
// flights and from the disk, and some of them may never be on the disk. So each reader compares what it got itself.
type tally struct {
	begun  bool   // bytes came from elsewhere than the disk
	lost   bool   // the checksum of some bytes is unknown
	passed bool   // the whole was compared, or cannot be compared
	pos    int64  // number of bytes that were counted
	crc    uint64 // of the bytes before pos
	start  uint64 // of the bytes before the block at pos
}

// add counts bytes from memory.
func (t *tally) add(v *version, p []byte) {
	join := v.b.s.join
	for len(p) > 0 {
		n := min(blockSize-t.pos%blockSize, int64(len(p)))
		t.crc = join.After(t.crc, n) ^ checksum.Of(p[:n])
		t.pos += n
		p = p[n:]
		if t.pos%blockSize == 0 {
			t.start = t.crc
		}
	}
}

// skip counts n bytes that went from the disk to the reader. The checksums of their blocks are known.
func (t *tally) skip(v *version, n int64) {
	for end := t.pos + n; t.pos < end; {
		at := t.pos / blockSize
		sums, err := v.entry.Sums(at, 1)
		if err != nil || at*blockSize+v.length(at) > end {
			t.lost, t.pos = true, end
			return
		}
		t.start = v.b.s.join.After(t.start, v.length(at)) ^ sums[0]
		t.crc, t.pos = t.start, at*blockSize+v.length(at)
	}
}

// counter is a tally of what is written to it.
type counter struct {
	tally
	v *version
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	c.add(c.v, p)
	return len(p), nil
}

// given counts bytes at pos that the reader gets from memory.
func (b *body) given(p []byte) {
	if !b.whole || b.tally.passed {
		return
	}
	if !b.tally.begun && b.v.incomparable() {
		b.tally.passed = true // there is nothing to compare with
		return
	}
	b.begin()
	b.tally.add(b.v, p)
}

// begin begins to count. The bytes before pos came from the disk.
func (b *body) begin() {
	if !b.tally.begun {
		b.tally.begun = true
		b.tally.skip(b.v, b.pos)
	}
}

// guarded reports whether the reader has to compare the whole content before it gets the last block.
func (b *body) guarded() bool {
	return b.whole && !b.tally.passed && (b.tally.begun || b.v.entry.Proof() == "") && !b.v.incomparable()
}

// compare compares the whole content that the reader is about to get. The parameter is the checksum of the last block,
// at which the reader is.
func (b *body) compare(last uint64) error {
	b.begin()
	v, t := b.v, &b.tally
	want, known := v.wholeCRC()
	got := v.b.s.join.After(t.crc, b.end-t.pos) ^ last
	switch {
	case !known || t.lost:
		return errs.New(errs.IO, "read", v.b.name(v.id.Key), "the disk did not take the whole content, so that it cannot be "+
			"compared with the upstream's checksum").WithFix("read the object again")
	case got != want:
		v.b.s.counts.wrong.Add(1)
		return wrongReply(v.b.name(v.id.Key), "the bytes of this read differ from the content that was compared")
	}
	t.passed = true
	return nil
}

// settle waits until the content has been compared, whose last block is on the disk. A reader of the whole content also
// compares what it got.
func (b *body) settle() error {
	v := b.v
	if b.whole && !v.vouches() {
		v.fill(b.ctx)
	}
	if err := v.settle(b.ctx); err != nil || !b.guarded() {
		return err
	}
	sums, err := v.entry.Sums(blockCount(b.end)-1, 1)
	if err != nil {
		return err
	}
	return b.compare(sums[0])
}

// goFar reads the rest from the upstream without the cache, after the disk has refused a block.
func (b *body) goFar() error {
	v, about := b.v, b.v.described()
	rest := object.Range{Off: b.pos, N: b.end - b.pos}
	guarded := about != nil && b.guarded()
	if guarded {
		b.begin()
	}
	var far *plainBody
	switch {
	case guarded && about.HasCRC64 && !b.tally.lost:
		far = newPlainBody(b.ctx, v.b, v.id, about, rest, nil)
		far.whole, far.crc = true, b.tally.crc
	case guarded: // the MD5 needs all bytes
		far = newPlainBody(b.ctx, v.b, v.id, about, object.Range{N: v.id.Size}, nil)
		again := counter{v: v}
		if _, err := io.CopyN(&again, struct{ io.Reader }{far}, b.pos); err != nil {
			_ = far.Close() // only read from
			return err
		}
		if again.crc != b.tally.crc || b.tally.lost {
			_ = far.Close() // only read from
			v.b.s.counts.wrong.Add(1)
			return wrongReply(v.b.name(v.id.Key), "two reads gave different bytes")
		}
	default:
		far = newPlainBody(b.ctx, v.b, v.id, about, rest, nil)
	}
	if err := far.Verify(); err != nil {
		_ = far.Close() // only read from
		return err
	}
	b.far = far
	return nil
}
