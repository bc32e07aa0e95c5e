// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Report tells how the upload went, as a save; it blocks until Done.
func (u *Upload) Report() report.Report {
	<-u.done
	n, to := u.sent.Load(), u.req.To
	r := report.Report{Direction: "save", Asked: report.Asked{Route: report.RouteAuto}, Bytes: n, Seconds: u.wall.Seconds(), GBps: units.GBps(n, u.wall),
		Routes: []report.RouteShare{}, Stages: []report.Stage{}, Limiting: "none", Refusals: []report.Refusal{}, Notes: []string{},
		Files:  []report.File{{Path: to.Name(), FS: "network", Size: u.size}},
		Device: hostOnly(),
		Engine: report.Engine{Workers: u.connections(), QueueDepth: u.connections(), ChunkSize: u.part, BlockSize: netBlock, IO: "unused", StagingState: "unused"},
		Save:   &report.Save{Sources: u.what.shares()}, Network: &report.Network{Fetchers: u.connections()}}
	for i := len(u.what.ports) - 1; i >= 0; i-- { // the first GPU, else the host
		if info := u.what.ports[i].dev.Info(); info.Kind != device.Host || r.Device.Kind == report.HostDevice {
			r.Device = describeDevice(info)
		}
	}
	if c, ok := to.(vfs.Counted); ok {
		r.Network.Traffic = report.Traffic(c.Traffic())
	}
	if u.err != nil {
		r.Error = u.err.Error()
	}
	stage := func(name string, a *account) {
		if a.chunks > 0 {
			r.Stages = append(r.Stages, report.Stage{Stage: name, Busy: a.busy.Seconds(), Span: a.span.length().Seconds(), Bytes: a.bytes, GBps: units.GBps(a.bytes, a.span.length())})
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if stage("copy", &u.copying); u.copying.chunks > 0 {
		r.Stages = append(r.Stages, report.Stage{Stage: "wait_copy", Busy: u.copyWait.Seconds()})
	}
	stage("write_network", &u.sending)
	if u.finish > 0 {
		r.Stages = append(r.Stages, report.Stage{Stage: "complete", Busy: u.finish.Seconds()})
	}
	if a := &u.sending; a.bytes > 0 {
		r.Routes = append(r.Routes, report.RouteShare{Route: report.RouteTakenNetwork, Bytes: a.bytes, Chunks: a.chunks, Span: a.span.length().Seconds(), GBps: units.GBps(a.bytes, a.span.length())})
		if r.Limiting = "network write"; u.copyWait > a.busy/2 {
			r.Limiting = "copy from device"
		}
	}
	if u.staged {
		u.describeStaging(&r)
	}
	if u.err == nil {
		r.Notes = append(r.Notes, "the server has acknowledged the object; whether it is on its disks is the server's word alone")
	}
	if r.Device.Kind == report.HostDevice {
		r.Notes = append(r.Notes, "the device is host memory: no GPU took part")
	}
	r.Notes = append(r.Notes, to.Notes()...)
	return r
}

func (u *Upload) describeStaging(r *report.Report) {
	e := u.e
	e.mu.Lock()
	r.Engine.StagingUsed, r.Engine.StagingSize = true, int64(e.network.paired)*2*netBlock
	e.mu.Unlock()
	if r.Engine.StagingState = "host memory"; r.Device.Kind == report.HostDevice {
		return
	}
	r.Engine.StagingState = "pinned"
	if err := e.pool.pinError(); err != nil {
		r.Engine.StagingState = "not pinned"
		r.Refusals = append(r.Refusals, report.Refusal{What: "pinned staging", On: r.Device.ID, Reason: err.Error(), Fix: errs.FixOf(err)})
	}
}

// shares are how many bytes each device gives, in order of appearance.
func (sv *save) shares() (out []report.Source) {
	at := map[string]int{}
	for _, s := range sv.sources {
		name := "memory"
		if s.port != nil {
			name = s.port.dev.Info().ID
		}
		if _, ok := at[name]; !ok {
			at[name] = len(out)
			out = append(out, report.Source{Device: name})
		}
		out[at[name]].Bytes += s.Len
	}
	return out
}
