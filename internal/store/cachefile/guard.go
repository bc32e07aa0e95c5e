// SPDX-License-Identifier: Apache-2.0

package cachefile

import "time"

// Moment is a point in time on two clocks.
type Moment struct {
	Bytes int64 // bytes that clients have read so far: the access clock
	Time  time.Time
}

// Guard decides when an entry has been idle for so long that it may be evicted. A plain LRU order gives no hits if the
// data set of a training epoch is larger than the cache: each entry is evicted just before it is read again. With a
// Guard, the cache keeps what it has, and serves the rest without keeping it.
//
// An entry may be evicted if it has been idle for more than twice the usual re-read interval. The interval is measured
// on the access clock, in bytes that clients read. The usual interval is a moving mean over all re-reads, of entries
// and of content that was not kept. So the mean follows the clients, whatever the cache holds: when clients turn to a
// new working set, its short intervals open the Guard for it.
//
// A re-read counts by its size: small files that are read again and again say nothing about large ones. The mean moves
// by the share of the read in the mean itself, so it covers about the last epoch. A shorter window would mistake the
// begin of a shuffled epoch, where intervals are short, for a change.
//
// Before the first re-read, the mean is two capacities, so that an entry may be evicted after four turnovers of the
// cache. Until then also ColdTime must have passed, because a fast scan turns a small cache over within seconds.
//
// A Guard is not safe for concurrent use.
type Guard struct {
	Capacity int64
	ColdTime time.Duration
	// Usual is the moving mean of the re-read intervals in bytes; 0 means that there was no re-read yet.
	Usual float64
}

// correlated is the share of the capacity below which an interval belongs to one and the same read of an object, such
// as several ranges of one file.
const correlated = 1.0 / 32

// Reread notes that content was read again. The parameter interval is the number of bytes on the access clock since
// the read before, and size is the number of bytes that are read now.
func (g *Guard) Reread(interval, size int64) {
	x := float64(interval)
	if interval <= size || x < correlated*float64(g.Capacity) {
		return
	}
	mean := g.usual()
	g.Usual = mean + min(1, float64(size)/mean)*(x-mean)
}

// usual returns the usual re-read interval, or its assumption before the first re-read.
func (g *Guard) usual() float64 {
	if g.Usual == 0 {
		return 2 * float64(g.Capacity)
	}
	return g.Usual
}

// MayEvict reports whether an entry that was read last at the moment `last` may be evicted now.
func (g *Guard) MayEvict(last, now Moment) bool {
	if float64(now.Bytes-last.Bytes) <= 2*g.usual() {
		return false
	}
	return g.Usual != 0 || now.Time.Sub(last.Time) > g.ColdTime
}

// ghosts remembers when content was read that is not in the cache, so that its re-reads count too. It holds between
// half and all of the last 2*ghostGeneration contents, in about 4 MiB.
type ghosts struct {
	young, old map[uint64]int64 // the access clock by hash
}

const ghostGeneration = 1 << 16

// note records a read at a moment of the access clock, and returns the moment of the read before.
func (g *ghosts) note(hash uint64, clock int64) (before int64, ok bool) {
	before, ok = g.young[hash]
	if !ok {
		before, ok = g.old[hash]
	}
	if g.young == nil || len(g.young) >= ghostGeneration {
		g.young, g.old = make(map[uint64]int64), g.young
	}
	g.young[hash] = clock
	return before, ok
}
