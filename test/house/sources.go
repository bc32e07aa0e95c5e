// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Read parses a source file and returns its properties.
func Read(name, source string) (File, error) {
	f := File{Name: name, Licensed: strings.HasPrefix(source, "// SPDX-License-Identifier: Apache-2.0\n")}
	parsed, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return f, err
	}
	f.Comment = parsed.Doc != nil
	for _, d := range parsed.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "init" && fn.Recv == nil {
			f.Init = true
		}
	}
	return f, nil
}

// undocumented finds packages that have no package comment, or several.
func undocumented(h House) (broken []string) {
	for _, p := range h.Packages {
		comments := 0
		for _, f := range p.Files {
			if f.Comment {
				comments++
			}
		}
		if len(p.Files) > 0 && comments != 1 {
			broken = append(broken, fmt.Sprintf("%q has %d package comments, expected one", p.Path, comments))
		}
	}
	return broken
}

// unlicensed finds files that do not begin with their licence.
func unlicensed(h House) (broken []string) {
	for _, p := range h.Packages {
		for _, f := range p.Files {
			if !f.Licensed {
				broken = append(broken, fmt.Sprintf("%s does not begin with its licence", f.Name))
			}
		}
	}
	return broken
}

// initializers finds functions that run before main.
func initializers(h House) (broken []string) {
	for _, p := range h.Packages {
		for _, f := range p.Files {
			if f.Init {
				broken = append(broken, fmt.Sprintf("%s has an init function", f.Name))
			}
		}
	}
	return broken
}

// tableRow is a row of the floor table: a number, then packages in backticks.
var tableRow = regexp.MustCompile(`(?m)^\|\s*(\d+)\s*\|([^|]*)\|`)

// misprinted finds packages that ARCHITECTURE.md does not show on their floor.
func misprinted(h House) (broken []string) {
	printed := map[string]int{}
	for _, row := range tableRow.FindAllStringSubmatch(h.Page, -1) {
		floor, err := strconv.Atoi(row[1])
		if err != nil {
			broken = append(broken, err.Error())
			continue
		}
		for i, quoted := range strings.Split(row[2], "`") {
			if i%2 == 0 {
				continue
			}
			for _, path := range alternatives(quoted) {
				if path == "nebulaio" {
					path = ""
				}
				if before, twice := printed[path]; twice {
					broken = append(broken, fmt.Sprintf("ARCHITECTURE.md shows %q on floors %d and %d", path, before, floor))
				}
				printed[path] = floor
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(h.Floors)) {
		switch floor, ok := printed[path]; {
		case !ok:
			broken = append(broken, fmt.Sprintf("ARCHITECTURE.md does not show %q (floor %d)", path, h.Floors[path]))
		case floor != h.Floors[path]:
			broken = append(broken, fmt.Sprintf("ARCHITECTURE.md shows %q on floor %d, it is on %d", path, floor,
				h.Floors[path]))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(printed)) {
		if _, ok := h.Floors[path]; !ok {
			broken = append(broken, fmt.Sprintf("ARCHITECTURE.md shows %q, which has no floor", path))
		}
	}
	return broken
}

// alternatives expands one pair of braces: a/{b,c} is a/b and a/c.
func alternatives(s string) []string {
	head, rest, ok := strings.Cut(s, "{")
	if !ok {
		return []string{s}
	}
	inner, tail, ok := strings.Cut(rest, "}")
	if !ok {
		return []string{s}
	}
	var all []string
	for part := range strings.SplitSeq(inner, ",") {
		all = append(all, head+strings.TrimSpace(part)+tail)
	}
	return all
}
