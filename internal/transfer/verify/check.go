// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
)

// Check sums data, which lies at off of a file, and judges each block that it
// completes. The file is one that the proof verifies.
func (p *Proof) Check(file int, off int64, data []byte) error {
	s := p.files[file].sums
	for len(data) > 0 {
		i := off / s.Block
		lo, n := s.Extent(i)
		part := data[:min(int64(len(data)), lo+n-off)]
		data = data[len(part):]
		off += int64(len(part))
		if err := p.piece(Block{file, i}, off-int64(len(part)), off, checksum.Of(part), ""); err != nil {
			return err
		}
	}
	return nil
}

// Tileable reports whether a device can sum the file: every tile lies in one
// block, and none is tiny. So it is where the block is a power of two, or there is
// one block alone.
func (p *Proof) Tileable(file int) bool {
	s := p.files[file].sums
	size := tileOf(s)
	return s.Block >= s.Size || size >= checksum.MinBlock && s.Block%size == 0
}

// Tiles is how a device cuts what lies at off of a file: the length of the first
// tile and that of those behind it.
func (p *Proof) Tiles(file int, off int64) (first, size int64) {
	size = tileOf(p.files[file].sums)
	return size - off%size, size
}

// tileOf is how the blocks of a file are cut for the device: at multiples of it.
func tileOf(s *checksum.Sums) int64 { return min(s.Block, device.SumTile) }

// CheckTiles puts together the tiles that a device made of n bytes at off of a
// file, and judges each block that they complete.
func (p *Proof) CheckTiles(file int, off, n int64, tiles []uint64, on string) error {
	s := p.files[file].sums
	size := tileOf(s)
	for end := off + n; off < end; {
		i := off / s.Block
		lo, n := s.Extent(i)
		from, stop := off, min(end, lo+n)
		var sum uint64
		for off < stop {
			next := min(stop, (off/size+1)*size)
			sum = p.join.After(sum, next-off) ^ tiles[0]
			tiles, off = tiles[1:], next
		}
		if err := p.piece(Block{file, i}, from, stop, sum, on); err != nil {
			return err
		}
	}
	return nil
}

// piece takes the sum of a piece of a block, from one offset of the file to
// another, and judges the block where it was the last.
func (p *Proof) piece(b Block, from, to int64, sum uint64, on string) error {
	s := p.files[b.File].sums
	lo, n := s.Extent(b.Index)
	if to < lo+n {
		sum = p.join.After(sum, lo+n-to)
	}
	sum, whole := p.add(b, n, to-from, sum)
	if !whole {
		return nil
	}
	if sum != s.Blocks[b.Index] {
		return p.judge.Wrong(b, sum, on)
	}
	p.got.Add(1)
	p.judge.Right(b)
	return nil
}

// add joins a piece of n bytes to its block of size bytes and tells, when the
// block is whole, its sum.
func (p *Proof) add(id Block, size, n int64, sum uint64) (uint64, bool) {
	if n == size {
		return sum, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.open[id]
	if b == nil {
		b = &blockSum{left: size}
		p.open[id] = b
	}
	b.sum ^= sum
	if b.left -= n; b.left > 0 {
		return 0, false
	}
	delete(p.open, id)
	return b.sum, true
}
