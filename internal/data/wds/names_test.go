// SPDX-License-Identifier: Apache-2.0

package wds

import (
	"regexp"
	"strings"
	"testing"
)

// skipMeta is webdataset's own expression. Its $ also matches before a newline at the end.
var skipMeta = regexp.MustCompile(`^__[^/]*__(\n?\z|/)`)

// FuzzNames compares the fast ways of split and isMetadata with the expressions of webdataset.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"a.jpg", "a/b.c.d", "a", "a.b/c", "a/.h", ".h", "x//.h", "/.h", "a.b/.h", "a\nb.c/d.jpg",
		"a.\n", "..x", "__a__", "__a__/b.jpg", "__", "___", "____", "__/x.y", "__a__\n", "__a.b__", "a/__b__", "__a__b", ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		key, ext, ok := split(name)
		m := naming.FindStringSubmatch(name)
		if ok != (m != nil) || ok && (key != m[1] || ext != m[2]) {
			t.Errorf("split(%q) is %q, %q, %v, expected %q", name, key, ext, ok, m)
		}
		want := !strings.Contains(name, "/") && strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") ||
			skipMeta.MatchString(name)
		if got := isMetadata(name); got != want {
			t.Errorf("isMetadata(%q) is %v, expected %v", name, got, want)
		}
	})
}
