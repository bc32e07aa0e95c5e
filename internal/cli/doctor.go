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

// maxBaseline bounds the file of an earlier result.
const maxBaseline = 16 << 20

type doctorFlags struct {
	gpu                int
	profile            doctor.Profile
	json, script, all  bool
	noProve            bool
	baseline, captured string
}

// doctorJSON is the result with, where one was asked for, the comparison.
type doctorJSON struct {
	*doctor.Result
	Baseline *doctor.Diff `json:"baseline,omitempty"`
}

func newDoctor(a *app) *cobra.Command {
	var o doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor [PATH]",
		Short: "Tell what stands between a path and a GPU, and how to fix it",
		Long: `Tell what stands between a path and a GPU, and how to fix it.

The first cause on the nearest direct route comes first, then everything else by
what it costs. Nothing is changed. What only root may read is UNKNOWN and says
what to run. The exit code is 1 where a finding is FAIL.

With a GPU and libcufile the path is also read, 16 times 1 MiB, through cuFile in
a process of its own, and its counters prove the route. In a directory a file of
16 MiB is made for that time; --no-prove leaves it out.`,
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
	fs.Var(gpu, "gpu", "index of the GPU, as nebulaio devices counts; the first one where not given")
	fs.Var(choice(&o.profile, "USE", doctor.Train, doctor.Infer, doctor.Checkpoint), "profile", "what findings are ordered for: train, infer or checkpoint")
	fs.BoolVar(&o.json, "json", false, "print one JSON object")
	fs.BoolVar(&o.script, "fix-script", false, "print the fixes as a shell script to review; it is never run")
	fs.BoolVar(&o.all, "all", false, "show rules that hold or do not apply too")
	proveFlag(fs, &o.noProve)
	fs.StringVar(&o.baseline, "baseline", "", "compare with the `FILE` that an earlier --json wrote")
	fs.StringVar(&o.captured, "root", "", "judge the capture in `DIR`, a directory or tar, instead of this machine")
	cmd.AddCommand(newDoctorCapture(a), newDoctorProve(a))
	return cmd
}

func newDoctorCapture(a *app) *cobra.Command {
	var noProve, asJSON bool
	cmd := &cobra.Command{
		Use:   "capture OUT [PATH]",
		Short: "Keep what the checks read, to judge it elsewhere with doctor --root",
		Long: `Keep what the checks read, to judge it elsewhere with doctor --root.

OUT is a tar where it ends in .tar, else a new directory. It holds the files that
the checks read and nothing else: hardware, mounts, settings and names, no data.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && args[1] != "" {
				args = args[:1]
			}
			return onePath("a tar or directory to write, and optionally the path in question")(cmd, args)
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
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// captureJSON is what doctor capture wrote.
type captureJSON struct {
	Path   string   `json:"path"`
	Files  int      `json:"files"`
	Denied []string `json:"denied"` // files that could not be read
}

// look gathers what files do not tell about this machine: GPUs, and the way
// that cuFile takes from path to the GPU.
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
		return errs.New(errs.Invalid, "doctor", "", fmt.Sprintf("the path %q is given with --root; a capture knows its own path", path)).
			WithFix("leave the path out; it was given to doctor capture")
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
