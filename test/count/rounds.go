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

// findRounds returns the folders and the names of the tests below root whose number of rounds follows the effort: they
// use effort.Rounds, or name a function or method of their package's tests that does.
func findRounds(root string) (folders, tests []string, err error) {
	uses := map[string]map[string]bool{}      // functions that use effort.Rounds, by folder
	calls := map[string]map[string][]string{} // the names in each function
	err = eachTestFunction(root, func(path string, fn *ast.FuncDecl) error {
		folder := "./" + filepath.ToSlash(filepath.Dir(path))
		if uses[folder] == nil {
			uses[folder], calls[folder] = map[string]bool{}, map[string][]string{}
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if of, ok := n.X.(*ast.Ident); ok && of.Name == "effort" && n.Sel.Name == "Rounds" {
					uses[folder][fn.Name.Name] = true
				}
			case *ast.Ident:
				calls[folder][fn.Name.Name] = append(calls[folder][fn.Name.Name], n.Name)
			}
			return true
		})
		return nil
	})
	for folder, used := range uses {
		for grown := true; grown; {
			grown = false
			for name, called := range calls[folder] {
				if !used[name] && slices.ContainsFunc(called, func(c string) bool { return used[c] }) {
					used[name], grown = true, true
				}
			}
		}
		found := false
		for name := range used {
			if strings.HasPrefix(name, "Test") {
				tests, found = append(tests, name), true
			}
		}
		if found {
			folders = append(folders, folder)
		}
	}
	slices.Sort(folders)
	slices.Sort(tests)
	return folders, slices.Compact(tests), err
}

// runRounds runs go test for the tests whose number of rounds follows the effort, and for no others.
func runRounds(command []string, out io.Writer) (Result, int, error) {
	folders, tests, err := findRounds(".")
	if err != nil {
		return Result{}, 1, err
	}
	if len(tests) == 0 {
		return Result{}, 1, fmt.Errorf("no test uses effort.Rounds (fix: run it at the top of the repository)")
	}
	return runGo(slices.Concat(command, []string{"-run", "^(" + strings.Join(tests, "|") + ")$"}, folders), out)
}
