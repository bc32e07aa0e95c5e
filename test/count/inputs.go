// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// tree is a checkout: its files as git lists them, each with the hash of its content.
type tree struct {
	root  string
	files []string          // slash-separated paths below root, sorted
	sums  map[string]string // content hashes of files that were read
	lists map[string]built  // what go list said, by its arguments
}

// built is what go build or go test compiles: files of the checkout, and versions of other modules.
type built struct{ files, modules []string }

// openTree lists the files of the checkout at root: those that git tracks, and those that git does not ignore.
func openTree(root string) (*tree, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of %s with git: %w (fix: run it in a clone)", root, err)
	}
	t := &tree{root: root, sums: map[string]string{}, lists: map[string]built{}}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		// A file that was deleted and not yet committed is listed, too.
		if info, err := os.Lstat(filepath.Join(root, name)); err == nil && !info.IsDir() {
			t.files = append(t.files, name)
		}
	}
	slices.Sort(t.files)
	t.files = slices.Compact(t.files)
	return t, nil
}

// sum returns the hash of the content of a file.
func (t *tree) sum(name string) (string, error) {
	if s, ok := t.sums[name]; ok {
		return s, nil
	}
	path := filepath.Join(t.root, name)
	text, err := os.ReadFile(path)
	if target, linkErr := os.Readlink(path); linkErr == nil {
		text, err = []byte(target), nil
	}
	if err != nil {
		return "", err
	}
	of := sha256.Sum256(text)
	t.sums[name] = hex.EncodeToString(of[:])
	return t.sums[name], nil
}

// inputs returns the inputs of a suite: paths of files of the checkout, and modules with their versions. They are
// sorted and none is listed twice. The file of proofs is nobody's input, because the runner writes it.
func (t *tree) inputs(s suite) (files, modules []string, err error) {
	for _, name := range t.files {
		if s.hasFile(name) {
			files = append(files, name)
		}
	}
	for _, with := range []struct {
		roots []string
		test  bool
	}{{s.programs, false}, {s.tests, true}} {
		if len(with.roots) == 0 {
			continue
		}
		key := fmt.Sprint(with)
		b, known := t.lists[key]
		if !known {
			if b, err = t.list(with.roots, with.test); err != nil {
				return nil, nil, err
			}
			t.lists[key] = b
		}
		files, modules = append(files, b.files...), append(modules, b.modules...)
	}
	slices.Sort(files)
	slices.Sort(modules)
	files = slices.DeleteFunc(slices.Compact(files), func(name string) bool { return name == provenFile })
	return files, slices.Compact(modules), nil
}

// hasFile reports whether the suite names the file or a folder that holds it.
func (s suite) hasFile(name string) bool {
	return slices.ContainsFunc(s.files, func(in string) bool {
		return name == in || strings.HasSuffix(in, "/") && strings.HasPrefix(name, in)
	})
}

// listed is what go list prints about a package.
type listed struct {
	Dir, ImportPath string
	Standard        bool
	DepOnly         bool
	EmbedFiles      []string
	TestEmbedFiles  []string
	XTestEmbedFiles []string
	Module          *struct {
		Path, Version string
		Main          bool
		Replace       *struct{ Path, Version string }
	}
}

// list asks go list what go build or go test compiles for roots.
func (t *tree) list(roots []string, test bool) (b built, err error) {
	args := []string{"list", "-deps",
		"-json=Dir,ImportPath,Standard,DepOnly,EmbedFiles,TestEmbedFiles,XTestEmbedFiles,Module"}
	if test {
		args = append(args, "-test")
	}
	cmd := exec.Command("go", append(args, roots...)...)
	cmd.Dir = t.root
	// The shared library needs cgo. The profile would give packages separate names for each program.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=-pgo=off")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return b, fmt.Errorf("%s: %w\n%s", cmd, err, said.String())
	}
	root, err := filepath.EvalSymlinks(t.root)
	if err != nil {
		return b, err
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return b, err
		}
		switch {
		case p.Standard || p.Module == nil:
		case !p.Module.Main:
			version := p.Module.Path + "@" + p.Module.Version
			if p.Module.Replace != nil {
				version += " => " + p.Module.Replace.Path + "@" + p.Module.Replace.Version
			}
			b.modules = append(b.modules, version)
		default:
			dir, err := filepath.Rel(root, p.Dir)
			if err != nil {
				return b, err
			}
			b.files = append(b.files, t.ofPackage(filepath.ToSlash(dir), p, test && !p.DepOnly)...)
		}
	}
	version, err := exec.Command("go", "env", "GOVERSION").Output()
	b.modules = append(b.modules, strings.TrimSpace(string(version)))
	return b, err
}

// ofPackage returns the files of a package in dir, with its tests and their data if tested is true.
func (t *tree) ofPackage(dir string, p listed, tested bool) []string {
	prefix := dir + "/"
	if dir == "." {
		prefix = ""
	}
	var found []string
	for _, name := range t.files {
		rest, below := strings.CutPrefix(name, prefix)
		switch {
		case !below:
		case strings.HasPrefix(rest, "testdata/"):
			if tested {
				found = append(found, name)
			}
		case strings.Contains(rest, "/"):
			if slices.Contains(p.EmbedFiles, rest) || tested && (slices.Contains(p.TestEmbedFiles, rest) ||
				slices.Contains(p.XTestEmbedFiles, rest)) {
				found = append(found, name)
			}
		case tested || !strings.HasSuffix(rest, "_test.go"):
			// Files that the package could hold on another machine count as well: they are few.
			if ext := filepath.Ext(rest); ext != ".md" || slices.Contains(p.EmbedFiles, rest) {
				found = append(found, name)
			}
		}
	}
	return found
}

// hash returns one hash over all inputs of a suite.
func (t *tree) hash(s suite) (string, error) {
	files, modules, err := t.inputs(s)
	if err != nil {
		return "", err
	}
	all := sha256.New()
	for _, name := range files {
		sum, err := t.sum(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%s\x00%s\n", name, sum)
	}
	for _, m := range modules {
		fmt.Fprintf(all, "%s\n", m)
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}
