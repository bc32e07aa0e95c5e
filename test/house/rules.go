// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Rule is one rule about the sources. The function Broken returns an error line for each violation of the rule.
type Rule struct {
	Name   string
	Broken func(House) []string
}

// Rules returns all rules for the sources of this repository.
func Rules() []Rule {
	return []Rule{
		{"every package has a place", unplaced},
		{"imports go down", upward},
		{"doors are passed by their owners", trespassing},
		{"every dependency has an owner", unowned},
		{"the product does not import what is outside of it", outsiders},
		{"no test code in the product", testCode},
		{"the shared library stays small", overlinked},
		{"every package says what it is", undocumented},
		{"every file has its licence", unlicensed},
		{"no init functions", initializers},
		{"no package without a subject", vague},
		{"ARCHITECTURE.md agrees", misprinted},
	}
}

// unplaced finds packages without a floor or with two places, and table entries without a package.
func unplaced(h House) (broken []string) {
	known := map[string]bool{}
	for _, p := range h.Packages {
		known[p.Path] = true
		_, floor := h.Floors[p.Path]
		outside := slices.Contains(h.Outside, p.Path)
		switch {
		case floor && outside:
			broken = append(broken, fmt.Sprintf("%q is on a floor and outside: keep one of the two", p.Path))
		case !floor && !outside:
			broken = append(broken, fmt.Sprintf("%q has no place: give it a floor or list it in outside", p.Path))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(h.Floors)) {
		if !known[path] {
			broken = append(broken, fmt.Sprintf("%q has a floor and does not exist", path))
		}
	}
	for _, path := range h.Outside {
		if !known[path] {
			broken = append(broken, fmt.Sprintf("%q is listed outside and does not exist", path))
		}
	}
	return broken
}

// upward finds imports that do not lead to a lower floor.
func upward(h House) (broken []string) {
	for _, p := range h.product() {
		for _, to := range p.Own {
			if floor, ok := h.Floors[to]; ok && floor >= h.Floors[p.Path] {
				broken = append(broken, fmt.Sprintf("%q (floor %d) imports %q (floor %d)", p.Path, h.Floors[p.Path], to, floor))
			}
		}
	}
	return broken
}

// trespassing finds imports of a guarded package by a package that is not its owner. It also finds guards that nobody
// needs, and owners that do not exist.
func trespassing(h House) (broken []string) {
	used := map[string]bool{}
	for _, p := range h.product() {
		for _, to := range slices.Concat(p.Own, p.Others) {
			door, guarded := longest(to, h.Doors)
			if !guarded || below(p.Path, door) {
				continue
			}
			used[door] = true
			d := h.Doors[door]
			if !slices.ContainsFunc(strings.Fields(d.By), func(owner string) bool { return owns(owner, p.Path) }) {
				broken = append(broken, fmt.Sprintf("%q imports %q, which only %s may: %s", p.Path, to, d.By, d.Why))
			}
		}
	}
	for _, door := range slices.Sorted(maps.Keys(h.Doors)) {
		if !used[door] {
			broken = append(broken, fmt.Sprintf("nobody passes the door %q: remove it", door))
		}
		for _, owner := range strings.Fields(h.Doors[door].By) {
			if !slices.ContainsFunc(h.product(), func(p Package) bool { return owns(owner, p.Path) }) {
				broken = append(broken, fmt.Sprintf("the door %q names %q, which is no package of the product", door, owner))
			}
		}
	}
	return broken
}

// owns reports whether an owner of a door includes a package.
func owns(owner, path string) bool {
	if folder, ok := strings.CutSuffix(owner, "/..."); ok {
		return below(path, folder)
	}
	return path == owner
}

// unowned finds dependencies without a rule, and rules without a dependency.
func unowned(h House) (broken []string) {
	required := map[string]bool{}
	for _, m := range h.Required {
		required[m] = true
	}
	imported := map[string]bool{}
	for _, p := range h.product() {
		for _, to := range p.Others {
			if !foreign(to) {
				continue
			}
			if m, ok := longest(to, required); ok {
				imported[m] = true
			}
			_, door := longest(to, h.Doors)
			_, free := longest(to, h.Everyone)
			if !door && !free {
				broken = append(broken, fmt.Sprintf("%q imports %q, which has no owner: give it a door", p.Path, to))
			}
		}
	}
	for _, m := range h.Required {
		if _, tests := h.TestModules[m]; tests == imported[m] {
			if tests {
				broken = append(broken, fmt.Sprintf("%q is listed for tests, and the product imports it", m))
			} else {
				broken = append(broken, fmt.Sprintf("go.mod requires %q, which the product does not import", m))
			}
		}
	}
	for _, table := range []map[string]string{h.Everyone, h.TestModules} {
		for _, m := range slices.Sorted(maps.Keys(table)) {
			if !required[m] {
				broken = append(broken, fmt.Sprintf("%q has a rule, and go.mod does not require it", m))
			}
		}
	}
	return broken
}

// outsiders finds packages of the product that import a package outside of the product.
func outsiders(h House) (broken []string) {
	for _, p := range h.product() {
		for _, to := range p.Own {
			if slices.Contains(h.Outside, to) {
				broken = append(broken, fmt.Sprintf("%q imports %q, which is not part of the product", p.Path, to))
			}
		}
	}
	return broken
}

// testCode finds packages of the product that import Go's packages for tests.
func testCode(h House) (broken []string) {
	for _, p := range h.product() {
		for _, to := range p.Others {
			if below(to, "testing") || to == "net/http/httptest" {
				broken = append(broken, fmt.Sprintf("%q imports %q, which is for tests", p.Path, to))
			}
		}
	}
	return broken
}

// overlinked finds packages that the shared library must not bring into other people's processes.
func overlinked(h House) (broken []string) {
	for _, path := range h.Linked {
		own, isOwn := strings.CutPrefix(path, "./")
		switch {
		case isOwn:
			denied := slices.ContainsFunc(h.NotLinked, func(s string) bool { return below(own, s) })
			excepted := slices.ContainsFunc(h.StillLinked, func(s string) bool { return below(own, s) })
			if denied && !excepted || slices.Contains(h.Outside, own) {
				broken = append(broken, fmt.Sprintf("libnebulaio.so links %q", own))
			}
		case foreign(path):
			if _, ok := longest(path, h.LinkedModules); !ok {
				broken = append(broken, fmt.Sprintf("libnebulaio.so links %q: not in the list of modules it may link", path))
			}
		case below(path, "testing"):
			broken = append(broken, fmt.Sprintf("libnebulaio.so links %q", path))
		}
	}
	return broken
}

// vague finds packages with a name that does not describe their purpose.
func vague(h House) (broken []string) {
	for _, p := range h.Packages {
		for element := range strings.SplitSeq(p.Path, "/") {
			if slices.Contains([]string{"util", "utils", "common", "helpers", "misc", "shared"}, element) {
				broken = append(broken, fmt.Sprintf("%q: name the thing instead of %q", p.Path, element))
			}
		}
	}
	return broken
}
