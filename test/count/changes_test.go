// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

// newRun returns a run over a small repository, whose Makefile has suites of this test.
func newRun(t *testing.T, out *strings.Builder) *changeRun {
	t.Helper()
	const counts = "@echo '{\"ran\": 3}' >$$COUNT_RESULTS/1.json"
	dir := write(t, map[string]string{"a/x": "1", "test/x": "", "Makefile": "passes:\n\t" + counts +
		"\nfails:\n\t" + counts +
		"; exit 3\nempty:\n\t@true\nchanges:\n\t" + counts + "; echo 2 >a/x\n"})
	commit(t, dir)
	t.Chdir(dir)
	for _, name := range []string{"MAKEFLAGS", "MFLAGS", "MAKELEVEL"} { // this test may itself run below make
		t.Setenv(name, "")
	}
	tree, err := openTree(".")
	if err != nil {
		t.Fatal(err)
	}
	return &changeRun{maker: "make", tree: tree, proofs: proofs{}, out: out, began: time.Now()}
}

// TestOnlyWhatPassedWholeIsProven runs suites that pass, fail, run no test, and change their own inputs.
func TestOnlyWhatPassedWholeIsProven(t *testing.T) {
	var out strings.Builder
	r := newRun(t, &out)
	for _, c := range []struct {
		target string
		proven bool
		err    string
	}{{"passes", true, ""}, {"fails", false, ""}, {"empty", false, "without a single test"}, {"changes", false, ""}} {
		s := suite{target: c.target, files: []string{"a/"}, minutes: 1}
		hash, err := r.tree.hash(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.run(c.target); err != nil {
			t.Fatal(err)
		}
		err = r.remember(candidate{s, hash, proof{}})
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v", c.target, err)
		}
		if p, ok := r.proofs[c.target]; ok != c.proven || ok && (p.Inputs != hash || p.Tests != 3) {
			t.Errorf("%s: %+v", c.target, p)
		}
	}
	if r.code() == 0 {
		t.Error("a run with a part that failed has the code 0")
	}
	kept, err := readProofs(".")
	if err != nil || len(kept) != 1 {
		t.Errorf("kept %v, %v", kept, err)
	}
	if !strings.Contains(out.String(), "changes is not recorded as proven: its inputs changed") {
		t.Errorf("%s", &out)
	}
}
