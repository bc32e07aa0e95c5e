// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"maps"
	"slices"
	"time"

	"github.com/nebulaio/nebulaio/report"
)

// mostBad is the most errors about bad files that Stats keeps.
const mostBad = 16

// Stats counts what a loader delivered.
type Stats struct {
	Batches  int64
	Samples  int64
	Bytes    int64
	Routes   map[report.RouteTaken]int64 // bytes by route
	Limiting map[string]int64            // batches by the stage that limited their transfer
	Wait     time.Duration               // how long Next waited for batches
	Away     time.Duration               // how long the caller did other things between two calls of Next
	Depth    int                         // the most batches that are read ahead now
	Skipped  int64                       // samples that were left out because their files are bad
	Bad      []string                    // the first errors about bad files
	Refusals []report.Refusal            // faster routes that were refused, each once for each reason
}

// Stats returns the counts so far.
func (l *Loader) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Routes, s.Limiting, s.Depth = maps.Clone(s.Routes), maps.Clone(s.Limiting), l.tuner.depth
	s.Bad, s.Refusals = slices.Clone(s.Bad), slices.Clone(s.Refusals)
	return s
}

// count counts a batch that was taken. The caller holds mu.
func (l *Loader) count(b *Batch, asked time.Time) {
	now := time.Now()
	waited, away := now.Sub(asked)+l.vain, asked.Sub(l.since)-l.vain
	s := &l.stats
	s.Batches++
	s.Samples += int64(len(b.Samples))
	s.Bytes += b.bytes
	s.Wait += waited
	if !l.since.IsZero() {
		s.Away += away
		l.tuner.observe(waited, away)
	}
	l.since, l.vain = now, 0
	if b.load == nil {
		return
	}
	if s.Routes == nil {
		s.Routes, s.Limiting = map[report.RouteTaken]int64{}, map[string]int64{}
	}
	r := b.load.Report()
	for _, share := range r.Routes {
		s.Routes[share.Route] += share.Bytes
	}
	s.Limiting[r.Limiting]++
	for _, refused := range r.Refusals {
		same := func(o report.Refusal) bool { return o.What == refused.What && o.Reason == refused.Reason }
		if len(s.Refusals) < mostBad && !slices.ContainsFunc(s.Refusals, same) {
			s.Refusals = append(s.Refusals, refused)
		}
	}
}

// gaveUp counts the wait of a call of Next that returns no batch. A caller that waits in short pieces waits, too.
func (l *Loader) gaveUp(asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.vain += time.Since(asked)
}
