// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestAWatchKeepsItsLastDeadline moves the deadline of a request, in the time of a bubble.
func TestAWatchKeepsItsLastDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		w := &watch{cancel: cancel}
		began := time.Now()
		w.expect(10*time.Second, "first")
		time.Sleep(9 * time.Second)
		w.expect(10*time.Second, "later") // the timer fires before
		time.Sleep(2 * time.Second)
		w.expect(0, "")
		time.Sleep(time.Minute)
		if ctx.Err() != nil {
			t.Fatalf("cancelled without a deadline: %v", context.Cause(ctx))
		}
		w.expect(time.Hour, "long")
		w.expect(time.Second, "short") // before the timer fires
		<-ctx.Done()
		var s *silence
		if took := time.Since(began); took != 72*time.Second || !errors.As(context.Cause(ctx), &s) || s.what != "short" ||
			s.d != time.Second {
			t.Errorf("cancelled after %v: %v; want after 72s because of short", took, context.Cause(ctx))
		}
	})
}

func TestAWatchThatHasEndedCancelsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		w := &watch{cancel: cancel}
		w.end()
		w.expect(time.Second, "no byte")
		w.end()
		time.Sleep(time.Minute)
		if ctx.Err() != nil {
			t.Errorf("cancelled after its end: %v", context.Cause(ctx))
		}
	})
}
