// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/nebulaio/nebulaio"

// measured lists the folders whose packages have their arrows counted.
var measured = []string{"internal/transfer", "internal/report", "report"}

// backArrows are the packages that may have more arrows back up than MostBackArrows percent. They may only shrink.
var backArrows = map[string]int{}

// manyMethods are the types that may have more methods than MostMethods. They may only shrink.
var manyMethods = map[string]int{
	"internal/abi.Table":               39,
	"internal/cli.app":                 42,
	"internal/device/cufile.Library":   37,
	"internal/doctor.exam":             27,
	"internal/doctor/facts.Facts":      41,
	"internal/gpudirect/client.Client": 40,
	"internal/gpudirect/server.Server": 26,
	"internal/gpudirect/server.conn":   50,
	"internal/s3api.Server":            35,
	"internal/s3api.backend":           96,
	"internal/store/datafile.Files":    37,
	"internal/store/disk.Store":        129,
	"internal/store/s3.Client":         42, // one method for each operation of S3
	"internal/store/upstream.Bucket":   51, // one method for each operation of S3
	"internal/store/upstream.Through":  27, // the contracts of package object
	"internal/vfs.File":                51,
}

// largePackages are the packages that may have more than MostOfProduct percent of the product. They may only shrink.
var largePackages = map[string]int{}

// TestArrowsBetweenFiles limits the arrows that run back up between the files of the engine's packages.
func TestArrowsBetweenFiles(t *testing.T) {
	var patterns []string
	for _, folder := range measured {
		if _, err := os.Stat(filepath.Join("../..", folder)); err == nil {
			patterns = append(patterns, "./"+folder+"/...")
		}
	}
	graphs, err := Graphs("../..", module, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%-28s %5s %6s %5s %7s %8s", "package", "files", "arrows", "back", "percent", "circles")
	for _, g := range graphs {
		_, back := g.Order()
		t.Logf("%-28s %5d %6d %5d %7.1f %8d", g.Path, len(g.Files), len(g.Arrows), back, percent(back, len(g.Arrows)),
			g.Knotted())
	}
	for _, line := range Knotted(graphs, backArrows) {
		t.Error(line)
	}
}

// TestSizes limits the length of files, the methods of a type and a package's share of the product.
func TestSizes(t *testing.T) {
	s, err := Measure("../..", module, "./cmd/nebulaio", "./capi", ".")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d lines in %d files: half have at most %d, nine of ten at most %d", s.Total, len(s.Files), s.Percentile(50),
		s.Percentile(90))
	for _, path := range Largest(s.Packages, 5) {
		t.Logf("%-28s %6d lines, %4.1f %%", path, s.Packages[path], percent(s.Packages[path], s.Total))
	}
	for _, name := range Largest(s.Methods, 5) {
		t.Logf("%-28s %6d methods", name, s.Methods[name])
	}
	for _, line := range slices.Concat(TooLong(s), TooManyMethods(s, manyMethods), TooLarge(s, largePackages)) {
		t.Error(line)
	}
}

// arrows returns a graph of files 0, 1, 2 and so on.
func arrows(path string, files int, pairs ...[2]int) Graph {
	g := Graph{Path: path, Files: make([]string, files), Arrows: map[[2]int]bool{}}
	for _, p := range pairs {
		g.Arrows[p] = true
	}
	return g
}

// TestOrderLeavesFewArrowsBack orders graphs whose best order is known.
func TestOrderLeavesFewArrowsBack(t *testing.T) {
	// Three circles of three files each, one above the other: one arrow of each runs back.
	circles := arrows("circles", 9)
	for i := range 3 {
		a, b, c := 3*i, 3*i+1, 3*i+2
		for _, p := range [][2]int{{a, b}, {b, c}, {c, a}} {
			circles.Arrows[p] = true
		}
		for low := range 3 * i {
			circles.Arrows[[2]int{a, low}] = true
			circles.Arrows[[2]int{c, low}] = true
		}
	}
	for _, c := range []struct {
		graph         Graph
		back, circles int
	}{
		{arrows("chain", 4, [2]int{3, 2}, [2]int{2, 1}, [2]int{1, 0}), 0, 0},
		{arrows("pair", 2, [2]int{0, 1}, [2]int{1, 0}), 1, 2},
		{circles, 3, 9},
		{arrows("nothing", 3), 0, 0},
	} {
		order, back := c.graph.Order()
		if back != c.back || c.graph.Knotted() != c.circles {
			t.Errorf("%s: %d back, %d in circles, order %v", c.graph.Path, back, c.graph.Knotted(), order)
		}
		if again, _ := c.graph.Order(); !slices.Equal(order, again) {
			t.Errorf("%s: %v, then %v", c.graph.Path, order, again)
		}
		if slices.Sort(order); len(order) != len(c.graph.Files) || len(slices.Compact(order)) != len(order) {
			t.Errorf("%s: %v", c.graph.Path, order)
		}
	}
}

// TestGraphFollowsNames reads a module in which each file uses another in a different way.
func TestGraphFollowsNames(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example.com/small\n\ngo 1.26\n",
		"p/base.go": "package p\n\ntype base struct{ field int }\n\ntype list[T any] struct{ items []T }\n",
		"p/funcs.go": "package p\n\nfunc (b base) method() int { return 1 }\n\nfunc (l list[T]) first() T { return " +
			"l.items[0] }\n\nfunc name() string { return \"\" }\n",
		"p/alone.go": "package p\n\nimport \"strings\"\n\nfunc alone() string { local := strings.ToUpper(\"a\"); return " +
			"local }\n",
		"p/field.go": "package p\n\nvar f = thing().field\n",
		"p/thing.go": "package p\n\nfunc thing() base { return base{} }\n",
		"p/calls.go": "package p\n\nvar c = thing().method() + list[int]{}.first()\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	graphs, err := Graphs(dir, "example.com/small", "./...")
	if err != nil || len(graphs) != 1 || graphs[0].Path != "p" {
		t.Fatalf("%v, %v", graphs, err)
	}
	var got []string
	for a := range graphs[0].Arrows {
		from, to := graphs[0].Files[a[0]], graphs[0].Files[a[1]]
		got = append(got, strings.TrimSuffix(from, ".go")+" "+strings.TrimSuffix(to, ".go"))
	}
	slices.Sort(got)
	want := []string{"calls base", "calls funcs", "calls thing", "field base", "field thing", "funcs base", "thing base"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, expected %q", got, want)
	}
}

// TestPlantedSizes plants a violation of each limit.
func TestPlantedSizes(t *testing.T) {
	s := Sizes{Files: map[string]int{}, Packages: map[string]int{}, Methods: map[string]int{}}
	methods := "package p\n\ntype T[A any] struct{}\n"
	for i := range MostMethods + 1 {
		methods += fmt.Sprintf("func (t *T[A]) m%d() {}\n", i)
	}
	for i := range 9 {
		if err := s.add(fmt.Sprint("p", i), "short.go", "package p\n"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.add("large", "methods.go", methods); err != nil {
		t.Fatal(err)
	}
	expect := func(what string, got []string, want ...string) {
		t.Helper()
		for i, line := range got {
			if i >= len(want) || !strings.Contains(line, want[i]) {
				t.Errorf("%s: %q, expected %q", what, got, want)
				return
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %q, expected %q", what, got, want)
		}
	}
	expect("methods", TooManyMethods(s, nil), "large.T has 26 methods, at most 25")
	expect("known methods", TooManyMethods(s, map[string]int{"large.T": 26}))
	expect("an old entry", TooManyMethods(s, map[string]int{"large.T": 26, "p1.Old": 30}),
		`"p1.Old" needs no limit of methods any more`)
	expect("a large package", TooLarge(s, nil), `"large" is 76.3 % of the product`)
	expect("a known package", TooLarge(s, map[string]int{"large": 77}))
	expect("a package that is gone", TooLarge(s, map[string]int{"large": 77, "old": 20}), `"old" needs no limit of size`)
	expect("one long file of ten", TooLong(s))
	for i := range 2 {
		if err := s.add(fmt.Sprint("long", i), "long.go", "package p\n"+strings.Repeat("\n", MostLines)); err != nil {
			t.Fatal(err)
		}
	}
	expect("two long files of twelve", TooLong(s), "one file of ten has more than 351 lines")
	// Three files that all use each other: three of six arrows run back.
	knot := arrows("knot", 3, [2]int{0, 1}, [2]int{1, 0}, [2]int{1, 2}, [2]int{2, 1}, [2]int{0, 2}, [2]int{2, 0})
	expect("a knot", Knotted([]Graph{knot}, nil),
		`"knot": 3 of 6 arrows between its files run back up (50.0 %), at most 15 %`)
	expect("a known knot", Knotted([]Graph{knot}, map[string]int{"knot": 50}))
	expect("a pair", Knotted([]Graph{arrows("pair", 2, [2]int{0, 1}, [2]int{1, 0})}, nil))
	expect("a knot that is gone", Knotted(nil, map[string]int{"knot": 50}), `"knot" needs no limit of arrows`)
}
