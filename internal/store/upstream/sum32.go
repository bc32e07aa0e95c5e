// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"hash"
	"hash/crc32"
)

// Sum32 is a checksum of 32 bits of the whole content of an object.
type Sum32 struct {
	Name  string // "crc32c" or "crc32"
	Value uint32
}

// Sum32 returns the checksum of 32 bits that the upstream named for the whole content. Sum32 returns false if the
// upstream named none.
func (a About) Sum32() (Sum32, bool) {
	switch {
	case a.HasCRC32C:
		return Sum32{"crc32c", a.CRC32C}, true
	case a.HasCRC32:
		return Sum32{"crc32", a.CRC32}, true
	}
	return Sum32{}, false
}

// New returns the hash that computes the checksum of content.
func (s Sum32) New() hash.Hash {
	if s.Name == "crc32c" {
		return crc32.New(crc32.MakeTable(crc32.Castagnoli))
	}
	return crc32.NewIEEE()
}

// String returns the checksum in hex.
func (s Sum32) String() string { return fmt.Sprintf("%08x", s.Value) }

// Sums reports whether the upstream named a checksum of the whole content that is not its ETag.
func (a About) Sums() bool { return a.HasCRC64 || a.HasCRC32C || a.HasCRC32 }
