// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/node"
	"github.com/nebulaio/nebulaio/internal/units"
)

func newStoreBackup(a *app) *cobra.Command {
	var s settings
	var verify, asJSON bool
	cmd := &cobra.Command{
		Use:   "backup OUT",
		Short: "Copy a store, running or stopped, to another directory",
		Long: `Copy a store, running or stopped, to another directory.

A running server copies its store as it is at one moment, and goes on serving.
All that was acknowledged before the command began is in the copy: objects,
buckets, accounts and settings. OUT must not exist, and the directory above it
must; until the copy is whole it has the name OUT.partial. Take it back with
nebulaio store restore.`,
		Args: oneName("the directory of the backup"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			to, err := filepath.Abs(args[0])
			if err != nil {
				return errs.Wrap("back up store", args[0], err)
			}
			p := a.startProgress(0, asJSON)
			var report node.BackupReport
			err = a.administer(ctx, &s, func(n node.Admin, _ *config.Config) (err error) {
				stats, err := n.Stats(ctx)
				if err != nil {
					return err
				}
				total := stats.Bytes - stats.InlineBytes + stats.UploadBytes
				report, err = n.Backup(ctx, to, verify, func(now node.BackupReport) { p.update(now.Bytes, max(now.Bytes, total)) })
				return err
			})
			p.clear()
			if err != nil {
				return interrupted(ctx, err)
			}
			return a.printCopied(report, to, asJSON)
		}),
	}
	s.addStore(cmd.Flags())
	cmd.Flags().BoolVar(&verify, "verify", false, "read the copy again and compare it with its checksums")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func newStoreRestore(a *app) *cobra.Command {
	var s settings
	var verify, asJSON bool
	cmd := &cobra.Command{
		Use:   "restore BACKUP",
		Short: "Make a store out of a backup",
		Long: `Make a store out of a backup.

The directory of the store must be missing or empty. The backup stays as it is.`,
		Args: oneName("the directory of a backup"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			c, err := s.load(a)
			if err != nil {
				return err
			}
			p := a.startProgress(0, asJSON)
			report, err := node.Restore(ctx, c, args[0], verify, func(now node.BackupReport) { p.update(now.Bytes, 0) }) // nobody knows the total
			p.clear()
			if err != nil {
				return interrupted(ctx, err)
			}
			return a.printCopied(report, c.Data, asJSON)
		}),
	}
	s.addStore(cmd.Flags())
	cmd.Flags().BoolVar(&verify, "verify", false, "compare all content with its checksums before the store can be used")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) printCopied(r node.BackupReport, to string, asJSON bool) error {
	if asJSON {
		return a.printJSON(r)
	}
	a.printText(func(w io.Writer) {
		field(w, "copied", "the metadata, %s, %s", plural(int(r.Files), "file"), units.Bytes(r.Bytes))
		field(w, "to", "%s", printable(to))
		if r.Verified > 0 {
			field(w, "verified", "%s have their checksums", units.Bytes(r.Verified))
		}
	})
	return nil
}

func newStoreSalvage(a *app) *cobra.Command {
	var to string
	var link, asJSON bool
	cmd := &cobra.Command{
		Use:   "salvage SRC --to NEW",
		Short: "Save what is readable of a damaged store into a new one",
		Long: `Save what is readable of a damaged store into a new one.

SRC is the directory of a stopped store and is never changed. NEW must be missing
or empty. Each file of the metadata is read as far as it goes. An object is saved
if its record can be read and its content has the right checksum; all others are
listed as lost. Where changes were lost, objects that were deleted or overwritten
may be there again: those that this can concern are marked as doubtful.

The exit code is 5 where something is lost.`,
		Args: oneName("the directory of a damaged store"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if to == "" {
				return errs.New(errs.Invalid, "salvage store", args[0], "no new directory is named").WithFix("name one with --to")
			}
			p := a.startWork("reading the damaged store", asJSON)
			report, err := node.Salvage(ctx, args[0], to, link, func(changes, objects int64) {
				p.say(fmt.Sprintf("read %s of the metadata, saved %s", plural(int(changes), "change"), plural(int(objects), "version")))
			})
			p.clear()
			if err != nil {
				return interrupted(ctx, err)
			}
			if report.Lost > 0 || report.Problems > 0 || len(report.Warnings) > 0 {
				a.exit = errs.Corrupt.ExitCode()
			}
			if asJSON {
				return a.printJSON(report)
			}
			a.printText(func(w io.Writer) { printSalvage(w, report) })
			return nil
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "directory `NEW` of the new store, which is missing or empty")
	cmd.Flags().BoolVar(&link, "link", false, "share files of content with the damaged store where they cannot be cloned")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object with the names of what was saved and lost")
	return cmd
}

func printSalvage(w io.Writer, r node.SalvageReport) {
	for _, f := range r.Metadata {
		if f.Damage != "" {
			field(w, "damaged", "%s: %s", f.Name, printable(f.Damage))
		}
	}
	field(w, "read", "%s of the metadata", plural(int(r.Changes), "change"))
	field(w, "saved", "%s, %s, %s, %s, %s", plural(int(r.Buckets), "bucket"), plural(int(r.Objects), "version"), units.Bytes(r.Bytes),
		plural(int(r.Uploads), "upload"), plural(int(r.Records), "record"))
	if r.Doubtful > 0 {
		field(w, "doubtful", "%s may have been overwritten or deleted later", plural(int(r.Doubtful), "version"))
	}
	for _, l := range r.Losses {
		name := l.Key
		if l.Bucket != "" {
			name = fmt.Sprintf("%s/%s", l.Bucket, l.Key)
		}
		field(w, "lost", "%s: %s", printable(name), printable(l.Why))
	}
	if more := r.Lost - int64(len(r.Losses)); more > 0 {
		field(w, "", "and %d more", more)
	}
	for _, t := range r.Warnings {
		field(w, "warning", "%s", printable(t))
	}
	field(w, "result", "%d lost, %s in the new store", r.Lost, plural(int(r.Problems), "problem"))
}
