// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// exitNoChecksums is the exit code of checkpoint verify for a checkpoint without checksums.
const exitNoChecksums = 10

func newCheckpoint(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "List, verify and prune checkpoints of training state",
		Args:  noArgs,
		RunE:  a.needsCommand,
	}
	cmd.AddCommand(newCheckpointList(a), newCheckpointVerify(a), newCheckpointPrune(a))
	return cmd
}

// checkpointsJSON is the result of checkpoint list.
type checkpointsJSON struct {
	Path        string                `json:"path"`
	Checkpoints []nebulaio.Checkpoint `json:"checkpoints"`
	Latest      string                `json:"latest,omitempty"` // path of the complete checkpoint with the highest step
}

func newCheckpointList(a *app) *cobra.Command {
	var o nebulaio.CheckpointListOptions
	var objects objectFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list PATH",
		Short: "List the complete checkpoints of a directory or a prefix",
		Long: `List the complete checkpoints of a directory or a prefix.

PATH is a root with checkpoints in directories such as step-0000000100, one
checkpoint, or s3://BUCKET/PREFIX of either. The list is sorted by step.

The formats are nebulaio (PyTorch's format with a manifest), torch (written by
PyTorch itself), safetensors, and torch-file (one file of torch.save). A
checkpoint that is not complete is listed only with --all, with the reason.`,
		Args: onePath("a directory of checkpoints or s3://BUCKET/PREFIX"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			return aboutCheckpoints(a, &objects, func(sys *nebulaio.System, client nebulaio.ClientOptions) error {
				o.Client = client
				all, err := sys.ListCheckpoints(ctx, args[0], o)
				if err != nil {
					return interrupted(ctx, err)
				}
				r := checkpointsJSON{Path: args[0], Checkpoints: all}
				for _, c := range all {
					if c.Complete && c.Step != nil {
						r.Latest = c.Path
					}
				}
				return a.printResult(asJSON, r, func(w io.Writer) { r.print(w, o.All) })
			})
		}),
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.All, "all", false, "also list checkpoints that are not complete, with the reason")
	fs.BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	objects.define(fs)
	return cmd
}

// aboutCheckpoints calls do with a system that needs no device.
func aboutCheckpoints(a *app, objects *objectFlags,
	do func(*nebulaio.System, nebulaio.ClientOptions) error) (err error) {
	client, err := objects.options(a)
	if err != nil {
		return err
	}
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	return do(sys, client)
}

func stepText(step *int64) string {
	if step == nil {
		return "-"
	}
	return strconv.FormatInt(*step, 10)
}

func worldText(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func (r checkpointsJSON) print(w io.Writer, all bool) {
	if len(r.Checkpoints) == 0 {
		what := "complete checkpoints"
		if all {
			what = "checkpoints"
		}
		fmt.Fprintf(w, "there are no %s in %s\n", what, printable(r.Path))
		return
	}
	heads := []string{"name", ">step", "format", ">world", ">files", ">size", "checksums", "time"}
	if all {
		heads = append(heads, "complete")
	}
	t := newTable(heads...)
	for _, c := range r.Checkpoints {
		format := c.Format
		if format == "" {
			format = "-"
		}
		row := []string{printable(c.Name), stepText(c.Step), format, worldText(c.World), strconv.Itoa(c.Files),
			units.Bytes(c.Bytes), yesNo(c.Checksums), c.Time.UTC().Format(time.DateTime)}
		if all && c.Complete {
			row = append(row, "yes")
		} else if all {
			row = append(row, "no: "+printable(c.Reason))
		}
		t.add(row...)
	}
	t.print(w)
}

func newCheckpointVerify(a *app) *cobra.Command {
	var objects objectFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify PATH",
		Short: "Compare all files of a checkpoint with their checksums",
		Long: `Compare all files of a checkpoint with their checksums.

PATH is one checkpoint, a file of torch.save or .safetensors, or s3://BUCKET/PREFIX
of either. The command reads every file. For damage it names the file, the bytes,
and the tensors in them. Objects without an object KEY.crc64nvme are compared with
the checksums of the server.

The exit code is 0 if all bytes agree with checksums, 5 if the checkpoint is
damaged, and 3 if a file is missing. If nothing is wrong but some files have no
checksums, the exit code is 10.`,
		Args: onePath("a checkpoint or s3://BUCKET/PREFIX"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			return aboutCheckpoints(a, &objects, func(sys *nebulaio.System, client nebulaio.ClientOptions) error {
				p := a.startProgress(0, asJSON)
				v, err := sys.VerifyCheckpoint(ctx, args[0], nebulaio.CheckpointVerifyOptions{Progress: p.update, Client: client})
				p.clear()
				if err != nil {
					return interrupted(ctx, err)
				}
				switch v.Verdict {
				case "damaged":
					a.exit = errs.Corrupt.ExitCode()
				case "incomplete":
					a.exit = errs.NotFound.ExitCode()
				case "no checksums":
					a.exit = exitNoChecksums
				}
				return a.printResult(asJSON, v, func(w io.Writer) { printVerification(w, v) })
			})
		}),
	}
	fs := cmd.Flags()
	fs.BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	objects.define(fs)
	return cmd
}

func printVerification(w io.Writer, v nebulaio.CheckpointVerification) {
	field(w, "path", "%s", printable(v.Path))
	field(w, "format", "%s, step %s, world %s", v.Format, stepText(v.Step), worldText(v.World))
	field(w, "files", "%d, %s", v.Files, sized(v.Bytes))
	rate := ""
	if v.Read > 0 && v.Seconds > 0 {
		rate = ", " + units.Rate(units.GBps(v.Read, time.Duration(v.Seconds*float64(time.Second))))
	}
	field(w, "compared", "%s in %s%s", sized(v.Read), seconds(v.Seconds), rate)
	for _, p := range v.Problems {
		field(w, p.Kind, "%s: %s", printable(p.File), printable(p.Message))
		if len(p.Tensors) > 0 {
			more := ""
			if p.MoreTensors > 0 {
				more = fmt.Sprintf(" and %d more", p.MoreTensors)
			}
			field(w, "", "tensors there: %s%s", printable(strings.Join(p.Tensors, ", ")), more)
		}
	}
	if v.More > 0 {
		field(w, "", "and %d more problems", v.More)
	}
	for _, name := range v.Unverified {
		field(w, "unchecked", "%s has no checksums; only its presence and its size were checked", printable(name))
	}
	for _, name := range v.Foreign {
		field(w, "foreign", "%s does not belong to this checkpoint", printable(name))
	}
	for _, note := range v.Notes {
		field(w, "note", "%s", printable(note))
	}
	field(w, "verdict", "%s", v.Verdict)
}

func newCheckpointPrune(a *app) *cobra.Command {
	var o nebulaio.CheckpointPruneOptions
	var objects objectFlags
	var asJSON bool
	var every int
	cmd := &cobra.Command{
		Use:   "prune PATH",
		Short: "Remove old checkpoints, and what killed saves left",
		Long: `Remove old checkpoints, and what killed saves left.

PATH is a root with checkpoints in directories such as step-0000000100, or
s3://BUCKET/PREFIX of one. The command removes only directories with such names.
The command never removes the last complete checkpoint, a directory to which a save may
still write, or a checkpoint that is damaged.

A checkpoint stays if --keep-last or --keep-every keeps it. At least one of the
two flags must be given. If the command is interrupted or killed, each checkpoint
is complete, or is no longer listed and is removed by the next prune.`,
		Args: onePath("a directory of checkpoints or s3://BUCKET/PREFIX"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if o.KeepLast == 0 && every == 0 {
				return errs.New(errs.Invalid, "prune", "", "neither --keep-last nor --keep-every is given").
					WithFix("say which checkpoints to keep, such as --keep-last 3")
			}
			o.KeepEvery = int64(every)
			return aboutCheckpoints(a, &objects, func(sys *nebulaio.System, client nebulaio.ClientOptions) error {
				o.Client = client
				p := a.startWork("removing checkpoints", asJSON)
				r, err := sys.PruneCheckpoints(ctx, args[0], o)
				p.clear()
				if err != nil {
					return interrupted(ctx, err)
				}
				return a.printResult(asJSON, r, func(w io.Writer) { printPruning(w, r) })
			})
		}),
	}
	fs := cmd.Flags()
	fs.Var(count(&o.KeepLast, 0, 1), "keep-last", "number of newest complete checkpoints to keep")
	fs.Var(count(&every, 0, 1), "keep-every", "keep checkpoints with a step that is divisible by this number")
	fs.BoolVar(&o.DryRun, "dry-run", false, "remove nothing; print what would be removed")
	fs.BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	objects.define(fs)
	return cmd
}

func printPruning(w io.Writer, r nebulaio.CheckpointPruning) {
	removed := "removed"
	if r.DryRun {
		removed = "to remove"
	}
	t := newTable("name", ">step", ">size", "result", "reason")
	for _, x := range r.Removed {
		t.add(printable(x.Name), stepText(x.Step), units.Bytes(x.Bytes), removed, printable(x.Reason))
	}
	for _, x := range r.Kept {
		t.add(printable(x.Name), stepText(x.Step), units.Bytes(x.Bytes), "kept", printable(x.Reason))
	}
	if len(r.Removed)+len(r.Kept) > 0 {
		t.print(w)
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s %s, %s; %d kept\n", plural(len(r.Removed), "checkpoint"), removed, sized(r.Bytes), len(r.Kept))
}
