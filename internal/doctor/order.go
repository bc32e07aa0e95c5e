// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"slices"
)

// rank returns the position of a level in the order of display.
func rank(l Level) int {
	return slices.Index([]Level{Fail, Warn, Unknown, Info, Pass, Skip}, l)
}

// order sorts findings by level, then by known loss, then by the rule's weight for the profile, and last by ID.
func order(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank(a.Level), rank(b.Level)), cmp.Compare(b.LostGBs, a.LostGBs),
			cmp.Compare(b.weight, a.weight), cmp.Compare(a.ID, b.ID))
	})
}
