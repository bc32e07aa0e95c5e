// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// The reply to a request for blocks is one header and then each block after its own small header. All numbers are
// big-endian:
//
//	offset  bytes
//	0       4      magic "NIOB"
//	4       2      version of the protocol
//	6       2      0
//	8       8      number of the first block
//	16      8      count of blocks
//	24      32     Hash of the Identity
//
//	0       8      number of the block
//	8       8      CRC-64/NVME of the block
//	16      8      length of the block
//	24      n      the bytes
//
// The receiver knows each number in advance except the checksums, so that a wrong number steers no allocation.
const (
	magic       = "NIOB"
	headerBytes = 24 + sha256.Size
	blockHeader = 24
)

// replyBytes returns the length of the whole reply.
func replyBytes(id object.Identity, s Span) int64 {
	return headerBytes + s.Count*blockHeader + s.Range(id).N
}

// appendHeader appends the header of a reply to b.
func appendHeader(b []byte, id object.Identity, s Span) []byte {
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint16(b, Version)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(s.First))
	b = binary.BigEndian.AppendUint64(b, uint64(s.Count))
	h := id.Hash()
	return append(b, h[:]...)
}

// appendBlock appends the header of a block to b.
func appendBlock(b []byte, block Block) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(block.Index))
	b = binary.BigEndian.AppendUint64(b, block.Sum)
	return binary.BigEndian.AppendUint64(b, uint64(len(block.Data)))
}

// frames reads a reply and compares it with what was asked for.
type frames struct {
	r    io.Reader
	id   object.Identity
	span Span
	next int64  // number of the next block
	buf  []byte // bytes of the latest block
}

func newFrames(r io.Reader, id object.Identity, s Span) *frames {
	return &frames{r: r, id: id, span: s, next: s.First}
}

// lie returns an error for a reply that an honest member never gives.
func lie(format string, args ...any) error {
	return errs.New(errs.Corrupt, "read the reply of", "a member", fmt.Sprintf(format, args...))
}

func (f *frames) header() error {
	var got [headerBytes]byte
	if _, err := io.ReadFull(f.r, got[:]); err != nil {
		return err
	}
	if string(got[:]) != string(appendHeader(nil, f.id, f.span)) {
		return lie("the header is for other blocks, or of another version than %d", Version)
	}
	return nil
}

// block reads the next block and compares it with its checksum. After the last block, block returns io.EOF, or an
// error if the reply goes on.
func (f *frames) block() (Block, error) {
	if f.next == f.span.First+f.span.Count {
		var more [1]byte
		if n, err := f.r.Read(more[:]); n > 0 || err == nil {
			return Block{}, lie("bytes follow the last block")
		}
		return Block{}, io.EOF
	}
	var head [blockHeader]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return Block{}, short(err)
	}
	index, sum, n := binary.BigEndian.Uint64(head[:]), binary.BigEndian.Uint64(head[8:]),
		binary.BigEndian.Uint64(head[16:])
	expected := lengthOf(f.id, f.next)
	if index != uint64(f.next) || n != uint64(expected) {
		return Block{}, lie("block %d of %d bytes came; expected block %d of %d bytes", index, n, f.next, expected)
	}
	if f.buf == nil {
		f.buf = make([]byte, min(BlockSize, f.span.Range(f.id).N))
	}
	data := f.buf[:expected]
	if _, err := io.ReadFull(f.r, data); err != nil {
		return Block{}, short(err)
	}
	if got := checksum.Of(data); got != sum {
		return Block{}, lie("block %d has the checksum %016x; expected %016x", index, got, sum)
	}
	b := Block{Index: f.next, Sum: sum, Data: data}
	f.next++
	return b, nil
}

// short turns the end of a reply into an error, because more blocks are expected.
func short(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
