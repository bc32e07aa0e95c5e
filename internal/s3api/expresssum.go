// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	crc "github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/object"
)

// extended returns the attributes of an object that n bytes were added to. The object keeps its headers and metadata. A
// CRC of the whole object is made from that of the old content and that of the added bytes. Other checksums cannot be
// extended; the object then has the CRC-64/NVME that the store computes. The parameter attrs are the attributes of a
// new object.
func extended(before *object.Info, attrs map[string]string, added checksum, n int64) map[string]string {
	if before == nil {
		out := object.MergeAttributes(attrs, nil)
		added.keep(out)
		return out
	}
	out := object.MergeAttributes(before.Attributes, nil)
	old := checksumOf(out)
	for _, name := range []string{attrSumAlgo, attrSumType, attrSum, attrUpload, attrUploadParts} {
		delete(out, name)
	}
	if old.Type != types.ChecksumTypeFullObject || old.Algorithm != added.Algorithm {
		return out
	}
	polynomial := map[types.ChecksumAlgorithm]uint32{types.ChecksumAlgorithmCrc32: crc32.IEEE,
		types.ChecksumAlgorithmCrc32c: crc32.Castagnoli}[old.Algorithm]
	a, okA := crc32Of(old.Value)
	b, okB := crc32Of(added.Value)
	if polynomial == 0 || !okA || !okB {
		return out
	}
	var whole [4]byte
	binary.BigEndian.PutUint32(whole[:], crc.NewJoiner32(polynomial).After(a, n)^b)
	old.Value = base64.StdEncoding.EncodeToString(whole[:])
	old.keep(out)
	return out
}

// crc32Of parses a 32-bit checksum.
func crc32Of(text string) (uint32, bool) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(raw), true
}
