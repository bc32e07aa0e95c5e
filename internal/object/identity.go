// SPDX-License-Identifier: Apache-2.0

package object

import (
	"crypto/sha256"
	"encoding/binary"
)

// Extent is the size in bytes of a part of an object for which one node of a cluster is responsible. The last extent of
// an object may be shorter than Extent.
const Extent = 64 << 20

// Identity names one content of an object on another S3 server. If any field differs, the content is another one. Two
// servers that know the same Identity know the same bytes.
type Identity struct {
	Origin  string // endpoint, bucket and prefix of the other server, as one text
	Key     string // key below the prefix of Origin
	Version string // version ID; empty if the other server names none
	ETag    string // without quotes
	Size    int64
}

// Hash returns a key for i of fixed length. Two different identities never have the same Hash in practice.
func (i Identity) Hash() [sha256.Size]byte {
	var b []byte
	for _, s := range []string{i.Origin, i.Key, i.Version, i.ETag} {
		b = binary.AppendUvarint(b, uint64(len(s))) // lengths keep ("a", "bc") apart from ("ab", "c")
		b = append(b, s...)
	}
	return sha256.Sum256(binary.AppendVarint(b, i.Size))
}

// Extents returns the number of extents of the content.
func (i Identity) Extents() int64 { return (i.Size + Extent - 1) / Extent }

// ExtentRange returns the range of extent number n, which must be less than Extents.
func (i Identity) ExtentRange(n int64) Range {
	return Range{Off: n * Extent, N: min(Extent, i.Size-n*Extent)}
}
