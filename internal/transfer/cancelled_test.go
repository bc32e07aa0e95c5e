// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// TestCancelledAfterAllThatArrived: chunks in flight at the cancellation still
// arrive. The error counts them, as the report does.
func TestCancelledAfterAllThatArrived(t *testing.T) {
	early := &errs.Error{Kind: errs.Cancelled, Op: "save", Name: "f after 4.00 MiB", Err: context.Canceled}
	err := cancelledAfter(early, "save", "f", 12<<20)
	if !errs.Is(err, errs.Cancelled) || !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "save f after 12.00 MiB") {
		t.Errorf("got %v", err)
	}
	if early.Name != "f after 4.00 MiB" {
		t.Errorf("an error that others hold was changed: %v", early)
	}
	for _, other := range []error{nil, errors.New("broken"), errs.New(errs.Corrupt, "save", "f", "broken"),
		errs.New(errs.Cancelled, "read", "f", "")} {
		if got := cancelledAfter(other, "save", "f", 12<<20); got != other {
			t.Errorf("%v became %v", other, got)
		}
	}
}
