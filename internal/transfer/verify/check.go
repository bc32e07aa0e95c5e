// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
)

// Check computes the checksum of `data`, the bytes at offset off of a file, and compares each block of which all bytes
// have now been seen. The file must have checksums; see Verifies.
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

// Tileable reports whether a device can compute the checksums of a file. A device computes checksums in tiles, which
// are ranges of bytes of equal size. The tile size must divide the block size and be at least checksum.MinBlock. A
// file with only one block, or with a block size that is a power of two, is tileable.
func (p *Proof) Tileable(file int) bool {
	s := p.files[file].sums
	size := tileOf(s)
	return s.Block >= s.Size || size >= checksum.MinBlock && s.Block%size == 0
}

// Tiles returns the sizes of the tiles in which a device computes the checksums of bytes at offset off of a file. The
// result `first` is the size of the first tile, and `size` is the size of all other tiles.
func (p *Proof) Tiles(file int, off int64) (first, size int64) {
	size = tileOf(p.files[file].sums)
	return size - off%size, size
}

// tileOf returns the size of the tiles into which the device splits the blocks of a file.
func tileOf(s *checksum.Sums) int64 { return min(s.Block, device.SumTile) }

// CheckTiles joins the tile checksums that a device computed for n bytes at offset off of a file, and compares each
// block of which all bytes have now been seen. The parameter `on` is the name of the device.
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

// piece adds the checksum of the file range [from, to) to its block. If the block is now complete, piece compares its
// checksum.
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

// add joins the checksum of n bytes to its block of size bytes. If the block is complete, add returns the block's
// checksum and true.
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
