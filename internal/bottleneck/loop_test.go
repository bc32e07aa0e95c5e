// SPDX-License-Identifier: Apache-2.0

package bottleneck_test

import (
	"math"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func p(v float64) *float64 { return &v }

// loop returns a loop whose rounds have these seconds of wait, copy and step.
func loop(rounds ...[3]float64) bottleneck.Loop {
	l := bottleneck.Loop{ToleratedIdle: 0.1, Decode: p(0.1), Read: p(0.9), InProcess: p(1)}
	for _, r := range rounds {
		l.Rounds = append(l.Rounds, bottleneck.LoopRound{Batches: 1, Wait: r[0], Copy: r[1], Step: r[2]})
	}
	first := rounds[0]
	l.Variants = []bottleneck.LoopVariant{{Name: "as configured", Alone: p(0.3), Together: first[0] + first[1] + first[2],
		Wait: first[0], Copy: first[1], Step: first[2]}}
	return l
}

func TestALoopIsJudged(t *testing.T) {
	decodes := func(l bottleneck.Loop) bottleneck.Loop { l.Decode, l.Read = p(0.9), p(0.1); return l }
	workers := func(l bottleneck.Loop, alone float64) bottleneck.Loop { l.LoaderAlone = p(alone); return l }
	for name, c := range map[string]struct {
		loop  bottleneck.Loop
		bound bottleneck.Bound
		agree float64
		why   string
		next  string
	}{
		"the data keeps up": {loop([3]float64{0.04, 0.04, 0.92}), bottleneck.Compute, 1, "keeps up",
			"only a faster step"},
		"a loader that waits": {loop([3]float64{0.2, 0.1, 0.7}), bottleneck.Storage, 1, "900.0 ms read and wait",
			"autotune"},
		"a loader that decodes": {decodes(loop([3]float64{0.2, 0.1, 0.7})), bottleneck.CPU, 1, "900.0 ms of it decode",
			"autotune"},
		"a copy": {decodes(loop([3]float64{0.1, 0.2, 0.7})), bottleneck.Copy, 1,
			"the loader alone needs 300.0 ms", "stream"},
		"most rounds decide": {loop([3]float64{0, 0, 1}, [3]float64{0.9, 0, 0.1}, [3]float64{0.9, 0, 0.1}),
			bottleneck.Storage, 2. / 3, "", ""},
		"rounds that differ": {loop([3]float64{0, 0, 1}, [3]float64{0.9, 0, 0.1}, [3]float64{0, 0.9, 0.1}),
			bottleneck.Unclear, 1. / 3, "differ", "measure longer"},
		"fast workers":            {workers(loop([3]float64{0.2, 0, 0.8}), 0.3), bottleneck.Compute, 1, "", ""},
		"slow workers":            {workers(loop([3]float64{0.2, 0, 0.8}), 0.9), bottleneck.Storage, 1, "", ""},
		"fast workers, long wait": {workers(loop([3]float64{0.4, 0, 0.6}), 0.3), bottleneck.Storage, 1, "", ""},
	} {
		v, err := c.loop.Judge()
		if err != nil || v.Bound != c.bound || math.Abs(v.Agree-c.agree) > 1e-9 || !strings.Contains(v.Why, c.why) ||
			len(v.Next) == 0 || !strings.Contains(v.Next[0], c.next) || v.Step.Number == 0 {
			t.Errorf("%s: %s by %.2f because %s, next %q, %v", name, v.Bound, v.Agree, v.Why, v.Next, err)
		}
	}
}

func TestMeasuredDifferencesAreAdvised(t *testing.T) {
	l := loop([3]float64{0.1, 0.6, 0.3})
	l.CopyAlone, l.CopyPinned, l.CopyPageable, l.StepAlone = p(0.6), p(0.2), p(0.6), p(0.1)
	l.Variants = append(l.Variants, bottleneck.LoopVariant{Name: "slower", Together: 2},
		bottleneck.LoopVariant{Name: "num_workers=4", Together: 0.8},
		bottleneck.LoopVariant{Name: "pin_memory=True", Together: 0.5},
		bottleneck.LoopVariant{Name: "not measured"})
	v, err := l.Judge()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pin_memory=True: the loop takes 500.0 ms per batch, 2 times as fast", "num_workers=4",
		"pin_memory=True: the copy", "stream of its own", "loader and step compete"}
	if len(v.Next) != len(want) {
		t.Fatalf("%q", v.Next)
	}
	for i, part := range want {
		if !strings.Contains(v.Next[i], part) {
			t.Errorf("%q, expected %q", v.Next[i], part)
		}
	}
}

func TestALoopWithoutSenseIsRefused(t *testing.T) {
	for name, change := range map[string]func(*bottleneck.Loop){
		"no round":     func(l *bottleneck.Loop) { l.Rounds = nil },
		"no variant":   func(l *bottleneck.Loop) { l.Variants = nil },
		"no tolerance": func(l *bottleneck.Loop) { l.ToleratedIdle = 0 },
		"negative":     func(l *bottleneck.Loop) { l.Rounds[0].Wait = -1 },
		"no number":    func(l *bottleneck.Loop) { l.StepAlone = p(math.NaN()) },
		"endless":      func(l *bottleneck.Loop) { l.Variants[0].Together = math.Inf(1) },
		"no batch":     func(l *bottleneck.Loop) { l.Rounds[0].Batches = 0 },
		"many rounds":  func(l *bottleneck.Loop) { l.Rounds = make([]bottleneck.LoopRound, 20_000) },
	} {
		l := loop([3]float64{0.2, 0.1, 0.7})
		change(&l)
		if v, err := l.Judge(); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
}
