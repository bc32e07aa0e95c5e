// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
)

// randomMembers returns members of one zone with random weights from 1 to 100.
func randomMembers(r *rand.Rand, count int) []Member {
	var all []Member
	for i := range count {
		all = append(all, Member{Name: fmt.Sprintf("host-%d-%d", i, r.IntN(1000)), Weight: 1 + r.IntN(100),
			Version: Version})
	}
	return all
}

// TestOwnersAreBalancedByWeight counts the extents of each owner. With 20,000 extents, the share of an owner is within
// five standard deviations of its weight.
func TestOwnersAreBalancedByWeight(t *testing.T) {
	const extents = 20000
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 1))
		members := randomMembers(r, 2+r.IntN(8))
		total := 0
		for _, m := range members {
			total += m.Weight
		}
		owned, second := map[string]int{}, map[string]int{}
		for i := range extents {
			id := objectOf(fmt.Sprint("object-", i/64), extents*object.Extent)
			o := rank(members, "", id.Hash(), int64(i%64), 2)
			owned[o[0].Name]++
			second[o[1].Name]++
		}
		for _, m := range members {
			p := float64(m.Weight) / float64(total)
			expected, spread := p*extents, 5*math.Sqrt(extents*p*(1-p))
			if d := math.Abs(float64(owned[m.Name]) - expected); d > spread {
				t.Errorf("seed %d: %s of weight %d/%d owns %d extents; expected %.0f ± %.0f", seed, m.Name, m.Weight, total,
					owned[m.Name], expected, spread)
			}
			if second[m.Name] == 0 {
				t.Errorf("seed %d: %s is never the second owner", seed, m.Name)
			}
		}
	}
}

// TestOnlyExtentsOfALeaverMove removes a member. Extents of the others keep both owners, unless the leaver was one of
// them; the second owner of the leaver's extents becomes the owner.
func TestOnlyExtentsOfALeaverMove(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 2))
		members := randomMembers(r, 3+r.IntN(8))
		leaver := r.IntN(len(members))
		rest := append(append([]Member{}, members[:leaver]...), members[leaver+1:]...)
		moved := 0
		for i := range 5000 {
			id := objectOf(fmt.Sprint(i), object.Extent)
			before, after := rank(members, "", id.Hash(), 0, 2), rank(rest, "", id.Hash(), 0, 2)
			switch members[leaver].Name {
			case before[0].Name:
				moved++
				if after[0] != before[1] {
					t.Fatalf("the owner of %s is %s; expected the second owner %s", id.Key, after[0].Name, before[1].Name)
				}
			case before[1].Name:
				if after[0] != before[0] {
					t.Fatalf("the owner of %s changed", id.Key)
				}
			default:
				if after[0] != before[0] || after[1] != before[1] {
					t.Fatalf("the owners of %s changed from %v to %v", id.Key, before, after)
				}
			}
		}
		if moved == 0 && members[leaver].Weight > 5 {
			t.Errorf("seed %d: the leaver owned nothing", seed)
		}
	}
}

// TestOwnersStayInTheirZone looks at members of two zones, with weight 0 and with another version.
func TestOwnersStayInTheirZone(t *testing.T) {
	members := []Member{
		{Name: "a1", Zone: "a", Weight: 1, Version: Version}, {Name: "a2", Zone: "a", Weight: 1, Version: Version},
		{Name: "a3", Zone: "a", Weight: 0, Version: Version},
		{Name: "a4", Zone: "a", Weight: 1_000_000, Version: Version + 1},
		{Name: "b1", Zone: "b", Weight: 1_000_000, Version: Version},
	}
	seen := map[string]bool{}
	for i := range 200 {
		id := objectOf(fmt.Sprint(i), 1)
		a, b := rank(members, "a", id.Hash(), 0, 2), rank(members, "b", id.Hash(), 0, 2)
		if len(a) != 2 || len(b) != 1 || b[0].Name != "b1" {
			t.Fatalf("owners %v and %v", a, b)
		}
		seen[a[0].Name] = true
		if none := rank(members, "c", id.Hash(), 0, 2); len(none) != 0 {
			t.Fatalf("zone c has the owners %v", none)
		}
	}
	if len(seen) != 2 || !seen["a1"] || !seen["a2"] {
		t.Errorf("owners of zone a: %v", seen)
	}
}

// TestOwnersNeverChange pins owners of a few extents. Nodes of different builds must agree, so that a change of the
// formula needs a new Version.
func TestOwnersNeverChange(t *testing.T) {
	members := []Member{{Name: "one", Weight: 100, Version: Version}, {Name: "two", Weight: 100, Version: Version},
		{Name: "three", Weight: 300, Version: Version}}
	got := ""
	id := objectOf("model.safetensors", 16*object.Extent)
	for extent := range id.Extents() {
		got += rank(members, "", id.Hash(), extent, 1)[0].Name + " "
	}
	if expected := pinnedOwners; got != expected {
		t.Errorf("owners\n%s; expected\n%s", got, expected)
	}
}

const pinnedOwners = "three two three two three three three three three one two three one three three three "
