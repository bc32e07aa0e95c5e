// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/process/criu"
	"github.com/nebulaio/nebulaio/internal/process/image"
	"github.com/nebulaio/nebulaio/internal/process/target"
)

// RestoreOptions choose how a process is restored.
type RestoreOptions struct {
	CRIU   string // path of criu; empty means the one in PATH
	System *nebulaio.System
	Args   []string // further options of criu
	Resume ResumeOptions
	Log    *bytes.Buffer // receives criu's log
	// Say and Progress have the same meaning as in DumpOptions. Progress counts the bytes of the verification.
	Say      func(text string)
	Progress func(done, total int64)
}

// Restore makes a process from the image of a dump. Every checksum of the image is compared before criu begins. A
// process that used GPUs is resumed. If Restore fails, no process is left.
func Restore(ctx context.Context, d Driver, from Place, o RestoreOptions) (*Report, error) {
	tool, err := criu.Find(ctx, o.CRIU)
	if err != nil {
		return nil, err
	}
	src, err := openPlace(ctx, from, o.System)
	if err != nil {
		return nil, err
	}
	rep, err := restore(ctx, d, tool, src, from, o)
	return rep, errors.Join(err, src.Close())
}

func restore(ctx context.Context, d Driver, tool *criu.Program, src *source, from Place, o RestoreOptions) (*Report,
	error) {
	m, err := image.Open(src)
	if err != nil {
		return nil, err
	}
	index := m.Index()
	p := &target.Process{PID: index.PID, Name: index.Name}
	r := begin(ctx, "restore", p, o.Say)
	if err := possible(d, index); err != nil {
		return nil, err
	}
	if err := criu.Allowed("restore process", p.Shown(), o.Args); err != nil {
		return nil, err
	}
	if err := r.step("check", "checking criu "+tool.Version, func() error { return tool.Check(ctx) }); err != nil {
		return nil, err
	}
	err = r.step("verify", "comparing the checksums of "+from.String(), func() error { return m.Verify(ctx, o.Progress) })
	if err != nil {
		return nil, err
	}
	// What criu leaves behind after an error becomes a child of this process, which ends it and frees its id.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, errs.Wrap("restore process", p.Shown(), err)
	}
	var pid int
	err = r.step("restore", "restoring process "+p.Shown(), func() (err error) {
		pid, err = tool.Restore(ctx, criu.RestoreOptions{Args: append(index.Options, o.Args...), Log: o.Log}, sender{m})
		return err
	})
	if err == nil {
		err = r.cancelled()
	}
	if err == nil && index.GPU {
		err = r.resumeRestored(d, pid, o)
	}
	if err != nil {
		text := "no process is left"
		if pid == 0 {
			pid = index.PID // criu ends it, and its id is free when this process has waited for it
		}
		if e := endRestored(pid); e != nil {
			text = "the restored process could not be ended: " + errs.MessageOf(e)
		}
		return nil, after(err, text, "")
	}
	rep := r.report
	rep.PID, rep.State = pid, device.ProcessRunning
	rep.ResidentAfter = target.Resident(target.Tree{}, pid)
	rep.Image = &ImageReport{Path: from.String(), Files: len(index.Files), Bytes: index.Bytes, Size: src.Size(),
		Pages: pagesOf(index), CRIU: tool.Version, Verified: true, Routes: src.Routes(), DumpedBy: index.Tool}
	rep.Seconds = time.Since(r.begun).Seconds()
	return rep, nil
}

// endRestored ends a process that criu has made, and frees its id. A process that is not a child of this one is
// another.
func endRestored(pid int) error {
	if parentOf(pid) != os.Getpid() {
		return nil
	}
	if _, err := endTree(pid); err != nil {
		return err
	}
	for {
		_, err := unix.Wait4(pid, nil, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			return nil // it has ended: another part of this process may have waited for it
		}
	}
}

// resumeRestored moves the GPU memory of a restored process back to its GPUs.
func (r *run) resumeRestored(d Driver, pid int, o RestoreOptions) error {
	p, err := target.Read(target.Tree{}, pid)
	if err != nil {
		return err
	}
	o.Resume.Say = o.Say
	rep, err := resume(r.ctx, d, p, o.Resume)
	if err == nil {
		r.takeGPU(rep)
	}
	return err
}

// possible refuses an image that cannot be restored here, before criu begins.
func possible(d Driver, index image.Index) error {
	name := fmt.Sprintf("%d (%s)", index.PID, index.Name)
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil {
		return errs.Wrap("read the name of", "the kernel", err)
	}
	if here := unix.ByteSliceToString(system.Machine[:]); here != index.Machine {
		return errs.New(errs.Unsupported, "restore process", name, fmt.Sprintf(
			"it was dumped on a machine of type %.20q, and this machine is %s", index.Machine, here)).
			WithFix("restore it on a machine of the same type")
	}
	if index.GPU && d.Processes == nil {
		return errs.Wrap("restore process", name, d.Why)
	}
	if f := statOf(index.PID); !index.OtherPIDs && len(f) > 1 && f[0] == "Z" {
		return errs.New(errs.Invalid, "restore process", name, "its process id is in use: the process has ended, and its "+
			"parent, process "+f[1]+", has not waited for it").WithFix("end the parent, or let it wait")
	}
	if !index.OtherPIDs && unix.Kill(index.PID, 0) != unix.ESRCH {
		return errs.New(errs.Invalid, "restore process", name, "its process id is in use").
			WithFix("end the process that has the id, or restore on another machine")
	}
	return nil
}

// sender has the image files for criu.
type sender struct{ m *image.Image }

// Has implements criu.Input.
func (s sender) Has(name string) bool { return s.m.Has(name) }

// Send implements criu.Input.
func (s sender) Send(ctx context.Context, name string, w io.Writer) error {
	_, err := s.m.WriteFile(ctx, name, w)
	if errors.Is(err, unix.EPIPE) {
		return nil // criu has read as much as it wanted
	}
	return err
}
