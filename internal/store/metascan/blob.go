// SPDX-License-Identifier: Apache-2.0

package metascan

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/sstable/blob"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/store/codec"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
)

// BlobHandle is a table's reference to a value in a blob file. The table numbers its blob files from 0, and only the
// manifest maps these numbers to files.
type BlobHandle struct {
	Table          uint64 // number of the table with the reference
	Ref, Block, ID uint64 // numbers of the blob file in the table, of the block in the file, of the value in the block
	Size           uint64 // length of the value in bytes
}

// ErrUnnamed is the error for a value in an unknown blob file.
var ErrUnnamed = errors.New("the value lies in a blob file, and the manifest that names the file is lost")

// ErrNoValue is the error for a BlobHandle that refers to no value in the blob file.
var ErrNoValue = errors.New("the blob file has no such value")

// noteHandles wraps do, which handles references to blob files, and calls note with each reference first.
func noteHandles[V any](do func(blob.InlineHandlePreface, []byte) V,
	note func(BlobHandle)) func(blob.InlineHandlePreface, []byte) V {
	return func(p blob.InlineHandlePreface, rest []byte) V {
		t := codec.Decoder{Rest: rest}
		h := BlobHandle{Ref: uint64(p.ReferenceID), Size: uint64(p.ValueLen), Block: t.Uint(), ID: t.Uint()}
		if !t.Bad {
			note(h)
		}
		return do(p, rest)
	}
}

// BlobFile reads single values of one blob file. BlobFile compares each block with its checksum.
type BlobFile struct {
	fs      vfs.FS
	path    string
	virtual []uint64 // of a rewritten file: where the blocks of the first file are now
	ends    []uint64 // where each block begins, and where the last block ends
	Cached  int      // the number of the cached block; -1: none
	values  [][]byte
	damage  error // why the cached block cannot be read
}

// OpenBlob opens a blob file and reads its index.
func OpenBlob(f vfs.FS, path string, number uint64) (b *BlobFile, err error) {
	file, err := layout.OpenRegular(f, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was read only
	if err := metadb.CheckBlob(file, path, number); err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	foot := make([]byte, metadb.BlobFooter)
	if _, err := file.ReadAt(foot, info.Size()-metadb.BlobFooter); err != nil {
		return nil, err
	}
	index, err := readBlock(file, binary.LittleEndian.Uint64(foot[4:]), binary.LittleEndian.Uint64(foot[12:]))
	if err != nil {
		return nil, err
	}
	b = &BlobFile{fs: f, path: path, Cached: -1}
	return b, b.readIndex(index)
}

// readIndex decodes the index: two columns of numbers after the number of rows of the first.
func (b *BlobFile) readIndex(index []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %v", b.path, p)
		}
	}()
	const head, columns = 4, 2
	if len(index) < head+blockHead+columns*columnHead {
		return fmt.Errorf("%s: an index of %d bytes", b.path, len(index))
	}
	virtual := binary.LittleEndian.Uint32(index)
	d := colblk.DecodeBlock(index, head)
	if uint64(d.Rows()) > uint64(len(index)) || uint64(virtual) > 1<<24 {
		return fmt.Errorf("%s: an index of %d rows in %d bytes", b.path, d.Rows(), len(index))
	}
	blocks := colblk.DecodeColumn(&d, 0, int(virtual), colblk.DataTypeUint, colblk.DecodeUnsafeUints)
	ends := colblk.DecodeColumn(&d, 1, d.Rows()+1, colblk.DataTypeUint, colblk.DecodeUnsafeUints)
	for i := range int(virtual) {
		b.virtual = append(b.virtual, blocks.At(i))
	}
	for i := range d.Rows() + 1 {
		b.ends = append(b.ends, ends.At(i))
	}
	return nil
}

// Value returns the value that a BlobHandle refers to. The error ErrNoValue means that the BlobHandle refers to no
// value of its length; any other error means damage.
func (b *BlobFile) Value(h *BlobHandle) ([]byte, error) {
	at, id := h.Block, h.ID
	if len(b.virtual) > 0 {
		if at >= uint64(len(b.virtual)) || uint32(b.virtual[at]) == ^uint32(0) {
			return nil, ErrNoValue
		}
		at, id = b.virtual[at]&(1<<32-1), id+b.virtual[at]>>32
	}
	if at+1 >= uint64(len(b.ends)) {
		return nil, ErrNoValue
	}
	if b.Cached != int(at) {
		b.Cached = int(at)
		b.values, b.damage = b.readValues(b.ends[at], b.ends[at+1])
	}
	if b.damage != nil {
		return nil, b.damage
	}
	if id >= uint64(len(b.values)) || uint64(len(b.values[id])) != h.Size {
		return nil, ErrNoValue
	}
	return b.values[id], nil
}

// readValues reads a block of values, which is one column.
func (b *BlobFile) readValues(from, to uint64) (values [][]byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %v", b.path, p)
		}
	}()
	if to < from+blockTrailer {
		return nil, fmt.Errorf("%s: a block from %d to %d", b.path, from, to)
	}
	file, err := layout.OpenRegular(b.fs, b.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was read only
	text, err := readBlock(file, from, to-from-blockTrailer)
	if err != nil {
		return nil, err
	}
	d := colblk.DecodeBlock(text, 0)
	column := d.RawBytes(0)
	for i := range d.Rows() {
		values = append(values, column.At(i))
	}
	return values, nil
}

// Forget frees the memory of the cached block.
func (b *BlobFile) Forget() { b.Cached, b.values, b.damage = -1, nil, nil }
