// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"testing"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
)

// TestJudgeAgreesWithTheDiagnosis: the few rules of a loader give the verdict
// that all of them give, with its cause.
func TestJudgeAgreesWithTheDiagnosis(t *testing.T) {
	plausible := 0
	for _, s := range situations {
		m := s.make()
		res, err := Diagnose(m, m.meta, Options{GPU: 0, Profile: Infer})
		if err != nil {
			t.Fatal(err)
		}
		p, err := Judge(m, m.meta, 0)
		if err != nil {
			t.Fatal(err)
		}
		// A proof that was made is no part of the judgement from files.
		if want := res.Verdict.Direct == "yes" || res.Verdict.Direct == "unproven"; m.meta.Proof == nil &&
			p.Plausible != want {
			t.Errorf("%s: plausible %v, the diagnosis says %s: %s", s.name, p.Plausible, res.Verdict.Direct, res.Verdict.Summary)
		}
		if !p.Plausible && (p.Reason == "" || p.Fix == "") {
			t.Errorf("%s: %+v", s.name, p)
		}
		if p.Plausible {
			plausible++
		}
	}
	if plausible == 0 {
		t.Error("no situation is plausible")
	}
}

func TestConditionChecksAreThoseOfTheRoutes(t *testing.T) {
	var ids []string
	for _, c := range conditionChecks() {
		ids = append(ids, c.id)
	}
	want := slices.Concat(common(), p2pdmaOnly(), nvfsOnly())
	slices.Sort(ids)
	slices.Sort(want)
	if !slices.Equal(ids, want) {
		t.Errorf("%v, expected %v", ids, want)
	}
}

func BenchmarkJudgeHere(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		m, err := facts.Glance(dir, func(string) string { return "" })
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Judge(facts.Live(), m, 0); err != nil {
			b.Fatal(err)
		}
	}
}
