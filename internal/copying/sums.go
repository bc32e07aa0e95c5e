// SPDX-License-Identifier: Apache-2.0

package copying

import (
	"context"
	"crypto/md5" //nolint:gosec // ETags are MD5 sums; they detect damage here
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// wholeSums collects the checksums of blocks, and joins them to those of the whole content.
type wholeSums struct {
	f      facts
	size   int64
	join   *checksum.Joiner
	table  *crc32.Table // nil: the server keeps no 32-bit CRC
	join32 *checksum.Joiner32
	blocks []uint64
	small  []uint32
}

// blockSums are the checksums of one block.
type blockSums struct {
	crc64 uint64
	crc32 uint32 // of the algorithm that the server keeps
}

func newWholeSums(f facts, size int64, join *checksum.Joiner) *wholeSums {
	n := (size + block - 1) / block
	w := &wholeSums{f: f, size: size, join: join, blocks: make([]uint64, n)}
	polynomial := uint32(0)
	switch f.algorithm {
	case "crc32c":
		polynomial = crc32.Castagnoli
	case "crc32":
		polynomial = crc32.IEEE
	}
	if polynomial != 0 {
		w.table, w.join32, w.small = crc32.MakeTable(polynomial), checksum.NewJoiner32(polynomial), make([]uint32, n)
	}
	return w
}

// of sums a block.
func (w *wholeSums) of(p []byte) blockSums {
	s := blockSums{crc64: checksum.Of(p)}
	if w.table != nil {
		s.crc32 = crc32.Checksum(p, w.table)
	}
	return s
}

// read fills p and sums it, chunk by chunk, while the bytes are in the core's cache.
func (w *wholeSums) read(ctx context.Context, r io.Reader, p []byte, limit *limiter) (s blockSums, err error) {
	for len(p) > 0 {
		b := p[:min(len(p), chunk)]
		if err := limit.wait(ctx, len(b)); err != nil {
			return s, err
		}
		if _, err := io.ReadFull(r, b); err != nil {
			if err == io.ErrUnexpectedEOF || err == io.EOF {
				err = errs.New(errs.IO, "copy", "", "the content ended early")
			}
			return s, err
		}
		s.crc64 = w.join.After(s.crc64, int64(len(b))) ^ checksum.Of(b)
		if w.table != nil {
			s.crc32 = crc32.Update(s.crc32, w.table, b)
		}
		p = p[len(b):]
	}
	return s, nil
}

// set records the checksums of block i.
func (w *wholeSums) set(i int64, s blockSums) {
	w.blocks[i] = s.crc64
	if w.small != nil {
		w.small[i] = s.crc32
	}
}

// crc64 returns the CRC-64/NVME of the whole content.
func (w *wholeSums) crc64() uint64 {
	var sum uint64
	for i, b := range w.blocks {
		sum = w.join.After(sum, min(block, w.size-int64(i)*block)) ^ b
	}
	return sum
}

// compare compares the whole content with the checksum of the server. If they are equal, it returns the algorithm and
// true. If they differ, it returns the difference in words and false. If the server keeps no such checksum, it returns
// "" and false.
func (w *wholeSums) compare() (string, bool) {
	got := uint64(0)
	switch {
	case w.f.algorithm == "":
		return "", false
	case w.table == nil:
		got = w.crc64()
	default:
		var sum uint32
		for i, b := range w.small {
			sum = w.join32.After(sum, min(block, w.size-int64(i)*block)) ^ b
		}
		got = uint64(sum)
	}
	if got != w.f.sum {
		return fmt.Sprintf("its %s is %x, expected %x", w.f.algorithm, got, w.f.sum), false
	}
	return w.f.algorithm, true
}

// compareMD5 reads the draft once more and compares it with the ETag, which is the MD5 of the content.
func (d *download) compareMD5() (string, error) {
	h := md5.New() //nolint:gosec // as above
	buf := d.c.buffers.Get().(*[]byte)
	defer d.c.buffers.Put(buf)
	if _, err := io.CopyBuffer(h, io.NewSectionReader(d.d.f, 0, d.size), *buf); err != nil {
		return "", d.d.fail("read draft of", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != d.f.md5 {
		return "", differsFromMD5(d.src.name(), got, d.f.md5)
	}
	return "md5", nil
}

func differsFromMD5(name, got, want string) *errs.Error {
	return errs.New(errs.Corrupt, "copy", name,
		fmt.Sprintf("the content differs from its ETag: its MD5 is %s, expected %s",
			got, want)).WithFix("copy it again; if it differs again, the object is damaged on the server")
}
