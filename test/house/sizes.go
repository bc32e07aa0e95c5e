// SPDX-License-Identifier: Apache-2.0

package house

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Sizes is the size of the product: the programs and libraries of the module, without tests.
type Sizes struct {
	// Files is the number of lines of each file, by its path below the module.
	Files map[string]int
	// Packages is the number of lines of each package, by its path below the module.
	Packages map[string]int
	// Methods is the number of methods of each type, by package and name, such as "internal/transfer.Engine".
	Methods map[string]int
	// Total is the number of lines of all files.
	Total int
}

// Measure counts lines and methods of the module's packages that match the patterns, and of those that they import.
func Measure(dir, module string, patterns ...string) (Sizes, error) {
	s := Sizes{Files: map[string]int{}, Packages: map[string]int{}, Methods: map[string]int{}}
	all, err := goList(dir, append([]string{"-deps"}, patterns...)...)
	if err != nil {
		return s, err
	}
	for _, l := range all {
		path, ok := ownPath(l.ImportPath, module)
		if !ok {
			continue
		}
		for _, name := range slices.Concat(l.GoFiles, l.CgoFiles) {
			source, err := os.ReadFile(filepath.Join(l.Dir, name))
			if err != nil {
				return s, err
			}
			if err := s.add(path, name, string(source)); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// add counts one file.
func (s *Sizes) add(pkg, name, source string) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(pkg, name), source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	lines := strings.Count(source, "\n")
	s.Files[filepath.Join(pkg, name)] = lines
	s.Packages[pkg] += lines
	s.Total += lines
	for _, d := range parsed.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
			s.Methods[pkg+"."+receiver(fn.Recv.List[0].Type)]++
		}
	}
	return nil
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return "?"
}

// Percentile returns the number of lines that the given percentage of the files does not exceed.
func (s Sizes) Percentile(percent int) int {
	var lengths []int
	for _, n := range s.Files {
		lengths = append(lengths, n)
	}
	slices.Sort(lengths)
	if len(lengths) == 0 {
		return 0
	}
	return lengths[(len(lengths)*percent+99)/100-1]
}

// Largest returns the names of the n largest entries of a table.
func Largest(table map[string]int, n int) []string {
	var names []string
	for name := range table {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(table[b]-table[a], cmp.Compare(a, b)) })
	return names[:min(n, len(names))]
}
