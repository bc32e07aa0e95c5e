// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"maps"
	"slices"
)

// MostBackArrows to MostOfProduct are the limits for packages, types and files without a listed exception.
const (
	MostBackArrows = 15  // largest percentage of a package's arrows that lead back (see Graph.Order)
	MostMethods    = 25  // largest number of methods of one type
	MostLines      = 350 // largest number of lines that nine of ten files may have
	MostOfProduct  = 10  // largest percentage of the product's lines in one package
)

// Knotted returns an error line for each package in which more than the allowed percentage of the dependencies between
// files leads back (see Graph.Order). Every package may have one dependency that leads back, because two files that use
// each other have one.
func Knotted(graphs []Graph, limits map[string]int) (broken []string) {
	for _, g := range graphs {
		limit, ok := limits[g.Path]
		if !ok {
			limit = MostBackArrows
		}
		if _, back := g.Order(); back > 1 && 100*back > limit*len(g.Arrows) {
			broken = append(broken, fmt.Sprintf("%q: %d of %d arrows between its files run back up (%.1f %%), at most %d %% may",
				g.Path, back, len(g.Arrows), percent(back, len(g.Arrows)), limit))
		}
	}
	return append(broken, gone("limit of arrows", limits, func(path string) bool {
		return slices.ContainsFunc(graphs, func(g Graph) bool { return g.Path == path })
	})...)
}

// TooLong returns an error line if more than a tenth of the files have more than MostLines lines.
func TooLong(s Sizes) (broken []string) {
	if lines := s.Percentile(90); lines > MostLines {
		broken = append(broken, fmt.Sprintf("one file of ten has more than %d lines, at most %d may be", lines, MostLines))
	}
	return broken
}

// TooManyMethods returns an error line for each type with more methods than its entry in known allows, or than
// MostMethods without an entry. TooManyMethods also returns a line for each entry in known that is no longer needed.
func TooManyMethods(s Sizes, known map[string]int) (broken []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Methods)) {
		if n, limit := s.Methods[name], max(known[name], MostMethods); n > limit {
			broken = append(broken, fmt.Sprintf("%s has %d methods, at most %d may be", name, n, limit))
		}
	}
	return append(broken, gone("limit of methods", known,
		func(name string) bool { return s.Methods[name] > MostMethods })...)
}

// TooLarge returns an error line for each package that has more than its allowed percentage of the product's lines.
// TooLarge also returns a line for each entry of a package that does not exist.
func TooLarge(s Sizes, known map[string]int) (broken []string) {
	for _, path := range slices.Sorted(maps.Keys(s.Packages)) {
		if n, limit := s.Packages[path], max(known[path], MostOfProduct); 100*n > limit*s.Total {
			broken = append(broken, fmt.Sprintf("%q is %.1f %% of the product, at most %d %% may be", path, percent(n, s.Total),
				limit))
		}
	}
	return append(broken, gone("limit of size", known, func(path string) bool { return s.Packages[path] > 0 })...)
}

// gone returns a line for each entry of a table that is no longer needed.
func gone(table string, entries map[string]int, needed func(string) bool) (broken []string) {
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if !needed(name) {
			broken = append(broken, fmt.Sprintf("%q needs no %s any more: remove the entry", name, table))
		}
	}
	return broken
}

// percent returns part as a percentage of whole.
func percent(part, whole int) float64 { return 100 * float64(part) / float64(max(whole, 1)) }
