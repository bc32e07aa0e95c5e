// SPDX-License-Identifier: Apache-2.0

package metascan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"

	"github.com/nebulaio/nebulaio/internal/store/metafile"
)

// The end of a block of a table or a blob file: the compression, and the checksum of the block with that byte.
const (
	blockTrailer = block.TrailerLen
	maxBlock     = 64 << 20 // limits what is read, or decompressed, as one block
)

var errBlockSum = errors.New("a block does not have its checksum")

// readBlock reads the block of a table or a blob file at an offset, and compares it with its checksum.
func readBlock(file io.ReaderAt, off, length uint64) ([]byte, error) {
	if length > maxBlock {
		return nil, fmt.Errorf("a block of %d bytes, expected at most %d", length, maxBlock)
	}
	b := make([]byte, length+blockTrailer)
	if _, err := file.ReadAt(b, int64(off)); err != nil {
		return nil, err
	}
	return openBlock(b)
}

// openBlock compares a block with the checksum in its trailer, and decompresses it.
func openBlock(b []byte) ([]byte, error) {
	n := len(b) - blockTrailer
	if n < 0 || metafile.Checksum(b[:n+1]) != binary.LittleEndian.Uint32(b[n+1:]) {
		return nil, errBlockSum
	}
	how, b := block.CompressionIndicator(b[n]), b[:n]
	if how == block.NoCompressionIndicator {
		return append(make([]byte, 0, n), b...), nil // a slice of its own begins at a multiple of 8, as the decoder wants
	}
	if !knownCompression(how) {
		return nil, fmt.Errorf("a block with the unknown compression %d", how)
	}
	size, err := block.DecompressedLen(how, b)
	if err != nil {
		return nil, err
	}
	if size < 0 || size > maxBlock {
		return nil, fmt.Errorf("a block of %d bytes, expected at most %d", size, maxBlock)
	}
	out := make([]byte, size)
	return out, block.DecompressInto(how, b, out)
}

func knownCompression(how block.CompressionIndicator) bool {
	switch how {
	case block.NoCompressionIndicator, block.SnappyCompressionIndicator, block.ZstdCompressionIndicator,
		block.MinLZCompressionIndicator:
		return true
	}
	return false
}

// The columns of a block of keys, in the order in which Pebble writes them.
const (
	columnPrefix = iota
	columnSuffix
	columnTrailer
	columnChanged
	columnValue
	columnExternal
	columnObsolete
	columnsOfKeys
)

// columnTypes are the types of the columns of a block of keys.
var columnTypes = [columnsOfKeys]colblk.DataType{colblk.DataTypePrefixBytes, colblk.DataTypeBytes, colblk.DataTypeUint,
	colblk.DataTypeBool, colblk.DataTypeBytes, colblk.DataTypeBool, colblk.DataTypeBool}

// The head of a block: some bytes of its kind, the version, the number of columns and rows; then each column.
const (
	keysHead   = 4
	blockHead  = 7
	columnHead = 5
)

// looksLikeKeys reports, by its head, whether a block contains keys. Other blocks of a table have other columns.
func looksLikeKeys(b []byte) bool {
	const head = keysHead + blockHead + columnHead*columnsOfKeys
	if len(b) < head || b[keysHead] != byte(colblk.Version1) ||
		binary.LittleEndian.Uint16(b[keysHead+1:]) != columnsOfKeys {
		return false
	}
	last := uint32(head)
	for i, want := range columnTypes {
		c := b[keysHead+blockHead+columnHead*i:]
		at := binary.LittleEndian.Uint32(c[1:])
		if colblk.DataType(c[0]) != want || at < last || int64(at) > int64(len(b)) {
			return false
		}
		last = at
	}
	return binary.LittleEndian.Uint32(b[keysHead+3:]) > 0
}

// eachKey calls f with each row of a block of keys: the key, its trailer, its value, and whether the value is in a
// blob file.
func eachKey(b []byte, f func(key []byte, trailer uint64, value []byte, external bool) error) (err error) {
	if !looksLikeKeys(b) {
		return errors.New("it is no block of keys")
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	d := colblk.DecodeBlock(b, keysHead)
	prefixes, suffixes, trailers := d.PrefixBytes(columnPrefix), d.RawBytes(columnSuffix), d.Uints(columnTrailer)
	values, external := d.RawBytes(columnValue), d.Bitmap(columnExternal)
	for i := range d.Rows() {
		key := append([]byte(nil), prefixes.SharedPrefix()...)
		key = append(append(key, prefixes.RowBundlePrefix(i)...), prefixes.RowSuffix(i)...)
		key = append(key, suffixes.At(i)...)
		if err := f(key, trailers.At(i), values.At(i), external.At(i)); err != nil {
			return err
		}
	}
	return nil
}
