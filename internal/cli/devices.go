// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/units"
)

func newDevices(a *app) *cobra.Command {
	var opts nebulaio.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "Show the GPUs and GPU libraries of this machine, and a fix for each problem",
		Long: `Show the GPUs and GPU libraries of this machine, and a fix for each problem.

Without a usable GPU, the command fails only if --devices require is given.`,
		Args: noArgs,
		RunE: a.run(func(context.Context, []string) error {
			p := a.startWork("looking for GPUs", asJSON)
			defer p.clear()
			sys, err := nebulaio.NewSystem(opts)
			if err != nil {
				return err
			}
			s := sys.Survey()
			p.clear()
			if err := sys.Close(); err != nil {
				return err
			}
			return a.printResult(asJSON, s, func(w io.Writer) { printSurvey(w, s) })
		}),
	}
	systemFlags(cmd.Flags(), &opts, "devices")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	return cmd
}

func printSurvey(w io.Writer, s nebulaio.Survey) {
	if s.NoGPU == "" {
		field(w, "gpu", "%s usable", plural(len(s.Devices)-1, "GPU")) // host is the last device
	} else {
		field(w, "gpu", "none: %s", printable(s.NoGPU))
		if s.Fix != "" {
			fmt.Fprintf(w, "  fix: %s\n", printable(s.Fix))
		}
	}
	field(w, "mode", "%s", s.Mode)
	if len(s.Findings) > 0 {
		fmt.Fprintln(w)
		t := newTable("looked for", "result", "detail")
		for _, f := range s.Findings {
			result := "found"
			switch {
			case !f.Found && f.Needed:
				result = "missing, needed"
			case !f.Found:
				result = "missing"
			}
			t.add(printable(f.Name), result, printable(f.Detail))
		}
		t.print(w)
		for _, f := range s.Findings {
			// The fix of the decisive finding is printed above.
			if !f.Found && f.Fix != "" && f.Fix != s.Fix {
				fmt.Fprintf(w, "  fix for %s: %s\n", printable(f.Name), printable(f.Fix))
			}
		}
	}
	for _, d := range s.Devices {
		fmt.Fprintln(w)
		printDevice(w, d)
	}
}

func printDevice(w io.Writer, d nebulaio.DeviceInfo) {
	field(w, "device", "%s (%s)", d.ID, printable(d.Model))
	line := func(name, v string) {
		if v != "" {
			fmt.Fprintf(w, "  %-24s%s\n", name, printable(v))
		}
	}
	line("kind", string(d.Kind))
	if d.TotalMemory > 0 {
		line("memory", units.Bytes(d.TotalMemory))
	}
	line("uuid", d.UUID)
	line("pci", d.PCI)
	if d.NUMANode >= 0 {
		line("numa node", fmt.Sprint(d.NUMANode))
	}
	line("driver", d.Driver)
	for _, k := range slices.Sorted(maps.Keys(d.Facts)) {
		line(printable(k), d.Facts[k])
	}
}
