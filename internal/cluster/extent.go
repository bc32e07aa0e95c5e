// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// BlockSize is the size of a block in bytes. The last block of an object may be shorter.
const BlockSize = checksum.DefaultBlock

// ErrOwner means that this node has to read the blocks from upstream itself. Fetch returns ErrOwner if this node is the
// owner, and if no other member can be asked before it.
var ErrOwner = errors.New("this node is the owner of the extent")

// ErrUnreachable means that no owner gave the blocks. The caller reads the blocks from upstream.
var ErrUnreachable = errors.New("no owner of the extent gave its blocks")

// Block is one block of an object with its checksum.
type Block struct {
	Index int64  // number of the block in the object: its first byte has the offset Index * BlockSize
	Sum   uint64 // CRC-64/NVME of Data
	// Data are the bytes of the block. Data is valid until the next call of Next or Close.
	Data []byte
}

// Blocks reads blocks of an extent in order. Only one goroutine uses a Blocks at a time, but any goroutine may call
// Close.
type Blocks interface {
	// Next returns the next block as soon as the block is there. After the last block, Next returns io.EOF. After
	// another error, every call of Next returns that error.
	Next() (Block, error)
	// Close frees the resources of the Blocks. The caller closes the Blocks also after an error and after io.EOF.
	Close() error
}

// Extents gives the blocks that this node serves to other members. The store behind the cache implements Extents.
type Extents interface {
	// Blocks returns the blocks of span from the local disk. Blocks reads absent blocks from upstream, because the
	// other member believes that this node is the owner. Blocks never asks another member, so that two members with
	// different lists of members cannot wait for each other.
	//
	// The Origin of id must be an upstream bucket of this node, else Blocks fails with kind NotFound. Blocks compares the
	// bytes with their checksums, or with what upstream says, before Next returns them. Several requests for the same
	// blocks share one read from upstream. The context ends when the other member has closed its request.
	Blocks(ctx context.Context, id object.Identity, span Span) (Blocks, error)
}

// Span is a run of blocks in one extent of an object.
type Span struct {
	Extent int64 // number of the extent
	First  int64 // number of the first block in the object
	Count  int64 // number of blocks, 1 or more
}

// SpanOf returns the whole extent as a Span.
func SpanOf(id object.Identity, extent int64) Span {
	first := extent * (object.Extent / BlockSize)
	return Span{Extent: extent, First: first, Count: blocksOf(id.ExtentRange(extent).N)}
}

// Check fails with kind Invalid if the span is not within one extent of id.
func (s Span) Check(id object.Identity) error {
	if id.Size < 0 || s.Extent < 0 || s.Extent >= id.Extents() {
		return errs.New(errs.Invalid, "read blocks of", id.Key,
			fmt.Sprintf("extent %d does not exist; the object of %d bytes has %d", s.Extent, id.Size, id.Extents()))
	}
	whole := SpanOf(id, s.Extent)
	if s.First < whole.First || s.Count < 1 || s.Count > whole.Count || s.First-whole.First > whole.Count-s.Count {
		return errs.New(errs.Invalid, "read blocks of", id.Key, fmt.Sprintf("%d blocks from block %d are not in extent %d; "+
			"expected at most %d blocks from block %d", s.Count, s.First, s.Extent, whole.Count, whole.First))
	}
	return nil
}

// Range returns the bytes of the span in the object.
func (s Span) Range(id object.Identity) object.Range {
	off := s.First * BlockSize
	return object.Range{Off: off, N: min(s.Count*BlockSize, id.Size-off)}
}

func blocksOf(size int64) int64 { return (size + BlockSize - 1) / BlockSize }

// lengthOf returns the length in bytes of a block of id.
func lengthOf(id object.Identity, index int64) int64 { return min(BlockSize, id.Size-index*BlockSize) }
