// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/devicetest"
	devices "github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/hostmem"
)

func card(t *testing.T) device.Device {
	t.Helper()
	set, err := devices.New(devices.Options{Mode: device.Require})
	if err != nil {
		t.Skipf("no GPU: %v", err)
	}
	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	d, err := set.Open(t.Context(), "cuda:0")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func check(t *testing.T, all ...error) {
	t.Helper()
	if err := errors.Join(all...); err != nil {
		t.Fatal(err)
	}
}

// TestAStepTakesTheTimeItIsTold checks the duration of a step with the GPU's own clock. On a busy machine the host
// sees the end of the step later, but never earlier.
func TestAStepTakesTheTimeItIsTold(t *testing.T) {
	q := devicetest.Queue(t, card(t))
	a, b := devicetest.Stamp(t, q), devicetest.Stamp(t, q)
	check(t, q.(device.Stepper).Step(0), q.Drain()) // compiles the kernel
	for _, want := range []time.Duration{20 * time.Millisecond, 2 * time.Millisecond} {
		start := time.Now()
		check(t, a.Record(), q.(device.Stepper).Step(want), b.Record())
		got, err := b.Since(a)
		wall := time.Since(start)
		check(t, err)
		t.Logf("a step of %v took %v on the card, %v seen from the host", want, got, wall)
		if got < want*9/10 || got > want*11/10 {
			t.Errorf("a step of %v took %v on the card", want, got)
		}
		if wall < want*9/10 || wall > want*10+time.Second {
			t.Errorf("a step of %v took %v seen from the host", want, wall)
		}
	}
}

func TestStampsAreMonotonic(t *testing.T) {
	q := devicetest.Queue(t, card(t))
	s := q.(device.Stepper)
	var all []device.Stamp
	for range 10 {
		st := devicetest.Stamp(t, q)
		check(t, st.Record(), s.Step(100*time.Microsecond))
		all = append(all, st)
	}
	for i := 1; i < len(all); i++ {
		d, err := all[i].Since(all[i-1])
		check(t, err)
		if d < 90*time.Microsecond {
			t.Errorf("stamp %d was passed %v after the one before it, with a step of 100 µs between", i, d)
		}
	}
}

// TestCopiesProceedWhileAStepRuns checks that a step on one queue leaves the copy engines free, and that a step after
// a copy begins after it.
func TestCopiesProceedWhileAStepRuns(t *testing.T) {
	d := card(t)
	compute, copies := devicetest.Queue(t, d), devicetest.Queue(t, d)
	const size = 64 << 20
	mem, err := hostmem.Map(size)
	check(t, err)
	defer mem.Unmap()
	hostmem.Touch(mem.Bytes(), 4)
	unregister, err := d.Register(mem.Bytes())
	check(t, err)
	defer unregister()
	buf, err := d.Alloc(size)
	check(t, err)
	defer buf.Free()
	check(t, compute.(device.Stepper).Step(0), compute.Drain())

	done := devicetest.Mark(t, copies)
	begin, end, next := devicetest.Stamp(t, compute), devicetest.Stamp(t, compute), devicetest.Stamp(t, compute)
	copied := devicetest.Stamp(t, copies)
	check(t, begin.Record(), compute.(device.Stepper).Step(200*time.Millisecond), end.Record(),
		copies.CopyIn(buf.Ptr(), mem.Bytes()[:size]), copied.Record(), done.Record(),
		compute.(device.Follower).Follow(done), next.Record())
	inside, err := end.Since(copied)
	check(t, err)
	t.Logf("the copy of %d MiB ended %v before the step of 200 ms", size>>20, inside)
	if inside <= 0 {
		t.Errorf("the copy ended %v after the step: they did not overlap", -inside)
	}

	// The other way round: a copy behind a step of its own queue, and a queue
	// that follows it.
	check(t, copies.(device.Stepper).Step(50*time.Millisecond), copies.CopyIn(buf.Ptr(), mem.Bytes()[:size]),
		copied.Record(), done.Record(),
		compute.(device.Follower).Follow(done), next.Record())
	after, err := next.Since(copied)
	check(t, err)
	if after < 0 {
		t.Errorf("the queue that follows went ahead of the copy by %v", -after)
	}
}
