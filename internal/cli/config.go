// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/node"
)

// configJSON lists every setting with its value and source.
type configJSON struct {
	Values []configValue `json:"values"`
	// Notes name accepted settings that have no effect.
	Notes []string `json:"notes"`
	// Warnings name probable mistakes, such as an unknown variable.
	Warnings []string `json:"warnings"`
}

type configValue struct {
	Key     string        `json:"key"`
	Value   string        `json:"value"`
	Source  config.Source `json:"source"`
	Type    config.Type   `json:"type"`
	Choices []string      `json:"choices,omitempty"`
	Default string        `json:"default"`
	Env     string        `json:"env"`
	Flag    string        `json:"flag,omitempty"`
	Meaning string        `json:"meaning"`
}

func newConfig(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show each server setting, its value and where the value comes from",
		Long: `Show each server setting, its value and where the value comes from.

The command has the flags of nebulaio server, and reads and checks the
configuration in the same way as the server. If the command succeeds, the server
accepts the configuration. The command starts no server, changes nothing and hides
secrets. The command does not check whether another process uses a port or the
store; nebulaio server checks that when it starts.`,
		Args: noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			c, err := s.load(a)
			if err != nil {
				return err
			}
			if err := node.Validate(ctx, c); err != nil {
				return err
			}
			if asJSON {
				all := configAsJSON(c)
				all.Warnings = append(all.Warnings, a.warnings...)
				return a.printJSON(all)
			}
			a.printText(func(w io.Writer) { printConfig(w, c) })
			return nil
		}),
	}
	s.addAll(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	return cmd
}

func configAsJSON(c *config.Config) configJSON {
	all := configJSON{Notes: append([]string{}, c.Notes()...), Warnings: []string{}}
	for _, v := range c.Values() {
		e := configValue{
			Key:     v.Key.Name,
			Value:   v.Text,
			Source:  v.Source,
			Type:    v.Key.Type,
			Choices: v.Key.Choices,
			Default: v.Key.Default,
			Env:     v.Key.Env(),
			Meaning: v.Key.Help,
		}
		if v.Key.Flag() != "" {
			e.Flag = "--" + v.Key.Flag()
		}
		all.Values = append(all.Values, e)
	}
	return all
}

func printConfig(w io.Writer, c *config.Config) {
	for _, v := range c.Values() {
		text := printable(v.Text)
		if text == "" {
			text = "(not set)"
		}
		fmt.Fprintf(w, "%s = %s  [%s]\n    %s\n", v.Key.Name, text, printable(v.Source.String()), v.Key.Help)
		if v.Key.FileOnly {
			fmt.Fprint(w, "    only in the file\n\n")
			continue
		}
		fmt.Fprintf(w, "    %s", v.Key.Env())
		if v.Key.Flag() != "" {
			fmt.Fprintf(w, ", --%s", v.Key.Flag())
		}
		fmt.Fprint(w, "\n\n")
	}
	for _, note := range c.Notes() {
		fmt.Fprintf(w, "note: %s\n", note)
	}
}
