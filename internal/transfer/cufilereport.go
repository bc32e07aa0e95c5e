// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"fmt"
	"strconv"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
)

// CuFileReport describes cuFile's part of a transfer, from counted operations and
// never from what was asked for.
type CuFileReport struct {
	Version string    `json:"version"` // of libcufile
	API     CuFileAPI `json:"api"`
	// Counters are the library's operations by route while the transfer ran, for
	// its device. Its CountedBy says who counted. It is nil where nobody did, and
	// Uncounted says why.
	Counters  *device.DirectCounters `json:"counters"`
	Uncounted string                 `json:"uncounted,omitempty"`
	// Unaligned are operations that went through a buffer of the library's.
	Unaligned int64 `json:"unaligned"`
	// Others says that other transfers of the device were counted too.
	Others bool `json:"others,omitempty"`
	// Shared says that another part of the process had the library open before:
	// its settings are used as they are.
	Shared bool `json:"shared"`
	// Opened says that this transfer opened the library, which made a context
	// on each of Contexts GPUs.
	Opened     bool  `json:"opened"`
	Contexts   int   `json:"contexts"`
	Registered int64 `json:"registered_bytes"`
}

// describeCuFile adds cuFile's part: the route by what the counters tell.
func (t *Transfer) describeCuFile(r *Report, a account) {
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
		n := u.counters
		c.Counters, c.Unaligned = &n, n.Reads.Unaligned
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
	if name == RouteTakenCuFileUnknown {
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
func (l *library) part(api CuFileAPI, opened bool) *CuFileReport {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &CuFileReport{Version: l.facts["version"], API: api, Shared: l.facts["shared"] == "true", Opened: opened}
	c.Contexts, _ = strconv.Atoi(l.facts["visible_gpus"])
	if l.uncount != nil {
		c.Uncounted = plainly(l.uncount)
	}
	return c
}

// taken names the way of bytes by the operations that the library counted.
func taken(known bool, ops device.RouteOps) RouteTaken {
	if known {
		switch route := ops.Route(); route {
		case device.RouteP2P, device.RouteNVFS, device.RouteCompat:
			return RouteTaken("cufile_" + route)
		}
	}
	return RouteTakenCuFileUnknown
}
