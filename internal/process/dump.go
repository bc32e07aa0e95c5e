// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/process/criu"
	"github.com/nebulaio/nebulaio/internal/process/image"
	"github.com/nebulaio/nebulaio/internal/process/target"
)

// DumpOptions choose how a process is dumped.
type DumpOptions struct {
	// CRIU is the path of criu; empty means the one in PATH.
	CRIU string
	// System is the engine that writes the image.
	System *nebulaio.System
	// LeaveRunning lets the process run on after the dump. Otherwise it is ended when its image is durable.
	LeaveRunning bool
	// TCPEstablished, ShellJob and FileLocks allow open TCP connections, a terminal and file locks. A restore uses them
	// too.
	TCPEstablished, ShellJob, FileLocks bool
	Args                                []string // further options of criu
	Suspend                             SuspendOptions
	// Log receives criu's log.
	Log *bytes.Buffer
	// Say, if not nil, is called with the text of each step, and Progress with the bytes of images so far. Other
	// goroutines call Say and Progress; calls of Progress do not overlap.
	Say      func(text string)
	Progress func(bytes int64)
}

// options returns the options of criu that the restore needs too.
func (o *DumpOptions) options() []string {
	var all []string
	for _, f := range []struct {
		on   bool
		name string
	}{{o.TCPEstablished, "--tcp-established"}, {o.ShellJob, "--shell-job"}, {o.FileLocks, "--file-locks"}} {
		if f.on {
			all = append(all, f.name)
		}
	}
	return all
}

// Dump writes a process and its children to a folder or an object. A process that uses GPUs is suspended first. If Dump
// fails, the process runs on, and there is no image.
func Dump(ctx context.Context, d Driver, pid int, to Place, o DumpOptions) (*Report, error) {
	p, err := find(target.Tree{}, "dump", pid, os.Getpid())
	if err != nil {
		return nil, err
	}
	r := begin(ctx, "dump", p, o.Say)
	tool, err := criu.Find(ctx, o.CRIU)
	if err != nil {
		return nil, err
	}
	if err := criu.Allowed("dump process", p.Shown(), o.Args); err != nil {
		return nil, err
	}
	if err := r.step("check", "checking criu "+tool.Version, func() error { return tool.Check(ctx) }); err != nil {
		return nil, err
	}
	if p.Tracer != 0 {
		return nil, refuse("dump", p, obstacles(p, nil, ""), false)
	}
	gpu, err := usesGPU(d, p)
	if err != nil {
		return nil, err
	}
	wasStopped := stopped(p.PID)
	out, err := to.create(ctx, o.System)
	if err != nil {
		return nil, err
	}
	suspended := false
	if gpu {
		o.Suspend.Say = o.Say
		rep, err := suspend(ctx, d, p, o.Suspend)
		if err != nil {
			out.Abort()
			return nil, err
		}
		suspended = true
		r.takeGPU(rep)
	}
	x := &dump{run: r, d: d, p: p, to: to, o: o, tool: tool, out: out, gpu: gpu}
	if err := x.write(); err != nil {
		out.Abort()
		return nil, x.undo(err, suspended, wasStopped)
	}
	if err := x.settle(suspended, wasStopped); err != nil {
		return nil, err
	}
	r.report.Seconds = time.Since(r.begun).Seconds()
	return r.report, nil
}

// usesGPU reports whether the driver has to suspend the process.
func usesGPU(d Driver, p *target.Process) (bool, error) {
	if !p.CUDA {
		return false, nil
	}
	if d.Processes == nil {
		return false, errs.Wrap("dump process", p.Shown(), d.Why)
	}
	if _, err := d.State(p.PID); err != nil {
		if len(p.GPUs) > 0 {
			return false, errs.Wrap("dump process", p.Shown(), err)
		}
		return false, nil // libcuda is loaded and not used
	}
	return true, nil
}

// takeGPU adds the report of a suspension or resumption.
func (r *run) takeGPU(g *Report) {
	rep := r.report
	rep.Steps = append(rep.Steps, g.Steps...)
	rep.Driver, rep.GPUBytes, rep.GBps = g.Driver, g.GPUBytes, g.GBps
	rep.GPUsBefore, rep.GPUsAfter = g.GPUsBefore, g.GPUsAfter
	rep.Obstacles, rep.Notes = append(rep.Obstacles, g.Obstacles...), append(rep.Notes, g.Notes...)
}

// dump is a dump in progress.
type dump struct {
	*run
	d    Driver
	p    *target.Process
	to   Place
	o    DumpOptions
	tool *criu.Program
	out  output
	gpu  bool
}

// receiver writes the image files of criu to the image.
type receiver struct {
	w        *image.Writer
	mu       sync.Mutex // one call of progress at a time
	progress func(int64)
}

// Receive implements criu.Output.
func (x *receiver) Receive(name string, r io.Reader) error {
	f, err := x.w.Create(name)
	if err != nil {
		return err
	}
	if _, err := f.ReadFrom(counted{r, x}); err != nil {
		return err
	}
	return f.Close()
}

// counted reports progress while an image file is read.
type counted struct {
	io.Reader
	x *receiver
}

// Read implements io.Reader.
func (c counted) Read(p []byte) (int, error) {
	if c.x.progress != nil {
		c.x.mu.Lock()
		c.x.progress(c.x.w.Bytes())
		c.x.mu.Unlock()
	}
	return c.Reader.Read(p)
}

// write runs criu and writes the image under its name.
func (x *dump) write() error {
	w := image.NewWriter(x.out)
	err := x.step("dump", "dumping process "+x.p.Shown()+" to "+x.to.String(), func() error {
		return x.tool.Dump(x.ctx, criu.DumpOptions{PID: x.p.PID, LeaveRunning: x.o.LeaveRunning && !x.gpu,
			Args: append(x.o.options(), x.o.Args...), Log: x.o.Log}, &receiver{w: w, progress: x.o.Progress})
	})
	if err != nil {
		return err
	}
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil {
		return errs.Wrap("read the name of", "the kernel", err)
	}
	index, size, err := w.Finish(image.Index{Created: time.Now().UTC(), PID: x.p.PID, Name: x.p.Name,
		Command: x.p.Command, Tool: "criu " + x.tool.Version, Machine: unix.ByteSliceToString(system.Machine[:]),
		Kernel: unix.ByteSliceToString(system.Release[:]), GPU: x.gpu, Options: x.o.options(), OtherPIDs: otherPIDs(x.p.PID)})
	if err != nil {
		return err
	}
	if err := x.step("commit", "making "+x.to.String()+" durable", x.out.Commit); err != nil {
		return err
	}
	x.report.Image = &ImageReport{Path: x.to.String(), Files: len(index.Files), Bytes: index.Bytes, Size: size,
		Pages: pagesOf(index), CRIU: x.tool.Version, Routes: x.out.Routes(), DumpedBy: index.Tool}
	return nil
}

// pagesOf returns the bytes of memory pages in an image.
func pagesOf(index image.Index) (n int64) {
	for _, f := range index.Files {
		if strings.HasPrefix(f.Name, "pages-") {
			n += f.Size
		}
	}
	return n
}

// otherPIDs reports whether a process lives in another PID namespace, where ids have another meaning.
func otherPIDs(pid int) bool {
	theirs, err1 := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	ours, err2 := os.Readlink("/proc/self/ns/pid")
	return err1 == nil && err2 == nil && theirs != ours
}

// undo lets the process run on after the error cause.
func (x *dump) undo(cause error, suspended, wasStopped bool) error {
	text := "the process runs on as before, and there is no image"
	if !wasStopped {
		if err := signalTree(x.p.PID, unix.SIGCONT); err != nil {
			return after(cause, "there is no image, and the process is stopped: "+errs.MessageOf(err),
				fmt.Sprintf("continue it: kill -CONT %d", x.p.PID))
		}
	}
	if suspended {
		o := ResumeOptions{Say: x.o.Say}
		if _, err := resume(context.WithoutCancel(x.ctx), x.d, x.p, o); err != nil {
			return after(cause, "there is no image, and the process is suspended: "+errs.MessageOf(err),
				fmt.Sprintf("resume it: nebulaio process resume %d", x.p.PID))
		}
	}
	return after(cause, text, "")
}

// settle ends the dumped process, or lets it run on. The image is durable already.
func (x *dump) settle(suspended, wasStopped bool) error {
	rep := x.report
	if !x.o.LeaveRunning {
		var left bool
		err := x.step("end", "ending process "+x.p.Shown(), func() (err error) {
			left, err = endTree(x.p.PID)
			return err
		})
		if err != nil {
			return after(errs.Wrap("end process", x.p.Shown(), err), "its image "+x.to.String()+" is complete", "")
		}
		if left {
			rep.Notes = append(rep.Notes, fmt.Sprintf("the parent has not waited for process %d: its id is free after that",
				x.p.PID))
		}
		rep.State = "ended"
		return nil
	}
	if suspended { // criu has stopped it, so that it stays as it was dumped
		if !wasStopped {
			if err := signalTree(x.p.PID, unix.SIGCONT); err != nil {
				return after(err, "the image "+x.to.String()+" is complete, and the process is stopped and suspended", "")
			}
		}
		back, err := resume(context.WithoutCancel(x.ctx), x.d, x.p, ResumeOptions{Say: x.o.Say})
		if err != nil {
			return after(err, "the image "+x.to.String()+" is complete, and the process is suspended", "")
		}
		rep.Steps = append(rep.Steps, back.Steps...)
	}
	rep.State = device.ProcessRunning
	rep.ResidentAfter = target.Resident(target.Tree{}, x.p.PID)
	return nil
}
