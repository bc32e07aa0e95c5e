// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
)

// sources returns the text of each file of the pages by its path.
func sources(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(Files(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(Files(), name)
		all[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 40 || all["index.html"] == "" {
		t.Fatalf("%d files, index.html has %d bytes", len(all), len(all["index.html"]))
	}
	return all
}

// ours reports whether a file is written by us and not taken from another project.
func ours(name string) bool { return !strings.Contains(name, "/vendor/") }

// TestEveryReferenceIsEmbedded checks that each import and each link of the pages leads to an embedded file, and that
// no file is left over.
func TestEveryReferenceIsEmbedded(t *testing.T) {
	all := sources(t)
	imported := regexp.MustCompile(`(?m)(?:from|import)\s*["']([^"']+)["']`)
	linked := regexp.MustCompile(`(?:href|src)="([^"#]+)"`)
	used := map[string]bool{"index.html": true}
	for name, text := range all {
		find := imported
		switch path.Ext(name) {
		case ".html":
			find = linked
		case ".js":
		default:
			continue
		}
		for _, m := range find.FindAllStringSubmatch(text, -1) {
			to := path.Join(path.Dir(name), m[1])
			if _, ok := all[to]; !ok {
				t.Errorf("%s refers to %q: there is no such file", name, m[1])
			}
			used[to] = true
		}
	}
	for name := range all {
		if !used[name] && path.Ext(name) != ".txt" {
			t.Errorf("nothing refers to %s", name)
		}
	}
}

// TestPagesLiveWithTheStrictPolicy checks that no page has what the Content-Security-Policy forbids, and nothing that
// turns data into markup or code.
func TestPagesLiveWithTheStrictPolicy(t *testing.T) {
	forbidden := map[string]*regexp.Regexp{
		"markup from text":      regexp.MustCompile(`(inner|outer)HTML|insertAdjacentHTML|document\.write|DOMParser`),
		"code from text":        regexp.MustCompile(`\beval\(|new Function\(|javascript:|setTimeout\(['"]`),
		"an inline script":      regexp.MustCompile(`<script(?:>|\s[^>]*>[^<])|\son[a-z]+="`),
		"an inline style":       regexp.MustCompile(`\sstyle="|<style|setAttribute\(['"]style`),
		"an address of the web": regexp.MustCompile(`https?://`),
		"a secret that is kept": regexp.MustCompile(`(?i)Storage\.setItem\([^)]*(?:secret|csrf|password|token)`),
	}
	for name, text := range sources(t) {
		if !ours(name) || path.Ext(name) == ".svg" {
			continue
		}
		for what, pattern := range forbidden {
			if found := pattern.FindString(text); found != "" {
				t.Errorf("%s has %s: %q", name, what, found)
			}
		}
	}
}

// TestOurFilesKeepTheRules checks the licence, the length of lines and the length of each file of ours.
func TestOurFilesKeepTheRules(t *testing.T) {
	for name, text := range sources(t) {
		if !ours(name) || path.Ext(name) == ".svg" {
			continue
		}
		if !strings.Contains(text[:min(200, len(text))], "SPDX-License-Identifier: Apache-2.0") {
			t.Errorf("%s has no licence", name)
		}
		lines := strings.Split(text, "\n")
		if len(lines) > 400 {
			t.Errorf("%s has %d lines, at most 400", name, len(lines))
		}
		for i, line := range lines {
			if n := len([]rune(line)); n > 120 {
				t.Errorf("%s:%d has %d columns, at most 120", name, i+1, n)
			}
		}
	}
}

// TestVendoredFilesAreThoseOfTheList compares the files of other projects with the sums that are written beside them.
func TestVendoredFilesAreThoseOfTheList(t *testing.T) {
	all := sources(t)
	list := all["static/vendor/README.txt"]
	count := 0
	for name, text := range all {
		if ours(name) || path.Ext(name) != ".js" {
			continue
		}
		count++
		sum := sha256.Sum256([]byte(text))
		if line := hex.EncodeToString(sum[:]) + "  " + path.Base(name) + "\n"; !strings.Contains(list, line) {
			t.Errorf("static/vendor/README.txt has no line %q", line)
		}
	}
	if count != 3 {
		t.Errorf("%d vendored files, expected 3", count)
	}
}
