// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestMakeHelpListsEveryTarget: each target that a person can call is in the
// list of make help with its explanation.
func TestMakeHelpListsEveryTarget(t *testing.T) {
	src, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
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
