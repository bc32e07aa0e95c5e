// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"
)

// benchStep is one part of a command that measures several things.
type benchStep struct {
	name string
	// weight is how long the step takes compared with the others, in runs.
	weight float64
	run    func(ctx context.Context) error
}

// stepPlan is the steps of a command and how far it has come.
type stepPlan struct {
	all   []benchStep
	at    int       // the step that runs
	began time.Time // of the first step
	now   time.Time // the start of the step that runs
}

// text is "step 3 of 17, about 2m left: sweep workers". The time left follows
// from the steps that have ended, so the first step has none.
func (p *stepPlan) text(now time.Time) string {
	text := fmt.Sprintf("step %d of %d", p.at+1, len(p.all))
	if left, ok := p.left(now); ok {
		text += fmt.Sprintf(", about %s left", left)
	}
	return text + ": " + p.all[p.at].name
}

// left is how long the rest takes if its steps go as those before did.
func (p *stepPlan) left(now time.Time) (time.Duration, bool) {
	var done, rest float64
	for i, s := range p.all {
		if i < p.at {
			done += s.weight
		} else {
			rest += s.weight
		}
	}
	if done == 0 {
		return 0, false
	}
	each := p.now.Sub(p.began).Seconds() / done
	left := each*rest - now.Sub(p.now).Seconds()
	// A step that takes longer than expected leaves the steps behind it at least.
	left = max(left, each*(rest-p.all[p.at].weight))
	if left > longest.Seconds() {
		return 0, false
	}
	d := time.Duration(left * float64(time.Second))
	if d >= time.Minute {
		return d.Round(10 * time.Second), true
	}
	return d.Round(time.Second), true
}

// runSteps runs steps in their order until one fails, and shows which one runs.
func (b *bencher) runSteps(ctx context.Context, all []benchStep) error {
	p := &stepPlan{all: all, began: b.a.Now()}
	b.live.steps = p
	defer func() { b.live.steps = nil }()
	for i, s := range all {
		p.at, p.now = i, b.a.Now()
		b.live.show(s.name, "")
		if err := s.run(ctx); err != nil {
			return err
		}
	}
	return nil
}
