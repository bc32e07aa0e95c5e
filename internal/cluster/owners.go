// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/object"
)

// mostOwners is the number of members that Fetch asks before the caller reads from upstream.
const mostOwners = 2

// rank returns the owners of an extent among members, best first, by weighted rendezvous hashing. Every node that knows
// the same members computes the same order. If a member leaves, only the extents that it owned get another owner.
// Members of weight 0 and members outside zone own nothing.
func rank(members []Member, zone string, id [sha256.Size]byte, extent int64, most int) []Member {
	type scored struct {
		Member
		score float64
	}
	all := make([]scored, 0, len(members))
	for _, m := range members {
		if m.Zone == zone && m.Weight > 0 && m.Version == Version {
			all = append(all, scored{m, score(m, id, extent)})
		}
	}
	slices.SortFunc(all, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), strings.Compare(a.Name, b.Name))
	})
	owners := make([]Member, 0, min(most, len(all)))
	for _, s := range all[:min(most, len(all))] {
		owners = append(owners, s.Member)
	}
	return owners
}

// score returns -weight / ln(u), where u is a uniform number in (0, 1) that depends on the member and the extent. The
// member with the largest score owns the extent. The probability of the largest score is proportional to the weight.
func score(m Member, id [sha256.Size]byte, extent int64) float64 {
	b := make([]byte, 0, 2*sha256.Size+MaxName)
	b = append(b, id[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(extent))
	sum := sha256.Sum256(append(b, m.Name...))
	u := (float64(binary.BigEndian.Uint64(sum[:8])>>11) + 0.5) / (1 << 53) // 53 bits fit a float64 exactly
	return -float64(m.Weight) / math.Log(u)
}

// Owners returns the members that own an extent of id in the zone of this node, best first, at most two. Each zone has
// its own owners, so that no bytes cross between zones. If no member of the zone has a weight, Owners returns no
// member.
func (n *Node) Owners(id object.Identity, extent int64) []Member {
	return rank(n.members.all(), n.o.Zone, id.Hash(), extent, mostOwners)
}
