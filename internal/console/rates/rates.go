// SPDX-License-Identifier: Apache-2.0

// Package rates turns the counters of a server into rates once a second, for the live charts of the console.
//
// Nothing is read while nobody watches: the counters are read only while a page is open, and for a while after.
package rates

import (
	"context"
	"sync"
	"time"
)

// Every is the time between two samples, and Most the number of samples that are kept.
const (
	Every = time.Second
	Most  = 600
)

// linger is the time for which sampling goes on after the last watcher has left, so that a page that is loaded again
// still shows the past.
const linger = 2 * time.Minute

// Counters are the totals of a server at one moment. All totals only grow, except those of a device that is replaced.
type Counters struct {
	S3    S3
	Users map[string]S3 // traffic by access key
	Moved []Moved
	Disks []Disk
	GPUs  []GPU
	Door  Door
	// CPU is the processor time of this process in seconds, and Memory its resident memory in bytes.
	CPU    float64
	Memory int64
}

// S3 has the traffic of S3 requests.
type S3 struct {
	Read, Written    int64 // bytes, as clients see it
	Requests, Errors int64
	// InFlight and Connections are numbers of this moment.
	InFlight, Connections int64
}

// Moved has the bytes that clients of the door moved by one route.
type Moved struct {
	Direction, Route, Device string
	Bytes                    int64
}

// Disk has the counters of one disk.
type Disk struct {
	Name          string
	Read, Written int64 // bytes
	Busy          time.Duration
}

// GPU has the state of one GPU. A field is -1 if it is not known.
type GPU struct {
	Index      int
	Busy       float64 // share of the time, 0 to 1
	MemoryUsed int64
	// Received and Sent are rates of the PCIe link in bytes per second.
	Received, Sent float64
}

// Door has the numbers of the GPUDirect door at one moment.
type Door struct {
	Connections int64 `json:"connections"`
	Handles     int64 `json:"handles"`
	Drafts      int64 `json:"drafts"`
}

// Sampler makes samples while somebody watches. A Sampler is safe for concurrent use.
type Sampler struct {
	read func() Counters

	mu       sync.Mutex
	samples  []*Sample // oldest first
	last     *Counters
	lastAt   time.Time
	watchers map[chan *Sample]struct{}
	running  bool
}

// New returns a Sampler. The function read returns the counters; at most one call runs at a time.
func New(read func() Counters) *Sampler {
	return &Sampler{read: read, watchers: map[chan *Sample]struct{}{}}
}

// Watch returns the samples that are kept, oldest first, and a channel that receives the following ones. A watcher that
// does not receive misses samples. Sampling ends when ctx, the context of the server, ends. The caller calls stop.
func (s *Sampler) Watch(ctx context.Context) (past []*Sample, next <-chan *Sample, stop func()) {
	ch := make(chan *Sample, 4)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[ch] = struct{}{}
	s.start(ctx)
	return append([]*Sample{}, s.samples...), ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, ch)
	}
}

// start begins to sample if nobody does.
func (s *Sampler) start(ctx context.Context) {
	if s.running {
		return
	}
	s.running = true
	s.samples, s.last = nil, nil
	go s.run(ctx)
}

// run makes samples until nobody has watched for a while.
func (s *Sampler) run(ctx context.Context) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	idle := 0
	for at := time.Now(); ; {
		s.sample(at, s.read())
		select {
		case <-ctx.Done():
			s.mu.Lock()
			s.running = false
			s.mu.Unlock()
			return
		case at = <-tick.C:
		}
		s.mu.Lock()
		if idle++; len(s.watchers) > 0 {
			idle = 0
		}
		if time.Duration(idle)*Every >= linger {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// sample adds the sample between the last counters and these, and tells the watchers.
func (s *Sampler) sample(at time.Time, c Counters) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, since := s.last, at.Sub(s.lastAt)
	s.last, s.lastAt = &c, at
	if before == nil || since <= 0 {
		return
	}
	one := between(at, since, before, &c)
	if len(s.samples) == Most {
		s.samples = append(s.samples[:0:0], s.samples[1:]...)
	}
	s.samples = append(s.samples, one)
	for ch := range s.watchers {
		select {
		case ch <- one:
		default:
		}
	}
}
