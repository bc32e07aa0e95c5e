// SPDX-License-Identifier: Apache-2.0

package house

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
)

// Graph has the dependencies (arrows) between the files of one package; Path is the package's path below the module.
// File a depends on (has an arrow to) file b if a uses a package-level name, a method or a field that b declares.
type Graph struct {
	Path   string
	Files  []string
	Arrows map[[2]int]bool
}

// Graphs returns the dependency graph of each package of module that matches the patterns, sorted by path. Graphs
// leaves out packages that use cgo.
func Graphs(dir, module string, patterns ...string) ([]Graph, error) {
	all, err := goList(dir, append([]string{"-export", "-deps"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	compiled := map[string]string{}
	for _, l := range all {
		compiled[l.ImportPath] = l.Export
	}
	files := token.NewFileSet()
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) {
		name, ok := compiled[path]
		if !ok {
			return nil, fmt.Errorf("go list does not know %s", path)
		}
		return os.Open(name)
	})
	var graphs []Graph
	for _, l := range all {
		if l.DepOnly || len(l.CgoFiles) > 0 {
			continue
		}
		g, err := graph(l, files, imports)
		if err != nil {
			return nil, err
		}
		g.Path, _ = ownPath(l.ImportPath, module)
		graphs = append(graphs, g)
	}
	slices.SortFunc(graphs, func(a, b Graph) int { return cmp.Compare(a.Path, b.Path) })
	return graphs, nil
}

// graph checks the types of one package and follows each name to the file that declares it.
func graph(l listed, files *token.FileSet, imports types.Importer) (Graph, error) {
	g := Graph{Files: l.GoFiles, Arrows: map[[2]int]bool{}}
	number := map[string]int{}
	var parsed []*ast.File
	for i, name := range l.GoFiles {
		path := filepath.Join(l.Dir, name)
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return g, err
		}
		parsed = append(parsed, f)
		number[path] = i
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: imports}).Check(l.ImportPath, files, parsed, info)
	if err != nil {
		return g, err
	}
	for name, object := range info.Uses {
		if object.Pkg() != pkg {
			continue
		}
		// A name of a generic type's instance is declared where the generic type is.
		switch o := object.(type) {
		case *types.Func:
			object = o.Origin()
		case *types.Var:
			object = o.Origin()
		}
		from, to := files.Position(name.Pos()).Filename, files.Position(object.Pos()).Filename
		if from != to {
			g.Arrows[[2]int{number[from], number[to]}] = true
		}
	}
	return g, nil
}

// Order returns the files of the package in an order in which few arrows (dependencies) lead from a later to an
// earlier file. The result back is the number of arrows from a later to an earlier file. Order returns the same
// result on every run.
func (g Graph) Order() (order []int, back int) {
	n := len(g.Files)
	uses := make([][]bool, n)
	for i := range uses {
		uses[i] = make([]bool, n)
	}
	for a := range g.Arrows {
		uses[a[0]][a[1]] = true
	}
	random := rand.New(rand.NewSource(1))
	start := greedy(uses)
	for range 40 {
		improve(start, uses)
		if b := backward(start, uses); order == nil || b < back {
			order, back = slices.Clone(start), b
		}
		// The next start is the best order with a few files moved.
		start = slices.Clone(order)
		for range 1 + n/4 {
			i, j := random.Intn(n), random.Intn(n)
			start[i], start[j] = start[j], start[i]
		}
	}
	return order, back
}

// greedy puts files that only use others first and files that are only used last (Eades, Lin and Smyth).
func greedy(uses [][]bool) []int {
	var high, low []int
	left := make([]int, len(uses))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		best, most := 0, -len(uses)*2
		sink := false
		for i, f := range left {
			out, in := 0, 0
			for _, other := range left {
				if uses[f][other] {
					out++
				}
				if uses[other][f] {
					in++
				}
			}
			if out == 0 {
				best, sink = i, true
				break
			}
			if out-in > most {
				best, most = i, out-in
			}
		}
		if sink {
			low = append(low, left[best])
		} else {
			high = append(high, left[best])
		}
		left = slices.Delete(left, best, best+1)
	}
	slices.Reverse(low)
	return append(high, low...)
}

// improve moves one file at a time to the position with the fewest arrows back, until no move helps.
func improve(order []int, uses [][]bool) {
	for better := true; better; {
		better = false
		for i := range order {
			file, gain, best, place := order[i], 0, 0, i
			for j := i + 1; j < len(order); j++ { // further down: arrows from these files to ours now run back
				gain += one(uses[file][order[j]]) - one(uses[order[j]][file])
				if gain < best {
					best, place = gain, j
				}
			}
			gain = 0
			for j := i - 1; j >= 0; j-- { // further up
				gain += one(uses[order[j]][file]) - one(uses[file][order[j]])
				if gain < best {
					best, place = gain, j
				}
			}
			if place != i {
				copy(order[i:], order[i+1:])
				copy(order[place+1:], order[place:len(order)-1])
				order[place] = file
				better = true
			}
		}
	}
}

// backward counts the arrows from a file to one before it.
func backward(order []int, uses [][]bool) (back int) {
	for i, from := range order {
		for _, to := range order[:i] {
			back += one(uses[from][to])
		}
	}
	return back
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Knotted returns the number of dependencies between files (arrows) that are part of a cycle.
func (g Graph) Knotted() (arrows int) {
	n := len(g.Files)
	reaches := make([][]bool, n)
	for i := range reaches {
		reaches[i] = make([]bool, n)
	}
	for a := range g.Arrows {
		reaches[a[0]][a[1]] = true
	}
	for via := range n {
		for from := range n {
			for to := range n {
				reaches[from][to] = reaches[from][to] || reaches[from][via] && reaches[via][to]
			}
		}
	}
	for a := range g.Arrows {
		arrows += one(reaches[a[1]][a[0]])
	}
	return arrows
}
