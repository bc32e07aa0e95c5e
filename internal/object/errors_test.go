// SPDX-License-Identifier: Apache-2.0

package object

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// TestSentinelsKeepTheirKind: however a sentinel is wrapped, it is found, and commands know its kind.
func TestSentinelsKeepTheirKind(t *testing.T) {
	for _, c := range []struct {
		sentinel error
		kind     errs.Kind
	}{{ErrNoSuchKey, errs.NotFound}, {ErrPrecondition, errs.Invalid}, {ErrDamaged, errs.Corrupt}, {ErrNoSpace, errs.IO},
		{ErrReadOnly, errs.Permission}, {ErrClosed, errs.Closed}} {
		for how, err := range map[string]error{
			"bare":          c.sentinel,
			"wrapped":       fmt.Errorf("around: %w", c.sentinel),
			"by Fail":       Fail("put", "key", c.sentinel, "7 bytes"),
			"by errs":       errs.Wrap("put", "key", c.sentinel),
			"Fail, wrapped": fmt.Errorf("around: %w", Fail("put", "key", c.sentinel, "")),
		} {
			if !errors.Is(err, c.sentinel) || errs.KindOf(err) != c.kind {
				t.Errorf("%v, %s: is it: %v, kind %v, expected %v", c.sentinel, how, errors.Is(err, c.sentinel), errs.KindOf(err),
					c.kind)
			}
			if errors.Is(err, ErrNoSuchBucket) {
				t.Errorf("%v, %s: is taken for another one", c.sentinel, how)
			}
		}
	}
	if text := Fail("put", "key", ErrNoSpace, "7 bytes").Error(); !strings.Contains(text, "put key: 7 bytes: no space") {
		t.Errorf("%q", text)
	}
}
