// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"os"
	"time"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/process/target"
	"github.com/nebulaio/nebulaio/internal/units"
)

// ResumeOptions choose how a process is resumed.
type ResumeOptions struct {
	// Pairs maps the GPUs that the process used to those on which it goes on. Pairs is empty, or has every GPU that the
	// process used.
	Pairs []device.GPUPair
	// From is the file of a process that was suspended to a file. From needs System, whose engine reads the file.
	From   string
	System *boot.System
	Tree   target.Tree
	// Say, if not nil, is called with the text of each step, also by other goroutines.
	Say func(text string)
}

// Resume moves the GPU memory of a suspended process back, and lets the process run on. A process that is only locked
// is unlocked. If Resume fails, the process is still suspended, or the error names its state.
func Resume(ctx context.Context, d Driver, pid int, o ResumeOptions) (*Report, error) {
	p, err := find(o.Tree, "resume", pid, os.Getpid())
	if err != nil {
		return nil, err
	}
	return resume(ctx, d, p, o)
}

func resume(ctx context.Context, d Driver, p *target.Process, o ResumeOptions) (*Report, error) {
	r := begin(ctx, "resume", p, o.Say)
	if err := ready(d, "resume", p); err != nil {
		return nil, err
	}
	rep := r.report
	rep.Driver = d.Driver()
	state, err := d.State(p.PID)
	if err != nil {
		return nil, errs.Wrap("resume process", p.Shown(), err)
	}
	if state != device.ProcessSuspended && state != device.ProcessLocked {
		return nil, wrongState("resume", p, state)
	}
	rep.State = state
	if o.From != "" {
		if err := d.Storage(); err != nil {
			return nil, err
		}
	}
	if rep.GPUsBefore, err = d.Memory(p.PID); err != nil {
		rep.Notes = append(rep.Notes, "GPU memory is not known: "+errs.MessageOf(err))
	}
	if err := r.cancelled(); err != nil {
		return nil, err
	}
	if state == device.ProcessSuspended {
		if err := r.restore(d, p, o); err != nil {
			return nil, err
		}
	}
	if err := r.step("unlock", "letting process "+p.Shown()+" go on",
		func() error { return d.Unlock(p.PID) }); err != nil {
		return nil, r.lost(d, p, errs.Wrap("resume process", p.Shown(), err), nil)
	}
	rep.State = device.ProcessRunning
	if rep.GPUsBefore != nil {
		rep.GPUsAfter, _ = d.Memory(p.PID) // it worked before, and the report says so if it does not now
		rep.GPUBytes = -moved(rep.GPUsBefore, rep.GPUsAfter)
	}
	rep.ResidentAfter = target.Resident(o.Tree, p.PID)
	rep.Seconds = time.Since(r.begun).Seconds()
	if s := rep.secondsOf("restore"); s > 0 {
		rep.GBps = units.GBps(rep.GPUBytes, time.Duration(s*float64(time.Second)))
	}
	return rep, nil
}

// restore moves the GPU memory back. After an interrupt the process is suspended again.
func (r *run) restore(d Driver, p *target.Process, o ResumeOptions) error {
	if o.From != "" {
		return r.restoreFrom(d, p, o)
	}
	err := r.step("restore", "moving the GPU memory of process "+p.Shown()+" back", func() error {
		return d.Restore(p.PID, o.Pairs)
	})
	if err != nil {
		return r.stillSuspended(d, p, errs.Wrap("resume process", p.Shown(), err))
	}
	if err := r.cancelled(); err != nil {
		again := r.step("checkpoint", "suspending process "+p.Shown()+" again", func() error { return d.Checkpoint(p.PID) })
		if again != nil {
			return r.lost(d, p, err, again)
		}
		return after(err, "the process is suspended as before", "")
	}
	return nil
}

// stillSuspended adds the state of a process to the error of a failed resumption.
func (r *run) stillSuspended(d Driver, p *target.Process, cause error) error {
	if state, err := d.State(p.PID); err == nil && state == device.ProcessSuspended {
		return after(cause, "the process is suspended as before",
			"free GPU memory (see nvidia-smi), check --device-map, and try again")
	}
	return r.lost(d, p, cause, nil)
}
