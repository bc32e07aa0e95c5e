// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/units"
)

const (
	// alertTime is the longest time for which workers that were roused look for chunks before they sleep again.
	alertTime = 300 * time.Microsecond
	// rousedFrom is the size of a load in bytes from which on its workers are roused. A smaller load needs few of them.
	rousedFrom = 16 * units.MiB
	// everyone is the number of workers to wake if all are meant.
	everyone = math.MaxInt32
)

// gate is where the workers that read from the page cache sleep, each in its thread. One system call wakes all of them.
// Go's own primitives wake them one after the other. On a virtual machine with 16 idle cores, this took most of a
// millisecond, in which a GPU receives up to 50 MB.
type gate struct {
	turn     atomic.Uint32 // changes when workers are woken
	sleeping int           // guarded by sched.mu
	busy     atomic.Bool   // chunks were queued since the workers were roused
	until    atomic.Int64  // time in nanoseconds until which woken workers look for chunks
}

// sleep waits until the worker is woken. The caller holds mu, which is not held meanwhile.
func (g *gate) sleep(mu *sync.Mutex) {
	turn := g.turn.Load()
	g.sleeping++
	mu.Unlock()
	futex(&g.turn, futexWait, turn)
	for !g.busy.Load() && time.Now().UnixNano() < g.until.Load() {
		runtime.Gosched()
	}
	mu.Lock()
	g.sleeping--
}

// wake wakes up to n workers. The caller holds the lock of sleep.
func (g *gate) wake(n uint32) {
	if g.sleeping > 0 {
		g.turn.Add(1)
		futex(&g.turn, futexWake, n)
	}
}

// rouse wakes all workers that read from the page cache, because chunks will come in a moment.
func (s *sched[J]) rouse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate.sleeping > 0 && len(s.turns[plan.ViaCache]) == 0 {
		s.gate.busy.Store(false)
		s.gate.until.Store(time.Now().Add(alertTime).UnixNano())
		s.gate.wake(everyone)
	}
}

// sleep waits until a worker of way w is woken. The caller holds mu.
func (s *sched[J]) sleep(w plan.Way) {
	if w == plan.ViaCache {
		s.gate.sleep(&s.mu)
		return
	}
	s.wake[w].Wait()
}

// Operations of futex(2), with the flag that only this process uses the word.
const (
	futexWait = 0 | 128
	futexWake = 1 | 128
)

// futex waits while the word at a is v, or wakes v of those that wait. An early end does no harm.
func futex(a *atomic.Uint32, op uintptr, v uint32) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(a)), op, uintptr(v), 0, 0, 0)
}
