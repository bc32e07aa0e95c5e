// SPDX-License-Identifier: Apache-2.0

package tally

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Tally collects the counts of one transfer while it runs. All methods of a Tally are safe for concurrent use. The
// zero value is ready to use.
type Tally struct {
	tracer Tracer

	mu     sync.Mutex
	routes map[report.RouteTaken]*Account
	sums   Sums // without Routes, Padding and Dirty

	padding, dirty atomic.Int64
}

// Sums are the counts of a transfer at one moment.
type Sums struct {
	Routes   map[report.RouteTaken]Account // counts of each route, without the routes of cuFile
	Cached   Account                       // counts of reads through the page cache
	Direct   Account                       // counts of O_DIRECT reads, even if the page cache served them
	Network  Account                       // counts of bytes to or from a server
	CuFile   Account                       // counts of reads and writes by libcufile
	Extra    Account                       // counts of reads that were made only for checksums
	Verify   Account                       // counts of bytes whose checksums were computed
	Packing  Account                       // counts of wanted bytes that were packed together
	Copying  Account                       // counts of bytes copied to or from devices
	Writing  Account                       // counts of bytes written to files
	OnDevice int64                         // number of bytes whose checksums the device computed
	Padding  int64                         // number of bytes that were read only because of alignment or gaps
	Dirty    int64                         // number of bytes in ranges with dirty pages
	CopyWait time.Duration                 // time that workers waited for copies
	PlanTime time.Duration
}

// Part counts the bytes of one read that took one route.
type Part struct {
	Route report.RouteTaken
	Bytes int64
}

// Sums returns a copy of the present counts.
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

// Read counts n bytes that were read by route r since `start`. If the parameter `extra` is set, the
// bytes were read only for checksums.
func (y *Tally) Read(extra bool, r report.RouteTaken, n int64, start Start) {
	stage := &y.sums.Cached
	switch r {
	case report.RouteTakenDirect, report.RouteTakenDirectUnproven:
		stage = &y.sums.Direct
	case report.RouteTakenNetwork:
		stage = &y.sums.Network
	}
	y.noteRead(extra, n, start, stage, Part{Route: r, Bytes: n})
}

// ReadParts counts one O_DIRECT read of n bytes, whose parts took several routes.
func (y *Tally) ReadParts(extra bool, n int64, parts []Part, start Start) {
	y.noteRead(extra, n, start, &y.sums.Direct, parts...)
}

// ReadBuffered counts a read through the page cache. missed is the route of the bytes that were not cached.
func (y *Tally) ReadBuffered(extra bool, b vfs.Buffered, missed report.RouteTaken, start Start) {
	y.noteRead(extra, b.Cached+b.Missed, start, &y.sums.Cached,
		Part{Route: report.RouteTakenCache, Bytes: b.Cached}, Part{Route: missed, Bytes: b.Missed})
}

// noteRead adds a read of n bytes that took from start until now to the account of its stage, and its parts to their
// routes. Extra bytes only count as extra.
func (y *Tally) noteRead(extra bool, n int64, start Start, stage *Account, parts ...Part) {
	end := start.end()
	y.mu.Lock()
	defer y.mu.Unlock()
	if extra {
		y.sums.Extra.Note(n, start.at, end)
		return
	}
	for _, p := range parts {
		if p.Bytes > 0 {
			y.route(p.Route).Note(p.Bytes, start.at, end)
		}
	}
	stage.Note(n, start.at, end)
}

// ReadByCuFile counts n bytes that libcufile read. The counters of libcufile show their route later.
func (y *Tally) ReadByCuFile(n int64, start Start) { y.note(n, start, &y.sums.CuFile) }

// Padded counts n unwanted bytes that were read because of alignment or gaps.
func (y *Tally) Padded(n int64) { y.padding.Add(n) }

// Verified counts n bytes whose checksum the CPU computed since start.
func (y *Tally) Verified(n int64, start Start) { y.note(n, start, &y.sums.Verify) }

// VerifiedOnDevice counts n bytes whose checksum the device computed. The time between the time `start` and now is
// counted as CPU time, not as the device's time.
func (y *Tally) VerifiedOnDevice(n int64, start Start) {
	end := start.end()
	y.mu.Lock()
	defer y.mu.Unlock()
	y.sums.Verify.Note(n, start.at, end)
	y.sums.OnDevice += n
}

// Packed counts n wanted bytes that were packed together since start.
func (y *Tally) Packed(n int64, start Start) { y.note(n, start, &y.sums.Packing) }

// Copied counts a copy of n bytes that has just ended. The parameter `queued` is the time at which the copy was
// queued. The parameter `waited` is the time at which a worker began to wait for the copy.
func (y *Tally) Copied(n int64, queued, waited Start) {
	end := queued.end()
	wait := waited.Drop()
	y.mu.Lock()
	defer y.mu.Unlock()
	y.sums.Copying.Note(n, queued.at, end)
	y.sums.CopyWait += wait
}

// Planned records the time that the plan took.
func (y *Tally) Planned(d time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.sums.PlanTime = d
}

// FoundDirty counts n bytes of ranges with dirty pages.
func (y *Tally) FoundDirty(n int64) { y.dirty.Add(n) }

// Wrote counts n bytes that were written to a file by route r.
func (y *Tally) Wrote(r report.RouteTaken, n int64, start Start) {
	y.noteRoute(n, start, r, &y.sums.Writing)
}

// WroteByCuFile counts n bytes that libcufile wrote to a file.
func (y *Tally) WroteByCuFile(n int64, start Start) {
	y.note(n, start, &y.sums.CuFile, &y.sums.Writing)
}

// Sent counts n bytes that were sent between the time `start` and now and that the server has acknowledged.
func (y *Tally) Sent(n int64, start Start) {
	y.noteRoute(n, start, report.RouteTakenNetwork, &y.sums.Network)
}

// note adds n bytes that took from start until now to each account.
func (y *Tally) note(n int64, start Start, accounts ...*Account) {
	end := start.end()
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, a := range accounts {
		a.Note(n, start.at, end)
	}
}

// noteRoute adds n bytes that took from start until now to route r and to the account of their stage.
func (y *Tally) noteRoute(n int64, start Start, r report.RouteTaken, stage *Account) {
	end := start.end()
	y.mu.Lock()
	defer y.mu.Unlock()
	y.route(r).Note(n, start.at, end)
	stage.Note(n, start.at, end)
}
