// SPDX-License-Identifier: Apache-2.0

package metascan

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/metafile"
)

// scanBlob finds the blocks of a blob file with an unreadable end, one after the other, each by its own checksum. It
// stops at the first damage, because the numbers of the blocks behind it are unknown. The file must not be a
// rewritten one: only the index of such a file knows the old places of its blocks.
func scanBlob(f vfs.FS, path string, number uint64) (*BlobFile, error) {
	file, err := layout.OpenRegular(f, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was read only
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	text, err := readRaw(file, info.Size())
	if err != nil {
		return nil, err
	}
	if at := len(text) - metadb.BlobFooter; at >= 0 {
		foot := text[at:]
		if n := binary.LittleEndian.Uint64(foot[metadb.BlobNumberAt:]); binary.LittleEndian.Uint32(foot) == metafile.Checksum(
			foot[4:]) && n != number {
			return nil, fmt.Errorf("%s is the file %06d.blob under another name", path, n)
		}
	}
	b := &BlobFile{fs: f, path: path, Cached: -1, ends: []uint64{0}}
	for off := 0; ; {
		n := blockOf(text[off:], looksLikeValues)
		if n == 0 {
			return b, nil
		}
		off += n
		b.ends = append(b.ends, uint64(off))
	}
}

// blockOf returns the length of the block at the beginning of a text, with its trailer, or 0 if there is none. is
// recognizes the kind of block.
func blockOf(text []byte, is func([]byte) bool) int {
	crc := ^uint32(0)
	for n := 0; n < rawBlock && n+blockTrailer <= len(text); n++ {
		how := text[n]
		crc = metafile.Castagnoli[byte(crc)^how] ^ crc>>8
		c := ^crc
		if (c>>15|c<<17)+0xa282ead8 != binary.LittleEndian.Uint32(text[n+1:]) ||
			!knownCompression(block.CompressionIndicator(how)) {
			continue
		}
		if b, err := openBlock(text[:n+blockTrailer]); err == nil && is(b) {
			return n + blockTrailer
		}
	}
	return 0
}

// looksLikeValues reports, by its head, whether a block contains values: it has one column, of bytes.
func looksLikeValues(b []byte) bool {
	return len(b) >= blockHead+columnHead && b[0] == byte(colblk.Version1) && binary.LittleEndian.Uint16(b[1:]) == 1 &&
		colblk.DataType(b[blockHead]) == colblk.DataTypeBytes
}
