// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Report blocks until the load has ended and returns its report.
func (t *Load) Report() report.Report {
	<-t.done
	f := facts{direction: "load", device: describeDevice(t.req.Device.Info()), asked: report.Asked{Route: t.req.Route,
		Cache: t.req.Cache},
		bytes: t.delivered.Load(), wall: t.wall, err: t.result, sums: t.tally.Sums(),
		routes: append(report.FileRoutes(), report.RouteTakenNetwork)}
	f.read, f.stages, f.limiting = f.sums.ReadTotals(f.bytes), f.sums.LoadStages(), f.sums.LoadLimit(t.wall)
	t.describeFiles(&f)
	t.cu.describe(&f)
	t.fan.describe(&f)
	t.describeEngine(&f)
	t.describeNetwork(&f)
	if n := f.sums.Dirty; n > 0 {
		f.note(fmt.Sprintf("%s lay in pieces with dirty pages, newer in memory than on disk, and went through the page cache",
			units.Bytes(n)))
	}
	for _, x := range f.files {
		if x.Cache == report.CacheKeep && t.req.Cache != report.CacheKeep {
			f.note(x.Path + " was cold again: this load keeps it in the page cache (cache policy auto)")
		}
	}
	t.verify.describe(&f)
	f.untraced(&t.e.opts)
	return f.report()
}

func (t *Load) describeFiles(r *facts) {
	for i, f := range t.req.Files {
		ok, why := f.Direct()
		method, probeWhy := f.Probe()
		fr := report.File{Path: f.Path(), FS: f.FS().Name, Size: f.Size(), Probe: string(method), Direct: ok,
			Via: vfs.Via(f), Served: servedOf(f)}
		if fr.Served != nil {
			if r.served == nil {
				r.served = &report.Served{}
			}
			r.served.Add(fr.Served)
		}
		if i < len(t.policies) {
			fr.Cache = t.policies[i]
		}
		if i < len(t.truths) {
			if note := t.truths[i].describe(&fr); note != "" {
				r.note(note)
			}
		}
		if i < len(t.shared) {
			if note := t.shared[i].describe(&fr); note != "" {
				r.note(note)
			}
			t.shared[i].refusals(r)
		}
		r.files = append(r.files, fr)
		if f.Remote() != nil {
			r.notes = append(r.notes, f.Remote().Notes()...)
			continue
		}
		if why != nil {
			r.refuse("direct", f.Path(), why.Reason, why.Fix)
		}
		if method != vfs.ProbeCachestat && !f.FS().Memory {
			r.refuse("residency", f.Path(), probeWhy, residencyFix(method, f.FS().Name))
		}
	}
}

// servedOf returns how a server got the bytes of a file, or nil.
func servedOf(f *vfs.File) *report.Served {
	var out *report.Served
	for _, s := range vfs.ServedBy(f) {
		if out == nil {
			out = &report.Served{}
		}
		out.Add(&report.Served{From: s.From, AgeSeconds: s.Age, Verified: s.Verified})
	}
	return out
}

// residencyFix returns the fix by which the kernel would report cached pages.
func residencyFix(m vfs.ProbeMethod, fs string) string {
	switch {
	case fs == "overlayfs":
		return "keep the file on a volume of its own instead of the container's layers"
	case m == vfs.ProbeMincore:
		return "use kernel 6.5 or later"
	}
	return "load as the file's owner or with write permission"
}

func (t *Load) describeEngine(f *facts) {
	e := t.e
	e.mu.Lock()
	io := e.io
	used, viaSlots := t.prepared != [plan.Ways]bool{}, t.prepared[plan.ViaDirect]
	e.mu.Unlock()
	f.engine = report.Engine{Workers: e.opts.Workers, QueueDepth: e.opts.QueueDepth, ChunkSize: e.opts.MaxTransfer,
		BlockSize: e.opts.block,
		IO:        "unused", StagingState: "unused", Node: e.node()}
	switch {
	case f.sums.Direct.Bytes == 0:
	case viaSlots:
		f.engine.IO = string(io)
	default:
		f.engine.IO = string(IOPread)
	}
	if used {
		f.useStaging(&e.pool, e.opts.layout().Size(), true)
		f.engine.HugePages = e.pool.Backing().HugePages
	}
}

// describeNetwork adds the counts of requests to servers.
func (t *Load) describeNetwork(f *facts) {
	if t.net.ctx == nil {
		return
	}
	n := &report.Network{Fetchers: t.fetch.want}
	for _, x := range t.req.Files {
		if c, ok := x.Remote().(vfs.Counted); ok {
			u := c.Traffic()
			n.Requests += u.Requests
			n.Retries += u.Retries
			n.Connections += u.Connections
		}
	}
	f.network = n
	only := [plan.Ways]bool{plan.ViaNetwork: true}
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	if t.prepared == only {
		f.engine.StagingSize = int64(t.e.network.fetchers) * 2 * netBlock
	}
}
