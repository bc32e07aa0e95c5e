// SPDX-License-Identifier: Apache-2.0

package checksum

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// readSize is the number of bytes that one goroutine reads and sums at a time. It is small enough that the bytes are
// still in the core's cache when they are summed.
const readSize = 1 << 20

// mostReaders is the largest number of goroutines of Compute; more would only wait for the disk.
const mostReaders = 8

// Compute reads file and computes the checksum of each block. The parameter `block` is the block size in bytes; 0
// means DefaultBlock. The function progress, if not nil, receives the number of bytes read so far, and the total
// number of bytes to read. Calls of progress do not overlap. If the file changes during Compute, the error is of kind
// IO. If the context ends, the error is of kind Cancelled. Compute writes no file.
func Compute(ctx context.Context, file string, block int64, progress func(done, total int64)) (*Sums, error) {
	const op = "checksum"
	if block == 0 {
		block = DefaultBlock
	}
	if err := checkBlock(block); err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, wrap(op, file, err)
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return nil, wrap(op, file, err)
	}
	if !before.Mode().IsRegular() {
		return nil, errs.New(errs.Invalid, op, file, "is not a regular file")
	}
	size := before.Size()
	if n := blocksOf(size, block); n > MaxBlocks {
		return nil, errs.New(errs.Unsupported, op, file, fmt.Sprintf("has %d blocks of %d bytes, expected at most %d", n,
			block, MaxBlocks)).WithFix("use larger blocks")
	}
	s := &Sums{Size: size, Block: block, Blocks: make([]uint64, blocksOf(size, block)), of: idOf(before)}
	if err := s.fill(ctx, f, progress); err != nil {
		return nil, wrap(op, file, err)
	}
	after, err := f.Stat()
	if err != nil {
		return nil, wrap(op, file, err)
	}
	if after.Size() != size || !after.ModTime().Equal(before.ModTime()) {
		return nil, errs.New(errs.IO, op, file,
			"the file changed while it was being read").WithFix("run it again when nobody writes to the file")
	}
	return s, nil
}

// fill sums the blocks of r with a few goroutines. Each goroutine takes the next block.
func (s *Sums) fill(ctx context.Context, r io.ReaderAt, progress func(done, total int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	join := NewJoiner()
	var next atomic.Int64
	var mu sync.Mutex
	done := int64(0)
	tell := func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		done += n
		if progress != nil {
			progress(done, s.Size)
		}
	}
	var group sync.WaitGroup
	for range min(len(s.Blocks), mostReaders, runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			buf := make([]byte, min(readSize, s.Block))
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= int64(len(s.Blocks)) {
					return
				}
				off, n := s.Extent(i)
				for end := off + n; off < end && ctx.Err() == nil; {
					p := buf[:min(int64(len(buf)), end-off)]
					if n, err := r.ReadAt(p, off); n < len(p) {
						if errors.Is(err, io.EOF) {
							err = errs.New(errs.IO, "", "", fmt.Sprintf("the file ended at offset %d, it had %d bytes when opened",
								off+int64(n), s.Size))
						}
						cancel(err)
						return
					}
					off += int64(len(p))
					s.Blocks[i] ^= join.After(Of(p), end-off)
					tell(int64(len(p)))
				}
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
