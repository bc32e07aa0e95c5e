// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"io"
	"time"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/meters"
)

// Source delivers samples: from the meters of this machine, or from a recording.
type Source interface {
	// Next waits until the next sample is due and returns it. Next returns io.EOF after the last sample, and the cause of
	// the context if the context ends.
	Next(ctx context.Context) (*meters.Sample, error)
}

// Live returns a Source that reads the Collector once in every interval. The first sample has rates: the Source reads
// the meters when Next is called first, and once more after an interval.
func Live(c *meters.Collector, interval time.Duration) Source { return &live{c: c, interval: interval} }

type live struct {
	c        *meters.Collector
	interval time.Duration
	due      time.Time // of the next sample; zero before the first
}

func (l *live) Next(ctx context.Context) (*meters.Sample, error) {
	if l.due.IsZero() {
		l.c.Read(ctx)
		l.due = time.Now()
	}
	// Samples that were late do not make later ones early: a stopped program would else read many at once.
	if l.due = l.due.Add(l.interval); time.Until(l.due) < -l.interval {
		l.due = time.Now()
	}
	if err := wait(ctx, time.Until(l.due)); err != nil {
		return nil, err
	}
	return l.c.Read(ctx), nil
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Replay returns a Source that delivers the samples of a recording, with the pauses between them divided by speed.
// Speed 0 means no pauses. A pause is at most ten seconds, because a recorder may have been stopped for hours. The
// caller closes what the recording reads.
func Replay(r *meters.Recording, speed float64) Source { return &replay{r: r, speed: speed} }

type replay struct {
	r     *meters.Recording
	speed float64
	last  time.Time
}

// longestPause bounds the pause between two replayed samples.
const longestPause = 10 * time.Second

func (p *replay) Next(ctx context.Context) (*meters.Sample, error) {
	s, err := p.r.Next()
	if err != nil {
		return nil, err
	}
	if pause := s.Time.Sub(p.last); !p.last.IsZero() && p.speed > 0 && pause > 0 {
		if err := wait(ctx, time.Duration(float64(min(pause, longestPause))/p.speed)); err != nil {
			return nil, err
		}
	}
	p.last = s.Time
	return s, nil
}

// Line is one line of a recording and of the output as JSON: a sample and the verdict about it.
type Line struct {
	*meters.Sample
	Verdict bottleneck.Verdict `json:"verdict"`
}

// Judged returns the line for a sample.
func Judged(s *meters.Sample) Line { return Line{Sample: s, Verdict: bottleneck.Judge(s.Window())} }

// Recorded returns a Source that delivers the samples of src and gives each line to write. An error of write ends the
// samples.
func Recorded(src Source, write func(Line) error) Source { return &recorded{src: src, write: write} }

type recorded struct {
	src   Source
	write func(Line) error
}

func (r *recorded) Next(ctx context.Context) (*meters.Sample, error) {
	s, err := r.src.Next(ctx)
	if err != nil {
		return nil, err
	}
	return s, r.write(Judged(s))
}

// ended reports whether err is the end of a recording.
func ended(err error) bool { return err == io.EOF }
