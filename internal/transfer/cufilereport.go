// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"fmt"
	"strconv"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/report"
)

// describeCuFile adds cuFile's part: the route by what the counters tell.
func (t *Transfer) describeCuFile(r *report.Report, a account) {
	u := &t.cu
	u.mu.Lock()
	if u.refused != nil {
		r.Refusals = append(r.Refusals, *u.refused)
	}
	u.mu.Unlock()
	if u.lib == nil {
		return
	}
	c := u.lib.part(t.e.opts.CuFile, u.opened)
	c.Registered, c.Others = u.registered, !u.alone
	if u.counters.Known {
		c.Counters, c.Unaligned = describeCounters(u.counters), u.counters.Reads.Unaligned
	}
	r.CuFile = c
	if u.opened {
		r.Notes = append(r.Notes, u.lib.cost())
	}
	for i, k := range u.files {
		if k != nil && k.cached {
			r.Notes = append(r.Notes, t.req.Files[i].Path()+" is in the page cache and no direct route to the GPU is plausible: cuFile reads it from there")
		}
	}
	u.mu.Lock()
	if u.batchErr != nil {
		r.Notes = append(r.Notes, "a batch failed and its reads were made one by one: "+u.batchErr.Error())
	}
	u.mu.Unlock()
	if a.bytes == 0 {
		return
	}
	name := taken(u.counters.Known, u.counters.Reads.Plus(u.counters.Batch))
	if name == report.RouteTakenCuFileUnknown {
		why := "the library did not count"
		if u.counters.Known {
			why = "its counters say: " + u.counters.Reads.Plus(u.counters.Batch).String()
		} else if c.Uncounted != "" {
			why = c.Uncounted
		}
		r.Notes = append(r.Notes, "which way cuFile took is unknown: "+why)
	}
	r.Routes = append(r.Routes, a.report(name))
}

// cuFileRead notes a read through cuFile.
func (y *tally) cuFileRead(n int64, start time.Time) {
	end := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	y.cufile.note(n, start, end)
}

func (y *tally) cuFileBytes() int64 {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.cufile.bytes
}

// cost says what opening the library took.
func (l *library) cost() string {
	return fmt.Sprintf("libcufile %s was opened for this; that makes a context on every visible GPU, here %s", l.facts["version"], l.facts["visible_gpus"])
}

// part is the library's part of a report, without what it counted.
func (l *library) part(api report.CuFileAPI, opened bool) *report.CuFile {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &report.CuFile{Version: l.facts["version"], API: api, Shared: l.facts["shared"] == "true", Opened: opened}
	c.Contexts, _ = strconv.Atoi(l.facts["visible_gpus"])
	if l.uncount != nil {
		c.Uncounted = plainly(l.uncount)
	}
	return c
}

// taken names the way of bytes by the operations that the library counted.
func taken(known bool, ops device.RouteOps) report.RouteTaken {
	if known {
		switch route := ops.Route(); route {
		case device.RouteP2P, device.RouteNVFS, device.RouteCompat:
			return report.RouteTaken("cufile_" + route)
		}
	}
	return report.RouteTakenCuFileUnknown
}
