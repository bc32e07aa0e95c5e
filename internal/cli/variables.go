// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio/internal/config"
)

// otherVariables lists NEBULAIO_ variables that neither the configuration nor a
// flag reads. A * matches any suffix.
func otherVariables() []string {
	return []string{
		// The library and its bindings.
		"NEBULAIO_LIBRARY", "NEBULAIO_CLI", "NEBULAIO_SECRET_KEY", "NEBULAIO_SOURCE_SECRET_KEY",
		// Tests and benchmarks of this project, which start servers and commands.
		"NEBULAIO_TEST_*", "NEBULAIO_CLI_TEST_*", "NEBULAIO_GPU_TEST_*",
		"NEBULAIO_EFFORT", "NEBULAIO_CRASH_*", "NEBULAIO_BENCH_*", "NEBULAIO_S3SUITE*", "NEBULAIO_UPSTREAMS*",
		"NEBULAIO_DOOR_CHILD", "NEBULAIO_DRAFT_DIR", "NEBULAIO_DRAFT_FIRST",
		"NEBULAIO_MEMORY_OBJECTS", "NEBULAIO_MEMORY_PROFILE", "NEBULAIO_MEMORY_ARGS", "NEBULAIO_KEYS",
	}
}

// flagVariables lists the variables that set a flag of cmd or of a command below it.
func flagVariables(cmd *cobra.Command) []string {
	var all []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		for _, name := range f.Annotations[envKey] {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	})
	for _, c := range cmd.Commands() {
		all = append(all, flagVariables(c)...)
	}
	return all
}

// unknownVariables returns a warning for each NEBULAIO_ variable without effect.
func (a *app) unknownVariables(root *cobra.Command) []string {
	if a.Environ == nil {
		return nil
	}
	return config.Unknown(a.Environ(), slices.Concat(otherVariables(), flagVariables(root)))
}

// warn prints warnings on stderr.
func (a *app) warn(all []string) {
	for _, w := range all {
		fmt.Fprintf(a.Stderr, "nebulaio: warning: %s\n", printable(w))
	}
}
