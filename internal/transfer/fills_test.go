// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/nebulaio/nebulaio/internal/transfer/exchange"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// A load that may read no more blocks into the shared memory leaves its workers to other loads. If it is cancelled
// meanwhile, it reads none of the blocks for which its workers wait.
func TestWaitingForAPlaceToFill(t *testing.T) {
	const held = 64
	unlimited := func() int { return math.MaxInt }
	r := newLendRig(t, 1941)
	e := newEngine(t, Options{PoolSize: 16 * units.MiB})
	b := alloc(t, r.dev, lentSize)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tr, err := e.Start(ctx, Request{Device: r.dev, Files: []*vfs.File{r.f},
		Segments: []Segment{{Len: lentSize, Dst: b.Ptr()}}})
	if err != nil {
		t.Fatal(err)
	}
	planned := func() bool {
		tr.e.sched.mu.Lock()
		defer tr.e.sched.mu.Unlock()
		return tr.outstanding > 0
	}
	for !planned() {
		runtime.Gosched()
	}
	trade := &tr.shared[0].trade
	for range held {
		trade.filling.take(unlimited)
	}
	waiting := func() bool {
		trade.filling.mu.Lock()
		defer trade.filling.mu.Unlock()
		return trade.filling.taken == held && len(trade.filling.queue) > 0
	}
	for !waiting() { // hangs if the load reads its blocks without a place
		runtime.Gosched()
	}

	w := worker{e: tr.e, way: plan.ViaDirect}
	queue := []plan.Chunk{{Off: lentSize / exchange.Block * exchange.Block, Len: 12345}}
	if n := w.count(tr, queue, 2); n != 0 {
		t.Errorf("a worker takes %d chunks, although it would wait and other loads have work", n)
	}
	if n := w.count(tr, queue, 1); n != 1 {
		t.Errorf("a worker takes %d chunks, although there is no other work", n)
	}
	queue[0].Extra = true
	if n := w.count(tr, queue, 2); n != 1 {
		t.Errorf("a worker takes %d chunks that are not shared", n)
	}

	filled := func() int {
		trade.mu.Lock()
		defer trade.mu.Unlock()
		if trade.refused != nil {
			t.Errorf("the load shares no memory any more: %v", trade.refused)
		}
		return len(trade.fills)
	}
	before := filled()
	cancel()
	for !tr.e.sched.hasFailed(&tr.task) {
		runtime.Gosched()
	}
	for range held {
		trade.filling.give(unlimited)
	}
	if err := tr.Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("the load ends with %v, expected that it is cancelled", err)
	}
	if n := filled(); n != before {
		t.Errorf("%d blocks were read after the load was cancelled", n-before)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
