// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func queue(t *testing.T) device.Queue {
	t.Helper()
	q, err := host.Staged().NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return q
}

func stampOf(t *testing.T, q device.Queue) device.Stamp {
	t.Helper()
	s, err := q.(device.Timer).NewStamp()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAStepTakesItsTimeInTheQueuesOrder(t *testing.T) {
	q := queue(t)
	a, b, c := stampOf(t, q), stampOf(t, q), stampOf(t, q)
	const d = 3 * time.Millisecond
	if err := errors.Join(a.Record(), q.(device.Stepper).Step(d), b.Record(), q.(device.Stepper).Step(0),
		c.Record()); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Since(a); err != nil || got < d {
		t.Errorf("a step of %v took %v, %v", d, got, err)
	}
	if got, err := a.Since(b); err != nil || got > -d {
		t.Errorf("backwards: %v, %v", got, err)
	}
	if got, err := c.Since(b); err != nil || got < 0 {
		t.Errorf("stamps run backwards: %v, %v", got, err)
	}
}

func TestAQueueFollowsAMarkOfAnother(t *testing.T) {
	first, second := queue(t), queue(t)
	m, err := first.NewMark()
	if err != nil {
		t.Fatal(err)
	}
	follow := second.(device.Follower)
	if err := errors.Join(follow.Follow(m), second.Drain()); err != nil {
		t.Fatalf("a mark never recorded delays something: %v", err)
	}
	in, out := []byte("first"), make([]byte, 5)
	at := stampOf(t, first)
	gone := stampOf(t, second)
	// What follows is queued on the second while the first is still at its step.
	if err := errors.Join(first.(device.Stepper).Step(2*time.Millisecond), first.CopyIn(ptrOf(out), in), at.Record(),
		m.Record(),
		follow.Follow(m), gone.Record()); err != nil {
		t.Fatal(err)
	}
	if d, err := gone.Since(at); err != nil || d < 0 {
		t.Errorf("the second queue went ahead of the mark by %v, %v", -d, err)
	}
	if string(out) != "first" {
		t.Errorf("%q", out)
	}
}

func TestStampsAndMarksOfOthersAreRefused(t *testing.T) {
	q := queue(t)
	s := stampOf(t, q)
	if _, err := s.Since(stampOf(t, q)); !errs.Is(err, errs.Invalid) {
		t.Errorf("a stamp never recorded: %v", err)
	}
	if err := s.Record(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Since(nil); !errs.Is(err, errs.Invalid) {
		t.Errorf("no stamp: %v", err)
	}
	if err := q.(device.Follower).Follow(nil); !errs.Is(err, errs.Invalid) {
		t.Errorf("no mark: %v", err)
	}
	if err := errors.Join(s.Close(), q.Close()); err != nil {
		t.Fatal(err)
	}
	if err := q.(device.Stepper).Step(0); !errs.Is(err, errs.Closed) {
		t.Errorf("a closed queue took a step: %v", err)
	}
	if err := s.Record(); !errs.Is(err, errs.Closed) {
		t.Errorf("a closed queue took a stamp: %v", err)
	}
}

func ptrOf(b []byte) device.Ptr { return device.Ptr(uintptr(unsafe.Pointer(&b[0]))) }
