// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Pieces reads ranges (pieces) of one data file in order, and compares each piece with its checksum before it returns
// any byte of the piece. Pieces is for reading the regions of a Shared file, because a region may begin or end within a
// block. A Pieces must be used by one goroutine at a time.
type Pieces struct {
	f      *Files
	id     ID
	file   vfs.File
	pieces []Piece
	block  *[Block]byte
	left   []byte // bytes of block that were not returned yet
}

// OpenPieces opens a data file for reading the given pieces. If the file is missing, OpenPieces returns a *Damage.
func (f *Files) OpenPieces(id ID, pieces []Piece) (*Pieces, error) {
	for _, p := range pieces {
		if p.N <= 0 || p.Off < 0 || p.Off > MaxSize-Block || p.N > Block-p.Off%Block {
			return nil, errs.New(errs.Invalid, "open", f.Path(id),
				fmt.Sprintf("piece [%d, +%d) does not lie within one block of %d bytes", p.Off, p.N, Block))
		}
	}
	file, err := f.find(id)
	switch {
	case missing(err):
		return nil, &Damage{ID: id, File: f.Path(id), What: "missing", Err: err}
	case rotten(err):
		return nil, &Damage{ID: id, File: f.Path(id), What: "unreadable", Err: err}
	case err != nil:
		return nil, errs.Wrap("open", f.Path(id), err)
	}
	return &Pieces{f: f, id: id, file: file, pieces: pieces}, nil
}

// Read implements io.Reader. If a piece differs from its checksum or cannot be read, Read returns a *Damage.
func (p *Pieces) Read(b []byte) (int, error) {
	for len(p.left) == 0 {
		if len(p.pieces) == 0 {
			return 0, io.EOF
		}
		if err := p.load(p.pieces[0]); err != nil {
			return 0, err
		}
		p.pieces = p.pieces[1:]
	}
	n := copy(b, p.left)
	p.left = p.left[n:]
	return n, nil
}

// load reads and compares one piece.
func (p *Pieces) load(at Piece) error {
	if p.block == nil {
		p.block = p.f.buffers.block()
	}
	b := p.block[:at.N]
	damage := func(what string, err error) error {
		return &Damage{ID: p.id, File: p.f.Path(p.id), Off: at.Off, N: at.N, What: what, Err: err}
	}
	n, err := p.file.ReadAt(b, at.Off)
	switch {
	case n == len(b):
	case errors.Is(err, io.EOF):
		return damage("short", nil)
	case rotten(err):
		return damage("unreadable", err)
	default:
		return errs.Wrap("read", p.f.Path(p.id), err)
	}
	if got := checksum.Of(b); got != at.CRC64 {
		return damage("checksum", errs.New(errs.Corrupt, "verify", "",
			fmt.Sprintf("the sum is %016x, expected %016x", got, at.CRC64)))
	}
	p.left = b
	return nil
}

// Close closes the data file.
func (p *Pieces) Close() error {
	if p.block != nil {
		p.f.buffers.blocks.Put(p.block)
		p.block, p.left = nil, nil
	}
	return errs.Wrap("close", p.f.Path(p.id), p.file.Close())
}

// Length returns the length of a data file on disk, in tmp/ or in data/. If the file is missing, Length returns a
// *Damage.
func (f *Files) Length(id ID) (int64, error) {
	file, err := f.find(id)
	if missing(err) {
		return 0, &Damage{ID: id, File: f.Path(id), What: "missing", Err: err}
	}
	if err != nil {
		return 0, errs.Wrap("stat", f.Path(id), err)
	}
	info, err := file.Stat()
	if e := file.Close(); err == nil {
		err = e
	}
	if err != nil {
		return 0, errs.Wrap("stat", f.Path(id), err)
	}
	return info.Size(), nil
}

// Cut splits the range of n bytes at offset off into pieces at the block boundaries of the file, and assigns the
// checksums in sums to the pieces in order. Cut returns false if the number of checksums differs from the number of
// pieces.
func Cut(off, n int64, sums []uint64) ([]Piece, bool) {
	if off < 0 || n < 0 || off > MaxSize || n > MaxSize-off {
		return nil, false
	}
	pieces := make([]Piece, 0, len(sums))
	for end := off + n; off < end; {
		if len(pieces) == len(sums) {
			return nil, false
		}
		k := min(Block-off%Block, end-off)
		pieces = append(pieces, Piece{Off: off, N: k, CRC64: sums[len(pieces)]})
		off += k
	}
	return pieces, len(pieces) == len(sums)
}
