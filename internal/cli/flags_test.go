// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/tuning"
)

// TestEveryOptionHasItsFlag looks for each flag of the table in the commands, with its help and its variable.
func TestEveryOptionHasItsFlag(t *testing.T) {
	for _, o := range tuning.Options() {
		if o.Flag == "" {
			continue
		}
		found := 0
		var walk func(c *cobra.Command)
		walk = func(c *cobra.Command) {
			if f := c.Flags().Lookup(o.Flag); f != nil {
				if env := f.Annotations[envKey]; len(env) == 1 && env[0] == o.Environment() && f.Usage == o.HelpText()+" ["+
					o.Environment()+"]" {
					found++
				} else if len(env) > 0 { // a flag of that name with another meaning has no variable
					t.Errorf("%s --%s: variables %v, help %q; expected %s, %q", c.CommandPath(), o.Flag, env, f.Usage, o.Environment(),
						o.HelpText())
				}
			}
			for _, sub := range c.Commands() {
				walk(sub)
			}
		}
		walk(testRoot())
		if found == 0 {
			t.Errorf("no command has --%s", o.Flag)
		}
	}
}
