// SPDX-License-Identifier: Apache-2.0

// Package tally counts what the workers of a transfer do: bytes by route, and the time of each stage.
package tally

import (
	"time"

	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// Account is the running sum of one route or stage. The zero value is empty.
type Account struct {
	Bytes, Chunks int64
	Busy          time.Duration // of all threads together

	first, last time.Time // of all intervals
}

// Note adds n bytes that took from start to end.
func (a *Account) Note(n int64, start, end time.Time) {
	a.Bytes += n
	a.Chunks++
	a.Busy += end.Sub(start)
	if a.first.IsZero() || start.Before(a.first) {
		a.first = start
	}
	if end.After(a.last) {
		a.last = end
	}
}

// Span is the time from the first start to the last end.
func (a *Account) Span() time.Duration { return a.last.Sub(a.first) }

// Share describes the account as the share of a route.
func (a *Account) Share(r report.RouteTaken) report.RouteShare {
	return report.RouteShare{Route: r, Bytes: a.Bytes, Chunks: a.Chunks, Span: a.Span().Seconds(),
		GBps: units.GBps(a.Bytes, a.Span())}
}

// Stage describes the account as a stage.
func (a *Account) Stage(name string) report.Stage {
	return report.Stage{Stage: name, Busy: a.Busy.Seconds(), Span: a.Span().Seconds(), Bytes: a.Bytes,
		GBps: units.GBps(a.Bytes, a.Span())}
}
