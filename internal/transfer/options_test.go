// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// T3, and every thread has a slot to read into, whatever the options.
func TestStagingIsDealtWithinThePool(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 20_000 {
		o := Options{PoolSize: minPoolSize << rng.IntN(14), MaxTransfer: minTransfer + rng.Int64N(minTransfer<<rng.IntN(12)),
			Workers: rng.IntN(maxWorkers + 1), QueueDepth: rng.IntN(maxQueueDepth + 1)}
		o.PoolSize += rng.Int64N(o.PoolSize)
		d, err := o.tune()
		if err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		switch {
		case d.layout().Size() > o.PoolSize:
			t.Fatalf("%+v: %d bytes of staging", o, d.layout().Size())
		case d.MaxTransfer < minTransfer || d.MaxTransfer > o.MaxTransfer:
			t.Fatalf("%+v: reads of %d", o, d.MaxTransfer)
		case d.block <= 0 || d.MaxTransfer%d.block != 0 || d.block%4096 != 0:
			t.Fatalf("%+v: blocks of %d in reads of %d", o, d.block, d.MaxTransfer)
		case d.Workers < 1 || d.largeSlots < d.Workers:
			t.Fatalf("%+v: %d threads for %d slots", o, d.Workers, d.largeSlots)
		case d.QueueDepth < 1 || d.directSlots < d.QueueDepth:
			t.Fatalf("%+v: %d direct reads for %d slots", o, d.QueueDepth, d.directSlots)
		case d.fillers < 1 || d.smallSlots-d.directSlots < d.fillers:
			t.Fatalf("%+v: %d fillers for %d slots", o, d.fillers, d.smallSlots-d.directSlots)
		}
	}
}

func TestOptionsOutOfRange(t *testing.T) {
	for _, o := range []Options{{PoolSize: 1}, {PoolSize: 1 << 40}, {PoolSize: -1}, {MaxTransfer: 1},
		{MaxTransfer: 1 << 40}, {QueueDepth: -1}, {QueueDepth: 1 << 20}, {Workers: -1}, {Workers: 1000}, {IO: "magic"}} {
		if _, err := New(o); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "expected") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
