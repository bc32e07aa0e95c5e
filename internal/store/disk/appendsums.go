// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"slices"

	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// extendSums stores the checksums of a longer version. The checksum of the block in which the old content ended is
// joined with that of the appended bytes, so that no old byte is read. Of many checksums, only the last chunks are
// written anew.
func (t *tx) extendSums(old, v *record.Version, pieces []datafile.Piece) error {
	sums, first := slices.Clone(old.Sums), int64(0) // first is the number of the first chunk of sums
	if chunks := record.ChunksOf(old.Size); chunks > 0 {
		first = chunks - 1
		b, err := metadb.Get(t.s.db, record.SumsKey(old.File, uint32(first)))
		if err != nil {
			return err
		}
		var ok bool
		if sums, ok = record.DecodeSums(b, nil); !ok {
			return record.Unreadable("sums", b)
		}
	}
	if first*record.SumsPerChunk+int64(len(sums)) != record.BlocksOf(old.Size) {
		return record.Unreadable("version", old.Encode())
	}
	for i, p := range pieces {
		if i == 0 && p.Off%record.BlockSize != 0 {
			last := &sums[len(sums)-1]
			*last = t.s.join.After(*last, p.N) ^ p.CRC64
			continue
		}
		sums = append(sums, p.CRC64)
	}
	v.Sums = nil
	if first == 0 && len(sums) <= record.SumsInRecord {
		v.Sums = sums
		return nil
	}
	for i := int64(0); i*record.SumsPerChunk < int64(len(sums)); i++ {
		some := sums[i*record.SumsPerChunk : min((i+1)*record.SumsPerChunk, int64(len(sums)))]
		t.set(record.SumsKey(v.File, uint32(first+i)), record.EncodeSums(some))
	}
	return nil
}
