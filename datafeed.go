// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"slices"
	"sync"

	"github.com/nebulaio/nebulaio/internal/data/loader"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// mostEpochs is the most epochs that a report lists.
const mostEpochs = 64

// feed counts the batches of a loader, epoch by epoch.
type feed struct {
	device  device.Info
	asked   report.Asked
	refused []report.Refusal

	mu     sync.Mutex
	epochs []report.FeedEpoch // those that have ended
	epoch  int64              // of the last batch
	open   bool               // whether that epoch goes on
	before loader.Stats       // at the start of that epoch
}

// count notes a batch that was taken.
func (f *feed) count(epoch int64, last bool, now loader.Stats) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch, f.open = epoch, true
	if !last {
		return
	}
	f.epochs = append(f.epochs, report.FeedEpoch{Epoch: epoch, FeedCount: countOf(now, f.before)})
	if len(f.epochs) > mostEpochs {
		f.epochs = slices.Delete(f.epochs, 0, 1)
	}
	f.open, f.before = false, now
}

// report returns what was counted.
func (f *feed) report(now loader.Stats) report.Feed {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.device
	r := report.Feed{Device: report.Device{ID: d.ID, Kind: report.DeviceKind(d.Kind), Model: d.Model}, Asked: f.asked,
		Total: countOf(now, loader.Stats{}), Epochs: slices.Clone(f.epochs), Depth: now.Depth, Bad: now.Bad,
		Refusals: append(slices.Clone(f.refused), now.Refusals...)}
	if f.open {
		r.Epochs = append(r.Epochs, report.FeedEpoch{Epoch: f.epoch, FeedCount: countOf(now, f.before)})
	}
	return r
}

// countOf returns what was counted between two moments.
func countOf(now, before loader.Stats) report.FeedCount {
	c := report.FeedCount{Batches: now.Batches - before.Batches, Samples: now.Samples - before.Samples,
		Bytes: now.Bytes - before.Bytes, Skipped: now.Skipped - before.Skipped, Routes: []report.RouteShare{},
		WaitSeconds: (now.Wait - before.Wait).Seconds(), StepSeconds: (now.Away - before.Away).Seconds()}
	for route, bytes := range now.Routes {
		if n := bytes - before.Routes[route]; n > 0 {
			c.Routes = append(c.Routes, report.RouteShare{Route: route, Bytes: n})
		}
	}
	slices.SortFunc(c.Routes, func(a, b report.RouteShare) int {
		if a.Bytes != b.Bytes {
			return int(min(max(b.Bytes-a.Bytes, -1), 1))
		}
		return len(a.Route) - len(b.Route)
	})
	took := now.Wait + now.Away - before.Wait - before.Away
	c.GBps = units.GBps(c.Bytes, took)
	if took > 0 {
		c.SamplesPerSecond = float64(c.Samples) / took.Seconds()
	}
	if (now.Wait-before.Wait)*50 < took {
		c.Limiting = "caller"
		return c
	}
	most := int64(0)
	for stage, batches := range now.Limiting {
		if n := batches - before.Limiting[stage]; n > most || n == most && stage < c.Limiting {
			c.Limiting, most = stage, n
		}
	}
	return c
}
