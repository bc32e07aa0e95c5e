// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"slices"
	"testing"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"
)

// TestATransferThatWouldWaitComesLater has transfers for which count returns 0 while other transfers have chunks. Their
// chunks are taken last, in the order in which the transfers came.
func TestATransferThatWouldWaitComesLater(t *testing.T) {
	s := newSched[string]()
	tasks := map[string]*task[string]{}
	for _, name := range []string{"waits", "runs", "waits, too"} {
		tasks[name] = &task[string]{job: name, drained: make(chan struct{})}
		for i := range 2 {
			s.add(tasks[name], plan.Chunk{Off: int64(i), Verdict: plan.Verdict{Way: plan.ViaDirect}})
		}
	}
	count := func(job string, queue []plan.Chunk, all int) int {
		if job != "runs" && all > len(queue) {
			return 0
		}
		return len(queue)
	}
	var order []string
	for range 3 {
		job, cs := s.take(plan.ViaDirect, false, count)
		if len(cs) != 2 || cs[0].Off != 0 || cs[1].Off != 1 {
			t.Errorf("%s: took %+v", job, cs)
		}
		order = append(order, job)
	}
	if want := []string{"runs", "waits", "waits, too"}; !slices.Equal(order, want) {
		t.Errorf("the order is %q, expected %q", order, want)
	}
	if job, cs := s.take(plan.ViaDirect, false, count); job != "" || cs != nil {
		t.Errorf("%q has %d chunks left", job, len(cs))
	}
}
