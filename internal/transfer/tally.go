// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// span grows to cover every interval given to it.
type span struct{ lo, hi time.Time }

func (s *span) add(lo, hi time.Time) {
	if s.lo.IsZero() || lo.Before(s.lo) {
		s.lo = lo
	}
	if hi.After(s.hi) {
		s.hi = hi
	}
}

func (s *span) length() time.Duration { return s.hi.Sub(s.lo) }

// account is one route's or stage's running sum.
type account struct {
	bytes, chunks int64
	busy          time.Duration
	span          span
}

// tally is what the workers note down while a transfer runs.
type tally struct {
	mu       sync.Mutex
	routes   map[report.RouteTaken]*account
	cached   account // reads out of, or through, the page cache
	direct   account
	network  account
	copying  account
	copyWait time.Duration
	planTime time.Duration
	policies []report.CachePolicy
	dirty    atomic.Int64
	verify   account      // bytes summed
	onDevice int64        // of them, by the device
	extra    account      // reads for sums alone
	packing  account      // of what is wanted out of what was read
	padding  atomic.Int64 // bytes of direct reads that alignment added
	cufile   account      // reads through libcufile
}

func (a *account) note(n int64, start, end time.Time) {
	a.bytes += n
	a.chunks++
	a.busy += end.Sub(start)
	a.span.add(start, end)
}

// report is the account as a route's share.
func (a *account) report(name report.RouteTaken) report.RouteShare {
	return report.RouteShare{Route: name, Bytes: a.bytes, Chunks: a.chunks, Span: a.span.length().Seconds(), GBps: units.GBps(a.bytes, a.span.length())}
}

func (y *tally) route(r report.RouteTaken) *account {
	if y.routes == nil {
		y.routes = map[report.RouteTaken]*account{}
	}
	if y.routes[r] == nil {
		y.routes[r] = &account{}
	}
	return y.routes[r]
}

func (y *tally) read(c plan.Chunk, r report.RouteTaken, n int64, start time.Time) {
	end := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	if c.Extra {
		y.extra.note(n, start, end)
		return
	}
	if n > 0 {
		y.route(r).note(n, start, end)
	}
	switch r {
	case report.RouteTakenDirect, report.RouteTakenDirectUnproven:
		y.direct.note(n, start, end)
	case report.RouteTakenNetwork:
		y.network.note(n, start, end)
	default:
		y.cached.note(n, start, end)
	}
}

// readParts counts a read with O_DIRECT whose bytes took several routes.
func (y *tally) readParts(c plan.Chunk, parts []share, start time.Time) {
	end := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	if c.Extra {
		y.extra.note(c.Len, start, end)
		return
	}
	for _, p := range parts {
		if p.bytes > 0 {
			y.route(p.route).note(p.bytes, start, end)
		}
	}
	y.direct.note(c.Len, start, end)
}

func (y *tally) readBuffered(c plan.Chunk, b vfs.Buffered, missed report.RouteTaken, start time.Time) {
	end := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	if c.Extra {
		y.extra.note(b.Cached+b.Missed, start, end)
		return
	}
	if b.Cached > 0 {
		y.route(report.RouteTakenCache).note(b.Cached, start, end)
	}
	if b.Missed > 0 {
		y.route(missed).note(b.Missed, start, end)
	}
	y.cached.note(b.Cached+b.Missed, start, end)
}

func (y *tally) verified(n int64, start time.Time) {
	end := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	y.verify.note(n, start, end)
}

func (y *tally) verifiedOnDevice(n int64, start time.Time) {
	end := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	y.verify.note(n, start, end)
	y.onDevice += n
}

func (y *tally) packed(n int64, start time.Time) {
	end := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	y.packing.note(n, start, end)
}

func (y *tally) copied(n int64, queued, waited time.Time) {
	end := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	y.copying.note(n, queued, end)
	y.copyWait += end.Sub(waited)
}

func (y *tally) planned(d time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.planTime = d
}

// directBytes is how much was read with O_DIRECT, whatever route that turned out to be.
func (y *tally) directBytes() int64 {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.direct.bytes
}
