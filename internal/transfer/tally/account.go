// SPDX-License-Identifier: Apache-2.0

// Package tally counts the bytes of a transfer by route, and the time of each stage.
package tally

import (
	"time"

	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// Account counts the bytes, chunks and time of one route or stage. The zero value is an empty account.
type Account struct {
	Bytes, Chunks int64
	Busy          time.Duration // sum of the times that all threads spent

	first, last time.Time // first start and last end
}

// Note adds one operation on n bytes, which ran from start to end.
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

// Span returns the time from the start of the first operation to the end of the last one.
func (a *Account) Span() time.Duration { return a.last.Sub(a.first) }

// Share returns the account as a report.RouteShare for route r.
func (a *Account) Share(r report.RouteTaken) report.RouteShare {
	return report.RouteShare{Route: r, Bytes: a.Bytes, Chunks: a.Chunks, Span: a.Span().Seconds(),
		GBps: units.GBps(a.Bytes, a.Span())}
}

// Stage returns the account as a report.Stage with the given name.
func (a *Account) Stage(name string) report.Stage {
	return report.Stage{Stage: name, Busy: a.Busy.Seconds(), Span: a.Span().Seconds(), Bytes: a.Bytes,
		GBps: units.GBps(a.Bytes, a.Span())}
}
