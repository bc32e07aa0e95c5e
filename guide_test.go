// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/test/effort"
)

// guide has the pages of docs/guide in the order in which a reader goes through them.
var guide = []string{
	"install", "first-model", "serve-objects", "console", "feed-a-training", "checkpoint", "find-the-bottleneck",
	"scale-out",
	"operate", "monitoring", "security", "gpudirect-storage", "troubleshooting",
}

// TestTheGuideIsInOrder checks that docs/README.md leads through every page of the guide in order, and that each page
// leads to the next one.
func TestTheGuideIsInOrder(t *testing.T) {
	all := pages(t)
	var listed []string
	for _, target := range links(all["docs/README.md"]) {
		if name, ok := strings.CutPrefix(target, "guide/"); ok {
			listed = append(listed, strings.TrimSuffix(name, ".md"))
		}
	}
	if len(listed) < len(guide) || strings.Join(listed[:len(guide)], " ") != strings.Join(guide, " ") {
		t.Errorf("docs/README.md leads through %q, expected %q first", listed, guide)
	}
	known := strings.Join(guide, " ") + " "
	for name, text := range all {
		base, ok := strings.CutPrefix(name, "docs/guide/")
		if !ok {
			continue
		}
		base = strings.TrimSuffix(base, ".md")
		if !strings.Contains(known, base+" ") {
			t.Errorf("%s is not in the order of the guide", name)
		}
		if !strings.HasSuffix(known, " "+base+" ") && !regexp.MustCompile(`\nNext: .*\]\([a-z-]+\.md\)`).MatchString(text) {
			t.Errorf("%s does not end with the page to read next", name)
		}
	}
}

// TestMarkedBlocksSayWhatTheyNeed checks that a reader of the guide sees what hardware, user or system a marked block
// needs. The mark itself is a comment, which a browser does not show.
func TestMarkedBlocksSayWhatTheyNeed(t *testing.T) {
	words := map[string]string{
		"gpu": "GPU", "nvme": "NVMe", "rdma": "InfiniBand", "root": "root", "systemd": "systemd", "torch": "PyTorch",
		"debian": "Debian", "rhel": "RHEL", "sles": "SLES",
	}
	marked := regexp.MustCompile(`(?m)^ *<!-- snippet: needs (.*) -->$`)
	all, blocks := pages(t), 0
	for _, name := range guide {
		page := all["docs/guide/"+name+".md"]
		intro, _, _ := strings.Cut(page, "\n## ")
		for _, at := range marked.FindAllStringSubmatchIndex(page, -1) {
			blocks++
			before := page[:at[0]]
			told := intro + before[max(0, strings.LastIndex(before, "\n## ")):]
			for need := range strings.SplitSeq(page[at[2]:at[3]], ", ") {
				if word := words[need]; word != "" && !strings.Contains(told, word) {
					t.Errorf("docs/guide/%s.md:%d: the block needs %s, and its section does not say so", name,
						strings.Count(before, "\n")+2, word)
				}
			}
		}
	}
	if blocks < 15 {
		t.Errorf("only %d marked blocks found", blocks)
	}
}

// TestTroubleshootingQuotesTheSource checks that the source has each error text of the page
// docs/guide/troubleshooting.md.
func TestTroubleshootingQuotesTheSource(t *testing.T) {
	effort.SingleThreaded(t)
	texts := errorTexts(t)
	quoted := 0
	for line := range strings.SplitSeq(pages(t)["docs/guide/troubleshooting.md"], "\n") {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) != 3 {
			continue
		}
		text := strings.Trim(strings.TrimPrefix(cells[0], "| "), "`")
		quoted++
		if why := missing(text, texts); why != "" {
			t.Errorf("docs/guide/troubleshooting.md quotes %q: %s (fix: quote the text that the program prints)", text, why)
		}
	}
	if quoted < 40 {
		t.Errorf("only %d error texts found in the page", quoted)
	}
}

// TestVerdictsOfTheGuideExist checks that the verdicts and limiting stages in the tables of the page about bottlenecks
// are words of the program, and that no verdict is left out.
func TestVerdictsOfTheGuideExist(t *testing.T) {
	effort.SingleThreaded(t)
	texts := map[string]bool{}
	for _, text := range errorTexts(t) {
		texts[text] = true
	}
	named := map[string]bool{}
	for line := range strings.SplitSeq(pages(t)["docs/guide/find-the-bottleneck.md"], "\n") {
		cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !ok || !strings.HasPrefix(line, "| `") {
			continue
		}
		for word := range strings.SplitSeq(strings.Trim(cell, "`"), "`, `") {
			named[word] = true
			if !texts[word] {
				t.Errorf("the page names %q, which no string of the source is", word)
			}
		}
	}
	for _, bound := range bottleneck.Bounds() {
		if !named[string(bound)] {
			t.Errorf("the page does not say what to do for %q", bound)
		}
	}
}

// TestMissingTextsAreFound checks the comparison of quoted texts with known ones.
func TestMissingTextsAreFound(t *testing.T) {
	texts := []string{"block %d differs from \x00: its checksum is %x", "stop it first"}
	for text, good := range map[string]bool{
		"block … differs from …: its checksum is …": true,
		"differs from …: its checksum is …":         true,
		"its checksum is … block …":                 false, // another order
		"block … differs and stop it first":         false, // two texts
		"block … is different":                      false,
		"stop …":                                    false, // too short to find it
	} {
		if why := missing(text, texts); (why == "") != good {
			t.Errorf("%q: %q", text, why)
		}
	}
}

// missing says why none of the texts contains a quoted text, in which … stands for anything; "" means that one does.
func missing(quoted string, texts []string) string {
	var parts []string
	longest := 0
	for part := range strings.SplitSeq(quoted, "…") {
		longest = max(longest, len(strings.TrimSpace(part)))
		parts = append(parts, regexp.QuoteMeta(part))
	}
	if longest < 12 {
		return "it has no 12 letters in a row"
	}
	wanted := regexp.MustCompile(strings.Join(parts, `.*`))
	for _, text := range texts {
		if wanted.MatchString(text) {
			return ""
		}
	}
	return "no string of the source has it"
}

// errorTexts returns the strings of the Go and Python sources of the product. Parts that are known only when the
// program runs are one NUL, or the verb of a format.
func errorTexts(t *testing.T) []string {
	t.Helper()
	var out []string
	walk := func(root, suffix string, each func(name string, source []byte)) {
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, suffix) || strings.HasSuffix(name, "_test.go") {
				return err
			}
			source, err := os.ReadFile(name)
			each(name, source)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	walk("internal", ".go", func(name string, source []byte) {
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text, known := literal(e)
			if known {
				out = append(out, text)
			}
			return !known
		})
	})
	walk(filepath.Join("python", "nebulaio"), ".py", func(_ string, source []byte) {
		// Strings that follow each other are one string.
		text := regexp.MustCompile(`["']\s*\n\s*f?["']`).ReplaceAllString(string(source), "")
		for line := range strings.SplitSeq(text, "\n") {
			if strings.ContainsAny(line, `"'`) && !strings.HasPrefix(strings.TrimSpace(line), "#") {
				out = append(out, line)
			}
		}
	})
	return out
}

// literal returns a string with its parts that + joins. It reports false for an expression without a string.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		left, known := literal(e.X)
		right, also := literal(e.Y)
		if !known && !also {
			return "", false
		}
		if !known {
			left = "\x00"
		}
		if !also {
			right = "\x00"
		}
		return left + right, true
	}
	return "", false
}
