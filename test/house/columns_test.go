// SPDX-License-Identifier: Apache-2.0

package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestColumns limits the width of all Go code of this repository, tests included.
func TestColumns(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "build", "bin", "node_modules", "testdata"}, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen++
		for _, line := range TooWide(path, source) {
			t.Error(line)
		}
		return nil
	})
	if err != nil || seen < 1000 {
		t.Errorf("%d files of Go were found: %v", seen, err)
	}
}

// TestWideLines holds the rule against lines that break it and lines that do not.
func TestWideLines(t *testing.T) {
	wide := strings.Repeat("x", MostColumns)
	for _, c := range []struct {
		source string
		want   int
	}{
		{"package p\n", 0},
		{"package p\n\n// " + wide + "\n", 1},
		{"package p\n\nvar " + wide + " = 1\n\nvar a = 1 // " + wide + "\n", 2},
		{"package p\n\nvar a = \"" + wide + "\"\n", 0},
		{"package p\n\nvar a = `\n" + wide + "\n`\n", 0},
		{"package p\n\nvar " + wide + " = \"short\"\n", 1},
		{"package p\n\n//go:generate " + wide + "\n", 0},
	} {
		if got := TooWide("p.go", []byte(c.source)); len(got) != c.want {
			t.Errorf("%q: %q, expected %d lines", c.source, got, c.want)
		}
	}
}
