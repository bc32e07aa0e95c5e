// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/md5"
	"hash"
	"io"

	"github.com/nebulaio/nebulaio/internal/checksum"
)

// Reader reads content and returns its sealed blocks. Only one goroutine at a time may use a Reader.
type Reader struct {
	src       io.Reader
	s         *Stream
	cur, next []byte // the block to seal, and the one behind it, which tells whether cur is the last
	out       []byte // sealed bytes that nobody has read yet
	buf       []byte
	index     int64
	begun     bool
	ended     bool // src has ended
	done      bool // the last block is sealed
	err       error

	sum  hash.Hash
	size int64
	crc  uint64
}

// NewReader returns a Reader that seals the bytes of src. withMD5 lets Written return the MD5 of the content.
func NewReader(src io.Reader, s *Stream, withMD5 bool) *Reader {
	r := &Reader{src: src, s: s, cur: make([]byte, 0, Block), next: make([]byte, 0, Block)}
	if withMD5 {
		r.sum = md5.New()
	}
	return r
}

// Written returns the size, the CRC-64/NVME and the MD5 of the content, which must have been read to its end. The MD5
// is nil if NewReader did not ask for it.
func (r *Reader) Written() (size int64, crc uint64, md5 []byte) {
	if r.sum != nil {
		md5 = r.sum.Sum(nil)
	}
	return r.size, r.crc, md5
}

// Read implements io.Reader. An error of the source is returned as it is, and no block after it.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.out) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if r.done {
			return 0, io.EOF
		}
		if err := r.advance(); err != nil {
			r.err = err
			return 0, err
		}
		if len(p) >= len(r.cur)+Tag {
			return len(r.sealTo(p[:0])), nil
		}
		if r.buf == nil {
			r.buf = make([]byte, 0, Block+Tag)
		}
		r.out = r.sealTo(r.buf)
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// advance makes the next block of the source the current one.
func (r *Reader) advance() error {
	if !r.begun {
		r.begun = true
		if err := r.fill(&r.next); err != nil {
			return err
		}
	}
	r.cur, r.next = r.next, r.cur[:0]
	return r.fill(&r.next)
}

// fill reads a block, which is shorter only at the end of the source.
func (r *Reader) fill(b *[]byte) error {
	p := *b
	for len(p) < Block && !r.ended {
		n, err := r.src.Read(p[len(p):Block])
		p = p[:len(p)+n]
		if err == io.EOF {
			r.ended = true
		} else if err != nil {
			return err
		}
	}
	*b = p
	return nil
}

// sealTo appends the sealed current block to dst.
func (r *Reader) sealTo(dst []byte) []byte {
	if r.sum != nil {
		r.sum.Write(r.cur)
	}
	r.size += int64(len(r.cur))
	r.crc = checksum.Add(r.crc, r.cur)
	r.done = r.ended && len(r.next) == 0
	out := r.s.Seal(dst, r.cur, r.index, r.done)
	r.index++
	return out
}
