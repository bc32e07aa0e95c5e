// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/staging"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// facts are the results of an ended transfer of any kind. Every report is made from facts.
type facts struct {
	direction string // "load" or "save"
	device    report.Device
	asked     report.Asked
	bytes     int64
	wall      time.Duration
	err       error
	sums      tally.Sums
	read      *report.ReadTotals // nil if the transfer did not read
	// routes are the routes that the bytes may have taken, in the order of the report. Bytes of cuFile follow as
	// cufileRoute.
	routes      []report.RouteTaken
	cufileRoute report.RouteTaken
	stages      []report.Stage
	limiting    string
	engine      report.Engine
	files       []report.File
	refusals    []report.Refusal
	notes       []string // notes before the note on host memory
	closing     []string // notes after the note on host memory
	peers       []report.Peer
	verify      *report.Verification
	cufile      *report.CuFile
	network     *report.Network
	served      *report.Served
	save        *report.Save
}

// report makes the report from the facts.
func (f *facts) report() report.Report {
	r := report.Report{Direction: f.direction, Device: f.device, Asked: f.asked, Bytes: f.bytes, ReadTotals: f.read,
		Seconds: f.wall.Seconds(), GBps: units.GBps(f.bytes, f.wall), Routes: f.sums.Shares(f.routes...),
		Stages: f.stages, Limiting: f.limiting,
		Engine: f.engine, Peers: f.peers, Files: f.files, Refusals: append([]report.Refusal{}, f.refusals...),
		Notes:  append([]string{}, f.notes...),
		Verify: f.verify, CuFile: f.cufile, Network: f.network, Served: f.served, Save: f.save}
	if f.err != nil {
		r.Error = f.err.Error()
	}
	if f.sums.CuFile.Bytes > 0 {
		r.Routes = append(r.Routes, f.sums.CuFile.Share(f.cufileRoute))
	}
	if r.Device.Kind == report.HostDevice {
		r.Notes = append(r.Notes, "the device is host memory: no GPU took part")
	}
	r.Notes = append(r.Notes, f.closing...)
	r.NoteUnproven()
	return r
}

// note adds a note.
func (f *facts) note(text string) { f.notes = append(f.notes, text) }

// refuse adds a refusal: a faster way that was not available, the reason and the fix.
func (f *facts) refuse(what, on, reason, fix string) {
	f.refusals = append(f.refusals, report.Refusal{What: what, On: on, Reason: reason, Fix: fix})
}

// untraced adds a refusal if a profiler runs the program and sees no stages.
func (f *facts) untraced(o *tuned) {
	if o.TraceError != nil {
		f.refuse("profiler", f.device.ID, o.TraceError.Error(), errs.FixOf(o.TraceError))
	}
}

// useStaging records that size bytes of staging were used, and whether they were pinned. If tell is set and pinning
// failed, it adds a refusal.
func (f *facts) useStaging(p *staging.Pool, size int64, tell bool) {
	f.engine.StagingUsed, f.engine.StagingSize, f.engine.StagingState = true, size, "pinned"
	if f.device.Kind == report.HostDevice {
		f.engine.StagingState = "host memory"
		return
	}
	err := p.PinError()
	if err == nil {
		return
	}
	if f.engine.StagingState = "not pinned"; tell {
		f.refuse("pinned staging", f.device.ID, err.Error(), errs.FixOf(err))
	}
}

// useLibrary adds libcufile's part: all its counters, and the operations in the transfer's direction.
func (f *facts) useLibrary(l *library, api report.CuFileAPI, opened bool, counts device.DirectCounters,
	ops device.RouteOps) {
	f.cufile = l.part(api, opened)
	if counts.Known {
		f.cufile.Counters, f.cufile.Unaligned = describeCounters(counts), ops.Unaligned
	}
	if opened {
		f.note(l.cost())
	}
}

// describeDevice returns the description of a device for a report.
func describeDevice(info device.Info) report.Device {
	return report.Device{ID: info.ID, Kind: report.DeviceKind(info.Kind), Model: info.Model}
}

// firstGPU describes the first GPU of the ports, or host memory if there is none.
func firstGPU(all []*port) report.Device {
	d := report.Device{ID: "host", Kind: report.HostDevice, Model: "host memory (no GPU)"}
	for i := len(all) - 1; i >= 0; i-- {
		if info := all[i].dev.Info(); info.Kind != device.Host || d.Kind == report.HostDevice {
			d = describeDevice(info)
		}
	}
	return d
}

// describeCounters converts the counters of cuFile for a report.
func describeCounters(c device.DirectCounters) *report.CuFileCounters {
	return &report.CuFileCounters{Known: c.Known, CountedBy: c.CountedBy, Reads: report.CuFileOps(c.Reads),
		Writes: report.CuFileOps(c.Writes), ReadBytes: c.ReadBytes, WriteBytes: c.WriteBytes,
		Batch: report.CuFileOps(c.Batch), BatchBytes: c.BatchBytes}
}
