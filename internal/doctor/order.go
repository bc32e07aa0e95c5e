// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"slices"
)

// rank is the place of a level in the order in which people want to read.
func rank(l Level) int {
	return slices.Index([]Level{Fail, Warn, Unknown, Info, Pass, Skip}, l)
}

// order sorts by level, then by what costs most: where a loss is known, by it;
// then by the rule's weight for the profile. The order of equal findings is that
// of their ids.
func order(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank(a.Level), rank(b.Level)), cmp.Compare(b.LostGBs, a.LostGBs),
			cmp.Compare(b.weight, a.weight), cmp.Compare(a.ID, b.ID))
	})
}
