// SPDX-License-Identifier: Apache-2.0

// Package house holds the rules that the sources of this repository keep. A rule is a function over a list of packages,
// so that a test can plant a violation in a copy of that list. The tables are in arch_test.go.
package house

import (
	"maps"
	"slices"
	"strings"
)

// Package is one package of the module.
type Package struct {
	// Path is the import path below the module. The root package has "".
	Path string
	// Own are the imported packages of this module, as their Path.
	Own []string
	// Others are the imported packages of the standard library and of other modules. "C" stands for cgo.
	Others []string
	// Files are the sources without the tests.
	Files []File
}

// File is what the rules look at in one source file.
type File struct {
	Name string
	// Licensed is whether the file begins with its licence.
	Licensed bool
	// Comment is whether the file has a package comment.
	Comment bool
	// Init is whether the file has an init function.
	Init bool
}

// Door is a package or module that only its owners import.
type Door struct {
	// By names the owners, separated by spaces. An owner a/... stands for a and all packages below it.
	By string
	// Why is the reason, in words for the error message.
	Why string
}

// House is the repository as the rules see it, with the tables that the rules compare it with.
type House struct {
	Packages []Package
	// Floors gives each package of the product its floor.
	Floors map[string]int
	// Outside lists the packages that are not part of the product.
	Outside []string
	// Doors maps a path to its owners. It also guards the packages below that path, unless a longer path matches.
	Doors map[string]Door
	// Everyone lists modules that every package may import, each with the reason.
	Everyone map[string]string
	// TestModules lists modules that only tests import, each with the reason.
	TestModules map[string]string
	// Required lists the direct requirements of go.mod.
	Required []string
	// Linked lists what the shared library links: paths of this module begin with "./".
	Linked []string
	// LinkedModules lists the other modules that the shared library may link, each with the reason.
	LinkedModules map[string]string
	// NotLinked lists packages of this module that the shared library must not link. It matches by prefix.
	NotLinked []string
	// StillLinked lists the exceptions to NotLinked.
	StillLinked []string
	// Page is the text of ARCHITECTURE.md.
	Page string
}

// Clone returns a copy whose lists and tables can be changed without changing h.
func (h House) Clone() House {
	h.Packages = slices.Clone(h.Packages)
	for i, p := range h.Packages {
		p.Own, p.Others, p.Files = slices.Clone(p.Own), slices.Clone(p.Others), slices.Clone(p.Files)
		h.Packages[i] = p
	}
	h.Floors, h.Doors = maps.Clone(h.Floors), maps.Clone(h.Doors)
	h.Everyone, h.TestModules = maps.Clone(h.Everyone), maps.Clone(h.TestModules)
	h.LinkedModules = maps.Clone(h.LinkedModules)
	h.Outside, h.Required = slices.Clone(h.Outside), slices.Clone(h.Required)
	h.Linked, h.NotLinked, h.StillLinked = slices.Clone(h.Linked), slices.Clone(h.NotLinked), slices.Clone(h.StillLinked)
	return h
}

// Find returns the package with that path, to be changed in place, or nil.
func (h House) Find(path string) *Package {
	for i := range h.Packages {
		if h.Packages[i].Path == path {
			return &h.Packages[i]
		}
	}
	return nil
}

// product returns the packages that are on a floor.
func (h House) product() []Package {
	return slices.DeleteFunc(slices.Clone(h.Packages), func(p Package) bool {
		_, ok := h.Floors[p.Path]
		return !ok
	})
}

// below reports whether path is prefix or lies below it.
func below(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// longest returns the longest key of table that path lies below.
func longest[V any](path string, table map[string]V) (string, bool) {
	best, found := "", false
	for key := range table {
		if below(path, key) && (!found || len(key) > len(best)) {
			best, found = key, true
		}
	}
	return best, found
}

// foreign reports whether an import path belongs to another module: its first element has a dot.
func foreign(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".")
}
