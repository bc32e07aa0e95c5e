// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"testing"
	"time"
)

func TestStableHasNoPasses(t *testing.T) {
	if s := (Spec{Stable: 0.05}).withDefaults(); s.Passes != 0 || s.Time != time.Minute {
		t.Errorf("%d passes, %s; expected to go on for a minute", s.Passes, s.Time)
	}
	if s := (Spec{}).withDefaults(); s.Passes != 1 || s.Time != 0 {
		t.Errorf("%d passes, %s; expected one pass", s.Passes, s.Time)
	}
}
