// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"fmt"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// devices names the devices of a save.
func (sv *save) devices() string {
	var ids []string
	for _, p := range sv.ports {
		ids = append(ids, p.dev.Info().ID)
	}
	if len(ids) == 0 {
		return "memory"
	}
	return strings.Join(ids, ", ")
}

// saveReport tells how an ended save went.
func (t *Transfer) saveReport() report.Report {
	sv, y := t.save, &t.tally
	r := report.Report{Direction: "save", Asked: report.Asked{Route: sv.req.Route}, Bytes: t.delivered.Load(), Seconds: t.wall.Seconds(),
		GBps: units.GBps(t.delivered.Load(), t.wall), Routes: []report.RouteShare{}, Files: []report.File{}, Refusals: []report.Refusal{}, Notes: []string{},
		Device: hostOnly(), Save: &report.Save{}}
	for i := len(sv.ports) - 1; i >= 0; i-- { // the first GPU, else the host
		if info := sv.ports[i].dev.Info(); info.Kind != device.Host || r.Device.Kind == report.HostDevice {
			r.Device = describeDevice(info)
		}
	}
	if t.result != nil {
		r.Error = t.result.Error()
	}
	y.mu.Lock()
	for _, name := range []report.RouteTaken{report.RouteTakenBuffered, report.RouteTakenDirect, report.RouteTakenDirectUnproven} {
		if a := y.route(name); a.bytes > 0 {
			r.Routes = append(r.Routes, a.report(name))
		}
	}
	r.Stages = t.saveStages()
	r.Limiting = t.saveLimit()
	staged := y.copying.chunks > 0
	y.mu.Unlock()
	t.describeSources(&r)
	switch {
	case sv.draft != nil:
		t.describeDraft(&r)
	case sv.sink != nil:
		t.describeSink(&r)
	}
	t.describeWriters(&r, staged)
	r.NoteUnproven()
	return r
}

// saveStages lists the stages in the order of the flow; the caller holds the tally.
func (t *Transfer) saveStages() []report.Stage {
	sv, y := t.save, &t.tally
	var out []report.Stage
	add := func(name string, a *account) {
		if a.chunks > 0 {
			out = append(out, report.Stage{Stage: name, Busy: a.busy.Seconds(), Span: a.span.length().Seconds(), Bytes: a.bytes, GBps: units.GBps(a.bytes, a.span.length())})
		}
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	rest := sv.steps
	if len(rest) > 0 && rest[0].Stage == "reserve" {
		out, rest = append(out, rest[0]), rest[1:]
	}
	add("copy", &y.copying)
	if y.copying.chunks > 0 {
		out = append(out, report.Stage{Stage: "wait_copy", Busy: y.copyWait.Seconds()})
	}
	add("checksum", &y.verify)
	add("write", &sv.write)
	return append(out, rest...)
}

// saveLimit names the stage that set the pace; the caller holds the tally.
func (t *Transfer) saveLimit() string {
	sv, y := t.save, &t.tally
	once := time.Duration(0) // steps that nothing runs beside
	sv.mu.Lock()
	for _, s := range sv.steps {
		once += time.Duration(s.Busy * float64(time.Second))
	}
	sv.mu.Unlock()
	switch {
	case sv.write.chunks == 0:
		return "none"
	case once > t.wall/2:
		return "making it durable"
	case y.copyWait > sv.write.busy:
		return "copy from device"
	case y.verify.busy > sv.write.busy:
		return "checksums (CPU)"
	}
	return "storage write"
}

func (t *Transfer) describeSources(r *report.Report) {
	sv := t.save
	of := map[string]int64{}
	for _, s := range sv.sources {
		name := "memory"
		if s.port != nil {
			name = s.port.dev.Info().ID
		}
		if of[name] += s.Len; of[name] == s.Len {
			r.Save.Sources = append(r.Save.Sources, report.Source{Device: name})
		}
	}
	for i := range r.Save.Sources {
		r.Save.Sources[i].Bytes = of[r.Save.Sources[i].Device]
	}
}

func (t *Transfer) describeDraft(r *report.Report) {
	sv, d := t.save, t.save.draft
	ok, why := d.Direct()
	r.Files = append(r.Files, report.File{Path: d.Target(), FS: sv.storage.FS.Name, Size: d.Size(), Direct: ok, Unproven: unprovenWrites(sv.storage)})
	if why != nil && sv.req.Route != report.RouteBuffered {
		r.Refusals = append(r.Refusals, report.Refusal{What: "direct", On: d.Path(), Reason: why.Reason, Fix: why.Fix})
	}
	if s := d.Sparse(); s != nil {
		r.Refusals = append(r.Refusals, report.Refusal{What: "reserved space", On: d.Path(), Reason: s.Reason, Fix: s.Fix})
	}
	r.Save.Durable, r.Save.Replaced, r.Save.Reserved = sv.durable, d.Replaces() && sv.commit, d.Sparse() == nil
	if sv.sums != nil && sv.commit {
		r.Save.Checksums, r.Save.ChecksumBlocks = checksum.Path(d.Target()), len(sv.sums.Blocks)
	}
	if d.Linked() {
		r.Notes = append(r.Notes, d.Path()+" is a link: the file that it leads to was written")
	}
	if n := d.Swept(); n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d unfinished files that killed saves had left in the directory were removed", n))
	}
	if d.FS().Memory && sv.commit {
		r.Notes = append(r.Notes, d.FS().Name+" lives in memory: the file does not survive a restart of the machine")
	}
	r.Notes = append(append(r.Notes, d.Notes()...), sv.notes...)
}

func (t *Transfer) describeWriters(r *report.Report, staged bool) {
	e := t.e
	r.Engine = report.Engine{Workers: e.opts.WriteDepth, QueueDepth: e.opts.WriteDepth, ChunkSize: e.opts.WriteBlock, BlockSize: e.opts.WriteBlock,
		IO: "unused", StagingUsed: staged, StagingState: "unused", Node: e.node()}
	if t.save.write.chunks > 0 {
		r.Engine.IO = "pwrite"
	}
	if r.Device.Kind == report.HostDevice {
		r.Notes = append(r.Notes, "the device is host memory: no GPU took part")
	}
	if !staged {
		return
	}
	r.Engine.StagingSize, r.Engine.HugePages, r.Engine.StagingState = e.opts.staging(), e.pool.backing().HugePages, "host memory"
	if r.Device.Kind == report.HostDevice {
		return
	}
	r.Engine.StagingState = "pinned"
	if err := e.pool.pinError(); err != nil {
		r.Engine.StagingState = "not pinned"
		r.Refusals = append(r.Refusals, report.Refusal{What: "pinned staging", On: r.Device.ID, Reason: err.Error(), Fix: errs.FixOf(err)})
	}
}
