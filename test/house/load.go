// SPDX-License-Identifier: Apache-2.0

package house

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// listed is what go list prints about a package.
type listed struct {
	ImportPath, Dir, Export    string
	Imports, GoFiles, CgoFiles []string
	ImportMap                  map[string]string
	DepOnly                    bool
}

// goList runs go list in dir, with cgo, because the shared library needs cgo. With -export, which compiles, goList
// takes the settings of the tests, so that Go finds what is compiled already. The profile is off, because it would give
// packages separate names for each program.
func goList(dir string, args ...string) ([]listed, error) {
	const fields = "-json=ImportPath,Dir,Export,Imports,GoFiles,CgoFiles,ImportMap,DepOnly"
	var env []string
	if !slices.Contains(args, "-export") {
		env = append(env, "CGO_ENABLED=1")
	}
	out, err := goOutput(dir, env, append([]string{"list", "-pgo=off", fields}, args...)...)
	if err != nil {
		return nil, err
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// goOutput runs the go command with additional variables and returns what it prints.
func goOutput(dir string, env []string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, said.String())
	}
	return string(out), nil
}

// Load reads the packages of the module in dir, its requirements, and its ARCHITECTURE.md if there is one. If the
// parameter library is not empty, Load also lists the packages that are linked into that library. The tables in the
// House that Load returns are empty.
func Load(dir, library string) (House, error) {
	var h House
	text, err := goOutput(dir, nil, "mod", "edit", "-json")
	if err != nil {
		return h, err
	}
	var mod struct {
		Module  struct{ Path string }
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal([]byte(text), &mod); err != nil {
		return h, err
	}
	for _, r := range mod.Require {
		if !r.Indirect {
			h.Required = append(h.Required, r.Path)
		}
	}
	all, err := goList(dir, "./...")
	if err != nil {
		return h, err
	}
	for _, l := range all {
		p, err := load(l, mod.Module.Path)
		if err != nil {
			return h, err
		}
		h.Packages = append(h.Packages, p)
	}
	if library != "" {
		linked, err := goList(dir, "-deps", library)
		if err != nil {
			return h, err
		}
		for _, l := range linked {
			if own, ok := ownPath(l.ImportPath, mod.Module.Path); ok {
				h.Linked = append(h.Linked, "./"+own)
			} else {
				h.Linked = append(h.Linked, l.ImportPath)
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "ARCHITECTURE.md"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return h, err
	}
	h.Page = string(page)
	return h, nil
}

// load reads the files of one package and sorts its imports.
func load(l listed, module string) (Package, error) {
	p := Package{}
	p.Path, _ = ownPath(l.ImportPath, module)
	for _, im := range l.Imports {
		if own, ok := ownPath(im, module); ok {
			p.Own = append(p.Own, own)
		} else {
			p.Others = append(p.Others, im)
		}
	}
	for _, name := range append(l.GoFiles, l.CgoFiles...) {
		source, err := os.ReadFile(filepath.Join(l.Dir, name))
		if err != nil {
			return p, err
		}
		f, err := Read(filepath.Join(p.Path, name), string(source))
		if err != nil {
			return p, err
		}
		p.Files = append(p.Files, f)
	}
	return p, nil
}

// ownPath returns the path, below the module, of one of the module's packages.
func ownPath(importPath, module string) (string, bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}
