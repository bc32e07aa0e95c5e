// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"time"

	"github.com/nebulaio/nebulaio/internal/units"
)

// mostNotes is the largest number of notes in a merged report.
const mostNotes = 32

// Merge adds the report t of one of several transfers that make up a job. If r is the zero value, r takes the device,
// the request and the configuration of t. A refusal or note that r already has is not added again. Merge does not
// change Seconds, GBps and Error, because transfers of one job may run at the same time.
func (r *Report) Merge(t *Report) {
	if r.Direction == "" {
		refusals, notes := r.Refusals, r.Notes
		*r = Report{Direction: t.Direction, Device: t.Device, Asked: t.Asked, Engine: t.Engine,
			Limiting: t.Limiting, Refusals: refusals, Notes: notes}
	}
	r.Bytes += t.Bytes
	r.Files = append(r.Files, t.Files...)
	for _, x := range t.Routes {
		i := slices.IndexFunc(r.Routes, func(y RouteShare) bool { return y.Route == x.Route })
		if i < 0 {
			r.Routes = append(r.Routes, x)
			continue
		}
		y := &r.Routes[i]
		y.Bytes, y.Chunks, y.Span = y.Bytes+x.Bytes, y.Chunks+x.Chunks, y.Span+x.Span
		y.GBps = units.GBps(y.Bytes, seconds(y.Span))
	}
	for _, x := range t.Stages {
		i := slices.IndexFunc(r.Stages, func(y Stage) bool { return y.Stage == x.Stage })
		if i < 0 {
			r.Stages = append(r.Stages, x)
			continue
		}
		y := &r.Stages[i]
		y.Bytes, y.Busy, y.Span = y.Bytes+x.Bytes, y.Busy+x.Busy, y.Span+x.Span
		y.GBps = units.GBps(y.Bytes, seconds(y.Span))
	}
	r.mergeCounts(t)
	for _, x := range t.Refusals {
		// Many files may be refused for the same reason, which is reported once.
		same := func(y Refusal) bool { return y.What == x.What && y.Reason == x.Reason }
		if !slices.ContainsFunc(r.Refusals, same) {
			r.Refusals = append(r.Refusals, x)
		}
	}
	for _, n := range t.Notes {
		if !slices.Contains(r.Notes, n) && len(r.Notes) < mostNotes {
			r.Notes = append(r.Notes, n)
		}
	}
}

// mergeCounts adds the counts that only some transfers have.
func (r *Report) mergeCounts(t *Report) {
	if t.ReadTotals != nil {
		if r.ReadTotals == nil {
			r.ReadTotals = &ReadTotals{}
		}
		r.Wanted, r.Read = r.Wanted+t.Wanted, r.Read+t.Read
		if r.Wanted > 0 {
			r.Amplification = float64(r.Read) / float64(r.Wanted)
		}
	}
	if t.Verify != nil {
		if r.Verify == nil {
			r.Verify = &Verification{}
		}
		r.Verify.Add(t.Verify)
	}
	if t.CuFile != nil {
		r.CuFile = t.CuFile
	}
	if t.Served != nil {
		if r.Served == nil {
			r.Served = &Served{}
		}
		r.Served.Add(t.Served)
	}
	if n := t.Network; n != nil {
		if r.Network == nil {
			r.Network = &Network{}
		}
		r.Network.Fetchers = max(r.Network.Fetchers, n.Fetchers)
		r.Network.Requests, r.Network.Retries = r.Network.Requests+n.Requests, r.Network.Retries+n.Retries
		r.Network.Connections = max(r.Network.Connections, n.Connections)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
