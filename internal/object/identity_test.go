// SPDX-License-Identifier: Apache-2.0

package object_test

import (
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
)

func TestIdentitiesAreKeptApart(t *testing.T) {
	t.Parallel()
	all := []object.Identity{
		{}, {Origin: "a", Key: "bc"}, {Origin: "ab", Key: "c"}, {Key: "abc"}, {Version: "abc"}, {ETag: "abc"},
		{Size: 1}, {Size: 2}, {Size: -1}, {ETag: "abc", Size: 1},
	}
	seen := make(map[[32]byte]object.Identity)
	for _, id := range all {
		if other, ok := seen[id.Hash()]; ok {
			t.Errorf("%+v and %+v have the same hash", id, other)
		}
		seen[id.Hash()] = id
		if again := id.Hash(); again != id.Hash() {
			t.Errorf("%+v has two hashes", id)
		}
	}
}

func TestExtentsCoverTheContent(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 1, object.Extent - 1, object.Extent, object.Extent + 1, 5*object.Extent + 7} {
		id := object.Identity{Size: size}
		var next int64
		for n := range id.Extents() {
			r := id.ExtentRange(n)
			if r.Off != next || r.N <= 0 || r.N > object.Extent {
				t.Fatalf("size %d: extent %d is %+v, and begins at %d", size, n, r, next)
			}
			next += r.N
		}
		if next != size {
			t.Errorf("size %d: the extents cover %d bytes", size, next)
		}
	}
}
