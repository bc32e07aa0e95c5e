// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/doctor"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// maxBaseline is the largest accepted file of an earlier result, in bytes.
const maxBaseline = 16 << 20

type doctorFlags struct {
	gpu                int
	profile            doctor.Profile
	json, script, all  bool
	noProve            bool
	baseline, captured string
}

// doctorJSON is the result, with the comparison if --baseline is given.
type doctorJSON struct {
	*doctor.Result
	Baseline *doctor.Diff `json:"baseline,omitempty"`
}

func newDoctor(a *app) *cobra.Command {
	var o doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor [PATH]",
		Short: "Show what prevents direct reads from a path into a GPU, and how to fix it",
		Long: `Show what prevents direct reads from a path into a GPU, and how to fix it.

The first finding is the cause that blocks the best direct route from the path to
the GPU. All other findings follow: first by severity (FAIL before WARN), then by
the loss in GB/s, the greatest loss first. The command changes no settings. A
check that needs root has the result UNKNOWN and names the command to run as root.
The exit code is 1 if a check has the result FAIL.

With a GPU and libcufile, a separate process also reads 16 times 1 MiB from the
path through cuFile. cuFile's counters then show whether the bytes went directly
to the GPU. If the path is a directory, the command creates a temporary file of 16
MiB in it for the read through cuFile. The flag --no-prove skips the read through
cuFile.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return onePath("one file or directory, or none")(cmd, args)
		},
		RunE: a.run(func(ctx context.Context, args []string) error { return a.doctor(ctx, o, strings.Join(args, "")) }),
	}
	fs := cmd.Flags()
	gpu := count(&o.gpu, -1, 0)
	gpu.text = ""
	fs.Var(gpu, "gpu", "index of the GPU to check, as nebulaio devices shows it; default: the first GPU")
	fs.Var(choice(&o.profile, "USE", doctor.Train, doctor.Infer, doctor.Checkpoint), "profile",
		"workload that decides the order of findings: train, infer or checkpoint")
	fs.BoolVar(&o.json, "json", false, "print the result as one JSON object")
	fs.BoolVar(&o.script, "fix-script", false, "print the fixes as a shell script for review, without running it")
	fs.BoolVar(&o.all, "all", false, "also show checks that pass or do not apply")
	proveFlag(fs, &o.noProve)
	fs.StringVar(&o.baseline, "baseline", "",
		"compare the findings with those in `FILE`, the --json output of an earlier run")
	fs.StringVar(&o.captured, "root", "",
		"check the machine whose facts doctor capture stored in `DIR`, a directory or tar file")
	cmd.AddCommand(newDoctorCapture(a), newDoctorProve(a))
	return cmd
}

func newDoctorCapture(a *app) *cobra.Command {
	var noProve, asJSON bool
	cmd := &cobra.Command{
		Use:   "capture OUT [PATH]",
		Short: "Store the facts that doctor reads from this machine, to check them elsewhere with doctor --root",
		Long: `Store the facts that doctor reads from this machine, to check them elsewhere with
doctor --root.

If the name OUT ends in .tar, the command writes a tar file, otherwise a new
directory. OUT contains only the files that the checks of doctor read, which
describe hardware, mounts, settings and names. OUT contains no user data.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && args[1] != "" {
				args = args[:1]
			}
			return onePath("a tar file or directory to write, and optionally the path to check")(cmd, args)
		},
		RunE: a.run(func(ctx context.Context, args []string) error {
			p := a.startWork("looking at this machine", asJSON)
			defer p.clear()
			m, err := a.look(ctx, strings.Join(args[1:], ""), -1, noProve)
			if err != nil {
				return err
			}
			c, err := doctor.Capture(args[0], facts.Live(), m)
			p.clear()
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(captureJSON{Path: args[0], Files: c.Files, Denied: append([]string{}, c.Denied...)})
			}
			a.printText(func(w io.Writer) {
				field(w, "captured", "%s in %s", plural(c.Files, "file"), printable(args[0]))
				for _, p := range c.Denied {
					field(w, "", "could not be read: %s", printable(p))
				}
			})
			return nil
		}),
	}
	proveFlag(cmd.Flags(), &noProve)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	return cmd
}

// captureJSON describes a written capture.
type captureJSON struct {
	Path   string   `json:"path"`
	Files  int      `json:"files"`
	Denied []string `json:"denied"` // files that were not readable
}

// look collects the facts that are in no file of this machine: the GPUs, and the route that cuFile takes from path to
// the GPU.
func (a *app) look(ctx context.Context, path string, gpu int, noProve bool) (facts.Meta, error) {
	m, err := facts.Look(path, a.Env)
	if err != nil {
		return m, err
	}
	set, err := open.New(open.Options{CUDALibraries: given(a.CUDALibrary), NVMLLibraries: given(a.NVMLLibrary)})
	if err != nil {
		return m, err
	}
	s := set.Survey()
	m.Survey = &s
	if err := set.Close(); err != nil {
		return m, err
	}
	if noProve {
		m.Proof = &facts.Proof{Skipped: "--no-prove was given"}
		return m, nil
	}
	m.Proof = doctor.Prove(ctx, facts.Live(), m, doctor.ProveOptions{GPU: gpu, Command: a.Command})
	if ctx.Err() != nil {
		return m, context.Cause(ctx)
	}
	return m, nil
}

func (a *app) doctor(ctx context.Context, o doctorFlags, path string) error {
	if o.json && o.script {
		return errs.New(errs.Invalid, "doctor", "", "--json and --fix-script are given; expected one of them")
	}
	if o.captured != "" && path != "" {
		return errs.New(errs.Invalid, "doctor", "",
			fmt.Sprintf("the path %q is given with --root, but a capture contains its own path", path)).
			WithFix("omit the path; it was given to doctor capture")
	}
	tree := facts.Live()
	var m facts.Meta
	var err error
	if o.captured != "" {
		tree, m, err = facts.Load(o.captured)
	} else {
		p := a.startWork("looking at this machine", o.json || o.script)
		m, err = a.look(ctx, path, o.gpu, o.noProve)
		p.clear()
	}
	if err != nil {
		return err
	}
	res, err := doctor.Diagnose(tree, m, doctor.Options{GPU: o.gpu, Profile: o.profile})
	if err != nil {
		return err
	}
	out := doctorJSON{Result: res}
	if o.baseline != "" {
		before, err := readBaseline(o.baseline)
		if err != nil {
			return err
		}
		d := doctor.Compare(before, res)
		out.Baseline = &d
	}
	if res.Failed() {
		a.exit = errs.Other.ExitCode()
	}
	switch {
	case o.json:
		return a.printJSON(out)
	case o.script:
		a.printText(func(w io.Writer) { doctor.WriteFixScript(w, res) })
	default:
		a.printText(func(w io.Writer) {
			doctor.WriteText(w, res, o.all)
			if out.Baseline != nil {
				doctor.WriteDiff(w, *out.Baseline)
			}
		})
	}
	return nil
}

func readBaseline(name string) (*doctor.Result, error) {
	b, err := readBounded("read baseline", name, maxBaseline)
	if err != nil {
		return nil, err
	}
	return doctor.ParseResult(name, b)
}
