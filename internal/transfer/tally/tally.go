// SPDX-License-Identifier: Apache-2.0

package tally

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Tally is what the workers of one transfer note down while it runs. Methods are safe for concurrent use. The zero
// value is ready.
type Tally struct {
	mu     sync.Mutex
	routes map[report.RouteTaken]*Account
	sums   Sums // but for Routes, Padding and Dirty

	padding, dirty atomic.Int64
}

// Sums are the accounts of a transfer at one moment.
type Sums struct {
	Routes   map[report.RouteTaken]Account // by the route that bytes took, without those of cuFile
	Cached   Account                       // reads out of, or through, the page cache
	Direct   Account                       // reads with O_DIRECT, whatever route they turned out to take
	Network  Account                       // bytes to or from a server
	CuFile   Account                       // moves by libcufile
	Extra    Account                       // reads for checksums alone
	Verify   Account                       // bytes summed
	Packing  Account                       // of what is wanted out of what was read
	Copying  Account                       // to or from devices
	Writing  Account                       // to files
	OnDevice int64                         // of the bytes summed, those that the device summed
	Padding  int64                         // bytes of reads that alignment, or a gap, added
	Dirty    int64                         // bytes of pieces that were newer in memory than on disk
	CopyWait time.Duration                 // workers waited for copies
	PlanTime time.Duration
}

// Part is the part of a read that took one route.
type Part struct {
	Route report.RouteTaken
	Bytes int64
}

// Sums copies the accounts.
func (y *Tally) Sums() Sums {
	y.mu.Lock()
	defer y.mu.Unlock()
	s := y.sums
	s.Padding, s.Dirty = y.padding.Load(), y.dirty.Load()
	s.Routes = make(map[report.RouteTaken]Account, len(y.routes))
	for r, a := range y.routes {
		s.Routes[r] = *a
	}
	return s
}

func (y *Tally) route(r report.RouteTaken) *Account {
	if y.routes == nil {
		y.routes = map[report.RouteTaken]*Account{}
	}
	if y.routes[r] == nil {
		y.routes[r] = &Account{}
	}
	return y.routes[r]
}

// Read counts n bytes that came by route r. Extra bytes are read for checksums alone.
func (y *Tally) Read(extra bool, r report.RouteTaken, n int64, start time.Time) {
	stage := &y.sums.Cached
	switch r {
	case report.RouteTakenDirect, report.RouteTakenDirectUnproven:
		stage = &y.sums.Direct
	case report.RouteTakenNetwork:
		stage = &y.sums.Network
	}
	y.noteRead(extra, n, start, stage, Part{Route: r, Bytes: n})
}

// ReadParts counts a read of n bytes with O_DIRECT whose bytes took several routes.
func (y *Tally) ReadParts(extra bool, n int64, parts []Part, start time.Time) {
	y.noteRead(extra, n, start, &y.sums.Direct, parts...)
}

// ReadBuffered counts a read through the page cache. Bytes that were not cached came by route missed.
func (y *Tally) ReadBuffered(extra bool, b vfs.Buffered, missed report.RouteTaken, start time.Time) {
	y.noteRead(extra, b.Cached+b.Missed, start, &y.sums.Cached,
		Part{Route: report.RouteTakenCache, Bytes: b.Cached}, Part{Route: missed, Bytes: b.Missed})
}

// noteRead adds a read of n bytes that took from start until now to the account of its stage, and its parts to their
// routes. Extra bytes only count as extra.
func (y *Tally) noteRead(extra bool, n int64, start time.Time, stage *Account, parts ...Part) {
	end := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	if extra {
		y.sums.Extra.Note(n, start, end)
		return
	}
	for _, p := range parts {
		if p.Bytes > 0 {
			y.route(p.Route).Note(p.Bytes, start, end)
		}
	}
	stage.Note(n, start, end)
}

// ReadByCuFile counts n bytes that libcufile read. Which route they took is known when its counters are read.
func (y *Tally) ReadByCuFile(n int64, start time.Time) { y.note(n, start, &y.sums.CuFile) }

// Padded counts n bytes that were read beside wanted ones.
func (y *Tally) Padded(n int64) { y.padding.Add(n) }

// Verified counts n bytes that the CPU summed.
func (y *Tally) Verified(n int64, start time.Time) { y.note(n, start, &y.sums.Verify) }

// VerifiedOnDevice counts n bytes that the device summed. The time since start is the CPU's.
func (y *Tally) VerifiedOnDevice(n int64, start time.Time) {
	end := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	y.sums.Verify.Note(n, start, end)
	y.sums.OnDevice += n
}

// Packed counts n wanted bytes that were brought together.
func (y *Tally) Packed(n int64, start time.Time) { y.note(n, start, &y.sums.Packing) }

// Copied counts a copy of n bytes, queued at one time and waited for since another.
func (y *Tally) Copied(n int64, queued, waited time.Time) {
	end := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	y.sums.Copying.Note(n, queued, end)
	y.sums.CopyWait += end.Sub(waited)
}

// Planned notes how long the plan took.
func (y *Tally) Planned(d time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.sums.PlanTime = d
}

// FoundDirty counts bytes of pieces with dirty pages.
func (y *Tally) FoundDirty(n int64) { y.dirty.Add(n) }

// Wrote counts n bytes that were written to a file by route r.
func (y *Tally) Wrote(r report.RouteTaken, n int64, start time.Time) {
	y.noteRoute(n, start, r, &y.sums.Writing)
}

// WroteByCuFile counts n bytes that libcufile wrote to a file.
func (y *Tally) WroteByCuFile(n int64, start time.Time) {
	y.note(n, start, &y.sums.CuFile, &y.sums.Writing)
}

// Sent counts n bytes that a server has acknowledged.
func (y *Tally) Sent(n int64, start time.Time) {
	y.noteRoute(n, start, report.RouteTakenNetwork, &y.sums.Network)
}

// note adds n bytes that took from start until now to each account.
func (y *Tally) note(n int64, start time.Time, accounts ...*Account) {
	end := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, a := range accounts {
		a.Note(n, start, end)
	}
}

// noteRoute adds n bytes that took from start until now to route r and to the account of their stage.
func (y *Tally) noteRoute(n int64, start time.Time, r report.RouteTaken, stage *Account) {
	end := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	y.route(r).Note(n, start, end)
	stage.Note(n, start, end)
}
