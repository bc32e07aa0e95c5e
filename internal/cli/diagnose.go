// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/blocklatency"
	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/diagnose"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// diagnoseFlags are the flags of diagnose.
type diagnoseFlags struct {
	json     bool
	ceilings string
	noGPU    bool
}

func newDiagnose(a *app) *cobra.Command {
	var f diagnoseFlags
	cmd := &cobra.Command{
		Use:   "diagnose [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command beside the meters, and say what holds it back",
		Long: `Run a command beside the meters, and say what holds it back.

The command runs as it would without nebulaio: its input, output, signals and exit
code are its own. When it has ended, nebulaio prints to standard error whether it
was compute-, communication-, storage-, copy- or cpu-bound, or that nothing stands
out. Four figures follow: GPU, network, storage and processors. The last lines say
which of the ten steps of tuning comes next, and what was not measured.

With --json, standard output carries the result as one JSON object, and the output
of the command goes to standard error. As root, nebulaio also counts the latencies
of block devices in the kernel. With NVIDIA's DCGM, it also reads how much of each
GPU computes.`,
		Args: commandGiven,
		RunE: a.run(func(ctx context.Context, args []string) error { return diagnoseCommand(ctx, a, f, args) }),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.SetInterspersed(false) // what follows COMMAND belongs to it
	fs.StringVar(&f.ceilings, "ceilings", "", "`file` with the measured limits of this machine, as written by "+
		"nebulaio bench ceilings")
	fs.BoolVar(&f.noGPU, "no-gpu", false, "do not read the meters of GPUs")
	fs.BoolVar(&f.json, "json", false, "print the result as one JSON object")
	return cmd
}

// commandGiven checks that there is a command to run.
func commandGiven(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || args[0] == "" {
		return errs.New(errs.Invalid, cmd.Name(), "", "no command given; expected -- COMMAND and its arguments")
	}
	return nil
}

// diagnoseCommand opens the meters, runs the command beside them and prints the result.
func diagnoseCommand(ctx context.Context, a *app, f diagnoseFlags, args []string) (err error) {
	c := diagnose.Config{Command: args, Stdin: a.Stdin, Stdout: a.Stdout, Stderr: a.Stderr}
	if f.json {
		c.Stdout = a.Stderr // stdout carries exactly one JSON object
	}
	var closing func() error
	if c.Meters, closing, err = openMeters(a, &topFlags{server: "off", ceilings: f.ceilings, noGPU: f.noGPU}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing()) }()
	if c.Blocks, err = blocklatency.Open(blocklatency.Places()...); err != nil {
		c.Notes = append(c.Notes, diagnose.Note("latencies of block devices", err))
	} else {
		defer func() { err = errors.Join(err, c.Blocks.Close()) }()
	}
	if len(c.Meters.Read(ctx).GPUs) > 0 { // DCGM is for machines with GPUs
		if c.Activity, err = open.Activity(given(a.DCGMLibrary)...); err != nil {
			c.Notes = append(c.Notes, diagnose.Note("activity of GPUs", err))
		} else {
			defer func() { err = errors.Join(err, c.Activity.Close()) }()
		}
	}
	if a.NotifyAll != nil {
		signals := make(chan os.Signal, 16)
		defer a.NotifyAll(signals)()
		c.Signals = signals
	}
	r, err := diagnose.Run(ctx, c)
	if err != nil {
		return err
	}
	a.exit = r.ExitCode
	if f.json {
		return a.printJSON(r)
	}
	printDiagnosis(a.Stderr, r)
	return nil
}

// printDiagnosis prints the result for people. Text of the command is not part of it, so that it is safe to print.
func printDiagnosis(w io.Writer, r diagnose.Result) {
	line := func(name, text string) { fmt.Fprintf(w, "  %-9s %s\n", name, printable(text)) }
	fmt.Fprintf(w, "nebulaio: %s: %s\n", r.Bound, printable(r.Why))
	for _, f := range r.Figures {
		share := "    -"
		if f.Share >= 0 {
			share = fmt.Sprintf("%3.0f %%", f.Share*100)
		}
		line(f.Name, share+"  "+f.Text)
	}
	for _, g := range r.Activity {
		line("activity", activityText(g))
	}
	for _, h := range r.Latencies {
		if h.Operation == "read" || h.Operation == "write" {
			line("latency", fmt.Sprintf("%s: %d %ss, half within %s, 99 %% within %s", h.Disk, h.Requests, h.Operation,
				seconds(h.Quantile(0.5)), seconds(h.Quantile(0.99))))
		}
	}
	line("next", fmt.Sprintf("step %d of %d, %s: %s", r.Step.Number, len(bottleneck.Steps()), r.Step.Title, r.Step.Do))
	for _, more := range r.Next[min(1, len(r.Next)):] {
		line("or", more)
	}
	ended := fmt.Sprintf("after %s with exit code %d", seconds(r.Seconds), r.ExitCode)
	if r.Signal != "" {
		ended = fmt.Sprintf("after %s by %s", seconds(r.Seconds), r.Signal)
	}
	line("ended", ended)
	for _, note := range r.Notes {
		line("note", note)
	}
}

func activityText(g device.GPUActivity) string {
	var parts []string
	share := func(name string, v float64) {
		if v >= 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f %%", name, v*100))
		}
	}
	share("multiprocessors", g.SM)
	share("tensor pipes", g.Tensor)
	share("memory", g.Memory)
	if v := max(g.NVLinkSent, g.NVLinkReceived); v > 0 {
		parts = append(parts, "NVLink "+units.Rate(v/1e9))
	}
	return fmt.Sprintf("GPU %d: %s", g.Index, strings.Join(parts, ", "))
}
