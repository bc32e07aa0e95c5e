// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/units"
)

// meter counts and samples the bytes that lanes move, and decides when a run is over. Time between passes does not
// count.
type meter struct {
	spec  Spec
	route Route
	live  func(Live)
	name  string
	total int64 // bytes of one pass

	stopped atomic.Bool
	bytes   atomic.Int64

	mu         sync.Mutex
	hist       *hdrhistogram.Histogram
	ops        int64
	byRoute    map[Route]int64
	mismatches int64
	firstBad   string
	verified   int64

	elapsed time.Duration // of finished passes
	began   time.Time     // of the running one
	running bool
	limit   *time.Timer // of the running one, nil if time is no limit
	firstAt time.Duration
	firstB  int64
	first   bool // the running pass had its first worker done
	passes  []record.Pass
	ended   bool // by time, stability or interruption

	// Of the sampling goroutine, until it has ended.
	series   series
	isStable bool
	spread   float64
}

func newMeter(j Job, route Route) *meter {
	return &meter{spec: j.Spec, route: route, live: j.Live, name: j.Spec.Name(), total: j.Set.Bytes(),
		hist: newHistogram(), byRoute: map[Route]int64{}, series: series{every: sampleEvery}}
}

// sampleEvery is the time between two samples of the byte count. A series with many points merges neighbours.
const sampleEvery = 100 * time.Millisecond

// maxPasses is the number of passes that a result lists. Later passes are only counted.
const maxPasses = 1000

// pass runs mv once over the data. The clock starts when mv calls start.
func (m *meter) pass(ctx context.Context, mv mover) error {
	before := m.bytes.Load()
	err := mv.pass(ctx, m)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.running {
		return err
	}
	took := time.Since(m.began)
	m.running = false
	if m.limit != nil {
		m.limit.Stop()
	}
	m.elapsed += took
	if n := m.bytes.Load() - before; n > 0 && len(m.passes) < maxPasses {
		m.passes = append(m.passes, record.Pass{Bytes: n, Seconds: took.Seconds(), GBps: units.GBps(n, took)})
	}
	return err
}

// start starts the clock of a pass. A mover calls it once per pass, when everything that the pass needs is ready.
func (m *meter) start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began, m.running, m.first = time.Now(), true, false
	if m.spec.Time > 0 {
		m.limit = time.AfterFunc(m.spec.Time-m.elapsed, m.end)
	}
}

// end stops the lanes, because no further pass is wanted.
func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	m.stopped.Store(true)
}

// over reports whether no further pass is wanted.
func (m *meter) over() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended
}

// clock returns the time measured so far.
func (m *meter) clock() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running {
		return m.elapsed + time.Since(m.began)
	}
	return m.elapsed
}

// watch samples the bytes until the returned function is called. It ends the run if ctx ends or the rate is stable.
func (m *meter) watch(ctx context.Context) (stop func()) {
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		m.sample(ctx, quit)
	}()
	return func() {
		close(quit)
		<-gone
	}
}

func (m *meter) sample(ctx context.Context, quit <-chan struct{}) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	var last int64
	var lastAt time.Duration
	done := ctx.Done()
	for {
		select {
		case <-quit:
			return
		case <-done:
			m.end()
			done = nil
		case <-tick.C:
			n, at := m.bytes.Load(), m.clock()
			if at-lastAt < sampleEvery/2 {
				continue // between passes no time counts
			}
			m.series.add(at, units.GBps(n-last, at-lastAt))
			last, lastAt = n, at
			if m.spec.Stable > 0 && !m.isStable {
				if m.isStable, m.spread = m.series.stable(m.spec.Stable); m.isStable {
					m.end()
				}
			}
			m.show(n, at)
		}
	}
}

func (m *meter) show(n int64, at time.Duration) {
	if m.live == nil {
		return
	}
	l := Live{Name: m.name, Done: n, Elapsed: at, Limit: m.spec.Time, Rates: m.series.latest()}
	if m.spec.Passes > 0 {
		l.Total = m.total * int64(m.spec.Passes)
	}
	if len(l.Rates) > 0 {
		l.GBps = l.Rates[len(l.Rates)-1]
	}
	m.live(l)
}

// workerDone is called when a worker has done its part of a pass.
func (m *meter) workerDone() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first {
		return
	}
	m.first = true
	m.firstAt += time.Since(m.began)
	m.firstB = m.bytes.Load()
}

// merge adds the counts that a lane collected on its own.
func (m *meter) merge(l *tally) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hist.Merge(l.hist)
	m.ops += l.ops
	for r, n := range l.byRoute {
		m.byRoute[r] += n
	}
	m.verified += l.verified
	m.mismatches += l.mismatches
	if m.firstBad == "" {
		m.firstBad = l.firstBad
	}
}

// tally holds the counts of one lane, separate from those of other lanes.
type tally struct {
	hist                 *hdrhistogram.Histogram
	ops                  int64
	byRoute              map[Route]int64
	verified, mismatches int64
	firstBad             string
}

func newTally() *tally { return &tally{hist: newHistogram(), byRoute: map[Route]int64{}} }

// result fills in what was counted.
func (m *meter) result(r *record.Run) {
	r.Bytes, r.Ops, r.Seconds = m.bytes.Load(), m.ops, m.elapsed.Seconds()
	r.GBps = units.GBps(r.Bytes, m.elapsed)
	if r.Seconds > 0 {
		r.IOPS = float64(r.Ops) / r.Seconds
	}
	r.Last = record.Done{Seconds: r.Seconds, Bytes: r.Bytes, GBps: r.GBps}
	if m.first && len(m.passes) == 1 && !m.ended {
		r.First = &record.Done{Seconds: m.firstAt.Seconds(), Bytes: m.firstB, GBps: units.GBps(m.firstB, m.firstAt)}
	}
	r.Latency = latencyOf(m.hist)
	r.Series = m.series.points
	if len(m.passes) > 1 {
		r.Passes = m.passes
	}
	if m.spec.Stable > 0 {
		r.Stable = &record.Stable{Reached: m.isStable, Window: stableWindow, Spread: m.spread, Wanted: m.spec.Stable}
		if !m.isStable {
			_, r.Stable.Spread = m.series.stable(m.spec.Stable)
		}
	}
}

// series is the rate over time.
type series struct {
	every  time.Duration
	points []record.Point
	recent []float64 // of sampleEvery each, the last stableWindow of them
	merge  float64
	held   int
	per    int // samples that make a point
}

const (
	// maxPoints bounds a series; beyond it two points become one.
	maxPoints = 600
	// stableWindow is how many samples have to agree.
	stableWindow = 20
)

func (s *series) add(at time.Duration, gbps float64) {
	s.recent = append(s.recent, gbps)
	if len(s.recent) > stableWindow {
		s.recent = s.recent[1:]
	}
	s.per = max(s.per, 1)
	s.merge += gbps
	if s.held++; s.held < s.per {
		return
	}
	s.points = append(s.points, record.Point{At: at.Seconds(), GBps: s.merge / float64(s.held)})
	s.merge, s.held = 0, 0
	if len(s.points) < maxPoints {
		return
	}
	half := s.points[:0]
	for i := 1; i < len(s.points); i += 2 {
		half = append(half, record.Point{At: s.points[i].At, GBps: (s.points[i-1].GBps + s.points[i].GBps) / 2})
	}
	s.points, s.per = half, s.per*2
}

func (s *series) latest() []float64 { return slices.Clone(s.recent) }

// stable reports whether the last samples agree, and how far apart they are. Samples are averaged in groups of four,
// because a single tenth of a second jitters.
func (s *series) stable(within float64) (bool, float64) {
	if len(s.recent) < stableWindow {
		return false, 0
	}
	const by = 4
	var sum, lo, hi float64
	for i := 0; i < stableWindow; i += by {
		v := 0.0
		for _, x := range s.recent[i : i+by] {
			v += x / by
		}
		if sum += v; i == 0 {
			lo, hi = v, v
		}
		lo, hi = min(lo, v), max(hi, v)
	}
	mean := sum / (stableWindow / by)
	if mean == 0 {
		return false, 0
	}
	spread := (hi - lo) / mean
	return spread <= within, spread
}
