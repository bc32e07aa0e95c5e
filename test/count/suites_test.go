// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// nobodys are files that decide the outcome of no test. People and forges read them, or start them by hand.
var nobodys = regexp.MustCompile(`^(LICENSE|\.gitignore|\.github/.*|test/proven\.json|test/(s3-tests|top)/.*|bench/.*\.(md|txt)|.*/README\.md)$`)

// TestEachFileBelongsToASuite looks for files of the repository that are no input of any suite.
func TestEachFileBelongsToASuite(t *testing.T) {
	tree, err := openTree("../..")
	if err != nil {
		t.Fatal(err)
	}
	owned := map[string][]string{}
	for _, s := range suites() {
		files, _, err := tree.inputs(s)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) < 5 {
			t.Errorf("%s has only these inputs: %q", s.target, files)
		}
		for _, name := range files {
			owned[name] = append(owned[name], s.target)
		}
		for _, in := range s.files {
			if !slices.ContainsFunc(tree.files, func(name string) bool { return suite{files: []string{in}}.hasFile(name) }) {
				t.Errorf("%s names %s, which matches no file", s.target, in)
			}
		}
	}
	if len(owned[provenFile]) > 0 {
		t.Errorf("%s is an input of %q", provenFile, owned[provenFile])
	}
	for _, name := range tree.files {
		by := owned[name]
		// Go tests read the sources of other languages, and judge their words and their names alone.
		if programs.MatchString(name) {
			by = slices.DeleteFunc(by, func(s string) bool { return s == "test-format" || s == "test-go" })
		}
		if len(by) == 0 && !nobodys.MatchString(name) {
			t.Errorf("%s is an input of no suite (fix: add it or its folder to a suite in test/count/suites.go)", name)
		}
	}
}

// programs are sources of other languages than Go, outside of Go packages.
var programs = regexp.MustCompile(`^(python|bench|examples|packaging|include|capi|test/[^g][^/]*)/.*\.(py|sh|c|cpp|h|hpp|cu|js|mjs)$`)

// TestEachSuiteIsATarget compares the table with the Makefile.
func TestEachSuiteIsATarget(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	release, err := os.ReadFile("../../packaging/release.mk")
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, s := range suites() {
		if !regexp.MustCompile(`(?m)^` + s.target + `:`).Match(slices.Concat(text, release)) {
			t.Errorf("%s is no target of the Makefile", s.target)
		}
		if s.when == eachTest {
			parts = append(parts, s.target)
		}
		if s.when == byInputs && s.minutes <= 0 {
			t.Errorf("%s does not say how long it takes", s.target)
		}
	}
	if want := "PARTS := " + strings.Join(parts, " ") + "\n"; !strings.Contains(string(text), want) {
		t.Errorf("the Makefile lacks the line %q", want)
	}
}

// TestCrashesAreFound compares the suite of crashes with the tests that follow the effort, here and in a module of its
// own.
func TestCrashesAreFound(t *testing.T) {
	for _, s := range suites() {
		if s.target != "test-crash" {
			continue
		}
		folders, tests, err := findRounds("../..")
		for i, folder := range folders {
			folders[i] = "./" + strings.TrimPrefix(folder, "./../../")
			if folder == "./../.." {
				folders[i] = "."
			}
		}
		slices.Sort(folders)
		if err != nil || !slices.Equal(folders, s.tests) || !slices.Contains(tests, "TestKilledUnderLoad") {
			t.Errorf("test-crash has the packages\n%q, and effort.Rounds is used in\n%q: %v", s.tests, folders, err)
		}
	}
	dir := write(t, map[string]string{"go.mod": "module p\n", "a/a_test.go": head +
		"func TestA(t *testing.T) { effort.Rounds{Test: 1}.Of(t) }\nfunc TestB(t *testing.T) { far(t) }\n" +
		"func far(t *testing.T) { near(t) }\nfunc near(t *testing.T) { _ = effort.Rounds{} }\n" +
		"func TestC(t *testing.T) { other.Rounds() }\n", "b/b_test.go": head + "func TestD(t *testing.T) { far(t) }\n"})
	t.Chdir(dir)
	folders, tests, err := findRounds(".")
	if err != nil || !slices.Equal(folders, []string{"./a"}) || !slices.Equal(tests, []string{"TestA", "TestB"}) {
		t.Errorf("folders %q, tests %q, %v", folders, tests, err)
	}
}

// commit makes a git repository of a folder, because inputs are files that git lists.
func commit(t *testing.T, dir string) {
	t.Helper()
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
}

// TestHashFollowsItsInputs changes one file after the other and expects the hash of a suite to change, or not.
func TestHashFollowsItsInputs(t *testing.T) {
	dir := write(t, map[string]string{
		"go.mod":            "module example.com/m\n\ngo 1.26\n",
		"cmd/a/main.go":     "package main\n\nimport _ \"example.com/m/low\"\n\nfunc main() {}\n",
		"cmd/a/a_test.go":   "package main\n",
		"low/low.go":        "package low\n\nimport _ \"embed\"\n\n//go:embed page/x.html\nvar Page string\n",
		"low/page/x.html":   "page",
		"low/other/y.html":  "page",
		"low/low_test.go":   "package low\n",
		"tested/t.go":       "package tested\n",
		"tested/t_test.go":  "package tested\n",
		"tested/testdata/x": "data",
		"apart/apart.go":    "package apart\n",
		"python/a.py":       "",
		"other/b.py":        "",
		".gitignore":        "build\n",
		"build/x.py":        "",
		provenFile:          "{}\n",
	})
	commit(t, dir)
	s := suite{target: "test-a", programs: []string{"./cmd/a"}, tests: []string{"./tested"},
		files: []string{"python/", "test/", "build/"}}
	hash := func() string {
		t.Helper()
		tree, err := openTree(dir)
		if err != nil {
			t.Fatal(err)
		}
		h, err := tree.hash(s)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	for name, counts := range map[string]bool{
		"cmd/a/main.go": true, "low/low.go": true, "low/page/x.html": true, "tested/t.go": true,
		"tested/t_test.go": true, "tested/testdata/x": true, "python/a.py": true,
		"cmd/a/a_test.go": false, "low/low_test.go": false, "low/other/y.html": false, "apart/apart.go": false,
		"other/b.py": false, "build/x.py": false, provenFile: false,
	} {
		before := hash()
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		if changed := hash() != before; changed != counts {
			t.Errorf("a change of %s changes the hash: %v, expected %v", name, changed, counts)
		}
	}
	before := hash()
	if err := os.WriteFile(filepath.Join(dir, "python", "new.py"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if hash() == before {
		t.Error("a new file that is not yet committed does not change the hash")
	}
	if err := os.Remove(filepath.Join(dir, "python", "a.py")); err != nil {
		t.Fatal(err)
	}
	if hash() == before {
		t.Error("a removed file does not change the hash")
	}
}

// TestUnprovenSuitesRunFirst orders suites that never passed, that passed long ago, and that passed with these inputs.
func TestUnprovenSuitesRunFirst(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }
	all := []candidate{
		{suite{target: "known-a"}, "1", proof{Inputs: "1", Passed: day(1)}},
		{suite{target: "lately"}, "1", proof{Inputs: "0", Passed: day(9)}},
		{suite{target: "known-b"}, "1", proof{Inputs: "1", Passed: day(2)}},
		{suite{target: "never"}, "1", proof{}},
		{suite{target: "long-ago"}, "1", proof{Inputs: "0", Passed: day(3)}},
		{suite{target: "known-c"}, "1", proof{Inputs: "1", Passed: day(2)}},
	}
	first := map[string]bool{}
	for _, commit := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} {
		var names []string
		for _, c := range order(all, commit) {
			names = append(names, c.target)
		}
		if !slices.Equal(names[:3], []string{"never", "long-ago", "lately"}) || len(names) != len(all) {
			t.Errorf("commit %s: %q", commit, names)
		}
		first[names[3]] = true
	}
	if len(first) != 3 {
		t.Errorf("twelve commits began with these proven suites only: %v", first)
	}
}

// TestTheBudgetIsKept gives a run of 20 minutes suites that do not all fit.
func TestTheBudgetIsKept(t *testing.T) {
	b := budget{left: 20 * time.Minute, rotas: rotas}
	known := func(minutes float64) candidate {
		return candidate{suite{minutes: 99}, "1", proof{Inputs: "1", Minutes: minutes}}
	}
	for i, c := range []struct {
		candidate
		fits bool
		took time.Duration
	}{
		{candidate{suite{minutes: 12}, "1", proof{}}, true, 10 * time.Minute},
		{candidate{suite{minutes: 11}, "1", proof{}}, false, 0},
		{candidate{suite{minutes: 11}, "1", proof{Inputs: "0", Minutes: 5}}, true, 4 * time.Minute},
		{known(7), false, 0},
		{known(1), true, time.Minute},
		{known(1), true, time.Minute},
		{known(1), false, 0}, // two by rota are enough
	} {
		if got := b.take(c.candidate); got != c.fits {
			t.Errorf("suite %d: taken %v, expected %v", i, got, c.fits)
		}
		b.spend(c.took)
	}
	if b.left != 4*time.Minute {
		t.Errorf("%v are left", b.left)
	}
}

// TestProofsAreKept writes proofs and reads them again, and refuses a file that is none.
func TestProofsAreKept(t *testing.T) {
	dir := write(t, map[string]string{"test/x": ""})
	if p, err := readProofs(dir); err != nil || len(p) != 0 {
		t.Errorf("no file: %v, %v", p, err)
	}
	want := proof{Inputs: "abc", Passed: time.Date(2026, 11, 19, 1, 2, 3, 0, time.UTC), Minutes: 1.5, Tests: 7}
	if err := (proofs{"test-a": want}).write(dir); err != nil {
		t.Fatal(err)
	}
	if p, err := readProofs(dir); err != nil || p["test-a"] != want || len(p) != 1 {
		t.Errorf("%v, %v", p, err)
	}
	if err := os.WriteFile(filepath.Join(dir, provenFile), []byte("<<<<<<< HEAD\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readProofs(dir); err == nil || !strings.Contains(err.Error(), "git checkout "+provenFile) {
		t.Errorf("a file with a conflict: %v", err)
	}
	if _, err := readProofs("../.."); err != nil {
		t.Errorf("the file of this repository: %v", err)
	}
}
