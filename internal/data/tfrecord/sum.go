// SPDX-License-Identifier: Apache-2.0

package tfrecord

import (
	"encoding/binary"
	"hash/crc32"
)

// castagnoli returns the table of CRC-32C. Package crc32 makes the table once.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// mask changes a CRC as TFRecord files store it, so that the CRC of data with CRCs in it is not weak.
func mask(sum uint32) uint32 { return (sum>>15 | sum<<17) + 0xa282ead8 }

// maskedSum returns the masked CRC-32C of b.
func maskedSum(b []byte) uint32 { return mask(crc32.Checksum(b, castagnoli())) }

// parseLength returns the length of a record from its first 12 bytes, and whether the length has its CRC.
func parseLength(head []byte) (uint64, bool) {
	return binary.LittleEndian.Uint64(head), maskedSum(head[:8]) == binary.LittleEndian.Uint32(head[8:])
}
