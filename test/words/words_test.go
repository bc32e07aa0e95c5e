// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/test/effort"
)

// TestEverySentenceKeepsTheRules reads every sentence of the repository that users and engineers read.
func TestEverySentenceKeepsTheRules(t *testing.T) {
	effort.Slow(t)
	all, err := collect("../..")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, s := range all {
		switch s.kind {
		case "page", "help", "metric":
			kinds[s.kind]++
		default:
			kinds["comment"]++
		}
	}
	for kind, least := range map[string]int{"page": 1000, "help": 100, "metric": 40, "comment": 2000} {
		if kinds[kind] < least {
			t.Errorf("%d sentences of the kind %q were found, expected %d or more", kinds[kind], kind, least)
		}
	}
	for _, s := range hardOnly(all) {
		t.Errorf("%s:%d: %s: %s", s.file, s.line, s.fault, s.text)
	}
}

// TestHardSentencesAreFound plants one sentence for each rule, in each place where sentences are looked for.
func TestHardSentencesAreFound(t *testing.T) {
	const long = "A word and a word and a word and a word and a word and a word and a word and a word and a word and a " +
		"word and a word and a word."
	for name, file := range map[string]struct{ name, text, want string }{
		"a long sentence": {"docs/a.md", long, "at most 30"},
		"nested clauses":  {"docs/a.md", "The file that holds what the user who asked has is here.", "relative clauses"},
		"a pronoun":       {"docs/a.md", "Open opens a file. It returns an error.", "points at another sentence: It"},
		"a table cell":    {"docs/a.md", "| a | This is not understood alone |", "points at another sentence: This"},
		"a package":       {"p/p.go", "// Package p is good. They are not good.\npackage p\n", "They"},
		"a function":      {"p/p.go", "package p\n\n// F works. Those are not named here.\nfunc F() {}\n", "Those"},
		"a field":         {"p/p.go", "package p\n\n// T is.\ntype T struct {\n\t// It has no name.\n\tA int\n}\n", "It"},
		"a constant":      {"p/p.go", "package p\n\nconst (\n\t// These are not known.\n\tA = 1\n)\n", "These"},
		"a flag's help": {"p/p.go", "package p\n\nfunc f(x interface{ BoolVar(*bool, string, bool, string) }) {\n" +
			"\tx.BoolVar(nil, \"a\", false, \"It is not \"+\"clear alone\")\n}\n", "It"},
		"a metric": {"p/p.go", "package p\n\nvar m = struct{ Help string }{Help: \"Those of the other one.\"}\n", "Those"},
	} {
		root := t.TempDir()
		path := filepath.Join(root, file.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(file.text), 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := collect(root)
		if err != nil {
			t.Fatal(err)
		}
		found := hardOnly(all)
		if len(found) != 1 || !strings.Contains(found[0].fault, file.want) {
			t.Errorf("%s: %+v, expected one sentence with %q", name, found, file.want)
		}
	}
}

// TestDrawIsRepeatable draws twice with one seed, and once with another.
func TestDrawIsRepeatable(t *testing.T) {
	effort.Slow(t)
	draw := func(seed string) string {
		var out, errOut strings.Builder
		if code := run([]string{"-root", "../..", "-draw", "20", "-seed", seed, "-bare"}, &out, &errOut); code != 0 {
			t.Fatalf("exit code %d: %s", code, errOut.String())
		}
		return out.String()
	}
	first := draw("7")
	if strings.Count(first, "\n") != 20 || draw("7") != first || draw("8") == first {
		t.Errorf("the draw with seed 7 is\n%s", first)
	}
}
