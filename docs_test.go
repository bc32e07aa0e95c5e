// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"cmp"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/nebulaio/nebulaio/test/effort"
)

// pages returns every Markdown page of the checkout, by its slash-separated path, with its text.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "build" || base == "data" ||
				base == "bin") {
				return filepath.SkipDir
			}
		case strings.HasSuffix(name, ".md"):
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			all[filepath.ToSlash(name)] = string(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d pages found", len(all))
	}
	return all
}

var (
	fence    = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
	codeSpan = regexp.MustCompile("`[^`\n]+`")
	link     = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	linked   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// prose returns the text of a page without its code blocks.
func prose(text string) string { return fence.ReplaceAllString(text, "") }

// links returns the targets of the links of a page. Code is not searched.
func links(text string) []string {
	var out []string
	for _, m := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(prose(text), ""), -1) {
		out = append(out, m[1])
	}
	return out
}

// anchors returns the names that the headings of a page get, as GitHub makes them.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(prose(text), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, linked.ReplaceAllString(m[1], "$1"))
		out[name] = true
	}
	return out
}

// TestEveryPageIsInTheIndex checks that docs/README.md links to each page below docs/, and the page of a benchmark
// names its tables.
func TestEveryPageIsInTheIndex(t *testing.T) {
	all := pages(t)
	index := map[string]bool{"docs/README.md": true}
	for _, target := range links(all["docs/README.md"]) {
		index[path.Join("docs", target)] = true
	}
	for name := range all {
		// Tables of raw data belong to the page of their benchmark.
		if page := path.Join(path.Dir(name), "README.md"); strings.HasPrefix(name, "docs/benchmarks/") && name != page {
			if !strings.Contains(all[page], path.Base(name)) {
				t.Errorf("%s is not named in %s", name, page)
			}
		} else if strings.HasPrefix(name, "docs/") && !index[name] {
			t.Errorf("%s is not in the index (fix: add a row with one sentence to docs/README.md)", name)
		}
	}
}

// TestLinksResolve checks that each link to a file and each anchor of the Markdown pages exists.
// TestTheBlockOfThePageIsTested compares the code block of docs/cpp.md with the one that test/native/gpudirect.cpp
// runs.
func TestTheBlockOfThePageIsTested(t *testing.T) {
	block, err := os.ReadFile("test/native/documented.inc")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(pages(t)["docs/cpp.md"], "```cpp\n"+string(block)+"```\n") {
		t.Error("docs/cpp.md has another block than test/native/documented.inc, which the tests run")
	}
}

func TestLinksResolve(t *testing.T) {
	effort.SingleThreaded(t)
	all := pages(t)
	checked := 0
	for name, text := range all {
		for _, target := range links(text) {
			u, err := url.Parse(target)
			if err != nil {
				t.Errorf("%s: link %q: %v", name, target, err)
				continue
			}
			if u.Scheme != "" {
				continue
			}
			checked++
			to := name
			if u.Path != "" {
				to = path.Join(path.Dir(name), u.Path)
			}
			if _, err := os.Stat(filepath.FromSlash(to)); err != nil {
				t.Errorf("%s: link %q: %v", name, target, err)
			} else if u.Fragment != "" && strings.HasSuffix(to, ".md") && !anchors(all[to])[u.Fragment] {
				t.Errorf("%s: link %q: %s has no such heading", name, target, to)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d links checked", checked)
	}
}

// TestAnchorsAreThoseOfGitHub checks the rule for anchors against known ones.
func TestAnchorsAreThoseOfGitHub(t *testing.T) {
	got := anchors("# `nebulaio bench`: A_b\n```sh\n# no heading\n```\n## [Who](x.md) is *it*?\n")
	if want := map[string]bool{"nebulaio-bench-a_b": true, "who-is-it": true}; !maps.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}

// TestDecisionsNameTheirFiles checks that each decision below docs/design ends with a line of files, and that they
// exist.
func TestDecisionsNameTheirFiles(t *testing.T) {
	decisions := 0
	for name, text := range pages(t) {
		if !strings.HasPrefix(name, "docs/design/") {
			continue
		}
		for _, section := range strings.Split(prose(text), "\n## ")[1:] {
			decisions++
			title, body, _ := strings.Cut(section, "\n")
			_, files, ok := strings.Cut(body, "\nFiles: ")
			if !ok || strings.Contains(files, "\n\n") && strings.TrimSpace(files[strings.Index(files, "\n\n"):]) != "" {
				t.Errorf("%s, %q does not end with a line \"Files: \"", name, title)
				continue
			}
			exist(t, name+", "+title, files)
		}
	}
	if decisions < 30 {
		t.Errorf("only %d decisions found", decisions)
	}
}

// exist checks that the text names at least one path of the checkout in backticks, and that each of them exists.
func exist(t *testing.T, where, text string) {
	t.Helper()
	spans := codeSpan.FindAllString(text, -1)
	if len(spans) == 0 {
		t.Errorf("%s: no path in backticks", where)
	}
	for _, span := range spans {
		if _, err := os.Stat(filepath.FromSlash(strings.Trim(span, "`"))); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
}

// rows returns the cells of each row of the table below a heading, without the two lines of its head.
func rows(t *testing.T, text, under string) [][]string {
	t.Helper()
	_, body, ok := strings.Cut(text, "\n## "+under+"\n")
	if !ok {
		t.Fatalf("no heading %q", under)
	}
	body, _, _ = strings.Cut(body, "\n## ")
	var out [][]string
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "|") {
			var cells []string
			for _, c := range strings.Split(strings.Trim(line, "|"), " | ") {
				cells = append(cells, strings.TrimSpace(c))
			}
			out = append(out, cells)
		}
	}
	if len(out) < 5 {
		t.Fatalf("%d rows below %q", len(out), under)
	}
	return out[2:]
}

// TestTheFloorsAreDocumented checks that the table of floors in ARCHITECTURE.md and the floors of this test agree.
func TestTheFloorsAreDocumented(t *testing.T) {
	documented := map[string]string{}
	for _, row := range rows(t, pages(t)["ARCHITECTURE.md"], "Floors") {
		for _, span := range codeSpan.FindAllString(row[1], -1) {
			name := strings.Trim(span, "`")
			if name == "nebulaio" {
				name = "" // the library
			}
			documented[name] = row[0]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(floors)) {
		if got, want := documented[name], strconv.Itoa(floors[name]); got != want {
			t.Errorf("%q has floor %s in arch_test.go and %q in ARCHITECTURE.md", name, want, got)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if _, ok := floors[name]; !ok {
			t.Errorf("%q of ARCHITECTURE.md has no floor in arch_test.go", name)
		}
	}
}

// TestWhereThingsAre checks that the folders and files of the table "Where is …" in ARCHITECTURE.md exist.
func TestWhereThingsAre(t *testing.T) {
	for _, row := range rows(t, pages(t)["ARCHITECTURE.md"], "Where is …") {
		exist(t, "ARCHITECTURE.md, "+row[0], row[1])
	}
}

// TestWhereANewThingGoes checks that the files and tests of the table in CONTRIBUTING.md exist. Commands are not
// checked.
func TestWhereANewThingGoes(t *testing.T) {
	effort.SingleThreaded(t)
	tests := testNames(t)
	for _, row := range rows(t, pages(t)["CONTRIBUTING.md"], "Where a new thing goes") {
		where := "CONTRIBUTING.md, " + row[0]
		exist(t, where, regexp.MustCompile("`go [^`]*`").ReplaceAllString(row[1], ""))
		for _, span := range codeSpan.FindAllString(row[2], -1) {
			if name := strings.Trim(span, "`"); strings.HasPrefix(strings.ToLower(name), "test") && !tests[name] {
				t.Errorf("%s: there is no test %s", where, name)
			}
		}
	}
}

// testNames returns the names of all test functions of the checkout, in Go and Python.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	function := regexp.MustCompile(`(?m)^(?:func|def) ([Tt]est\w+)\(`)
	names := map[string]bool{}
	for _, folder := range []string{".", "internal", "bench", "test", "python/tests"} {
		err := filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && name != folder && folder == "." {
				return cmp.Or(err, fs.SkipDir)
			}
			if !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(d.Name(), "test_") || d.IsDir() {
				return nil
			}
			text, err := os.ReadFile(name)
			for _, m := range function.FindAllSubmatch(text, -1) {
				names[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// TestTheReadmeHasFiguresOfThePerformancePage checks that the figures of README.md are those of docs/performance.md.
func TestTheReadmeHasFiguresOfThePerformancePage(t *testing.T) {
	all := pages(t)
	found := 0
	for _, rate := range regexp.MustCompile(`\*\*[0-9.]+ GB/s\*\*[^\n]*`).FindAllString(all["README.md"], -1) {
		found++
		if cells := strings.Split(rate, " | "); !strings.Contains(all["docs/performance.md"],
			strings.Join(cells[:4], " | ")) {
			t.Errorf("docs/performance.md has no row with %q", strings.Join(cells[:4], " | "))
		}
	}
	if found == 0 {
		t.Error("README.md has no figure")
	}
}
