// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// describeDevice names a device in a report.
func describeDevice(info device.Info) report.Device {
	return report.Device{ID: info.ID, Kind: report.DeviceKind(info.Kind), Model: info.Model}
}

// hostOnly is the device of a report without any device: the bytes lay in host memory.
func hostOnly() report.Device {
	return report.Device{ID: "host", Kind: report.HostDevice, Model: "host memory (no GPU)"}
}

// describeCounters puts the counts of cuFile operations into a report.
func describeCounters(c device.DirectCounters) *report.CuFileCounters {
	return &report.CuFileCounters{Known: c.Known, CountedBy: c.CountedBy, Reads: report.CuFileOps(c.Reads),
		Writes: report.CuFileOps(c.Writes), ReadBytes: c.ReadBytes, WriteBytes: c.WriteBytes,
		Batch: report.CuFileOps(c.Batch), BatchBytes: c.BatchBytes}
}

// Report tells how an ended transfer went; it blocks until Done.
func (t *Transfer) Report() report.Report {
	<-t.done
	if t.save != nil {
		return t.saveReport()
	}
	y := &t.tally
	info := t.req.Device.Info()
	r := report.Report{Direction: "load",
		Device: describeDevice(info),
		Asked:  report.Asked{Route: t.req.Route, Cache: t.req.Cache},
		Bytes:  t.delivered.Load(), Seconds: t.wall.Seconds(), GBps: units.GBps(t.delivered.Load(), t.wall),
		Routes: []report.RouteShare{}, Refusals: []report.Refusal{}, Notes: []string{},
	}
	if t.result != nil {
		r.Error = t.result.Error()
	}
	y.mu.Lock()
	for _, name := range append(report.FileRoutes(), report.RouteTakenNetwork) {
		if a := y.route(name); a.bytes > 0 {
			r.Routes = append(r.Routes, a.report(name))
		}
	}
	read := y.readReport(r.Bytes)
	r.ReadTotals = &read
	r.Stages = y.stages()
	r.Limiting = y.limiting(t.wall)
	policies, cufile := y.policies, y.cufile
	y.mu.Unlock()
	t.describeFiles(&r, policies)
	t.describeCuFile(&r, cufile)
	t.describePeers(&r)
	t.describeEngine(&r)
	t.describeNetwork(&r)
	t.notes(&r)
	t.describeVerify(&r)
	r.NoteUnproven()
	return r
}

// readReport adds up what was read to deliver wanted bytes; mu is held.
func (y *tally) readReport(wanted int64) report.ReadTotals {
	r := report.ReadTotals{Wanted: wanted, Read: y.extra.bytes + y.padding.Load() + y.cufile.bytes}
	for _, a := range y.routes {
		r.Read += a.bytes
	}
	if wanted > 0 {
		r.Amplification = float64(r.Read) / float64(wanted)
	}
	return r
}

func (y *tally) stages() []report.Stage {
	stage := func(name string, a *account) report.Stage {
		return report.Stage{Stage: name, Busy: a.busy.Seconds(), Span: a.span.length().Seconds(), Bytes: a.bytes, GBps: units.GBps(a.bytes, a.span.length())}
	}
	out := []report.Stage{{Stage: "plan", Busy: y.planTime.Seconds()}}
	if y.cached.chunks > 0 {
		out = append(out, stage("read_cache", &y.cached))
	}
	if y.direct.chunks > 0 {
		out = append(out, stage("read_direct", &y.direct))
	}
	if y.network.chunks > 0 {
		out = append(out, stage("read_network", &y.network))
	}
	if y.cufile.chunks > 0 {
		out = append(out, stage("read_cufile", &y.cufile))
	}
	if y.extra.chunks > 0 {
		out = append(out, stage("read_extra", &y.extra))
	}
	if y.verify.chunks > 0 {
		out = append(out, stage("verify", &y.verify))
	}
	if y.packing.chunks > 0 {
		out = append(out, stage("pack", &y.packing))
	}
	if y.copying.chunks > 0 {
		out = append(out, stage("copy", &y.copying), report.Stage{Stage: "wait_copy", Busy: y.copyWait.Seconds()})
	}
	return out
}

// limiting names the stage that set the pace: storage where direct reads span
// nearly all of the time; the copy where readers come back to slots that are
// still being copied, a tenth of their time or more; else the reads out of the
// page cache.
func (y *tally) limiting(wall time.Duration) string {
	switch {
	case y.cufile.bytes > 0 && y.cufile.span.length() > wall*8/10:
		return "storage read by cuFile"
	case y.network.bytes > 0 && y.network.span.length() > wall*8/10:
		return y.networkLimit()
	case y.direct.bytes > 0 && y.direct.span.length() > wall*8/10:
		return "storage read"
	case y.route(report.RouteTakenBuffered).bytes+y.route(report.RouteTakenBufferedUnproven).bytes > y.cached.bytes/2:
		return "storage read through the page cache"
	case y.copyWait > (y.copyWait+y.cached.busy)/10:
		return "copy to device"
	case y.cached.bytes > 0 && y.packing.busy > max(y.cached.busy, y.verify.busy):
		return "packing of slices (CPU)"
	case y.cached.bytes > 0 && y.verify.busy > y.cached.busy:
		return "verification (CPU)"
	case y.cached.bytes > 0:
		return "page-cache read (CPU)"
	}
	return "none"
}

func (t *Transfer) describeFiles(r *report.Report, policies []report.CachePolicy) {
	for i, f := range t.req.Files {
		ok, why := f.Direct()
		method, probeWhy := f.Probe()
		fr := report.File{Path: f.Path(), FS: f.FS().Name, Size: f.Size(), Probe: string(method), Direct: ok}
		if i < len(policies) {
			fr.Cache = policies[i]
		}
		if i < len(t.truths) {
			t.truths[i].describeTruth(r, &fr)
		}
		r.Files = append(r.Files, fr)
		if f.Remote() != nil {
			r.Notes = append(r.Notes, f.Remote().Notes()...)
			continue
		}
		if why != nil {
			r.Refusals = append(r.Refusals, report.Refusal{What: "direct", On: f.Path(), Reason: why.Reason, Fix: why.Fix})
		}
		if method != vfs.ProbeCachestat && !f.FS().Memory {
			r.Refusals = append(r.Refusals, report.Refusal{What: "residency", On: f.Path(), Reason: probeWhy,
				Fix: residencyFix(method, f.FS().Name)})
		}
	}
}

// residencyFix says how the kernel could be made to tell more.
func residencyFix(m vfs.ProbeMethod, fs string) string {
	switch {
	case fs == "overlayfs":
		return "keep the file on a volume of its own instead of the container's layers"
	case m == vfs.ProbeMincore:
		return "use kernel 6.5 or later"
	}
	return "load as the file's owner or with write permission"
}

func (t *Transfer) describeEngine(r *report.Report) {
	e := t.e
	e.mu.Lock()
	io := e.io
	used, viaSlots := t.prepared != [plan.Ways]bool{}, t.prepared[plan.ViaDirect]
	e.mu.Unlock()
	r.Engine = report.Engine{Workers: e.opts.Workers, QueueDepth: e.opts.QueueDepth, ChunkSize: e.opts.MaxTransfer, BlockSize: e.opts.block,
		IO: "unused", StagingUsed: used, StagingState: "unused", Node: e.node()}
	switch {
	case t.tally.directBytes() == 0:
	case viaSlots:
		r.Engine.IO = string(io)
	default:
		r.Engine.IO = string(IOPread)
	}
	if !used {
		return
	}
	r.Engine.StagingSize = e.opts.staging()
	r.Engine.HugePages = e.pool.backing().HugePages
	r.Engine.StagingState = "pinned"
	if t.req.Device.Info().Kind == device.Host {
		r.Engine.StagingState = "host memory"
	} else if err := e.pool.pinError(); err != nil {
		r.Engine.StagingState = "not pinned"
		r.Refusals = append(r.Refusals, report.Refusal{What: "pinned staging", On: t.req.Device.Info().ID, Reason: err.Error(), Fix: errs.FixOf(err)})
	}
}

func (t *Transfer) notes(r *report.Report) {
	if n := t.tally.dirty.Load(); n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s lay in pieces with dirty pages, newer in memory than on disk, and went through the page cache", units.Bytes(n)))
	}
	for _, f := range r.Files {
		if f.Cache == report.CacheKeep && t.req.Cache != report.CacheKeep {
			r.Notes = append(r.Notes, f.Path+" was cold again: this load keeps it in the page cache (cache policy auto)")
		}
	}
	if r.Device.Kind == report.HostDevice {
		r.Notes = append(r.Notes, "the device is host memory: no GPU took part")
	}
}

func errDirect(f *vfs.File, why *vfs.Refusal) error {
	if why == nil {
		why = &vfs.Refusal{Reason: "unknown"}
	}
	return errs.New(errs.Unsupported, "read past the page cache", f.Path(), why.Reason).WithFix("use route auto, or: " + why.Fix)
}

func copyError(t *Transfer, c plan.Chunk, err error) error {
	return errs.Wrap(fmt.Sprintf("copy %d bytes from offset %d of", c.Len, c.Off), t.req.Files[c.File].Path()+" to "+t.req.Device.Info().ID, err)
}
