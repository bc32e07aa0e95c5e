// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"context"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
	"github.com/nebulaio/nebulaio/test/effort"
)

// target opens stores in memory or on the real disk, with a check of all invariants before each reopening.
func target(t *testing.T, onDisk bool) storetest.Target {
	var options sync.Map // disk.Options of each object.Store: tests run side by side
	open := func(t *testing.T, o disk.Options) object.Store {
		t.Helper()
		s, err := disk.Open(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		options.Store(s, o)
		return s
	}
	return storetest.Target{
		Sizes: []int{disk.DefaultInline},
		Open: func(t *testing.T) object.Store {
			o := disk.Options{Dir: "store", FS: vfs.NewMem(), MemTable: 1 << 20}
			if onDisk {
				o.Dir, o.FS = storetest.Dir(t), nil
			}
			return open(t, o)
		},
		Reopen: func(t *testing.T, s object.Store) object.Store {
			t.Helper()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			o, _ := options.Load(s)
			r, err := disk.Check(context.Background(), o.(disk.Options), check.Options{})
			if err != nil || r.Found > 0 {
				t.Fatalf("check: %v, %d problems: %+v", err, r.Found, r.Problems)
			}
			return open(t, o.(disk.Options))
		},
	}
}

// TestConformance makes calls one after the other on a store in memory. TestConformanceOnDisk makes the same calls
// under the race detector, which finds the goroutines of the store itself.
func TestConformance(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	storetest.RunSequential(t, target(t, false))
	storetest.RunLists(t, target(t, false))
}

func TestConformanceOfConcurrentCalls(t *testing.T) { storetest.RunConcurrent(t, target(t, false)) }

// onDisk returns a target on the real disk, or skips a short test.
func onDisk(t *testing.T) storetest.Target {
	t.Helper()
	if testing.Short() {
		t.Skip("the same in memory is enough for a quick look")
	}
	return target(t, true)
}

func TestConformanceOnDisk(t *testing.T) {
	effort.Slow(t)
	on := onDisk(t)
	storetest.RunSequential(t, on)
	storetest.RunConcurrent(t, on)
}

func TestConformanceOfListsOnDisk(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	storetest.RunLists(t, onDisk(t))
}

func TestRandom(t *testing.T) {
	effort.SingleThreaded(t)
	for seed := range uint64(effort.Rounds{Test: 1, CI: 4}.Of(t)) {
		storetest.Random(t, seed, 600, target(t, false))
	}
}

// TestRandomOnDisk is one walk of TestRandom on the real disk, under the race detector.
func TestRandomOnDisk(t *testing.T) {
	storetest.Random(t, 0, effort.Rounds{Test: 300, CI: 600}.Of(t), onDisk(t))
}
