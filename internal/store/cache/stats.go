// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// counts counts events of all upstream buckets since the start.
type counts struct {
	fills, validated, wrong, unkept, left, damaged, peerFailures atomic.Int64
}

// bucketCounts counts the reads of one upstream bucket since the start.
type bucketCounts struct {
	hits, misses, peers, stale, doorMisses atomic.Int64
	upstreamBytes, peerBytes               atomic.Int64
}

// count counts a read by how it is served.
func (c *bucketCounts) count(from string) {
	switch from {
	case object.ServedHit:
		c.hits.Add(1)
	case object.ServedPeer:
		c.peers.Add(1)
	case object.ServedStale:
		c.stale.Add(1)
	default:
		c.misses.Add(1)
	}
}

// received counts bytes that came from a neighbour or the upstream.
func (b *bucket) received(from string, n int) {
	if from == object.ServedPeer {
		b.served.peerBytes.Add(int64(n))
		return
	}
	b.served.upstreamBytes.Add(int64(n))
}

// answered records the time from a request to the first byte of the upstream's reply.
func (b *bucket) answered(began time.Time) { b.firstByte.add(b.s.now().Sub(began).Seconds()) }

// histogram counts durations by upper bounds in seconds.
type histogram struct {
	counts []atomic.Int64 // by bound; the last one has no bound
	sum    atomic.Int64   // in nanoseconds
}

// FirstByteBounds returns the upper bounds in seconds of Histogram.Counts.
func FirstByteBounds() []float64 {
	return []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
}

func (h *histogram) init() { h.counts = make([]atomic.Int64, len(FirstByteBounds())+1) }

func (h *histogram) add(seconds float64) {
	i, _ := slices.BinarySearch(FirstByteBounds(), seconds)
	h.counts[i].Add(1)
	h.sum.Add(int64(seconds * 1e9))
}

// Histogram is a snapshot of durations. Counts has one number for each of FirstByteBounds, and one for longer
// durations.
type Histogram struct {
	Counts []int64 `json:"counts"`
	Sum    float64 `json:"sum"`
}

// BucketStats holds the statistics of one upstream bucket since the start.
type BucketStats struct {
	Name   string         `json:"name"`
	Origin string         `json:"origin"`
	State  upstream.State `json:"breaker"`
	Hits   int64          `json:"hits"`   // reads of content that was on the disk
	Misses int64          `json:"misses"` // reads with bytes from the upstream
	Peers  int64          `json:"peers"`  // reads with bytes from a neighbour
	Stale  int64          `json:"stale"`  // reads from the disk while the upstream did not answer
	// DoorMisses counts opens at the door that were refused because the content was not whole on the disk.
	DoorMisses    int64     `json:"door_misses"`
	UpstreamBytes int64     `json:"upstream_bytes"`
	PeerBytes     int64     `json:"peer_bytes"`
	FirstByte     Histogram `json:"first_byte"`
}

// Stats holds the statistics of the cache and of all upstream buckets since the start.
type Stats struct {
	Files     cachefile.Stats `json:"files"`
	Buckets   []BucketStats   `json:"buckets"`
	Fills     int64           `json:"fills"`     // fetches of missing blocks
	Validated int64           `json:"validated"` // answers of upstreams that an object has not changed
	Wrong     int64           `json:"wrong"`     // contents that differed from the upstream's checksum
	Unkept    int64           `json:"unkept"`    // fetches whose blocks did not fit on the disk
	// LeftOut counts blocks that went to readers and not to the disk, because the disk was slower than the upstream.
	LeftOut      int64 `json:"left_out"`
	Damaged      int64 `json:"damaged"` // damaged blocks on the disk that were fetched again
	PeerFailures int64 `json:"peer_failures"`
}

// Stats returns the current statistics.
func (s *Store) Stats() Stats {
	out := Stats{Files: s.files.Stats(), Fills: s.counts.fills.Load(), Validated: s.counts.validated.Load(),
		Wrong: s.counts.wrong.Load(), Unkept: s.counts.unkept.Load(), LeftOut: s.counts.left.Load(),
		Damaged:      s.counts.damaged.Load(),
		PeerFailures: s.counts.peerFailures.Load()}
	for _, b := range s.buckets {
		one := BucketStats{Name: b.Name, Origin: b.origin, State: b.From.State(), Hits: b.served.hits.Load(),
			Misses: b.served.misses.Load(), Peers: b.served.peers.Load(), Stale: b.served.stale.Load(),
			DoorMisses: b.served.doorMisses.Load(), UpstreamBytes: b.served.upstreamBytes.Load(),
			PeerBytes: b.served.peerBytes.Load(), FirstByte: Histogram{Sum: float64(b.firstByte.sum.Load()) / 1e9}}
		for i := range b.firstByte.counts {
			one.FirstByte.Counts = append(one.FirstByte.Counts, b.firstByte.counts[i].Load())
		}
		out.Buckets = append(out.Buckets, one)
	}
	slices.SortFunc(out.Buckets, func(a, b BucketStats) int { return strings.Compare(a.Name, b.Name) })
	return out
}
