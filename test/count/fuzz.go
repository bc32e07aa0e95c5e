// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// fuzzer is one fuzz test.
type fuzzer struct{ folder, name string }

// findFuzzers returns the fuzz tests below root, in the order of their files.
func findFuzzers(root string) ([]fuzzer, error) {
	var found []fuzzer
	err := eachTestFunction(root, func(path string, fn *ast.FuncDecl) error {
		if fn.Recv == nil && takesF(fn.Type) {
			found = append(found, fuzzer{filepath.Dir(path), fn.Name.Name})
		}
		return nil
	})
	return found, err
}

// eachTestFunction calls visit for each function in the test files below root. Folders that git ignores, and other
// modules, are left out.
func eachTestFunction(root string, visit func(path string, fn *ast.FuncDecl) error) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, module := os.Stat(filepath.Join(path, "go.mod"))
			skip := strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "build" ||
				module == nil
			if path != root && skip {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range parsed.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				if err := visit(path, fn); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// takesF reports whether a function takes a *testing.F alone.
func takesF(fn *ast.FuncType) bool {
	if len(fn.Params.List) != 1 || len(fn.Params.List[0].Names) > 1 {
		return false
	}
	star, ok := fn.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	of, ok := star.X.(*ast.SelectorExpr)
	return ok && of.Sel.Name == "F"
}

// deadline is the whole failure of a fuzzer whose time was up: one line, without a failing input or a log of the test.
var deadline = regexp.MustCompile(
	`(?m)^--- FAIL: Fuzz\w+ \([0-9.]+s\)\n    context deadline exceeded\nFAIL\nexit status 1\nFAIL\t\S+\t[0-9.]+s\n(FAIL\n)?\z`)

// onlyTimeWasUp reports whether go test failed because its own time limit ended the fuzzing, and for nothing else.
// Go compares the error of a context with that of its child, which is cancelled a moment later. A failing input is
// always written to a file, and go test then names the file.
func onlyTimeWasUp(said string) bool {
	return deadline.MatchString(said) && strings.Count(said, "--- FAIL:") == 1 &&
		!strings.Contains(said, "Failing input written")
}

// untilFailure writes the output of go test to before, and everything from the first failure on to from. Its writes
// are lines, as go test writes them.
type untilFailure struct {
	before, from io.Writer
	failed       bool
}

// Write writes to one of the two writers, or splits p where the failure begins.
func (u *untilFailure) Write(p []byte) (int, error) {
	at := 0
	if !u.failed {
		at = len(p)
		if i := bytes.Index(p, []byte("--- FAIL:")); i >= 0 {
			at, u.failed = i, true
		}
	}
	if at > 0 {
		if n, err := u.before.Write(p[:at]); err != nil {
			return n, err
		}
	}
	n, err := u.from.Write(p[at:])
	return at + n, err
}

// turned returns the fuzzers beginning with another one each day, so that a run that has no time for all of them
// reaches each within some days.
func turned(all []fuzzer, day int) []fuzzer {
	const step = 37 // fuzzers of one folder lie side by side; the next day begins beyond them
	first := day * step % len(all)
	return append(slices.Clone(all[first:]), all[:first]...)
}

// runFuzz runs every fuzzer of this module for a while and returns the first exit code that is not 0. After the time
// of -within, no other fuzzer begins.
func runFuzz(arguments []string, out io.Writer) (int, error) {
	flags := flag.NewFlagSet("count fuzz", flag.ContinueOnError)
	each := flags.String("time", "60s", "how long each fuzzer runs")
	goTool := flags.String("go", "go", "the go program")
	within := flags.Duration("within", 0, "how long all fuzzers may take together; 0 is without a limit")
	if err := flags.Parse(arguments); err != nil {
		return 2, nil
	}
	all, err := findFuzzers(".")
	if err != nil {
		return 1, err
	}
	if len(all) == 0 {
		return 1, fmt.Errorf("no fuzzers were found here (fix: run it at the top of the repository)")
	}
	code, began := 0, time.Now()
	if *within > 0 {
		all = turned(all, began.YearDay())
	}
	for i, f := range all {
		if *within > 0 && time.Since(began) > *within {
			fmt.Fprintf(out, "%d of %d fuzzers ran within %s; another day begins with others\n", i, len(all), *within)
			break
		}
		fmt.Fprintf(out, "=== %d of %d: %s in %s\n", i+1, len(all), f.name, f.folder)
		cmd := exec.Command(*goTool, "test", "./"+f.folder, "-run", "^$", "-fuzz", "^"+f.name+"$", "-fuzztime", *each,
			"-fuzzminimizetime", "1x")
		var said, failure bytes.Buffer
		shown := &untilFailure{before: out, from: &failure}
		cmd.Stdout, cmd.Stderr = io.MultiWriter(shown, &said), os.Stderr
		ended, err := exitCode(cmd.Run())
		if err != nil {
			return 1, err
		}
		forgiven := ended != 0 && onlyTimeWasUp(said.String())
		if forgiven {
			fmt.Fprintf(out, "%s found nothing: Go reported the end of its time as a failure (golang/go#75804)\n", f.name)
			ended = 0
		} else {
			_, _ = failure.WriteTo(out)
		}
		if code == 0 {
			code = ended
		}
	}
	return code, nil
}
