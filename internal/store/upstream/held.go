// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"crypto/md5" //nolint:gosec // S3 names it
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// held is the content of a write. It keeps the last bytes back until the caller's Finish has agreed to the content. If
// Finish refuses, the request breaks off before its last byte, and the upstream stores nothing.
type held struct {
	src    io.Reader
	name   string
	size   int64
	join   *checksum.Joiner
	finish func(object.Written) error

	mu   sync.Mutex // net/http can read a body after the reply has come
	got  int64
	sum  uint64
	md5  hash.Hash
	err  error
	done bool // whether finish has agreed
}

// newHeld returns a held. The function finish is called once, after the last byte.
func (b *Bucket) newHeld(name string, src io.Reader, size int64, withMD5 bool,
	finish func(object.Written) error) *held {
	h := &held{src: src, name: name, size: size, join: b.join, finish: finish}
	if withMD5 {
		h.md5 = md5.New() //nolint:gosec // S3 names it
	}
	return h
}

// Read implements io.Reader.
func (h *held) Read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.err != nil:
		return 0, h.err
	case h.done:
		return 0, io.EOF
	case h.got == h.size: // the content is empty
		if h.err = h.end(); h.err != nil {
			return 0, h.err
		}
		return 0, io.EOF
	}
	n, err := h.src.Read(p[:min(int64(len(p)), h.size-h.got)])
	h.add(p[:n])
	switch {
	case err != nil && err != io.EOF:
		h.err = err
	case h.got == h.size:
		h.err = h.end()
	case err == io.EOF:
		h.err = object.Fail("put", h.name, object.ErrIncompleteBody, fmt.Sprintf("%d bytes, expected %d", h.got, h.size))
	}
	if h.err != nil {
		return 0, h.err
	}
	return n, nil
}

// add sums bytes of the content.
func (h *held) add(p []byte) {
	if len(p) == 0 {
		return
	}
	h.sum = h.join.After(h.sum, int64(len(p))) ^ checksum.Of(p)
	if h.md5 != nil {
		h.md5.Write(p)
	}
	h.got += int64(len(p))
}

// end checks that the source has no more bytes, and asks finish.
func (h *held) end() error {
	var one [1]byte
	for {
		n, err := h.src.Read(one[:])
		if n > 0 {
			return object.Fail("put", h.name, object.ErrIncompleteBody, fmt.Sprintf("more than the %d bytes announced", h.size))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if err := h.finish(h.written()); err != nil {
		return err
	}
	h.done = true
	return nil
}

func (h *held) written() object.Written {
	w := object.Written{Size: h.got, CRC64: h.sum}
	if h.md5 != nil {
		w.MD5 = h.md5.Sum(nil)
	}
	return w
}

// result returns the error of the source or of finish, and whether all bytes were handed out.
func (h *held) result() (sum uint64, whole bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sum, h.done, h.err
}

// Close implements io.Closer. Reads after Close fail, so that nobody reads the source of a call that has returned.
func (h *held) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil && !h.done {
		h.err = errUnread
	}
	return nil
}

var errUnread = errors.New("the request ended before its content was read")

// frameSize is the size in bytes of a chunk in the format aws-chunked.
const frameSize = 256 << 10

// framed sends content in the format aws-chunked, with a checksum as trailer.
type framed struct {
	h       *held
	trailer string // name of the header
	value   func() string
	buf     []byte
	out     []byte // what is to be returned next
	ended   bool
}

// framedLength returns the length of size bytes in the format aws-chunked, with a trailer of n bytes.
func framedLength(size int64, trailer string, n int) int64 {
	frame := func(n int64) int64 { return int64(len(strconv.FormatInt(n, 16))) + 2 + n + 2 }
	total := size / frameSize * frame(frameSize)
	if rest := size % frameSize; rest > 0 {
		total += frame(rest)
	}
	return total + int64(len("0\r\n")+len(trailer)+1+n+len("\r\n\r\n"))
}

// Read implements io.Reader.
func (f *framed) Read(p []byte) (int, error) {
	for len(f.out) == 0 {
		if f.ended {
			return 0, io.EOF
		}
		if f.buf == nil {
			f.buf = make([]byte, frameSize+32)
		}
		const room = 16 // for the line before the chunk
		n, err := io.ReadFull(f.h, f.buf[room:room+frameSize])
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return 0, err
		}
		if n > 0 {
			head := s3.FrameHead(n)
			copy(f.buf[room-len(head):], head)
			copy(f.buf[room+n:], "\r\n")
			f.out = f.buf[room-len(head) : room+n+2]
			continue
		}
		f.out, f.ended = s3.FrameTrailer(f.trailer, f.value()), true
	}
	n := copy(p, f.out)
	f.out = f.out[n:]
	return n, nil
}

// Close implements io.Closer.
func (f *framed) Close() error { return f.h.Close() }

func sumText(sum uint64) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, sum))
}

// withMD5 returns the header Content-MD5 of a document, which some requests must have.
func withMD5(doc []byte) http.Header {
	sum := md5.Sum(doc) //nolint:gosec // S3 names it
	return http.Header{"Content-Md5": {base64.StdEncoding.EncodeToString(sum[:])}, "Content-Type": {"application/xml"}}
}
