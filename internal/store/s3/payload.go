// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// payload is the body of a request, made of blocks. If framed, each block is a chunk of aws-chunked, and the checksum
// of all blocks follows as a trailer, because it is known only after the last block. Each block is summed right
// before it is sent.
type payload struct {
	src    vfs.Blocks
	join   *checksum.Joiner
	framed bool

	pending net.Buffers // what is next, of one block
	whole   bool        // nothing follows pending

	mu    sync.Mutex // the reply can come before the body is through
	sum   uint64
	size  int64
	ended bool // everything was read, and none failed
}

const trailerName = "x-amz-checksum-crc64nvme"

// framedSize returns the length of size bytes in blocks of this length, including their frames.
func framedSize(size, block int64) int64 {
	frame := func(n int64) int64 { return int64(len(strconv.FormatInt(n, 16))) + 2 + n + 2 }
	total := size / block * frame(block)
	if rest := size % block; rest > 0 {
		total += frame(rest)
	}
	return total + int64(len("0\r\n"+trailerName+":")) + 12 + int64(len("\r\n\r\n"))
}

func sumText(sum uint64) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, sum))
}

// parseSum parses a CRC-64/NVME in a header. It returns false if there is none, or if it is a checksum of checksums
// of parts.
func parseSum(s string) (uint64, bool) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(b), true
}

// fill makes pending the next block; it returns io.EOF after the last one.
func (p *payload) fill() error {
	for len(p.pending) == 0 {
		if p.whole {
			return io.EOF
		}
		b, err := p.src.Next()
		if err != nil && err != io.EOF {
			return &sourceError{err}
		}
		p.mu.Lock()
		if err == io.EOF {
			p.whole, p.ended = true, true
			if p.framed {
				p.pending = net.Buffers{[]byte("0\r\n" + trailerName + ":" + sumText(p.sum) + "\r\n\r\n")}
			}
		} else if len(b) > 0 {
			p.sum = p.join.After(p.sum, int64(len(b))) ^ checksum.Of(b)
			p.size += int64(len(b))
			if p.pending = append(p.pending[:0], b); p.framed {
				p.pending = net.Buffers{[]byte(strconv.FormatInt(int64(len(b)), 16) + "\r\n"), b, []byte("\r\n")}
			}
		}
		p.mu.Unlock()
	}
	return nil
}

// Read returns the next bytes of the body; net/http calls Read on TLS connections.
func (p *payload) Read(to []byte) (int, error) {
	if err := p.fill(); err != nil {
		return 0, err
	}
	n := copy(to, p.pending[0])
	if p.pending[0] = p.pending[0][n:]; len(p.pending[0]) == 0 {
		p.pending = p.pending[1:]
	}
	return n, nil
}

// writeTo sends the body over a plain connection, each block in one call. The length of a body is known, so that most
// is only a guard.
func (p *payload) writeTo(c *conn, most int64) (int64, error) {
	var sent int64
	for sent < most {
		err := p.fill()
		if err == io.EOF {
			return sent, nil
		}
		if err != nil {
			return sent, err
		}
		next := p.pending
		p.pending = nil
		n, err := c.writeAll(next)
		if sent += n; err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// Close releases the blocks of the body; net/http calls Close when it has stopped reading the body.
func (p *payload) Close() error { return p.src.Close() }

// result returns the checksum and the size of the sent bytes; whole is false if not everything was sent.
func (p *payload) result() (sum uint64, size int64, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sum, p.size, p.ended
}

// sourceError is a failure of the caller's blocks, which no retry can help.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// gather reads blocks of size bytes together.
func gather(src vfs.Blocks, size int64) ([]byte, error) {
	defer src.Close()
	out := make([]byte, 0, size)
	for {
		b, err := src.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if int64(len(out)+len(b)) > size {
			return nil, errs.New(errs.Other, "upload", "", "blocks hold more bytes than they were said to; this is a defect")
		}
		out = append(out, b...)
	}
	if int64(len(out)) != size {
		return nil, errs.New(errs.Other, "upload", "", "blocks hold fewer bytes than they were said to; this is a defect")
	}
	return out, nil
}
