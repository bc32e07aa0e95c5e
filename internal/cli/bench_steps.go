// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"
)

// benchStep is one step of a command that measures several things.
type benchStep struct {
	name string
	// weight is the expected duration relative to the other steps, in runs.
	weight float64
	run    func(ctx context.Context) error
}

// stepPlan holds the steps of a command and its progress.
type stepPlan struct {
	all   []benchStep
	at    int       // index of the running step
	began time.Time // start of the first step
	now   time.Time // start of the running step
}

// text returns "step 3 of 17, about 2m left: sweep workers". The time left is
// estimated from the finished steps, so the first step shows none.
func (p *stepPlan) text(now time.Time) string {
	text := fmt.Sprintf("step %d of %d", p.at+1, len(p.all))
	if left, ok := p.left(now); ok {
		text += fmt.Sprintf(", about %s left", left)
	}
	return text + ": " + p.all[p.at].name
}

// left estimates the time left from the speed of the finished steps.
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
	// If the running step takes longer than expected, at least the steps after it remain.
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

// runSteps runs the steps in order until one fails, and shows the running step.
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
