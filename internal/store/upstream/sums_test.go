// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
)

// crc32Of returns the CRC-32 of data as S3 writes it.
func crc32Of(data []byte) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(data)))
}
