// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/versity/versitygw/auth"
)

// TestPatternsOfBucketAndKey divides patterns that have a wildcard before the first slash.
func TestPatternsOfBucketAndKey(t *testing.T) {
	for pattern, want := range map[string][]string{
		"corp/a": {"a"}, "corp": nil, "corp/": {""}, "other/a": nil, "c?rp/a*": {"a*"}, "corp*": {"*"}, "*": {"*"},
		"c*p/x": {"*p/x", "x"}, "*o*/x": {"*/x", "x"}, "c***/": {"", "*/"}, "????": nil, "?????x": {"x"},
	} {
		got := keyPatterns(pattern, "corp")
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, expected %q", pattern, got, want)
		}
	}
}

// TestEveryActionIsSpelledAsVersitygwSpellsIt holds the list of actions against versitygw's.
func TestEveryActionIsSpelledAsVersitygwSpellsIt(t *testing.T) {
	for _, a := range knownActions {
		if err := a.IsValid(); err != nil {
			t.Errorf("%s: %v", a, err)
		}
		if got := actionsLike(strings.ToUpper(string(a))); !slices.Equal(got, []auth.Action{a}) {
			t.Errorf("%s in another case is %v", a, got)
		}
	}
}

// matches says by a regular expression whether a key matches a pattern: * stands for any characters, ? for one.
func matches(t *testing.T, pattern, key string) bool {
	t.Helper()
	like, err := regexp.Compile("(?s)^" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern)) +
		"$")
	if err != nil {
		t.Fatal(err)
	}
	return like.MatchString(key)
}

// FuzzComparableResources holds the comparison of patterns against a plain one that goes by characters.
func FuzzComparableResources(f *testing.F) {
	f.Add("a/?", "a/é")
	f.Add("*?*b?", "éb日")
	f.Add("????", "é")
	f.Add("*b*??", "éb日") // a * ends between two characters, never inside of one
	f.Add("??", "*\xa9")
	f.Add("a*", "a*b")
	f.Add("a*?c", "a***éc")
	f.Fuzz(func(t *testing.T, pattern, key string) {
		if key == "" || !utf8.ValidString(pattern) || strings.ContainsRune(pattern, utf8.RuneError) ||
			len(pattern)+len(key) > 200 ||
			strings.ContainsAny(pattern+key, "\x00/[]\\") || utf8.ValidString(key) && strings.ContainsRune(key, utf8.RuneError) {
			return // other tests have these
		}
		raw, err := json.Marshal([]string{auth.ResourceArnPrefix + "corp/" + pattern})
		if err != nil {
			t.Fatal(err)
		}
		list, err := comparableResources(raw, "corp")
		if err != nil {
			t.Fatal(err)
		}
		var resources auth.Resources
		if err := json.Unmarshal(list, &resources); err != nil {
			t.Fatal(err)
		}
		normal := Comparable
		got := resources.FindMatch("corp/"+normal("corp", key), normal)
		if want := matches(t, pattern, key); got != want {
			t.Errorf("pattern %q and key %q: %v, expected %v", pattern, key, got, want)
		}
	})
}
