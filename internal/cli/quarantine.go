// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/node"
)

// quarantineJSON is the --json output of store quarantine list.
type quarantineJSON struct {
	Entries []node.Quarantined `json:"entries"`
}

func newStoreQuarantine(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: "List and restore files and records that store check --repair has moved into quarantine/",
		Args:  noArgs,
		RunE:  a.needsCommand,
	}
	cmd.AddCommand(newQuarantineList(a), newQuarantineRestore(a))
	return cmd
}

func newQuarantineList(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the entries of the store's directory quarantine/ and the reason for each",
		Args:  noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			c, err := s.load(a)
			if err != nil {
				return err
			}
			all, err := node.Quarantine(ctx, c)
			if err != nil {
				return interrupted(ctx, err)
			}
			return a.printResult(asJSON, quarantineJSON{all}, func(w io.Writer) { printQuarantine(w, all) })
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

func newQuarantineRestore(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "restore NAME",
		Short: "Put one entry of quarantine/ back into the store",
		Long: `Put one entry of quarantine/ back into the store, by the name that store
quarantine list shows.

The server must be stopped while an entry is restored. A file returns to its
original path unless another file has that path now. A record returns to the
metadata unless the record was changed after the repair. If a record was changed
after the repair, the command lists the record and keeps its changed value, and
the exit code is 5.`,
		Args: oneName("the name of one entry that store quarantine list shows"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			c, err := s.load(a)
			if err != nil {
				return err
			}
			r, err := node.RestoreQuarantined(ctx, c, args[0])
			if err != nil {
				return interrupted(ctx, err)
			}
			if len(r.Kept) > 0 {
				a.exit = errs.Corrupt.ExitCode()
			}
			if asJSON {
				return a.printJSON(r)
			}
			a.printText(func(w io.Writer) {
				if r.Path != "" {
					field(w, "restored", "%s", printable(r.Path))
				} else {
					field(w, "restored", "%s", plural(r.Records, "record"))
				}
				for _, k := range r.Kept {
					field(w, "changed", "%s was not restored", printable(k))
				}
			})
			return nil
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

func printQuarantine(w io.Writer, all []node.Quarantined) {
	if len(all) == 0 {
		field(w, "result", "the quarantine is empty")
		return
	}
	for _, q := range all {
		what := "without a note"
		switch {
		case q.Kind == "file":
			what = "was " + q.Path
		case q.Restored:
			what = plural(q.Records, "record") + ", put back"
		case q.Kind == "records":
			what = plural(q.Records, "record")
		}
		field(w, q.Kind, "%s: %s, %s", printable(q.Name), printable(what), q.When)
		if q.Why != "" {
			field(w, "", "%s", printable(q.Why))
		}
	}
}
