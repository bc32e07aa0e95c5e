// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/process/target"
	"github.com/nebulaio/nebulaio/internal/units"
)

// DefaultTimeout is how long a suspension waits for the GPU work of the process to end.
const DefaultTimeout = 60 * time.Second

// lockSlice is the longest wait of one call of the driver, so that an interrupt is heard.
const lockSlice = time.Second

// SuspendOptions choose how a process is suspended.
type SuspendOptions struct {
	// Timeout is the longest wait for the GPU work of the process to end; 0 means DefaultTimeout.
	Timeout time.Duration
	// Force suspends the process although something stands in the way.
	Force bool
	// To is a file for the GPU memory, which then does not go to host memory. To needs a driver of CUDA 13.4, and
	// System, whose engine writes the file.
	To     string
	System *boot.System
	Tree   target.Tree
	// Say, if not nil, is called with the text of each step, also by other goroutines.
	Say func(text string)
}

// Suspend moves the GPU memory of a process to its host memory, or to a file, and frees it. The process waits until
// Resume at its next call of the GPU driver. If Suspend fails, the process runs on, or the error names its state.
func Suspend(ctx context.Context, d Driver, pid int, o SuspendOptions) (*Report, error) {
	p, err := find(o.Tree, "suspend", pid, os.Getpid())
	if err != nil {
		return nil, err
	}
	return suspend(ctx, d, p, o)
}

func suspend(ctx context.Context, d Driver, p *target.Process, o SuspendOptions) (*Report, error) {
	r := begin(ctx, "suspend", p, o.Say)
	if err := ready(d, "suspend", p); err != nil {
		return nil, err
	}
	rep := r.report
	rep.Driver = d.Driver()
	state, err := d.State(p.PID)
	if err != nil {
		return nil, errs.Wrap("suspend process", p.Shown(), err)
	}
	if state != device.ProcessRunning {
		return nil, wrongState("suspend", p, state)
	}
	if o.To != "" {
		if err := d.Storage(); err != nil {
			return nil, err
		}
	}
	rep.GPUsBefore, err = d.Memory(p.PID)
	if err != nil {
		rep.Notes = append(rep.Notes, "GPU memory is not known: "+errs.MessageOf(err))
	}
	rep.Obstacles = append(rep.Obstacles, obstacles(p, rep.GPUsBefore, rep.Driver)...)
	if o.To == "" {
		r.checkMemory(o.Tree, p)
	}
	if err := refuse("suspend", p, rep.Obstacles, o.Force); err != nil {
		return nil, err
	}
	if err := r.cancelled(); err != nil {
		return nil, err
	}
	if err := r.lock(d, p, o); err != nil {
		return nil, err
	}
	if o.To != "" {
		err = r.checkpointTo(d, p, o)
	} else {
		err = r.checkpoint(d, p)
	}
	if err != nil {
		return nil, err
	}
	rep.State = device.ProcessSuspended
	if rep.GPUsBefore != nil {
		rep.GPUsAfter, _ = d.Memory(p.PID) // it worked before, and the report says so if it does not now
		rep.GPUBytes = moved(rep.GPUsBefore, rep.GPUsAfter)
	}
	rep.ResidentAfter = target.Resident(o.Tree, p.PID)
	rep.Seconds = time.Since(r.begun).Seconds()
	if s := rep.secondsOf("checkpoint"); s > 0 {
		rep.GBps = units.GBps(rep.GPUBytes, time.Duration(s*float64(time.Second)))
	}
	return rep, nil
}

// ready refuses a process that is not one of the driver.
func ready(d Driver, op string, p *target.Process) error {
	if !p.CUDA {
		return errs.New(errs.Unsupported, op+" process", p.Shown(), "it does not use CUDA: it has not loaded libcuda").
			WithFix(
				"give the id of a process that nvidia-smi lists; a process without a GPU can be dumped: nebulaio process dump")
	}
	if d.Processes == nil {
		return errs.Wrap(op+" process", p.Shown(), d.Why)
	}
	return nil
}

// wrongState explains why an operation does not fit the state of the process.
func wrongState(op string, p *target.Process, state device.ProcessState) error {
	e := errs.New(errs.Invalid, op+" process", p.Shown(), "")
	switch state {
	case device.ProcessSuspended:
		e.Msg, e.Fix = "it is suspended already", fmt.Sprintf("resume it: nebulaio process resume %d", p.PID)
	case device.ProcessLocked:
		e.Msg = "it is locked: another program suspends or resumes it, or was killed in between"
		e.Fix = fmt.Sprintf("wait for the other program, or unlock the process: nebulaio process resume %d", p.PID)
	case device.ProcessFailed:
		e.Kind = errs.Device
		e.Msg, e.Fix = "the driver has given it up: an earlier suspension or resumption failed", "end the process"
	default:
		e.Msg, e.Fix = "it is not suspended: its state is "+string(state), "there is nothing to resume"
	}
	return e
}

// checkMemory adds an obstacle if the GPU memory does not fit into host memory.
func (r *run) checkMemory(t target.Tree, p *target.Process) {
	need, known := heldBy(r.report.GPUsBefore)
	free, by, err := target.FreeMemory(t, p.PID)
	if err != nil || need == 0 {
		r.report.Notes = append(r.report.Notes, "it was not checked whether the GPU memory fits into host memory")
		return
	}
	if need <= free {
		return
	}
	detail := fmt.Sprintf("%s of GPU memory do not fit into host memory: %s are free, limited by %s", units.Bytes(need),
		units.Bytes(free), by)
	if !known {
		detail = fmt.Sprintf("the GPUs use %s, and %s of host memory are free, limited by %s; how much belongs to the "+
			"process, the driver does not tell", units.Bytes(need), units.Bytes(free), by)
	}
	r.report.Obstacles = append(r.report.Obstacles, Obstacle{What: "memory", Detail: detail, Blocks: known,
		Fix: "free host memory"})
}

// lock waits until the GPU work of the process has ended.
func (r *run) lock(d Driver, p *target.Process, o SuspendOptions) error {
	timeout := o.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	end := time.Now().Add(timeout)
	return r.step("lock", "waiting for the GPU work of process "+p.Shown(), func() error {
		for {
			left := time.Until(end)
			err := d.Lock(p.PID, min(max(left, time.Millisecond), lockSlice))
			if err == nil {
				if err := r.cancelled(); err != nil {
					return r.putBack(d, p, err)
				}
				return nil
			}
			if !d.IsTimeout(err) {
				return r.putBack(d, p, errs.Wrap("suspend process", p.Shown(), err))
			}
			if err := r.cancelled(); err != nil {
				return r.putBack(d, p, err)
			}
			if left <= lockSlice {
				return r.putBack(d, p, errs.New(errs.Device, "suspend process", p.Shown(), fmt.Sprintf(
					"its GPU work did not end within %s", timeout)).WithFix("give a longer --timeout, or wait for the work"))
			}
		}
	})
}

// checkpoint moves the GPU memory to host memory. After an interrupt or an error, the process is put back.
func (r *run) checkpoint(d Driver, p *target.Process) error {
	err := r.step("checkpoint", "moving the GPU memory of process "+p.Shown()+" to host memory", func() error {
		return d.Checkpoint(p.PID)
	})
	if err != nil {
		err = errs.Wrap("suspend process", p.Shown(), err)
	} else {
		err = r.cancelled()
	}
	if err != nil {
		return r.putBack(d, p, err)
	}
	return nil
}

// putBack brings a process back to running after the error cause, and returns cause with the result.
func (r *run) putBack(d Driver, p *target.Process, cause error) error {
	state, err := d.State(p.PID)
	if err == nil && state == device.ProcessSuspended {
		err = r.step("restore", "moving the GPU memory of process "+p.Shown()+" back", func() error {
			return d.Restore(p.PID, nil)
		})
		if err == nil {
			state = device.ProcessLocked
		}
	}
	if err == nil && state == device.ProcessLocked {
		if err = d.Unlock(p.PID); err == nil {
			state = device.ProcessRunning
		}
	}
	if err == nil && state == device.ProcessRunning {
		return after(cause, "the process runs on as before", "")
	}
	return r.lost(d, p, cause, err)
}

// lost says in which state a process is that could not be put back.
func (r *run) lost(d Driver, p *target.Process, cause, err error) error {
	why := ""
	if err != nil {
		why = " (" + errs.MessageOf(err) + ")"
	}
	state, stateErr := d.State(p.PID)
	switch {
	case stateErr != nil:
		return after(cause, "the process could not be put back, and the driver does not know its state"+why,
			"end the process if it does not go on")
	case state == device.ProcessFailed:
		return after(cause, "the process could not be put back: the driver has given it up (state failed)"+why,
			"end the process")
	}
	return after(cause, fmt.Sprintf("the process could not be put back: it is %s%s", state, why),
		fmt.Sprintf("try again: nebulaio process resume %d", p.PID))
}

// after adds what became of the process to an error. A fix that is given replaces the error's own.
func after(cause error, text, fix string) error {
	if fix == "" {
		fix = errs.FixOf(cause)
	}
	return &errs.Error{Kind: errs.KindOf(cause), Op: errs.MessageOf(cause), Msg: text, Err: hidden{cause}, Fix: fix}
}

// hidden keeps a cause for errors.Is without its text, which the error around it has already.
type hidden struct{ error }

// Unwrap returns the cause.
func (h hidden) Unwrap() error { return h.error }

// Error returns no text.
func (h hidden) Error() string { return "" }
