// SPDX-License-Identifier: Apache-2.0

package main

import (
	"hash/fnv"
	"slices"
	"time"
)

// rotas is the number of suites that run although they passed with the very same inputs.
const rotas = 2

// candidate is a suite that .ci/run may leave out, with what is known about it.
type candidate struct {
	suite
	hash  string
	proof proof
}

// proven reports whether the suite passed with its present inputs.
func (c candidate) proven() bool { return c.proof.Inputs == c.hash }

// expected returns how long the suite is likely to take.
func (c candidate) expected() time.Duration {
	minutes := c.minutes
	if c.proof.Minutes > 0 {
		minutes = c.proof.Minutes
	}
	return time.Duration(minutes * float64(time.Minute))
}

// order returns the suites in the order in which they should run: first those that are not proven, the longest
// unproven one first, then some that are proven. The commit turns the proven ones, so that each comes round.
func order(all []candidate, commit string) []candidate {
	var unproven, known []candidate
	for _, c := range all {
		if c.proven() {
			known = append(known, c)
		} else {
			unproven = append(unproven, c)
		}
	}
	slices.SortStableFunc(unproven, func(a, b candidate) int { return a.proof.Passed.Compare(b.proof.Passed) })
	if len(known) > 0 {
		of := fnv.New64a()
		_, _ = of.Write([]byte(commit))
		at := int(of.Sum64() % uint64(len(known)))
		known = slices.Concat(known[at:], known[:at])
	}
	return append(unproven, known...)
}

// budget decides which suites still fit into the time of a run.
type budget struct {
	left  time.Duration
	rotas int // proven suites that may still run
}

// take reports whether the suite runs. The time that a suite was expected to take is given back by spend.
func (b *budget) take(c candidate) bool {
	if c.expected() > b.left || c.proven() && b.rotas == 0 {
		return false
	}
	if c.proven() {
		b.rotas--
	}
	return true
}

// spend takes the time that a suite really took.
func (b *budget) spend(d time.Duration) { b.left -= d }
