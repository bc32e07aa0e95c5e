// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"runtime"
	"runtime/debug"
	sampling "runtime/metrics"
	"time"
)

// The setting memory_limit is divided among three users of memory: the store's caches and memory tables, requests,
// and memory outside of the Go runtime, which is mostly the program itself.

const (
	// outsideRuntime is the memory in bytes that Go's memory limit does not count: 42 MiB of program pages,
	// measured under load, and a reserve, because garbage collection begins late with many connections.
	outsideRuntime = 54 << 20
	// governEvery is the time between two checks of the memory.
	governEvery = 2 * time.Second
	// idleFor is the time without requests after which free memory goes back to the operating system.
	idleFor = 10 * time.Second
)

// memoryShares are the shares of a memory limit, in bytes.
type memoryShares struct {
	store   int64 // caches and memory tables of the store
	runtime int64 // all memory of the Go runtime, including the store's share
}

// shares divides a memory limit. The store gets five sixteenths of the runtime's memory, a quarter of the default
// limit, because garbage collection is cheap while less than half of the memory is alive.
func shares(limit int64) memoryShares {
	runtime := limit - outsideRuntime
	return memoryShares{store: runtime / 16 * 5, runtime: runtime}
}

// limitMemory sets the memory limit of the Go runtime. lift restores the limit of before.
func limitMemory(limit int64) (lift func()) {
	before := debug.SetMemoryLimit(shares(limit).runtime)
	return func() { debug.SetMemoryLimit(before) }
}

// governMemory adjusts the memory limit of the Go runtime and returns free memory to the operating system, until
// ctx ends.
//
// If requests keep more memory alive than the limit allows, the runtime would collect garbage all the time and free
// nothing. So governMemory raises the limit to four thirds of the live memory, and lowers it again later. When
// requests have ended, governMemory returns all free memory to the operating system once. The runtime alone takes
// minutes for that.
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
