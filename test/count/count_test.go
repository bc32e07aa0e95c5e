// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// write makes files in a new folder and returns the folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// expect checks that text contains all strings of has and none of lacks.
func expect(t *testing.T, text string, has, lacks []string) {
	t.Helper()
	for _, s := range has {
		if !strings.Contains(text, s) {
			t.Errorf("%q is missing in:\n%s", s, text)
		}
	}
	for _, s := range lacks {
		if strings.Contains(text, s) {
			t.Errorf("%q is in:\n%s", s, text)
		}
	}
}

const head = "package p\n\nimport \"testing\"\n\n"

// TestGoTestIsCounted runs real tests: some pass, some fail, one panics, one does not compile.
func TestGoTestIsCounted(t *testing.T) {
	dir := write(t, map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"good/a_test.go": head + `
func TestPass(t *testing.T) { t.Log("quiet words"); t.Run("a", func(*testing.T) {}); t.Run("b", func(*testing.T) {}) }
func TestSkip(t *testing.T) { t.Log("tried"); t.Skip("no GPU: none found") }
func TestSilent(t *testing.T) { t.SkipNow() }
func FuzzSeeds(f *testing.F) { f.Add(1); f.Fuzz(func(*testing.T, int) {}) }
`,
		"bad/a_test.go": head + "func TestFine(t *testing.T) { t.Log(\"quiet words\") }\nfunc TestBad(t *testing.T) { " +
			"t.Log(\"before\"); t.Run(\"sub\", func(t *testing.T) { t.Error(\"the reason\") }) }\n",
		"panic/a_test.go":  head + "func TestPanic(t *testing.T) { panic(\"out of luck\") }\n",
		"broken/a_test.go": head + "func TestBroken(t *testing.T) { undefinedName() }\n",
		"none/none.go":     "package none\n",
	})
	t.Chdir(dir)
	var out strings.Builder
	r, code, err := runGo([]string{"go", "test", "./..."}, &out)
	if err != nil || code == 0 {
		t.Fatalf("%v, code %d", err, code)
	}
	expect(t, out.String(),
		[]string{"ok   example.com/m/good (5 tests, 2 skipped", "before", "the reason", "--- FAIL: TestBad/sub",
			"out of luck", "goroutine ",
			"undefined: undefinedName", "FAIL example.com/m/bad", "FAIL example.com/m/broken"},
		[]string{"quiet words", "no test files", `"Action"`})
	// a, b and the seed; fine, sub; the one that panics. The package that does not compile has failed, too.
	if r.Ran != 6 || r.Failed != 3 {
		t.Errorf("%d ran, %d failed\n%s", r.Ran, r.Failed, out.String())
	}
	want := []Skipped{{"good.TestSilent", ""}, {"good.TestSkip", "no GPU: none found"}}
	if !slices.Equal(r.Skipped, want) {
		t.Errorf("skipped: %q", r.Skipped)
	}
}

// TestPytestIsCounted replaces pytest by a program that writes the same report.
func TestPytestIsCounted(t *testing.T) {
	dir := write(t, map[string]string{"pytest": `#!/bin/sh
for a; do case $a in --junit-xml=*) file=${a#--junit-xml=};; esac; done
cat >"$file" <<'EOF'
<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests"><testsuite name="pytest" errors="1" failures="1" skipped="2" tests="5">
<testcase classname="tests.test_a" name="test_one" time="0.1"/>
<testcase classname="tests.test_a" name="test_two"><failure message="assert 1 == 2">E assert</failure></testcase>
<testcase classname="tests.test_a" name="test_three"><error message="fixture">E</error></testcase>
<testcase classname="tests.test_b" name="test_skip"><skipped type="pytest.skip" message="could not import 'torch'">x</skipped></testcase>
<testcase classname="" name="tests.test_c"><skipped message="collection skipped">('/tests/test_c.py', 19, 'Skipped: jax is not installed')</skipped></testcase>
<testcase classname="tests.test_b" name="test_known"><skipped type="pytest.xfail" message="known"/></testcase>
</testsuite></testsuites>
EOF
echo "E assert 1 == 2, in full"
echo "1 failed, 1 passed, 12 deselected in 0.10s"
exit 1
`})
	var out strings.Builder
	r, code, err := runPytest([]string{filepath.Join(dir, "pytest"), "-q"}, &out)
	if err != nil || code != 1 {
		t.Fatalf("%v, code %d", err, code)
	}
	expect(t, out.String(), []string{"E assert 1 == 2, in full"}, nil)
	if r.Ran != 4 || r.Failed != 2 || r.Left != 12 ||
		!slices.Equal(r.Skipped, []Skipped{{"tests.test_b.test_skip", "could not import 'torch'"},
			{"tests.test_c", "jax is not installed"}}) {
		t.Errorf("%+v", r)
	}
	if _, code, err := runPytest([]string{"sh", "-c", "exit 4"}, &out); err != nil || code != 4 {
		t.Errorf("a pytest that does not start: code %d, %v", code, err)
	}
}

// TestTableIsPrintedWhenAPartFails runs three targets of a Makefile, the second of which fails.
func TestTableIsPrintedWhenAPartFails(t *testing.T) {
	t.Chdir(write(t, map[string]string{"Makefile": `
first:
	@echo '{"ran": 3, "skipped": [{"name": "p.TestMount", "reason": "cannot mount here: operation not permitted"}]}' >$$COUNT_RESULTS/1.json
	@echo '{"ran": 4, "left": 5}' >$$COUNT_RESULTS/2.json
second:
	@echo "what failed, in full"; echo '{"ran": 2, "failed": 1}' >$$COUNT_RESULTS/1.json; exit 3
third:
	@echo "the third runs"
`}))
	// This test may itself run below make, whose flags are for others.
	for _, name := range []string{"MAKEFLAGS", "MFLAGS", "MAKELEVEL"} {
		t.Setenv(name, "")
	}
	var out strings.Builder
	code, err := runParts([]string{"first", "second", "third"}, &out)
	if err != nil || code != 2 {
		t.Errorf("code %d, %v", code, err)
	}
	expect(t, out.String(), []string{"what failed, in full", "FAILED: second", "not run",
		"skipped: needs root and the right to mount: sudo make test-go\n  p.TestMount: cannot mount here"},
		[]string{"the third runs"})
	expect(t, strings.Join(strings.Fields(out.String()), " "),
		[]string{"first 0.0 7 0 1 ok", "second 0.0 2 1 0 FAILED", "third 0.0 0 0 0 not run", "all 0.0 9 1 1 FAILED",
			"left out: 5 tests"}, nil)
	out.Reset()
	if code, err = runParts([]string{"-k", "first", "second", "third"}, &out); err != nil || code != 2 {
		t.Errorf("code %d, %v", code, err)
	}
	expect(t, out.String(), []string{"the third runs", "FAILED: second"}, []string{"not run"})
	out.Reset()
	if code, err = runParts([]string{"first", "third"}, &out); err != nil || code != 0 {
		t.Errorf("code %d, %v", code, err)
	}
	expect(t, out.String(), []string{"all "}, []string{"FAILED"})
}

// TestSkippedTestsSayWhereTheyRun uses reasons of the repository's own tests.
func TestSkippedTestsSayWhereTheyRun(t *testing.T) {
	for reason, where := range map[string]string{
		"no GPU: libcuda.so.1 was not found":                        "build/gpu/run.sh",
		"could not import 'transformers': No module named":          "make test-torch",
		"packages are installed by root alone":                      "needs root",
		"cannot mount a file system of its own: EPERM":              "needs root",
		"runs in a process of its own":                              "another test",
		"the file system under the test refuses O_DIRECT: tmpfs":    "TMPDIR",
		"the kernel cannot refuse them: that takes Linux 6.16":      "newer Linux",
		"THE OBJECT OF 5 GiB IS NOT TESTED: /tmp has 100 MiB free":  "more or less memory and disk",
		"rclone is not installed":                                   "not installed",
		"minutes under the race detector, make test-go runs it too": "without the race detector",
		"because": "did not say",
	} {
		if got := whereItRuns(Skipped{"p.TestIt", reason}); !strings.Contains(got, where) {
			t.Errorf("%q: %q, expected %q", reason, got, where)
		}
	}
}

// skipCall finds calls that skip a test, with the beginning of their reason.
var skipCall = regexp.MustCompile(`(?:\.Skipf?|pytest\.skip)\(f?"([^"]+)"`)

// TestEveryReasonSaysWhere checks that each skip reason in the repository's tests has a place where the test runs.
func TestEveryReasonSaysWhere(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (name == "build" || name == "count" || strings.HasPrefix(name, ".") && name != "..") {
			return filepath.SkipDir
		}
		isTest := strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test_") && strings.HasSuffix(name, ".py")
		if entry.IsDir() || !isTest {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder := filepath.Base(filepath.Dir(path))
		for _, m := range skipCall.FindAllStringSubmatch(string(text), -1) {
			found++
			if whereItRuns(Skipped{folder + ".Test", m[1]}) == unknown {
				t.Errorf("%s skips a test for the reason %q, and test/count/result.go does not know where the test runs", path,
					m[1])
			}
		}
		return nil
	})
	if err != nil || found < 40 {
		t.Errorf("%d reasons, %v", found, err)
	}
}

// TestFuzzersAreFound lists the fuzzers of a small module and of this one.
func TestFuzzersAreFound(t *testing.T) {
	dir := write(t, map[string]string{
		"go.mod":               "module example.com/m\n",
		"a/a_test.go":          head + "func FuzzA(f *testing.F) {}\n\nfunc FuzzNot(t *testing.T) {}\n\nfunc Fuzzy() {}\n",
		"b/c/b_test.go":        head + "func FuzzB(x *testing.F) {}\nfunc FuzzC(f *testing.F) {}\n",
		"b/testdata/t_test.go": head + "func FuzzData(f *testing.F) {}\n",
		"build/x/x_test.go":    head + "func FuzzBuilt(f *testing.F) {}\n",
		"tools/go.mod":         "module example.com/tools\n",
		"tools/t_test.go":      head + "func FuzzTool(f *testing.F) {}\n",
		"d/d.go":               head + "func FuzzProduct(f *testing.F) {}\n",
	})
	got, err := findFuzzers(dir)
	want := []fuzzer{{filepath.Join(dir, "a"), "FuzzA"}, {filepath.Join(dir, "b/c"), "FuzzB"},
		{filepath.Join(dir, "b/c"), "FuzzC"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	ours, err := findFuzzers("../..")
	if err != nil || len(ours) < 10 || !slices.Contains(ours, fuzzer{"../../internal/format/safetensors", "FuzzParse"}) {
		t.Errorf("%v, %v", ours, err)
	}
	for _, f := range ours {
		t.Log(f.folder, f.name)
	}
}

// TestEveryFuzzerHasItsDay turns 112 fuzzers: each run has all of them, and within a week each is among the first 40.
func TestEveryFuzzerHasItsDay(t *testing.T) {
	var all []fuzzer
	for i := range 112 {
		all = append(all, fuzzer{"folder", strconv.Itoa(i)})
	}
	early := map[fuzzer]bool{}
	for day := range 7 {
		got := turned(all, day)
		for _, f := range got[:40] {
			early[f] = true
		}
		for _, f := range all {
			if !slices.Contains(got, f) || len(got) != len(all) {
				t.Fatalf("day %d has %d fuzzers, and %v among them: %v", day, len(got), f, slices.Contains(got, f))
			}
		}
	}
	if len(early) != len(all) {
		t.Errorf("%d of %d fuzzers were among the first 40 within a week", len(early), len(all))
	}
}

// TestOnlyTheEndOfItsTimeIsForgiven uses output of go test. A fuzzer that found a failing input still fails.
func TestOnlyTheEndOfItsTimeIsForgiven(t *testing.T) {
	const before = "fuzz: elapsed: 5s, execs: 26898 (5648/sec), new interesting: 0 (total: 8)\n"
	const after = "FAIL\nexit status 1\nFAIL\texample.com/p\t5.107s\n"
	const ended = before + "--- FAIL: FuzzIt (5.09s)\n    context deadline exceeded\n" + after
	for name, c := range map[string]struct {
		said string
		want bool
	}{
		"the end of its time":      {ended, true},
		"with a last line of FAIL": {ended + "FAIL\n", true},
		"a failing input": {strings.Replace(ended, after,
			"    \n    Failing input written to testdata/fuzz/FuzzIt/1\n"+after, 1), false},
		"the test's own deadline": {strings.Replace(ended, "    context",
			"    --- FAIL: FuzzIt (0.00s)\n        it_test.go:9: context", 1), false},
		"a panic": {before + "panic: oh\n" + after, false},
		"a build that failed": {"# example.com/p\nit_test.go:1: undefined: x\nFAIL\texample.com/p [build failed]\n",
			false},
		"a worker that was killed": {strings.Replace(ended, "context deadline exceeded",
			"fuzzing process hung or terminated unexpectedly", 1), false},
		"a second line after it":      {strings.Replace(ended, "exceeded\n", "exceeded\n    and more\n", 1), false},
		"a fuzzer that found nothing": {before + "PASS\nok  \texample.com/p\t5.1s\n", false},
	} {
		if got := onlyTimeWasUp(c.said); got != c.want {
			t.Errorf("%s: %v, expected %v", name, got, c.want)
		}
	}
}

// TestFailuresAreHeldBack gives the output in pieces. What comes before the failure is shown at once.
func TestFailuresAreHeldBack(t *testing.T) {
	const before, failure = "fuzz: elapsed: 5s\n", "--- FAIL: FuzzIt (5.09s)\n    context deadline exceeded\nFAIL\n"
	for _, pieces := range [][]string{{before + failure}, {before, failure}, {before, failure[:30], failure[30:]}} {
		var shown, held bytes.Buffer
		u := &untilFailure{before: &shown, from: &held}
		for _, p := range pieces {
			if n, err := u.Write([]byte(p)); n != len(p) || err != nil {
				t.Errorf("%q: %d, %v", p, n, err)
			}
		}
		if shown.String() != before || held.String() != failure {
			t.Errorf("%q: shown %q, held back %q", pieces, &shown, &held)
		}
	}
}

// TestRacedPackagesAreFound looks for packages that start goroutines in a module of its own.
func TestRacedPackagesAreFound(t *testing.T) {
	dir := write(t, map[string]string{
		"go.mod":               "module example.com/m\n",
		"a/a.go":               "package a\n\nfunc A() { go func() {}() }\n",
		"a/a_test.go":          head,
		"b/b.go":               "package b\n\nimport \"sync\"\n\nfunc B(w *sync.WaitGroup) { w.Go(func() {}) }\n",
		"b/b_test.go":          head,
		"c/c.go":               "package c\n\nimport \"sync\"\n\nvar M sync.Mutex\n",
		"c/c_test.go":          head,
		"d/d.go":               "package d\n\nfunc D() { go func() {}() }\n",
		"e/e.go":               "package e\n",
		"e/e_test.go":          "package e\n\nfunc test() { go test() }\n",
		"f/f.go":               "package f\n\nimport _ \"sync/atomic\"\n",
		"f/f_test.go":          "package f\n\nfunc test() { go test() }\n",
		"tools/go.mod":         "module example.com/tools\n",
		"tools/t.go":           "package t\n\nfunc T() { go T() }\n",
		"a/testdata/x/x.go":    "package x\n\nfunc X() { go X() }\n",
		"a/testdata/x_test.go": head,
	})
	t.Chdir(dir)
	raced, locks, err := findRaced(".")
	if err != nil || !slices.Equal(raced, []string{"./a", "./b", "./f"}) || !slices.Equal(locks, []string{"./c"}) {
		t.Errorf("raced %q, locks %q, %v", raced, locks, err)
	}
}
