// SPDX-License-Identifier: Apache-2.0

package checksum

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

func TestPiecesOf32BitsJoinInAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, poly := range []uint32{crc32.IEEE, crc32.Castagnoli} {
		j, table := NewJoiner32(poly), crc32.MakeTable(poly)
		for range 100 {
			b := noise(1+rng.IntN(9000), byte(rng.Uint32()))
			cut, mid := rng.IntN(len(b)+1), 0
			if cut > 0 {
				mid = rng.IntN(cut)
			}
			var sum uint32
			for _, p := range [][2]int{{cut, len(b)}, {0, mid}, {mid, cut}} {
				sum ^= j.After(crc32.Checksum(b[p[0]:p[1]], table), int64(len(b)-p[1]))
			}
			if want := crc32.Checksum(b, table); sum != want {
				t.Fatalf("%08x, expected %08x", sum, want)
			}
		}
	}
}
