// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// The kind and name of the record with the time of the last complete scrub. The record lets restarts of the server
// not delay the next scrub.
const (
	scrubKind = "node"
	scrubName = "last-scrub"
)

// scrubRegularly scrubs the store when the interval since the last complete scrub is over, until ctx ends. The
// first interval of a new store begins now.
func (s *server) scrubRegularly(ctx context.Context, a Admin, records object.Records) {
	log := component(s.log, "scrub")
	interval := s.Config.Scrub.Interval
	last, err := lastScrub(ctx, records)
	if err != nil {
		log.Warn("reading the time of the last scrub failed", "error", err)
	}
	if last.IsZero() {
		last = time.Now()
		if err := noteScrub(ctx, records, last); err != nil && ctx.Err() == nil {
			log.Warn("storing the time of the scrub failed", "error", err)
		}
	}
	s.metrics.scrubbed.Set(float64(last.Unix()))
	if interval <= 0 {
		return
	}
	for {
		timer := time.NewTimer(time.Until(last.Add(interval)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		log.Info("scrub begins", "rate", s.Config.Scrub.Rate)
		report, err := a.Scrub(ctx, s.Config.Scrub.Rate, nil)
		last = time.Now() // a failed scrub is not repeated at once
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.metrics.scrubs.WithLabelValues("failed").Inc()
			log.Error("scrub failed", "error", err)
			continue
		case report.Clean():
			s.metrics.scrubs.WithLabelValues("clean").Inc()
			log.Info("scrub ended", report.attrs()...)
		default:
			s.metrics.scrubs.WithLabelValues("damage").Inc()
			log.Error("scrub found damage", report.attrs()...)
		}
		s.metrics.scrubbed.Set(float64(last.Unix()))
		if err := noteScrub(ctx, records, last); err != nil && ctx.Err() == nil {
			log.Warn("storing the time of the scrub failed", "error", err)
		}
	}
}

// lastScrub returns the time when the last complete scrub ended, or the zero time.
func lastScrub(ctx context.Context, records object.Records) (time.Time, error) {
	text, err := records.Record(ctx, scrubKind, scrubName)
	if errs.Is(err, errs.NotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return time.Time{}, errs.New(errs.Corrupt, "read the time of the last scrub", string(text), "is no time")
	}
	return t, nil
}

func noteScrub(ctx context.Context, records object.Records, t time.Time) error {
	return records.PutRecord(ctx, scrubKind, scrubName, []byte(t.UTC().Format(time.RFC3339)))
}
