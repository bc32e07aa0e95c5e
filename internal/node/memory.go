// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"runtime"
	"runtime/debug"
	sampling "runtime/metrics"
	"time"
)

// Memory goes to three: the store's caches and memory tables, which live long; requests, whose garbage the runtime
// collects; and what lies outside of the runtime, mostly the program itself. memory_limit is divided among them.

const (
	// outsideRuntime is what a process takes that Go's limit does not count: 39 MiB of pages of the program, measured
	// under load.
	outsideRuntime = 40 << 20
	// governEvery is how often memory is looked at.
	governEvery = 2 * time.Second
	// idleFor is how long no request was answered before memory is given back.
	idleFor = 10 * time.Second
)

// memoryShares are the parts of a memory limit.
type memoryShares struct {
	store   int64 // caches and memory tables of the store
	runtime int64 // all that Go's runtime holds, the store's share included
}

// shares divides a memory limit. The store gets a quarter: collecting garbage is cheap as long as less than half is
// alive.
func shares(limit int64) memoryShares {
	return memoryShares{store: limit / 4, runtime: limit - outsideRuntime}
}

// limitMemory tells the runtime its limit and returns how to lift it again.
func limitMemory(limit int64) (lift func()) {
	before := debug.SetMemoryLimit(shares(limit).runtime)
	return func() { debug.SetMemoryLimit(before) }
}

// governMemory keeps the memory limit bearable and gives memory back, until ctx ends.
//
// If requests keep more alive than the limit allows, the runtime would collect garbage all the time and free nothing.
// So we raise the limit to four thirds of what is alive, and lower it when that is gone. After a load has ended, all
// free memory goes back to the operating system, once. The runtime by itself takes minutes for that.
func (s *server) governMemory(ctx context.Context) {
	limit := shares(s.Config.MemoryLimit).runtime
	now := []sampling.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"}}
	set, served, given := limit, s.served.Load(), true
	last := time.Now()
	every(ctx, governEvery, governEvery, func() {
		sampling.Read(now)
		alive, held := int64(now[0].Value.Uint64()), int64(now[1].Value.Uint64()-now[2].Value.Uint64())
		if want := max(limit, alive/3*4); want != set && (want > set || want < set-set/8) {
			set = want
			debug.SetMemoryLimit(set)
		}
		if n := s.served.Load(); n != served || s.inFlight() > 0 {
			served, last, given = n, time.Now(), false
			return
		}
		if !given && time.Since(last) >= idleFor {
			given = true
			if held > limit/4 {
				runtime.GC() // empties the pools of buffers in two steps
				debug.FreeOSMemory()
			}
		}
	})
}
