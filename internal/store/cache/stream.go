// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"io"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// headSize is the largest number of bytes that are read together with the answer of the upstream. The first of them
// usually come in the same packet as the header of the reply.
const headSize = 8 << 10

// stream is a body of the upstream with the function that ends its request.
type stream struct {
	body io.ReadCloser
	end  context.CancelFunc
	head []byte // first bytes of the body, which Read returns before all others
	err  error  // error of the read of head
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	if len(s.head) > 0 {
		n := copy(p, s.head)
		s.head = s.head[n:]
		return n, nil
	}
	if s.err != nil {
		return 0, s.err
	}
	return s.body.Read(p)
}

// takeHead returns the bytes that were read ahead. Read does not return them any more.
func (s *stream) takeHead() []byte {
	head := s.head
	s.head = nil
	return head
}

// Close implements io.Closer.
func (s *stream) Close() error {
	err := s.body.Close()
	s.end()
	return err
}

// openStream asks for the description and for bytes of an object. The returned body does not depend on ctx, because
// other readers may follow it after the request that asked for it has ended.
//
// openStream also reads the first bytes, so that the goroutine of the client's request has them without waiting for
// another goroutine. It reads none of the last block of the content, which nobody gets before the content is compared.
func (b *bucket) openStream(ctx context.Context, ref object.Ref, off, n int64) (upstream.About, *stream, error) {
	own, cancel := context.WithCancel(b.s.fetches)
	stop := context.AfterFunc(ctx, cancel)
	about, body, err := b.opener.Open(own, ref.Key, ref.Version, off, n)
	s := &stream{body: body, end: cancel}
	if err == nil && off/blockSize < blockCount(about.Identity.Size)-1 {
		head := make([]byte, headSize)
		var k int
		k, s.err = body.Read(head)
		s.head = head[:k]
	}
	if !stop() && err == nil { // ctx has ended in the meantime
		_ = body.Close() // only read from
		err = errs.Wrap("open", b.name(ref.Key), context.Cause(ctx))
	}
	if err != nil {
		cancel()
		if ctx.Err() != nil {
			err = errs.Wrap("open", b.name(ref.Key), context.Cause(ctx))
		}
		return about, nil, err
	}
	return about, s, nil
}
