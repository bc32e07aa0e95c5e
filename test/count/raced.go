// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// findRaced returns the folders below root that have tests, and whose code starts goroutines: with a go statement, or
// with a method Go of a wait group. If the code holds locks or atomic variables, it is enough that its tests start
// goroutines. Locks returns the other folders whose code holds locks or atomic variables.
func findRaced(root string) (raced, locks []string, err error) {
	starts, shares, tested, races := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipFolder(root, path, entry.Name())
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		folder := "./" + filepath.ToSlash(filepath.Dir(path))
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			tested[folder] = true
			races[folder] = races[folder] || startsGoroutine(parsed)
			return nil
		}
		starts[folder] = starts[folder] || startsGoroutine(parsed)
		shares[folder] = shares[folder] || importsAny(parsed, "sync", "sync/atomic")
		return nil
	})
	for folder := range starts {
		switch {
		case starts[folder] && !tested[folder]: // a program or test support, which others exercise
		case starts[folder] || shares[folder] && races[folder]:
			raced = append(raced, folder)
		case shares[folder]:
			locks = append(locks, folder)
		}
	}
	slices.Sort(raced)
	slices.Sort(locks)
	return raced, locks, err
}

// skipFolder returns fs.SkipDir for folders that hold no package of the module.
func skipFolder(root, path, name string) error {
	_, module := os.Stat(filepath.Join(path, "go.mod"))
	if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "build" || module == nil) {
		return filepath.SkipDir
	}
	return nil
}

// startsGoroutine reports whether a file has a go statement or calls a method named Go.
func startsGoroutine(f *ast.File) bool {
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.CallExpr:
			called, ok := n.Fun.(*ast.SelectorExpr)
			found = found || ok && called.Sel.Name == "Go"
		}
		return !found
	})
	return found
}

// importsAny reports whether a file imports one of the packages.
func importsAny(f *ast.File, packages ...string) bool {
	return slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool {
		return slices.Contains(packages, strings.Trim(i.Path.Value, `"`))
	})
}

// runRaced runs go test for the packages that findRaced returns.
func runRaced(command []string, out io.Writer) (Result, int, error) {
	raced, _, err := findRaced(".")
	if err != nil {
		return Result{}, 1, err
	}
	if len(raced) == 0 {
		return Result{}, 1, fmt.Errorf("no package starts a goroutine (fix: run it at the top of the repository)")
	}
	return runGo(slices.Concat(command, raced), out)
}
