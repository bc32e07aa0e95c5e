// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"crypto/md5"
	"hash"
	"sync"
	"sync/atomic"
	"time"

	md5simd "github.com/minio/md5-simd"
)

const (
	// together is the number of bodies from which their MD5s are computed in parallel in the lanes of vector
	// registers. Processor seconds for a GiB with AVX-512, one by one against in parallel: 1 stream 1.9 and 2.7, 2
	// streams 1.9 and 2.4, 3 streams 1.9 and 1.2, 4 streams 1.9 and 0.9, 8 streams 1.9 and 0.45. This holds for
	// bodies that never wait. Of four bodies that wait for a network and a busy disk, three seldom have bytes to hash
	// at the same time, and then lanes cost more than they save.
	together = 6
	// lately is how long hashing continues in lanes after enough bodies were last seen: between two bodies of a
	// client there is always a gap.
	lately = time.Second
	// mostLanes limits the hashes that are kept for reuse.
	mostLanes = 64
	// ahead is how many pieces of a body wait to be hashed.
	ahead = 4
)

// hashes computes the MD5s of bodies.
type hashes struct {
	active atomic.Int64 // bodies that are being hashed
	last   atomic.Int64 // when they were last as many as together

	mu     sync.Mutex
	server md5simd.Server // nil until it pays
	free   []md5simd.Hasher
	made   int
}

// stop ends the server of the lanes; no body is being hashed any more.
func (h *hashes) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.free {
		x.Close()
	}
	if h.server != nil {
		h.server.Close()
	}
}

// lane returns a hash that is computed in parallel with others, or nil. Hashes are reused, because the server keeps
// something of each hash that it ever made.
func (h *hashes) lane() md5simd.Hasher {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.free); n > 0 {
		x := h.free[n-1]
		h.free = h.free[:n-1]
		x.Reset()
		return x
	}
	if h.made == mostLanes {
		return nil
	}
	if h.server == nil {
		h.server = md5simd.NewServer()
	}
	h.made++
	return h.server.NewHash()
}

// giveBack returns a hash for reuse by lane.
func (h *hashes) giveBack(x md5simd.Hasher) {
	h.mu.Lock()
	h.free = append(h.free, x)
	h.mu.Unlock()
}

// hasher computes the MD5 of one body while the body is written, because MD5 takes longer than everything else
// together.
type hasher struct {
	of   *hashes
	now  hash.Hash      // is given the pieces where they are taken
	lane md5simd.Hasher // what it is computed with, where that is a lane

	queue chan *buffer // else they go through here
	done  chan []byte
	ended bool
}

// begin returns a hasher for a body of this size, or of unknown size if size is -1. beside means that the hasher may
// use a piece after take has returned. An ended hasher does nothing.
func (h *hashes) begin(b *buffers, size int64, beside bool) *hasher {
	x := &hasher{of: h}
	active := h.active.Add(1)
	if size >= 0 && size <= largePiece {
		x.now = md5.New() // one piece: another goroutine would only be waited for
		return x
	}
	var sum hash.Hash
	if h.many(active) {
		if x.lane = h.lane(); x.lane != nil {
			sum = x.lane
		}
	}
	if sum == nil {
		sum = md5.New()
	}
	if !beside {
		x.now = sum
		return x
	}
	// Several pieces wait for each hash, so that a lane has work while its body is read and written: with fewer than
	// three busy lanes the server computes hashes one by one, slower than without lanes.
	x.queue, x.done = make(chan *buffer, ahead), make(chan []byte, 1)
	go func() {
		for p := range x.queue {
			sum.Write(p.b[:p.n])
			b.done(p)
		}
		x.done <- sum.Sum(nil)
	}()
	return x
}

// many reports whether there are, or were lately, enough bodies for lanes.
func (h *hashes) many(active int64) bool {
	now := time.Now().UnixNano()
	if active >= together {
		h.last.Store(now)
		return true
	}
	return now-h.last.Load() < int64(lately)
}

// take hashes a piece, at once or later.
func (x *hasher) take(p *buffer) {
	switch {
	case x.ended:
	case x.now != nil:
		x.now.Write(p.b[:p.n])
	case x.queue != nil:
		p.refs.Add(1)
		x.queue <- p
	}
}

// sum returns the MD5 of all pieces, or nil. No more pieces can be taken.
func (x *hasher) sum() (s []byte) {
	if x.ended {
		return nil
	}
	if x.now != nil {
		s = x.now.Sum(nil)
	} else {
		close(x.queue)
		s = <-x.done
	}
	x.end()
	return s
}

// stop ends the hashing if sum was not called.
func (x *hasher) stop() {
	if x.ended {
		return
	}
	if x.queue != nil {
		close(x.queue)
		<-x.done
	}
	x.end()
}

func (x *hasher) end() {
	x.ended = true
	x.of.active.Add(-1)
	if x.lane != nil {
		x.of.giveBack(x.lane)
	}
}
