// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// findUnraced returns the folders and the names of the tests below root that call unraced.SingleThreaded.
func findUnraced(root string) (folders, tests []string, err error) {
	err = eachTestFunction(root, func(path string, fn *ast.FuncDecl) error {
		if !marks(fn) {
			return nil
		}
		if fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") {
			return fmt.Errorf("%s: %s calls SingleThreaded and is not a test (fix: call it in the test)", path, fn.Name.Name)
		}
		tests = append(tests, fn.Name.Name)
		if folder := "./" + filepath.ToSlash(filepath.Dir(path)); !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
		return nil
	})
	return folders, tests, err
}

// marks reports whether a function calls unraced.SingleThreaded.
func marks(fn *ast.FuncDecl) bool {
	found := false
	ast.Inspect(fn, func(n ast.Node) bool {
		if called, ok := n.(*ast.SelectorExpr); ok && called.Sel.Name == "SingleThreaded" {
			of, ok := called.X.(*ast.Ident)
			found = found || ok && of.Name == "unraced"
		}
		return !found
	})
	return found
}

// runUnraced runs go test for the tests that call unraced.SingleThreaded, and for no others.
func runUnraced(command []string, out io.Writer) (Result, int, error) {
	folders, tests, err := findUnraced(".")
	if err != nil {
		return Result{}, 1, err
	}
	if len(tests) == 0 {
		return Result{}, 1, fmt.Errorf("no test calls unraced.SingleThreaded (fix: run it at the top of the repository)")
	}
	return runGo(slices.Concat(command, []string{"-run", "^(" + strings.Join(tests, "|") + ")$"}, folders), out)
}
