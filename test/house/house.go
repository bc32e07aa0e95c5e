// SPDX-License-Identifier: Apache-2.0

// Package house defines rules for the sources of this repository. A rule is a function over a list of packages, so
// that a test can plant a violation in a copy of that list. The tables of exceptions and limits for the rules are in
// arch_test.go.
package house

import (
	"maps"
	"slices"
	"strings"
)

// Package is one package of the module.
type Package struct {
	// Path is the import path below the module, or "" for the root package.
	Path string
	// Own lists the imported packages of this module, by their Path.
	Own []string
	// Others lists the imported packages of the standard library and of other modules. In the list Others, "C" stands
	// for cgo.
	Others []string
	// Files lists the source files, without tests.
	Files []File
}

// File has the properties of one source file that the rules check.
type File struct {
	Name string
	// Licensed reports whether the file begins with its licence.
	Licensed bool
	// Comment reports whether the file has a package comment.
	Comment bool
	// Init reports whether the file has an init function.
	Init bool
}

// Door is a rule that only the packages in By may import a guarded package or module.
type Door struct {
	// By names the packages that may import the guarded one, separated by spaces. If an entry
	// ends in three dots (a/...), the packages below it may import the guarded one too.
	By string
	// Why is the reason for the import restriction, as text for the error message.
	Why string
}

// House is the repository as the rules see it, with the tables for the rules.
type House struct {
	Packages []Package
	// Floors maps each package of the product to its floor, the number of its layer. A package may import only
	// packages on lower floors (layers).
	Floors map[string]int
	// Outside lists the packages that are not part of the product.
	Outside []string
	// Doors maps the path of a guarded package or module to its Door. A Door also guards the packages below its path,
	// unless another Door has a longer path that matches.
	Doors map[string]Door
	// Everyone lists the modules that every package may import, each with the reason.
	Everyone map[string]string
	// TestModules lists the modules that only tests import, each with the reason.
	TestModules map[string]string
	// Required lists the direct requirements in go.mod.
	Required []string
	// Linked lists the packages that are linked into the shared library. In the list Linked, paths of this module
	// begin with "./".
	Linked []string
	// LinkedModules lists the other modules that the shared library may link, each with the reason.
	LinkedModules map[string]string
	// NotLinked lists path prefixes of this module's packages that the shared library must not link.
	NotLinked []string
	// StillLinked lists the exceptions to NotLinked.
	StillLinked []string
	// Page is the text of ARCHITECTURE.md.
	Page string
}

// Clone returns a copy of h. Changes to lists and tables of the copy do not affect h.
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

// Find returns the package with the given path, or nil if there is none. The caller may change the package in place.
func (h House) Find(path string) *Package {
	for i := range h.Packages {
		if h.Packages[i].Path == path {
			return &h.Packages[i]
		}
	}
	return nil
}

// product returns the packages that have a floor.
func (h House) product() []Package {
	return slices.DeleteFunc(slices.Clone(h.Packages), func(p Package) bool {
		_, ok := h.Floors[p.Path]
		return !ok
	})
}

// below reports whether path is prefix or is below it.
func below(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// longest returns the longest key of table that is path or above it.
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
