// SPDX-License-Identifier: Apache-2.0

package transfer

import "github.com/nebulaio/nebulaio/report"

// Report blocks until the save has ended and returns its report.
func (t *Save) Report() report.Report {
	<-t.done
	t.pub.mu.Lock()
	steps := t.pub.steps
	t.pub.mu.Unlock()
	f := facts{direction: "save", device: firstGPU(t.from.ports), asked: report.Asked{Route: t.req.Route},
		bytes: t.delivered.Load(), wall: t.wall, err: t.result,
		sums: t.tally.Sums(), routes: []report.RouteTaken{report.RouteTakenBuffered, report.RouteTakenDirect,
			report.RouteTakenDirectUnproven},
		cufileRoute: t.cu.route(), files: []report.File{}, save: &report.Save{Sources: t.from.shares()}}
	f.stages, f.limiting = f.sums.SaveStages(steps), f.sums.SaveLimit(t.wall, steps)
	switch {
	case t.pub.draft != nil:
		t.pub.describe(&f, t.storage, t.req.Route)
	case t.sink != nil:
		t.describeSink(&f)
	}
	t.describeWriters(&f)
	f.untraced(&t.e.opts)
	return f.report()
}

// describeSink adds the facts that only a save to a Sink has.
func (t *Save) describeSink(f *facts) {
	ok, why := t.sink.Direct()
	f.files = append(f.files, report.File{Path: t.sink.Name(), FS: t.storage.FS.Name, Size: t.from.size, Direct: ok,
		Unproven: unprovenWrites(t.storage)})
	if why != nil && t.req.Route != report.RouteBuffered {
		f.refuse("direct", t.sink.Name(), why.Reason, why.Fix)
	}
	f.refusals = append(f.refusals, t.refusals...)
	f.note("the bytes are durable when their owner has said so: this save gives them to an open file")
	if t.sums != nil {
		f.save.ChecksumBlocks = len(t.sums.Blocks)
	}
	if c := t.cu; c != nil {
		f.useLibrary(c.lib, report.CuFileSync, c.opened, c.counts, c.counts.Writes)
	}
}

func (t *Save) describeWriters(f *facts) {
	o := &t.e.opts
	f.engine = report.Engine{Workers: o.WriteDepth, QueueDepth: o.WriteDepth, ChunkSize: o.WriteBlock,
		BlockSize: o.WriteBlock,
		IO:        "unused", StagingState: "unused", Node: t.e.node()}
	if f.sums.Writing.Chunks > 0 {
		f.engine.IO = "pwrite"
	}
	if f.sums.Copying.Chunks > 0 {
		f.useStaging(&t.e.pool, o.layout().Size(), true)
		f.engine.HugePages = t.e.pool.Backing().HugePages
	}
}
