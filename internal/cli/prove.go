// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/doctor"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func proveFlag(fs *pflag.FlagSet, no *bool) {
	fs.BoolVar(no, "no-prove", false, "skip the test that reads from the path through cuFile")
}

// newDoctorProve returns the hidden command that doctor starts as a process to
// read through cuFile. It prints one line of JSON even if the reads fail.
func newDoctorProve(a *app) *cobra.Command {
	var gpu int
	cmd := &cobra.Command{
		Use:    "prove FILE",
		Short:  "Read a file to a GPU through cuFile and print cuFile's counters as JSON",
		Hidden: true,
		Args:   onePath("one file"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			set, err := open.New(
				open.Options{
					CUDALibraries:   given(a.CUDALibrary),
					NVMLLibraries:   given(a.NVMLLibrary),
					CuFileLibraries: given(a.CuFileLibrary),
				},
			)
			if err != nil {
				return err
			}
			p := doctor.ProveHere(ctx, set, gpu, args[0])
			b, err := json.Marshal(p)
			if err != nil {
				return errs.Wrap("encode", "JSON", err)
			}
			// Print before closing the devices: the answer survives even if closing
			// them ends the process.
			fmt.Fprintf(a.out, "%s\n", b)
			return set.Close()
		}),
	}
	cmd.Flags().Var(count(&gpu, 0, 0), "gpu", "index of the GPU in the order of the CUDA driver")
	return cmd
}

// given returns name as a slice, or nil if name is empty.
func given(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}
