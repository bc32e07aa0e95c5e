// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/copying"
	"github.com/nebulaio/nebulaio/internal/place"
)

// syncFlags are the flags of sync.
type syncFlags struct {
	copyFlags
	t copying.TreeOptions
}

func newSync(a *app) *cobra.Command {
	var f syncFlags
	cmd := &cobra.Command{
		Use:   "sync SRC DST",
		Short: "Make a folder or a prefix equal to another one, copying what differs",
		Long: `Copy the files below SRC that DST does not have, or has with another size or an older
modification time.

SRC and DST are directories or s3://BUCKET/PREFIX. With --checksum, the content
decides instead of the time: sync compares checksums that the servers keep. With
--delete, sync removes files of DST that SRC does not have, after everything was
copied without an error. The flags --include and --exclude apply to SRC and DST. A
file that is left out is neither copied nor deleted.

If sync is interrupted or killed, run the same command again: sync goes on where it
ended.`,
		Args: sourceAndOut("a source and a destination"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			return f.withEnds(ctx, a, args[0], args[1], func(from, to place.Tree) error {
				f.t.Sync, f.t.Filter = true, &f.filter
				return f.trees(ctx, a, from, to, f.t)
			})
		}),
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.t.Delete, "delete", false, "remove files of DST that SRC does not have")
	fs.BoolVar(&f.t.DryRun, "dry-run", false, "print what would be copied and deleted, and change nothing")
	fs.BoolVar(&f.t.Checksum, "checksum", false, "compare the content of files of equal size instead of their times")
	f.define(fs)
	return cmd
}
