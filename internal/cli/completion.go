// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/nearest"
)

// shells are the shells that have a completion script.
func shells() []string { return []string{"bash", "zsh", "fish", "powershell"} }

func newCompletion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a shell script that completes the commands, flags and values of nebulaio",
		Long: `Print a shell script that completes the commands, flags and values of nebulaio.

SHELL is bash, zsh, fish or powershell. When the user presses Tab, the script asks
nebulaio for the words that can follow: commands, flags, values and files. The
script for bash needs the package bash-completion.`,
		Example: `  # For this shell only:
  source <(nebulaio completion bash)

  # For every new shell:
  nebulaio completion bash > ~/.local/share/bash-completion/completions/nebulaio
  nebulaio completion zsh > "${fpath[1]}/_nebulaio"
  nebulaio completion fish > ~/.config/fish/completions/nebulaio.fish`,
		ValidArgs: shells(),
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return errs.New(errs.Invalid, "completion", "", fmt.Sprintf("%s given; expected one, %s",
					plural(len(args), "shell"), list(shells())))
			case !slices.Contains(shells(), args[0]):
				return errs.New(errs.Invalid, "completion", "", fmt.Sprintf("unknown shell %q; expected %s%s", args[0],
					list(shells()), nearest.Hint(args[0], shells()...)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.run(func(context.Context, []string) error { return completionScript(cmd.Root(), a, args[0]) })(cmd, args)
		},
	}
}

func completionScript(root *cobra.Command, a *app, shell string) error {
	switch shell {
	case "bash":
		return root.GenBashCompletionV2(a.out, true)
	case "zsh":
		return root.GenZshCompletion(a.out)
	case "fish":
		return root.GenFishCompletion(a.out, true)
	}
	return root.GenPowerShellCompletionWithDesc(a.out)
}
