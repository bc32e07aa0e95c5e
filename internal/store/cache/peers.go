// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/cluster"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Blocks implements cluster.Extents. Blocks never asks a neighbour.
func (s *Store) Blocks(ctx context.Context, id object.Identity, span cluster.Span) (cluster.Blocks, error) {
	b := s.byOrigin[id.Origin]
	if b == nil {
		return nil, errs.New(errs.NotFound, "read blocks of", id.Key, "no upstream bucket of this node has the origin "+
			id.Origin)
	}
	if err := span.Check(id); err != nil {
		return nil, err
	}
	v, kept, err := s.shelf.take(ctx, b, id, nil, -1, true)
	if err != nil {
		return nil, err
	}
	r := span.Range(id)
	out := &served{id: id, next: span.First, end: span.First + span.Count, sum: func(_ int64, p []byte) (uint64, error) {
		return checksum.Of(p), nil
	}}
	if !kept {
		out.body = newPlainBody(ctx, b, id, nil, r, nil)
	} else {
		out.body = &body{ctx: ctx, v: v, own: true, pos: r.Off, end: r.Off + r.N}
	}
	if err := out.body.(object.Verifier).Verify(); err != nil {
		_ = out.body.Close() // only read from
		return nil, err
	}
	return out, nil
}

// served is the blocks of a span that another node reads.
type served struct {
	id        object.Identity
	next, end int64
	body      object.Body
	sum       func(block int64, p []byte) (uint64, error)
	buf       []byte
	err       error
}

// Next implements cluster.Blocks.
func (b *served) Next() (cluster.Block, error) {
	if b.err == nil && b.next == b.end {
		b.err = io.EOF
	}
	if b.err != nil {
		return cluster.Block{}, b.err
	}
	if b.buf == nil {
		b.buf = (*blocks.Get().(*[]byte))[:blockSize]
	}
	p := b.buf[:min(blockSize, b.id.Size-b.next*blockSize)]
	if _, err := io.ReadFull(b.body, p); err != nil {
		b.err = errs.Wrap("read", b.id.Key, err)
		return cluster.Block{}, b.err
	}
	sum, err := b.sum(b.next, p)
	if err != nil {
		b.err = err
		return cluster.Block{}, err
	}
	out := cluster.Block{Index: b.next, Sum: sum, Data: p}
	b.next++
	return out, nil
}

// Close implements cluster.Blocks.
func (b *served) Close() error {
	if b.err == nil {
		b.err = errs.New(errs.Closed, "read", b.id.Key, "the blocks are closed")
	}
	return b.body.Close()
}

// peerFailed counts and logs a neighbour that gave nothing.
func (s *Store) peerFailed(err error) {
	if errors.Is(err, cluster.ErrOwner) {
		return
	}
	s.counts.peerFailures.Add(1)
	s.log.Debug("a neighbour gave no blocks", "error", fmt.Sprint(err))
}
