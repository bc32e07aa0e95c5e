// SPDX-License-Identifier: Apache-2.0

package place

import (
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// filterOf makes a filter of rules such as "-*" and "+*.txt".
func filterOf(t testing.TB, rules ...string) *Filter {
	t.Helper()
	var f Filter
	for _, r := range rules {
		add := f.Include
		if r[0] == '-' {
			add = f.Exclude
		}
		if err := add(r[1:]); err != nil {
			t.Fatal(err)
		}
	}
	return &f
}

// The rules are those of aws-cli: fnmatch, in order, and the last match decides.
func TestFilterIsThatOfTheAWSTools(t *testing.T) {
	for _, c := range []struct {
		rules   string
		yes, no string
	}{
		{"", "a b/c", ""},
		{"-*", "", "a a/b .x"},
		{"-* +*.txt", "a.txt a/b/c.txt .txt", "a.jpg a.txt.gz"},
		{"+*.txt -*", "", "a.txt b"},
		{"-*.txt +a/*", "a/x.txt b.jpg", "b.txt c/a/x.txt"},
		{"-a/*", "b a ab/c", "a/b a/b/c"},
		{"-?.bin", "ab.bin .bin", "a.bin é.bin"},
		{"-[ab]*", "c", "a b abc"},
		{"-[!ab]*", "a b", "c /x"},
		{"-[a-c].x", "d.x -.x", "a.x b.x c.x"},
		{"-[]x]", "y", "] x"},
		{"-[ab", "a", "[ab"},
		{"-[z-a]", "z a m", ""},
		{"-[!z-a]", "xx", "z a m"},
		{"-[a-]", "b", "a -"},
		{"-*a*b*c*", "acb", "abc xaxbxcx a/b/c"},
		{"-**", "", "x x/y"},
		{"-a\\*", "a*", "a\\x"},
	} {
		f := filterOf(t, strings.Fields(c.rules)...)
		for _, key := range strings.Fields(c.yes) {
			if !f.Match(key) {
				t.Errorf("%s leaves out %q", c.rules, key)
			}
		}
		for _, key := range strings.Fields(c.no) {
			if f.Match(key) {
				t.Errorf("%s takes %q", c.rules, key)
			}
		}
	}
	if !(*Filter)(nil).Match("x") || !(*Filter)(nil).Empty() {
		t.Error("no filter takes all")
	}
}

func TestFilterIsBounded(t *testing.T) {
	var f Filter
	for _, p := range []string{"", strings.Repeat("a", 1025)} {
		if err := f.Include(p); !errs.Is(err, errs.Invalid) {
			t.Errorf("%v", err)
		}
	}
	for range mostRules {
		if err := f.Exclude("x"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Exclude("x"); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
	// A pattern that makes others take exponential time.
	if filterOf(t, "-"+strings.Repeat("a*", 500)+"b").Match(strings.Repeat("a", 1024)) != true {
		t.Error("matches")
	}
}

// reference is fnmatch as a recursion, for short texts.
func reference(parts []part, key []rune) bool {
	if len(parts) == 0 {
		return len(key) == 0
	}
	if parts[0].any {
		return reference(parts[1:], key) || len(key) > 0 && reference(parts, key[1:])
	}
	return len(key) > 0 && parts[0].matches(key[0]) && reference(parts[1:], key[1:])
}

func FuzzFilter(f *testing.F) {
	f.Add("*.txt", "a.txt")
	f.Add("[!a-c]*?[x", "zq[x")
	f.Add("**a**b", "ab")
	f.Fuzz(func(t *testing.T, pattern, key string) {
		var x Filter
		if x.Exclude(pattern) != nil {
			return
		}
		got := !x.Match(key)
		if len(pattern) < 12 && len(key) < 12 {
			if want := reference(compile(pattern), []rune(key)); got != want {
				t.Fatalf("%q and %q: %v, expected %v", pattern, key, got, want)
			}
		}
		if !strings.ContainsAny(pattern, "*?[") && strings.ToValidUTF8(pattern, "") == pattern && got != (pattern == key) {
			t.Fatalf("%q and %q: %v", pattern, key, got)
		}
	})
}
