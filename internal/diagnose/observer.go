// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/meters"
)

// observer reads everything while the command runs, and judges it afterwards.
type observer struct {
	Config
	watch     *watch
	windows   []bottleneck.Window
	throttled []float64 // of the command's control groups, by sample
	group     string
	active    map[int][]device.GPUActivity
	blind     error // of Activity
}

// until observes the command until it has ended, and returns the result of waiting for it.
func (o *observer) until(ctx context.Context, ended <-chan error, command *os.Process) error {
	looks := time.NewTimer(0)
	defer looks.Stop()
	samples := time.NewTicker(samplePause)
	defer samples.Stop()
	// The end of ctx must not cut the samples short: the command still runs.
	ctx = context.WithoutCancel(ctx)
	for {
		select {
		case err := <-ended:
			if len(o.windows) == 0 { // a short command has one sample at its end
				o.sample(ctx)
			}
			return err
		case <-looks.C:
			now := time.Now()
			o.watch.look(now)
			// A look at a command with many threads takes its time. It must not become a load itself.
			looks.Reset(min(max(leastPause, time.Duration(float64(time.Since(now))/ownShare)), mostPause))
		case <-samples.C:
			o.sample(ctx)
		case s := <-o.Signals:
			if !sentByTerminal(s) {
				_ = command.Signal(s) // a command that has ended meanwhile needs none
			}
		}
	}
}

// sentByTerminal reports whether a signal came from the keyboard. The terminal then sends it to the command as well,
// which is in the same group of processes.
func sentByTerminal(s os.Signal) bool {
	if s != unix.SIGINT && s != unix.SIGQUIT {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// sample reads the machine's meters once.
func (o *observer) sample(ctx context.Context) {
	s := o.Meters.Read(ctx)
	o.windows = append(o.windows, s.Window())
	share, group := throttling(s, o.watch.groups)
	if share > 0 {
		o.group = group
	}
	o.throttled = append(o.throttled, share)
	if o.Activity == nil || o.blind != nil {
		return
	}
	all, err := o.Activity.Activity()
	if o.blind = err; err != nil {
		return
	}
	if o.active == nil {
		o.active = map[int][]device.GPUActivity{}
	}
	for _, g := range all {
		o.active[g.Index] = append(o.active[g.Index], g)
	}
}

// throttling returns the share of the periods in which the quota of one of the groups stopped it, and its path.
func throttling(s *meters.Sample, groups []string) (share float64, path string) {
	for _, g := range s.CGroups {
		if g.Quota > 0 && g.ThrottledShare > share && slices.Contains(groups, g.Path) {
			share, path = g.ThrottledShare, g.Path
		}
	}
	return share, path
}

// judge fills the verdict and the measurements into the result.
func (o *observer) judge(r *Result, state *os.ProcessState) {
	w := bottleneck.Mean(o.windows)
	o.watch.fill(&w, r.Seconds, state.UserTime().Seconds(), state.SystemTime().Seconds(), usable())
	w.CPU.Throttled, w.CPU.Group = meanOf(o.throttled), o.group
	r.Activity = o.activity()
	for i := range w.GPUs {
		for _, a := range r.Activity {
			if w.GPUs[i].Name == fmt.Sprintf("GPU %d", a.Index) {
				w.GPUs[i].Active = a.SM
				w.GPUs[i].PCIeGBps = max(w.GPUs[i].PCIeGBps, a.PCIeReceived/1e9, a.PCIeSent/1e9)
			}
		}
	}
	r.Verdict = bottleneck.Judge(w)
	if o.blind != nil {
		r.Notes = append(r.Notes, Note("activity of GPUs", o.blind))
	}
	if o.Blocks != nil {
		all, err := o.Blocks.Read()
		if err != nil {
			r.Notes = append(r.Notes, Note("latencies of block devices", err))
		}
		r.Latencies = all
	}
}

// activity returns the mean activity of each GPU.
func (o *observer) activity() (all []device.GPUActivity) {
	for index, seen := range o.active {
		mean := device.GPUActivity{Index: index}
		for to, from := range map[*float64]func(device.GPUActivity) float64{
			&mean.SM:             func(g device.GPUActivity) float64 { return g.SM },
			&mean.Tensor:         func(g device.GPUActivity) float64 { return g.Tensor },
			&mean.Memory:         func(g device.GPUActivity) float64 { return g.Memory },
			&mean.PCIeSent:       func(g device.GPUActivity) float64 { return g.PCIeSent },
			&mean.PCIeReceived:   func(g device.GPUActivity) float64 { return g.PCIeReceived },
			&mean.NVLinkSent:     func(g device.GPUActivity) float64 { return g.NVLinkSent },
			&mean.NVLinkReceived: func(g device.GPUActivity) float64 { return g.NVLinkReceived },
		} {
			var known []float64
			for _, g := range seen {
				if v := from(g); v >= 0 {
					known = append(known, v)
				}
			}
			if *to = device.UnknownActivity; len(known) > 0 {
				*to = meanOf(known)
			}
		}
		all = append(all, mean)
	}
	slices.SortFunc(all, func(a, b device.GPUActivity) int { return a.Index - b.Index })
	return all
}

func meanOf(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}

// Note returns the note that something was not measured, with the reason and the fix.
func Note(what string, err error) string {
	reason := errs.MessageOf(err)
	if e := (*errs.Error)(nil); errors.As(err, &e) && e.Msg != "" {
		reason = e.Msg // what was to be done is said already
	}
	text := what + ": not measured: " + reason
	if fix := errs.FixOf(err); fix != "" {
		text += " (fix: " + fix + ")"
	}
	return text
}
