// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

const (
	// pieceSize is the number of bytes of one read. It is a multiple of the alignment of O_DIRECT and of most blocks.
	pieceSize = 4 << 20
	// mostReaders is the largest number of reads at the same time.
	mostReaders = 16
)

// reading compares the content of one file with checksums. Its bytes are read in any order, each once.
type reading struct {
	file  *vfs.File
	sums  *checksum.Sums // of blocks: expected, or with Blocks nil if only the whole has a checksum
	found []uint64       // sums of the blocks so far
	mu    sync.Mutex
	next  atomic.Int64 // offset of the next piece
}

// newReading prepares the comparison of a file. Without checksums of blocks, it computes those of blocks of 1 MiB.
func newReading(o Opened) *reading {
	r := &reading{file: o.File, sums: o.Sums}
	if r.sums == nil {
		r.sums = &checksum.Sums{Size: o.File.Size(), Block: checksum.DefaultBlock}
	}
	r.found = make([]uint64, (r.sums.Size+r.sums.Block-1)/r.sums.Block)
	return r
}

// read reads the whole file with several goroutines. The function `count` is called with the size of each piece.
func (r *reading) read(ctx context.Context, join *checksum.Joiner, memory [][]byte, count func(n int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workers := len(memory)
	if remote := r.file.Remote(); remote != nil {
		workers = min(workers, max(remote.Parallel(), 1))
	}
	var group sync.WaitGroup
	for i := range min(int64(workers), (r.sums.Size+pieceSize-1)/pieceSize) {
		group.Go(func() {
			for ctx.Err() == nil {
				off := r.next.Add(pieceSize) - pieceSize
				n := min(pieceSize, r.sums.Size-off)
				if n <= 0 {
					return
				}
				p, err := r.piece(memory[i], off, n)
				if err != nil {
					cancel(err)
					return
				}
				r.add(join, p, off)
				count(n)
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return r.file.CheckUnchanged(false)
}

// piece reads n bytes at an offset. Bytes that are not in the page cache are read past it, so that a verification of
// large files does not evict the files of others.
func (r *reading) piece(buf []byte, off, n int64) ([]byte, error) {
	if ok, _ := r.file.Direct(); ok {
		if cached, known := r.file.CachedBytes(off, n); known && cached == 0 {
			align := r.file.Align().Offset
			whole := (n + align - 1) / align * align
			err := r.file.ReadDirect(buf[:whole], off, int(n))
			if !errors.Is(err, vfs.ErrDirectRefused) {
				return buf[:n], err
			}
		}
	}
	_, err := r.file.ReadAt(buf[:n], off)
	return buf[:n], err
}

// add adds a piece to the sums of its blocks.
func (r *reading) add(join *checksum.Joiner, p []byte, off int64) {
	for len(p) > 0 {
		i := off / r.sums.Block
		start, size := r.sums.Extent(i)
		part := p[:min(int64(len(p)), start+size-off)]
		sum := checksum.Of(part)
		p, off = p[len(part):], off+int64(len(part))
		sum = join.After(sum, start+size-off)
		r.mu.Lock()
		r.found[i] ^= sum
		r.mu.Unlock()
	}
}

// whole returns the checksum of the whole file.
func (r *reading) whole() uint64 {
	return wholeSum(&checksum.Sums{Size: r.sums.Size, Block: r.sums.Block, Blocks: r.found})
}

// damaged returns the ranges of blocks that differ from their checksums.
func (r *reading) damaged() []extent {
	var out []extent
	for i, want := range r.sums.Blocks {
		if r.found[i] == want {
			continue
		}
		off, n := r.sums.Extent(int64(i))
		if k := len(out) - 1; k >= 0 && out[k].off+out[k].size == off {
			out[k].size += n
			continue
		}
		out = append(out, extent{off: off, size: n})
	}
	return out
}

// buffers are the memory of the readers.
type buffers struct {
	region *hostmem.Region
	each   [][]byte
}

// newBuffers maps memory for reads of at most `bytes` bytes in total.
func newBuffers(bytes int64) (*buffers, error) {
	n := min(mostReaders, max(2, 2*runtime.GOMAXPROCS(0)), max(1, int((bytes+pieceSize-1)/pieceSize)))
	region, err := hostmem.Map(int64(n) * pieceSize)
	if err != nil {
		return nil, errs.Wrap("verify checkpoint", fmt.Sprintf("%d buffers", n), err)
	}
	b := &buffers{region: region}
	for i := range n {
		b.each = append(b.each, region.Bytes()[i*pieceSize:(i+1)*pieceSize])
	}
	return b, nil
}

func (b *buffers) free() error { return b.region.Unmap() }
