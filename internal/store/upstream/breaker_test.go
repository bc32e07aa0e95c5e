// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// clock is a clock that a test moves.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

// TestBreaker follows a breaker through its phases.
func TestBreaker(t *testing.T) {
	c := &clock{time.Unix(1_000_000, 0)}
	b := newBreaker(3, c.now)
	why := errors.New("the connection was refused")
	fail := func() {
		t.Helper()
		n, err := b.enter()
		if err != nil {
			t.Fatalf("a closed breaker refused: %v", err)
		}
		b.failed(n, why)
	}
	fail()
	fail()
	n, err := b.enter()
	if err != nil {
		t.Fatal(err)
	}
	b.succeeded(n)
	if s := b.state(); s.Phase != Closed || s.Failures != 0 {
		t.Fatalf("a success does not reset the count: %+v", s)
	}
	for range 3 {
		fail()
	}
	if s := b.state(); s.Phase != Open || s.Failures != 3 || s.Last != why.Error() || !s.Retry.After(c.t) {
		t.Fatalf("three failures: %+v", s)
	}
	if _, err := b.enter(); err == nil || !strings.Contains(err.Error(), "refused") ||
		!strings.Contains(err.Error(), "since 1970") {
		t.Fatalf("an open breaker let a request through, or hides why: %v", err)
	}
	pause := shortestOpen
	for range 8 {
		c.t = b.state().Retry
		first, err := b.enter()
		if err != nil {
			t.Fatalf("no request after the pause: %v", err)
		}
		if _, err := b.enter(); err == nil {
			t.Fatal("a second request is let through while the first finds out")
		}
		b.failed(first, why)
		if pause = min(2*pause, longestOpen); b.state().Phase != Open {
			t.Fatalf("%+v", b.state())
		}
		if wait := b.state().Retry.Sub(c.t); wait < pause/2 || wait > pause {
			t.Fatalf("the next pause is %s, expected %s to %s", wait, pause/2, pause)
		}
	}
	c.t = b.state().Retry
	n, err = b.enter()
	if err != nil {
		t.Fatal(err)
	}
	b.left(n)
	if n, err = b.enter(); err != nil {
		t.Fatalf("a trial that its caller gave up blocks the next one: %v", err)
	}
	b.succeeded(n)
	if _, err := b.enter(); err != nil || b.state().Phase != Closed {
		t.Fatalf("a success does not close the breaker: %v", err)
	}
}

// TestLateFailuresDoNotProlong fails requests that began before the breaker opened.
func TestLateFailuresDoNotProlong(t *testing.T) {
	c := &clock{time.Unix(1_000_000, 0)}
	b := newBreaker(1, c.now)
	early, err := b.enter()
	if err != nil {
		t.Fatal(err)
	}
	late, err := b.enter()
	if err != nil {
		t.Fatal(err)
	}
	b.failed(early, errors.New("x"))
	retry := b.state().Retry
	c.t = retry
	trial, err := b.enter()
	if err != nil {
		t.Fatal(err)
	}
	b.failed(late, errors.New("late"))
	if s := b.state(); s.Phase != HalfOpen || s.Retry != retry {
		t.Fatalf("a failure from before ends the trial: %+v", s)
	}
	b.succeeded(trial)
	if b.state().Phase != Closed {
		t.Fatalf("%+v", b.state())
	}
}
