// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMakeHelpListsEveryTarget: each target that a person can call is in the
// list of make help with its explanation.
func TestMakeHelpListsEveryTarget(t *testing.T) {
	files, err := filepath.Glob("packaging/*.mk")
	if err != nil {
		t.Fatal(err)
	}
	var src []byte
	for _, name := range append(files, "Makefile") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		src = append(append(src, text...), '\n')
	}
	out, err := exec.Command("make", "--no-print-directory", "help").Output()
	if err != nil {
		t.Fatalf("make help: %v", err)
	}
	listed := map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		name, what, _ := strings.Cut(line, " ")
		listed[name] = strings.TrimSpace(what)
	}
	targets := regexp.MustCompile(`(?m)^\.PHONY: (.+)$`).FindAllStringSubmatch(string(src), -1)
	if len(targets) < 20 {
		t.Errorf("%d targets", len(targets))
	}
	for _, m := range targets {
		for _, name := range strings.Fields(m[1]) {
			if len(strings.Fields(listed[name])) < 2 {
				t.Errorf("make help has %q for the target %s", listed[name], name)
			}
		}
	}
}

// TestMakeTestRunsEveryPart: make test names its parts, and CI runs the table of suites. Tests of test/count compare
// that table with the Makefile.
func TestMakeTestRunsEveryPart(t *testing.T) {
	for target, want := range map[string]string{
		"test": `count run .*\btest-format test-go test-native test-python test-examples ` +
			`test-bench test-clients\n`,
		"ci":     `count ci -make "make"`,
		"ci-all": `count ci -all\b`,
		"check":  `count check -since HEAD\b`,
	} {
		cmd := exec.Command("make", "--no-print-directory", "-n", target)
		cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MFLAGS=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("make -n %s: %v\n%s", target, err, out)
		}
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("make %s does not run %s:\n%s", target, want, out)
		}
	}
	run, err := os.ReadFile(".ci/run")
	if err != nil || !strings.Contains(string(run), "make --no-print-directory ci ") {
		t.Errorf(".ci/run does not run make ci: %v", err)
	}
}
