// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	procs "github.com/nebulaio/nebulaio/internal/process"
	"github.com/nebulaio/nebulaio/internal/process/target"
	"github.com/nebulaio/nebulaio/internal/units"
)

func newProcess(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "process",
		Short: "Suspend, resume, dump and restore processes, also those that use GPUs",
		Long: `Suspend, resume, dump and restore processes, also those that use GPUs.

A suspended process keeps its host memory and holds no GPU memory. A dumped process
is a file or an object: it can be restored later, or on another machine of the same
kind.`,
		Args: noArgs,
		RunE: a.needsCommand,
	}
	cmd.AddCommand(newProcessSuspend(a), newProcessResume(a), newProcessStatus(a), newProcessDump(a), newProcessRestore(a))
	return cmd
}

// driverLibraries returns the libraries of the GPU driver, which tests replace.
func driverLibraries(a *app) open.Options {
	var o open.Options
	if a.CUDALibrary != "" {
		o.CUDALibraries = []string{a.CUDALibrary}
	}
	if a.NVMLLibrary != "" {
		o.NVMLLibraries = []string{a.NVMLLibrary}
	}
	return o
}

// withDriver calls f with the GPU driver. A machine without a driver is no error here: f decides.
func withDriver(a *app, f func(d procs.Driver) error) error {
	drv, err := open.Processes(driverLibraries(a))
	if err != nil {
		return f(procs.Driver{Why: err})
	}
	return errors.Join(f(procs.Driver{Processes: drv}), drv.Close())
}

// withEngine calls f with an engine that moves GPU memory.
func withEngine(a *app, needed bool, f func(sys *boot.System) error) error {
	if !needed {
		return f(nil)
	}
	sys, err := boot.New(boot.Options{Devices: driverLibraries(a)})
	if err != nil {
		return err
	}
	return errors.Join(f(sys), sys.Close())
}

// onePID checks that a command has exactly one process id.
func onePID(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errs.New(errs.Invalid, cmd.Name(), "", fmt.Sprintf("%d arguments given; expected the id of one process",
			len(args)))
	}
	_, err := parsePID(cmd.Name(), args[0])
	return err
}

func parsePID(op, text string) (int, error) {
	pid, err := strconv.Atoi(text)
	if err != nil || pid <= 0 {
		return 0, errs.New(errs.Invalid, op, "", fmt.Sprintf("%q is not a process id; expected a number of 1 or more", text)).
			WithFix("list the processes with ps or nvidia-smi")
	}
	return pid, nil
}

func newProcessSuspend(a *app) *cobra.Command {
	var o procs.SuspendOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "suspend PID",
		Short: "Move the GPU memory of a process to host memory, so that others can use the GPU",
		Long: `Move the GPU memory of a process to host memory, so that others can use the GPU.

The command first lists what stands in the way: CUDA IPC, MPS, NCCL, a debugger, too
little host memory. Then it waits until the GPU work of the process has ended, and
asks the driver to move the memory. The process waits at its next CUDA call until
nebulaio process resume. If the command fails or is interrupted, the process runs on.

The command needs NVIDIA driver 570 or newer, and the right to trace the process:
root, or the same user. With --to, a driver of CUDA 13.4 hands the GPU memory to
nebulaio, which writes it to a file with checksums instead of host memory.`,
		Args: onePID,
		RunE: a.run(func(ctx context.Context, args []string) error {
			pid, err := parsePID("suspend", args[0])
			if err != nil {
				return err
			}
			lines := &sharedProgress{p: a.startWork("looking at process "+args[0], asJSON)}
			defer lines.clear()
			o.Say = lines.say
			return withDriver(a, func(d procs.Driver) error {
				return withEngine(a, o.To != "", func(sys *boot.System) error {
					o.System = sys
					rep, err := procs.Suspend(ctx, d, pid, o)
					lines.clear()
					if err != nil {
						return interrupted(ctx, err)
					}
					return a.printResult(asJSON, rep, func(w io.Writer) { printProcess(w, rep) })
				})
			})
		}),
	}
	fs := cmd.Flags()
	suspendFlags(fs, &o)
	fs.Var(textFlag(&o.To, "FILE", "a file"), "to",
		"file for the GPU memory instead of host memory; needs a driver of CUDA 13.4")
	fs.BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	return cmd
}

// suspendFlags adds the flags of commands that suspend a process.
func suspendFlags(fs *pflag.FlagSet, o *procs.SuspendOptions) {
	fs.SortFlags = false
	fs.Var(duration(&o.Timeout), "timeout",
		"longest time to wait for the end of the process's GPU work, such as 30s; default "+procs.DefaultTimeout.String())
	fs.BoolVar(&o.Force, "force", false, "suspend the process although something stands in the way")
}

func newProcessResume(a *app) *cobra.Command {
	var o procs.ResumeOptions
	var pairs []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "resume PID",
		Short: "Move the GPU memory of a suspended process back, and let the process run on",
		Long: `Move the GPU memory of a suspended process back, and let the process run on.

If the GPU memory does not fit, the process stays suspended, and the command can be
repeated. A process that another program has left locked is unlocked. With
--device-map, the process goes on on other GPUs of the same model.`,
		Args: onePID,
		RunE: a.run(func(ctx context.Context, args []string) error {
			pid, err := parsePID("resume", args[0])
			if err != nil {
				return err
			}
			lines := &sharedProgress{p: a.startWork("looking at process "+args[0], asJSON)}
			defer lines.clear()
			o.Say = lines.say
			if o.Pairs, err = devicePairs(a, pairs); err != nil {
				return err
			}
			return withDriver(a, func(d procs.Driver) error {
				return withEngine(a, o.From != "", func(sys *boot.System) error {
					o.System = sys
					rep, err := procs.Resume(ctx, d, pid, o)
					lines.clear()
					if err != nil {
						return interrupted(ctx, err)
					}
					return a.printResult(asJSON, rep, func(w io.Writer) { printProcess(w, rep) })
				})
			})
		}),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	deviceMapFlag(fs, &pairs)
	fs.Var(textFlag(&o.From, "FILE", "a file"), "from", "file that suspend --to has written")
	fs.BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	return cmd
}

func deviceMapFlag(fs *pflag.FlagSet, pairs *[]string) {
	fs.StringArrayVar(pairs, "device-map", nil,
		"GPU that the process used and GPU on which it goes on, as `OLD=NEW`, each "+
			"a UUID or cuda:N; repeatable, for every GPU of the process")
}

// devicePairs reads the values of --device-map.
func devicePairs(a *app, texts []string) ([]device.GPUPair, error) {
	var all []device.GPUPair
	for _, text := range texts {
		bad := func(why string) ([]device.GPUPair, error) {
			return nil, errs.New(errs.Invalid, "read --device-map", strconv.Quote(text), why+
				"; expected OLD=NEW, each a UUID such as GPU-1b2c… or a device such as cuda:0").
				WithFix("list the GPUs with nebulaio devices")
		}
		from, to, ok := strings.Cut(text, "=")
		if !ok {
			return bad("has no =")
		}
		var pair device.GPUPair
		for name, at := range map[string]*[16]byte{from: &pair.Old, to: &pair.New} {
			id, why := uuidOf(a, name)
			if why != "" {
				return bad(why)
			}
			*at = id
		}
		if from == to {
			pair.Old = pair.New
		}
		all = append(all, pair)
	}
	return all, nil
}

// uuidOf returns the UUID of a GPU by its text or its device name, or the reason why there is none.
func uuidOf(a *app, name string) (id [16]byte, why string) {
	if strings.HasPrefix(name, "cuda:") {
		set, err := open.New(driverLibraries(a))
		if err != nil {
			return id, errs.MessageOf(err)
		}
		survey := set.Survey()
		if err := set.Close(); err != nil {
			return id, errs.MessageOf(err)
		}
		found := ""
		for _, info := range survey.Devices {
			if info.ID == name {
				found = info.UUID
			}
		}
		if found == "" {
			return id, "there is no GPU " + name + " here"
		}
		name = found
	}
	text := strings.ReplaceAll(strings.TrimPrefix(name, "GPU-"), "-", "")
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(id) {
		return id, fmt.Sprintf("%q is no UUID", name)
	}
	copy(id[:], b)
	return id, ""
}

func newProcessStatus(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status PID",
		Short: "Show whether a process is suspended, its memory, and what stands in the way of a suspension",
		Args:  onePID,
		RunE: a.run(func(ctx context.Context, args []string) error {
			pid, err := parsePID("status", args[0])
			if err != nil {
				return err
			}
			return withDriver(a, func(d procs.Driver) error {
				s, err := procs.Look(ctx, d, pid, target.Tree{})
				if err != nil {
					return err
				}
				return a.printResult(asJSON, s, func(w io.Writer) { printStatus(w, s) })
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	return cmd
}

func printStatus(w io.Writer, s *procs.Status) {
	field(w, "process", "%d (%s), user %d", s.PID, printable(s.Name), s.UID)
	if s.Command != "" {
		field(w, "command", "%s", printable(s.Command))
	}
	if s.State != "" {
		field(w, "state", "%s", s.State)
	} else {
		field(w, "state", "unknown: %s", printable(s.Why))
	}
	if s.Driver != "" {
		field(w, "driver", "%s", printable(s.Driver))
	}
	printMemory(w, "gpu", s.GPUMemory)
	field(w, "memory", "%s of host memory; %s more are free, limited by %s", units.Bytes(s.Resident),
		units.Bytes(s.FreeMemory), printable(s.FreeBy))
	printObstacles(w, s.Obstacles)
}

func printMemory(w io.Writer, name string, all []device.ProcessMemory) {
	for _, g := range all {
		own := "an unknown part"
		if g.Bytes >= 0 {
			own = units.Bytes(g.Bytes)
		}
		field(w, name, "%s of %s, which uses %s of %s", own, g.GPU, units.Bytes(g.Used), units.Bytes(g.Total))
	}
}

func printObstacles(w io.Writer, all []procs.Obstacle) {
	for _, o := range all {
		name := "note"
		if o.Blocks {
			name = "obstacle"
		}
		field(w, name, "%s: %s", o.What, printable(o.Detail))
		if o.Fix != "" {
			fmt.Fprintf(w, "  fix: %s\n", printable(o.Fix))
		}
	}
}

// printProcess prints the report of suspend, resume, dump and restore.
func printProcess(w io.Writer, r *procs.Report) {
	field(w, "process", "%d (%s)", r.PID, printable(r.Name))
	field(w, "state", "%s", r.State)
	if r.Driver != "" {
		what := map[string]string{"suspend": "freed", "dump": "freed"}[r.Op]
		if what == "" {
			what = "taken"
		}
		text := units.Bytes(r.GPUBytes) + " " + what
		if r.GBps > 0 {
			text += ", " + units.Rate(r.GBps)
		}
		field(w, "gpu", "%s", text)
		printMemory(w, "before", r.GPUsBefore)
		printMemory(w, "after", r.GPUsAfter)
	}
	if r.Storage != "" {
		field(w, "file", "%s", printable(r.Storage))
	}
	if r.ResidentAfter > 0 {
		field(w, "memory", "%s of host memory before, %s after", units.Bytes(r.ResidentBefore), units.Bytes(r.ResidentAfter))
	}
	if m := r.Image; m != nil {
		field(w, "image", "%s", printable(m.Path))
		field(w, "bytes", "%s in %s, of which %s are memory pages", sized(m.Bytes), plural(m.Files, "image file"),
			units.Bytes(m.Pages))
		field(w, "criu", "%s", printable(m.CRIU))
		if m.Verified {
			field(w, "verified", "all checksums, before criu began")
		}
	}
	field(w, "total", "%s", seconds(r.Seconds))
	for _, s := range r.Steps {
		field(w, "", "%s %s", s.Step, units.Duration(time.Duration(s.Seconds*float64(time.Second))))
	}
	printObstacles(w, r.Obstacles)
	for _, n := range r.Notes {
		field(w, "note", "%s", printable(n))
	}
}
