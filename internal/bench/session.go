// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/dataset"
	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/transfer"
)

// Session performs several runs on the same files and device, and collects their results in one record.File. Only one
// goroutine may use a Session.
type Session struct {
	Set    *dataset.Set
	Device device.Device // device of the runs; nil if every run stays in host memory
	Engine *transfer.Engine
	// OpenDirect opens cuFile for Device; nil if there is no cuFile.
	OpenDirect func(ctx context.Context) (device.Direct, error)
	Live       func(Live)
	// File contains the results of all runs so far.
	File record.File
}

// HostOnly returns a description of host memory as the device of a run. Runs that use only host memory take HostOnly
// as their device description, so that no GPU is looked for.
func HostOnly() device.Info {
	return device.Info{ID: "host", Kind: device.Host, Model: "host memory", NUMANode: -1}
}

// NewSession returns a Session with no results yet. The parameter info describes the device dev; if dev is nil, info
// is HostOnly(). If the stored limits belong to another machine, NewSession ignores them and adds a note to the
// results.
func NewSession(version string, command []string, set *dataset.Set, dev device.Device, info device.Info,
	engine *transfer.Engine, kept *record.Ceilings) *Session {
	now := time.Now()
	s := &Session{Set: set, Device: dev, Engine: engine, File: record.File{Schema: record.Schema, Tool: record.Tool,
		Version: version, Command: command, Started: now.UTC(), Machine: Describe(info, set), Runs: []record.Run{}}}
	if kept == nil {
		s.File.Notes = append(s.File.Notes,
			"the limits of this machine are not measured yet, so no result is compared with them; measure them once: "+
				"nebulaio bench ceilings DIR")
		return s
	}
	if why := Differs(kept.Machine, s.File.Machine); why != "" {
		s.File.Notes = append(s.File.Notes,
			"the stored limits belong to another machine: "+why+"; measure them again: nebulaio bench ceilings DIR")
		return s
	}
	s.File.Ceilings = kept
	s.File.Notes = append(s.File.Notes, Doubts(kept, s.File.Machine, now)...)
	return s
}

// Run performs the run that spec describes, and appends its result to File. If ctx ends during the run, Run keeps the
// result, marked as interrupted, and returns an error of kind Cancelled.
func (s *Session) Run(ctx context.Context, spec Spec) (record.Run, error) {
	r, err := Run(ctx, Job{Spec: spec, Set: s.Set, Device: s.Device, Engine: s.Engine, OpenDirect: s.OpenDirect,
		Ceilings: s.File.Ceilings, Machine: s.File.Machine, Live: s.Live})
	s.File.Seconds = time.Since(s.File.Started).Seconds()
	if err != nil {
		return r, err
	}
	s.File.Runs = append(s.File.Runs, r)
	if r.Interrupted {
		s.File.Interrupted = true
		return r, context.Cause(ctx)
	}
	return r, nil
}
