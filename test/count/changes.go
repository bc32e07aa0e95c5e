// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// changeRun is one run of .ci/run or of make ci-all.
type changeRun struct {
	maker  string
	tree   *tree
	proofs proofs
	out    io.Writer
	began  time.Time
	parts  []part
}

// runChange runs what make test runs, then the suites of each change, then the suites whose inputs changed and some by
// rota, as far as minutes are left. With -all it runs everything. It goes on after a part that fails, and returns the
// first exit code that is not 0.
func runChange(arguments []string, out io.Writer) (int, error) {
	flags := flag.NewFlagSet("count ci", flag.ContinueOnError)
	maker := flags.String("make", "make", "the make program")
	minutes := flags.Float64("minutes", 25, "begin no suite that would probably end later than this")
	everything := flags.Bool("all", false, "run every suite, whatever is proven and however long it takes")
	only := flags.String("suites", "", "run these suites alone, separated by spaces")
	if err := flags.Parse(arguments); err != nil {
		return 2, nil
	}
	t, err := openTree(".")
	if err != nil {
		return 1, err
	}
	proofs, err := readProofs(".")
	if err != nil {
		return 1, err
	}
	r := &changeRun{maker: *maker, tree: t, proofs: proofs, out: out, began: time.Now()}
	limit := time.Duration(*minutes * float64(time.Minute))
	if err := r.all(limit, *everything, strings.Fields(*only)); err != nil {
		return 1, err
	}
	printTable(out, r.parts)
	return r.code(), nil
}

// all runs the suites.
func (r *changeRun) all(limit time.Duration, everything bool, only []string) error {
	var later []candidate
	var tests []string // what make test runs
	var always []string
	for _, s := range suites() {
		if len(only) > 0 && !contains(only, s.target) {
			continue
		}
		switch s.when {
		case eachTest:
			tests = append(tests, s.target)
		case eachChange:
			always = append(always, s.target)
		case byInputs:
			hash, err := r.tree.hash(s)
			if err != nil {
				return err
			}
			later = append(later, candidate{s, hash, r.proofs[s.target]})
		}
	}
	if err := r.run(tests...); err != nil {
		return err
	}
	if err := r.run(always...); err != nil {
		return err
	}
	commit, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("git rev-parse HEAD: %w", err)
	}
	b := budget{left: limit - time.Since(r.began), rotas: rotas}
	for _, c := range order(later, string(commit)) {
		p := part{name: c.target, note: "NOT proven at these inputs"}
		if c.proven() {
			p.note = "proven at these inputs on " + c.proof.Passed.Format(time.DateOnly)
		}
		if !everything && len(only) == 0 && !b.take(c) {
			r.parts = append(r.parts, p)
			continue
		}
		began := time.Now()
		if err := r.run(c.target); err != nil {
			return err
		}
		b.spend(time.Since(began))
		if err := r.remember(c); err != nil {
			return err
		}
	}
	return nil
}

// contains reports whether the list has the name. A name may leave out "test-".
func contains(list []string, target string) bool {
	for _, name := range list {
		if name == target || "test-"+name == target {
			return true
		}
	}
	return false
}

// run runs parts and goes on after one that fails.
func (r *changeRun) run(names ...string) error {
	parts, err := runEach(r.maker, names, true, r.out)
	r.parts = append(r.parts, parts...)
	return err
}

// remember writes down that the last part passed, unless its inputs changed while it ran.
func (r *changeRun) remember(c candidate) error {
	p := r.parts[len(r.parts)-1]
	if p.code != 0 || p.Failed > 0 {
		return nil
	}
	now, err := openTree(r.tree.root)
	if err != nil {
		return err
	}
	hash, err := now.hash(c.suite)
	if err != nil {
		return err
	}
	if hash != c.hash {
		fmt.Fprintf(r.out, "%s is not recorded as proven: its inputs changed while it ran\n", c.target)
		return nil
	}
	if p.Ran == 0 {
		return errors.New(c.target + " passed without a single test (fix: see its target in the Makefile)")
	}
	r.proofs[c.target] = proof{Inputs: hash, Passed: time.Now().UTC().Truncate(time.Second),
		Minutes: float64(int(p.took.Minutes()*10+0.5)) / 10, Tests: p.Ran}
	return r.proofs.write(r.tree.root)
}

// code returns the first exit code that is not 0.
func (r *changeRun) code() int {
	for _, p := range r.parts {
		if p.code != 0 {
			return p.code
		}
	}
	return 0
}
