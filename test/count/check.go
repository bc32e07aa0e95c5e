// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// runCheck checks what the working tree changed since a commit, HEAD by default: the format of changed sources, go vet
// and the quick Go tests of the changed packages and of their direct importers, and the Python tests that belong to
// changed Python files.
func runCheck(arguments []string, out io.Writer) (int, error) {
	flags := flag.NewFlagSet("count check", flag.ContinueOnError)
	since := flags.String("since", "HEAD", "check what changed since this commit")
	python := flags.String("python", "python3", "the interpreter with pytest and ruff")
	library := flags.String("library", "", "a command that builds the C shared library, for the Python tests")
	if err := flags.Parse(arguments); err != nil {
		return 2, nil
	}
	files, err := changedSince(*since)
	if err != nil {
		return 1, err
	}
	if len(files) == 0 {
		fmt.Fprintf(out, "no file changed since %s (fix: SINCE=COMMIT names an older commit)\n", *since)
		return 0, nil
	}
	packages, err := packagesOf(files)
	if err != nil {
		return 1, err
	}
	tests, err := pythonTestsOf(files)
	if err != nil {
		return 1, err
	}
	code := 0
	step := func(name, dir string, args ...string) {
		fmt.Fprintf(out, "=== %s\n", name)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		if err := cmd.Run(); err != nil {
			fmt.Fprintf(out, "FAILED: %s: %v\n", name, err)
			code = 1
		}
	}
	if sources := withSuffix(files, ".go"); len(sources) > 0 {
		said, err := exec.Command("gofmt", append([]string{"-l"}, sources...)...).CombinedOutput()
		if err != nil || len(said) > 0 {
			fmt.Fprintf(out, "FAILED: gofmt: %s\n", bytes.TrimSpace(said))
			code = 1
		}
	}
	if len(packages) > 0 {
		step("go vet", ".", append([]string{"go", "vet"}, packages...)...)
		fmt.Fprintln(out, "=== go test")
		r, failed, err := runGo(slices.Concat([]string{"go", "test", "-vet=off"}, packages), out)
		if err != nil {
			return 1, err
		}
		code = max(code, failed)
		fmt.Fprintf(out, "%d tests ran, %d failed, %d were skipped\n", r.Ran, r.Failed, len(r.Skipped))
	}
	if sources := withSuffix(files, ".py"); len(sources) > 0 {
		step("ruff", ".", append([]string{*python, "-m", "ruff", "check", "--quiet", "--no-cache"}, sources...)...)
	}
	// The tests of each folder run where make test runs them.
	for _, at := range []struct{ tests, dir string }{{"python/tests/", "python"}, {"bench/tests/", "."},
		{"examples/", "examples"}, {"test/snippets/", "test/snippets"}} {
		args := []string{*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not cuda and not torch and not dali"}
		found := false
		for _, name := range tests {
			if !strings.HasPrefix(name, at.tests) {
				continue
			}
			name, err := filepath.Rel(at.dir, name)
			if err != nil {
				return 1, err
			}
			args, found = append(args, name), true
		}
		if !found {
			continue
		}
		if *library != "" {
			step("build the library", ".", "sh", "-c", *library)
			*library = ""
		}
		step("pytest "+at.tests, at.dir, args...)
	}
	return code, nil
}

// withSuffix returns the files whose names end with suffix and that still exist.
func withSuffix(files []string, suffix string) []string {
	return slices.DeleteFunc(slices.Clone(files), func(name string) bool {
		_, err := os.Stat(name)
		return err != nil || !strings.HasSuffix(name, suffix)
	})
}

// changedSince lists the files that differ from those of a commit, with new files that git does not ignore.
func changedSince(commit string) ([]string, error) {
	var files []string
	for _, args := range [][]string{
		{"diff", "--name-only", "-z", commit, "--"},
		{"ls-files", "-z", "--others", "--exclude-standard"},
	} {
		out, err := exec.Command("git", args...).Output()
		if err != nil {
			return nil, fmt.Errorf("git %s: %w (fix: name a commit of this clone)", strings.Join(args, " "), err)
		}
		for name := range strings.SplitSeq(string(out), "\x00") {
			if name != "" {
				files = append(files, name)
			}
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// packagesOf returns the Go packages that hold one of the files, and the packages that import one of those, or whose
// tests do.
func packagesOf(files []string) ([]string, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,EmbedFiles,TestEmbedFiles", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		return nil, err
	}
	type info struct {
		ImportPath, Dir                    string
		Imports, TestImports, XTestImports []string
		EmbedFiles, TestEmbedFiles         []string
	}
	var all []info
	changed := map[string]bool{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p info
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
		rel, err := filepath.Rel(here, p.Dir)
		if err != nil {
			return nil, err
		}
		folder := filepath.ToSlash(rel)
		changed[p.ImportPath] = slices.ContainsFunc(files, func(name string) bool {
			rest, below := strings.CutPrefix(name, folder+"/")
			embedded := below && (slices.Contains(p.EmbedFiles, rest) || slices.Contains(p.TestEmbedFiles, rest))
			return path.Dir(name) == folder && strings.HasSuffix(name, ".go") || embedded ||
				below && strings.HasPrefix(rest, "testdata/") || below && strings.HasPrefix(rest, "csrc/")
		})
	}
	var found []string
	for _, p := range all {
		imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		if changed[p.ImportPath] || slices.ContainsFunc(imports, func(i string) bool { return changed[i] }) {
			found = append(found, p.ImportPath)
		}
	}
	return found, nil
}

// pythonTestsOf returns the files of Python tests that belong to the changed files: changed tests, and tests that name
// a changed module.
func pythonTestsOf(files []string) ([]string, error) {
	tests, err := filepath.Glob("*/*/test_*.py")
	if err != nil {
		return nil, err
	}
	more, err := filepath.Glob("examples/test_*.py")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, test := range append(tests, more...) {
		text, err := os.ReadFile(test)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(withSuffix(files, ".py"), func(name string) bool {
			return name == test || named(string(text), name)
		}) {
			found = append(found, test)
		}
	}
	return found, nil
}

// named reports whether the text of a test names the module of a Python file.
func named(text, file string) bool {
	module := strings.TrimSuffix(path.Base(file), ".py")
	if module == "__init__" {
		module = path.Base(path.Dir(file))
	}
	if strings.HasPrefix(module, "test_") || module == "nebulaio" {
		return false // everybody names the package itself
	}
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(module) + `\b`).MatchString(text)
}
