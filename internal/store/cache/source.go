// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"io"

	"github.com/nebulaio/nebulaio/internal/cluster"
	"github.com/nebulaio/nebulaio/internal/object"
)

// source reads a range of one content from a neighbour or the upstream. If a neighbour fails, the source goes on with
// the upstream, which resumes a broken read itself. If another flight reads the same blocks from the upstream already,
// for a third node, the source ends with errPassed, and its readers follow that flight.
type source struct {
	ctx      context.Context
	v        *version
	f        *flight
	pos, end int64

	near  cluster.Blocks
	rest  []byte // of the block that the neighbour gave last
	far   io.ReadCloser
	alone bool // neighbours are not asked any more
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	for {
		if s.pos >= s.end {
			return 0, io.EOF
		}
		p = p[:min(int64(len(p)), s.end-s.pos)]
		if s.f.from == object.ServedPeer && !s.alone {
			if n, ok := s.readNear(p); ok {
				s.pos += int64(n)
				return n, nil
			}
			s.alone = true
			if s.v.bringsElsewhere(s.f, s.pos/blockSize) {
				return 0, errPassed // another fetch reads the upstream already
			}
			s.f.goAlone()
			continue
		}
		n, err := s.readFar(p)
		s.pos += int64(n)
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// readNear reads from a neighbour. It returns false if the rest has to come from the upstream.
func (s *source) readNear(p []byte) (int, bool) {
	if s.near == nil {
		span := cluster.Span{Extent: s.pos / object.Extent, First: s.pos / blockSize}
		span.Count = blockCount(s.end) - span.First
		b, err := s.v.b.s.neighbours().Fetch(s.ctx, s.v.id, span)
		if err != nil {
			s.v.b.s.peerFailed(err)
			return 0, false
		}
		s.near = b
	}
	if len(s.rest) == 0 {
		b, err := s.near.Next()
		if err != nil || b.Index != s.pos/blockSize || int64(len(b.Data)) != s.v.length(b.Index) {
			if err != nil && !errors.Is(err, io.EOF) {
				s.v.b.s.peerFailed(err)
			}
			_ = s.near.Close() // only read from
			s.near = nil
			return 0, false
		}
		s.rest = b.Data
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, true
}

func (s *source) readFar(p []byte) (int, error) {
	if s.far == nil {
		began := s.v.b.s.now()
		r, err := s.v.b.From.Fetch(s.ctx, s.v.id, s.pos, s.end-s.pos)
		if err != nil {
			return 0, err
		}
		s.v.b.answered(began)
		s.far = r
	}
	return s.far.Read(p)
}

// Close implements io.Closer.
func (s *source) Close() error {
	if s.near != nil {
		_ = s.near.Close() // only read from
	}
	if s.far != nil {
		return s.far.Close()
	}
	return nil
}
