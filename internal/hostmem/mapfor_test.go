// SPDX-License-Identifier: Apache-2.0

package hostmem

import (
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestARefusalSaysWhatTheMemoryIsFor(t *testing.T) {
	_, err := MapFor("map staging memory of the engine", "lower buffer_pool_size", 1<<60)
	if !errs.Is(err, errs.NoMemory) || !strings.Contains(err.Error(), "map staging memory of the engine") ||
		!strings.HasPrefix(errs.FixOf(err), "lower buffer_pool_size, or free memory") {
		t.Errorf("got %v", err)
	}
	have := Available{Bytes: 40 << 20, Known: true, Limit: "the cgroup /x"}
	err = withFix(refusal("map staging memory of the engine", 64<<20, 30<<20, 0, have), "lower buffer_pool_size")
	for _, want := range []string{"map staging memory of the engine", "64.00 MiB are needed",
		"lower buffer_pool_size, or free memory; raise the limit"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}
