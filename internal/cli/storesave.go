// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/node"
	"github.com/nebulaio/nebulaio/internal/units"
)

func newStoreBackup(a *app) *cobra.Command {
	var s settings
	var verify, asJSON bool
	cmd := &cobra.Command{
		Use:   "backup OUT",
		Short: "Back up a store, with or without a running server, to another directory",
		Long: `Back up a store, with or without a running server, to another directory.

If a server runs on the store, the server copies a snapshot of the store and
continues to answer requests. The backup contains all changes that were
acknowledged before the command began: objects, buckets, accounts and settings.

The directory OUT must not exist, but its parent directory must. Until the backup
is complete, its name is OUT.partial. The command nebulaio store restore creates a
store from a backup.`,
		Args: oneName("the directory of the backup"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			to, err := filepath.Abs(args[0])
			if err != nil {
				return errs.Wrap("back up store", args[0], err)
			}
			p := a.startProgress(0, asJSON)
			var report node.BackupReport
			err = a.administer(ctx, &s, func(n node.Admin) (err error) {
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
	s.addStore(cmd, &asJSON)
	cmd.Flags().BoolVar(&verify, "verify", false, "read the backup again and compare it with its checksums")
	return cmd
}

func newStoreRestore(a *app) *cobra.Command {
	var s settings
	var verify, asJSON bool
	cmd := &cobra.Command{
		Use:   "restore BACKUP",
		Short: "Create a store from a backup",
		Long: `Create a store from a backup.

The directory of the new store must be missing or empty. The command does not
change the backup.`,
		Args: oneName("the directory of a backup"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			c, err := s.load(a)
			if err != nil {
				return err
			}
			p := a.startProgress(0, asJSON)
			report, err := node.Restore(ctx, c, args[0], verify,
				func(now node.BackupReport) { p.update(now.Bytes, 0) }) // the total is unknown
			p.clear()
			if err != nil {
				return interrupted(ctx, err)
			}
			return a.printCopied(report, c.Data, asJSON)
		}),
	}
	s.addStore(cmd, &asJSON)
	cmd.Flags().
		BoolVar(&verify, "verify", false,
			"compare the content of all objects with its checksums before the new store is ready for use")
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
			field(w, "verified", "%s match their checksums", units.Bytes(r.Verified))
		}
	})
	return nil
}

func newStoreSalvage(a *app) *cobra.Command {
	var to string
	var link, asJSON bool
	cmd := &cobra.Command{
		Use:   "salvage SRC --to NEW",
		Short: "Copy the readable objects of a damaged store into a new store",
		Long: `Copy the readable objects of a damaged store into a new store.

SRC is the directory of a stopped store and is never changed. The directory NEW
must be missing or empty. Each metadata file is read as far as possible. An object
is saved if its record is readable and its content matches its checksum. An object
that cannot be saved is listed as lost. If a part of the metadata is lost, an
object that had been deleted or overwritten may reappear. The report marks an
object as doubtful if a later change of the object may be lost.

The exit code is 5 if an object is lost, or if the report has a warning or a
problem of the new store.`,
		Args: oneName("the directory of a damaged store"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if to == "" {
				return errs.New(errs.Invalid, "salvage store", args[0], "no new directory is named").
					WithFix("name one with --to")
			}
			p := a.startWork("reading the damaged store", asJSON)
			report, err := node.Salvage(ctx, args[0], to, link, func(changes, objects int64) {
				p.say(fmt.Sprintf("read %s of the metadata, saved %s",
					plural(int(changes), "change"), plural(int(objects), "version")))
			})
			p.clear()
			if err != nil {
				return interrupted(ctx, err)
			}
			if report.Lost > 0 || report.Problems > 0 || len(report.Warnings) > 0 {
				a.exit = errs.Corrupt.ExitCode()
			}
			return a.printResult(asJSON, report, func(w io.Writer) { printSalvage(w, report) })
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "directory `NEW` of the new store; it must be missing or empty")
	cmd.Flags().BoolVar(&link, "link", false,
		"hard-link data files of the damaged store into the new store if the file system cannot clone them")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object that lists the saved and the lost objects")
	return cmd
}

func printSalvage(w io.Writer, r node.SalvageReport) {
	for _, f := range r.Metadata {
		if f.Damage != "" {
			field(w, "damaged", "%s: %s", f.Name, printable(f.Damage))
		}
	}
	field(w, "read", "%s of the metadata", plural(int(r.Changes), "change"))
	field(w, "saved", "%s, %s, %s, %s, %s", plural(int(r.Buckets), "bucket"), plural(int(r.Objects), "version"),
		units.Bytes(r.Bytes), plural(int(r.Uploads), "upload"), plural(int(r.Records), "record"))
	if r.Journal > 0 {
		field(w, "journal", "%s", plural(int(r.Journal), "waiting event or replication"))
	}
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
