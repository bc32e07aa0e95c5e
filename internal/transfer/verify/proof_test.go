// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"math/rand/v2"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
)

// Each byte of each block to check comes once: by a segment or as a gap.
func TestVerifyCoversWholeBlocksOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		const block = 16 // smaller than a sidecar may have: the bounds are near
		size := 1 + rng.Int64N(400)
		p := &Proof{files: []fileProof{{sums: &checksum.Sums{Size: size, Block: block}}}}
		times, need := make([]int, size), make([]bool, size)
		mark := func(x Extent) {
			for b := x.Off / block; b*block < x.Off+x.Len; b++ {
				for i := b * block; i < min(size, (b+1)*block); i++ {
					need[i] = true
				}
			}
		}
		var loads, touched []Extent
		for off := rng.Int64N(size); off < size; {
			x := Extent{Off: off, Len: min(1+rng.Int64N(50), size-off)}
			loads = append(loads, x)
			mark(x)
			for i := range x.Len {
				times[x.Off+i]++
			}
			off += x.Len + rng.Int64N(2)*rng.Int64N(60)
		}
		for range rng.IntN(3) {
			x := Extent{Off: rng.Int64N(size)}
			x.Len = 1 + rng.Int64N(size-x.Off)
			touched = append(touched, x)
			mark(x)
		}
		p.cover(0, loads, append(touched, loads...))
		for _, g := range p.files[0].gaps {
			for i := range g.Len {
				times[g.Off+i]++
			}
		}
		blocks := int64(0)
		for i := range need {
			if need[i] && i%block == 0 {
				blocks++
			}
			if want := map[bool]int{true: 1}[need[i]]; times[i] != want {
				t.Fatalf("byte %d of %d comes %d times, expected %d: loads %v, also %v, gaps %v", i, size, times[i], want, loads,
					touched, p.files[0].gaps)
			}
		}
		if p.want != blocks {
			t.Fatalf("%d blocks to check, expected %d", p.want, blocks)
		}
	}
}
