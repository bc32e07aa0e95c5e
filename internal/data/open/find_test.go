// SPDX-License-Identifier: Apache-2.0

package open_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/open"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// TestNamesWithBraces expands names as bash does.
func TestNamesWithBraces(t *testing.T) {
	m := memory{}
	for _, name := range []string{"a-8", "a-9", "a-10", "a-008", "a-009", "a-010", "x1-y1", "x1-y2", "x2-y1", "x2-y2",
		"{odd}",
		"p{1", "q}"} {
		m[name+".txt"] = []byte(name)
	}
	for source, want := range map[string]string{
		"a-{8..10}.txt":         "a-8 a-9 a-10",
		"a-{008..010}.txt":      "a-008 a-009 a-010",
		"a-{8..010}.txt":        "a-008 a-009 a-010",
		"x{1,2}-y{1..2}.txt":    "x1-y1 x1-y2 x2-y1 x2-y2",
		"{odd}.txt":             "{odd}",
		"p{1.txt":               "p{1",
		"q}.txt":                "q}",
		"x{1,2}-y?.txt":         "x1-y1 x1-y2 x2-y1 x2-y2",
		"x[1-1]-y*.txt":         "x1-y1 x1-y2",
		"a-{9..9}.txt":          "a-9",
		"{a-{8..9}}.txt":        "!braces inside of braces",
		"a-{9..8}.txt":          "!{9..8}: expected two numbers, the lower one first (fix: write for example {0000..0099})",
		"a-{b..d}.txt":          "!expected two numbers",
		"a-{-1..3}.txt":         "!expected two numbers",
		"a-{0..5000000}.txt":    "!stands for more than 1000000 names",
		"{0..999}{0..9999}.txt": "!stands for more than 1000000 names",
		"a-{0..1000}*.txt":      "!stands for 1001 patterns, expected at most 1000",
		"a-{8..11}.txt":         "!a-11.txt",
		"[.txt":                 "!is no pattern",
		"zz*.txt":               "!no file matches",
		"*/*.txt":               "!no file matches",
	} {
		d, err := open.Open(t.Context(), m, []string{source}, open.Options{Format: open.Files})
		if says, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, expected %q", source, err, says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		var got []string
		for _, text := range texts(t, m, d) {
			got = append(got, text[strings.Index(text, "file=")+5:])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, expected %q", source, got, want)
		}
	}
}

// TestFilesBesideTheData are no data: hidden files, checksums, indexes and other formats.
func TestFilesBesideTheData(t *testing.T) {
	tar, index, dali := archive(t, "d/a.tar", "1")
	m := memory{"d/a.tar": tar, "d/a.tar.nbx": index, "d/a.tar.crc64nvme": sums(tar), "d/.hidden.tar": nil,
		"d/.git/x.tar": nil, "d/s/.x/y.tar": nil, "d/README.md": []byte("read me"), "d/b.tar": tar, "d/b.idx": dali}
	d := must(t, m, open.Options{}, "d")
	if d.Set.Files() != 2 || d.Ignored != 1 {
		t.Errorf("%d files, %d ignored", d.Set.Files(), d.Ignored)
	}
	hidden := memory{".cache/a.txt": []byte("A"), ".cache/.b.txt": []byte("B"), ".cache/c.txt.crc64nvme": nil}
	same(t, texts(t, hidden, must(t, hidden, open.Options{}, ".cache")), "a.txt file=A") // the folder itself was named
	refused(t, memory{"d/.a": nil}, open.Options{}, errs.NotFound, "d", "d", "no file lies there")
	refused(t, memory{}, open.Options{}, errs.NotFound, "d", "d")
}

// TestAnIdxIsNotAlwaysMegatron opens a TFRecord file with the index of DALI beside it.
func TestAnIdxIsNotAlwaysMegatron(t *testing.T) {
	m := memory{"r.tfrecord": records(t, "one"), "r.tfrecord.idx": []byte("0 19\n"), "d.idx": []byte("x"),
		"d/a.txt": []byte("A")}
	same(t, texts(t, m, must(t, m, open.Options{}, "r.tfrecord")), " record=one")
	same(t, texts(t, m, must(t, m, open.Options{}, "d")), "a.txt file=A")
}

// TestAnIndexOfSomethingElse opens a folder whose index.json has nothing to do with MDS or litData.
func TestAnIndexOfSomethingElse(t *testing.T) {
	for _, text := range []string{`{"pages": 1}`, `[1, 2]`, `"x"`, `null`} {
		m := memory{"d/index.json": []byte(text), "d/a.json": []byte("A")}
		if d := must(t, m, open.Options{}, "d"); d.Format != open.Files || d.Set.Len() != 2 {
			t.Errorf("%s: %s, %d samples", text, d.Format, d.Set.Len())
		}
		if _, err := open.Open(t.Context(), m, []string{"d/index.json"}, open.Options{}); err == nil {
			t.Errorf("%s is an index", text)
		}
	}
	m := memory{"d/index.json": []byte(`{"shards": 1`), "d/a.json": []byte("A")}
	refused(t, m, open.Options{}, errs.Corrupt, "d", "d/index.json")
}

// TestSeveralSources joins sources, in their order.
func TestSeveralSources(t *testing.T) {
	a, _, _ := archive(t, "a.tar", "1", "2")
	b, _, _ := archive(t, "b.tar", "3")
	m := memory{"d/b.tar": b, "d/a.tar": a, "e/c.txt": []byte("C"), "e/d.txt": []byte("D"), "f/c.txt": []byte("F")}
	same(t, texts(t, m, must(t, m, open.Options{}, "d/b.tar", "d/a.tar")), "3 cls=7 txt=text of 3",
		"1 cls=7 txt=text of 1", "2 cls=7 txt=text of 2")
	same(t, texts(t, m, must(t, m, open.Options{}, "f", "e")), "c.txt file=F", "c.txt file=C", "d.txt file=D")
	if _, err := open.Open(t.Context(), m, []string{"e", "d"}, open.Options{}); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "has the format tar, expected files") {
		t.Errorf("different formats: %v", err)
	}
	if _, err := open.Open(t.Context(), m, nil, open.Options{}); !errs.Is(err, errs.Invalid) {
		t.Errorf("no source: %v", err)
	}
	m["d/r.tfrecord"] = records(t, "x")
	refused(t, m, open.Options{}, errs.Invalid, "d", `["tar" "tfrecord"]`, "name the format")
	if d := must(t, m, open.Options{Format: open.TFRecord}, "d"); d.Set.Len() != 1 || d.Ignored != 2 {
		t.Errorf("%d records, %d ignored", d.Set.Len(), d.Ignored)
	}
	refused(t, m, open.Options{Format: open.LitData}, errs.NotFound, "e", "expected index.json", "e/c.txt")
	refused(t, m, open.Options{Format: "tarr"}, errs.Invalid, "d", `"tarr"`, "tar")
	refused(t, m, open.Options{}, errs.Invalid, "e/c.txt", "e/c.txt", "cannot be told from the name")
}

// TestCompressedPacks are refused, because each would else be one sample.
func TestCompressedPacks(t *testing.T) {
	for _, name := range []string{"a.tar.gz", "a.tgz", "a.tfrecord.gz", "a.tar.zst", "a.mds.zstd"} {
		m := memory{"d/" + name: []byte("x")}
		refused(t, m, open.Options{}, errs.Unsupported, "d", name, "compressed", "decompress")
		if d := must(t, m, open.Options{Format: open.Files}, "d"); d.Set.Len() != 1 {
			t.Errorf("%s: %d samples", name, d.Set.Len())
		}
	}
	if d := must(t, memory{"d/a.json.gz": nil, "d/b.json.gz": nil}, open.Options{}, "d"); d.Format != open.Files {
		t.Errorf("%s", d.Format)
	}
}

// TestGroups joins files with the same name up to the first dot.
func TestGroups(t *testing.T) {
	refused(t, memory{"d/a.TXT": nil, "d/a.txt": nil}, open.Options{Format: open.Groups}, errs.Invalid, "d",
		"d/a.txt", "d/a.TXT", `the same part "txt"`)
	m := memory{}
	for i := range 70 {
		m[fmt.Sprintf("d/a.%d", i)] = []byte("x")
	}
	if d := must(t, m, open.Options{}, "d"); d.Format != open.Files {
		t.Errorf("one sample with 70 parts is %s", d.Format)
	}
	if d := must(t, m, open.Options{Format: open.Groups}, "d"); d.Set.Len() != 1 || len(d.Columns) != 70 {
		t.Errorf("%d samples, %d columns", d.Set.Len(), len(d.Columns))
	}
	for i := range 2000 {
		m[fmt.Sprintf("d/a.%d", i)] = []byte("x")
	}
	refused(t, m, open.Options{Format: open.Groups}, errs.Invalid, "d", "more than 1024 extensions")
	m = memory{"d/a.jpg": []byte("A"), "d/noext": nil}
	if d := must(t, m, open.Options{Format: open.Groups}, "d"); d.Set.Len() != 1 || d.Ignored != 1 {
		t.Errorf("%d samples, %d ignored", d.Set.Len(), d.Ignored)
	}
}

// TestFoldersOfThisMachine opens folders by all the names that they have.
func TestFoldersOfThisMachine(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) {
		t.Helper()
		check(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	for _, name := range []string{"d/s/b.txt", "d/s-1.txt", "d/a.txt", "d/ünï.txt", "other/x.txt"} {
		write(name)
	}
	check(t, os.Symlink("d", filepath.Join(dir, "link")))
	check(t, os.Symlink(filepath.Join(dir, "other/x.txt"), filepath.Join(dir, "d/to-file.txt")))
	check(t, os.Symlink(filepath.Join(dir, "other"), filepath.Join(dir, "d/to-folder")))
	check(t, os.Symlink("nothing", filepath.Join(dir, "d/to-nothing")))
	check(t, os.Symlink("..", filepath.Join(dir, "d/loop")))
	t.Chdir(dir)
	want := []string{"a.txt file=d/a.txt", "s-1.txt file=d/s-1.txt", "s/b.txt file=d/s/b.txt",
		"to-file.txt file=other/x.txt", "ünï.txt file=d/ünï.txt"}
	print := ""
	for _, name := range []string{"d", "d/", "./d", "./d/", "d//", "other/../d", dir + "/d", "link", "link/", "./link"} {
		d := must(t, open.Local{}, open.Options{}, name)
		same(t, texts(t, open.Local{}, d), want...)
		if print == "" {
			print = d.Set.Fingerprint()
		}
		if d.Set.Fingerprint() != print {
			t.Errorf("%s: another fingerprint", name)
		}
	}
	for pattern, n := range map[string]int64{"d/*": 4, "./d/*": 4, "d/*/*": 1, "*/?.txt": 2, "./d/[as]*": 2,
		dir + "/d/*.txt": 4} {
		if d := must(t, open.Local{}, open.Options{Format: open.Files}, pattern); d.Set.Len() != n {
			t.Errorf("%s: %d files, expected %d", pattern, d.Set.Len(), n)
		}
	}
	t.Chdir(filepath.Join(dir, "d"))
	for _, name := range []string{".", "./", "*", "./*"} {
		d := must(t, open.Local{}, open.Options{Format: open.Files}, name)
		if got := texts(t, open.Local{}, d); got[0] != "a.txt file=d/a.txt" {
			t.Errorf("%s: %q", name, got)
		}
	}
	refused(t, open.Local{}, open.Options{}, errs.NotFound, "nothing", "nothing")
	refused(t, open.Local{}, open.Options{}, errs.Invalid, "/dev/null", "/dev/null", "neither a file nor a folder")
}

// TestFoldersBelowAPatternAreNotRead gives a pattern a neighbour that cannot be read.
func TestFoldersBelowAPatternAreNotRead(t *testing.T) {
	if os.Getuid() == 0 {
		t.Log("root can read all folders, so that only the result is checked")
	}
	dir := t.TempDir()
	check(t, os.Mkdir(filepath.Join(dir, "closed"), 0o000))
	t.Cleanup(func() { check(t, os.Chmod(filepath.Join(dir, "closed"), 0o700)) })
	check(t, os.WriteFile(filepath.Join(dir, "a.txt"), nil, 0o600))
	if d := must(t, open.Local{}, open.Options{Format: open.Files}, dir+"/*.txt"); d.Set.Len() != 1 {
		t.Errorf("%d files", d.Set.Len())
	}
}

// TestACancelledOpen ends with the kind Cancelled, and a bucket that cannot be listed with its own error.
func TestACancelledOpen(t *testing.T) {
	tar, _, _ := archive(t, "d/a.tar", "1")
	m := memory{"d/a.tar": tar, "d/b.tar": tar, "d/c.tar": tar}
	files := memory{"d/a.txt": tar, "d/b.txt": tar}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, p := range []memory{m, files} {
		for _, skip := range []bool{false, true} {
			_, err := open.Open(ctx, p, []string{"d"}, open.Options{SkipBad: skip, Verify: true})
			if !errs.Is(err, errs.Cancelled) {
				t.Errorf("skip %v: %v", skip, err)
			}
		}
	}
}
