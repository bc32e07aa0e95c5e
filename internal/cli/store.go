// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/node"
	"github.com/nebulaio/nebulaio/internal/units"
)

func newStore(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Check, repair, scrub, back up and restore an object store, and show its statistics",
		Args:  noArgs,
		RunE:  a.needsCommand,
	}
	cmd.AddCommand(newStoreCheck(a), newStoreQuarantine(a), newStoreScrub(a), newStoreStats(a), newStoreBackup(a),
		newStoreRestore(a), newStoreSalvage(a))
	return cmd
}

func newStoreCheck(a *app) *cobra.Command {
	var s settings
	var o node.CheckOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check that the metadata and the data files of a stopped store agree",
		Long: `Check that the metadata and the data files of a stopped store agree.

The command reads every metadata file, even if an earlier metadata file is
damaged. The command decodes every record and compares the size of every data file
with the size in its record. The content of objects is read only with --content.
The command store scrub also reads content, and works while a server runs. Damaged
metadata files are not repaired: restore a backup, or use nebulaio store salvage.

Without --repair the command changes nothing. With --repair, the command does the
following:

  - corrects indexes, counts and marks
  - rebuilds damaged buckets with their objects
  - moves files and records that nothing refers to into quarantine/

A repair deletes nothing. The command store quarantine lists and restores what a
repair has moved. If a record is unreadable or another problem cannot be repaired,
the repair moves nothing, because an unused file might belong to the unreadable
record. With the flag --unreadable, the repair also moves damaged records of
objects, uploads and parts, and then the files that belonged to them. Records of a
newer version of nebulaio are never moved.

The exit code is 5 if the store still has a problem when the command ends.`,
		Args: noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			c, err := s.load(a)
			if err != nil {
				return err
			}
			if o.Unreadable && !o.Repair {
				return errs.New(errs.Invalid, "", "", "--unreadable is given without --repair; expected both")
			}
			p := a.startWork("checking the store", asJSON)
			o.Progress = func(now node.CheckProgress) {
				text := fmt.Sprintf("checked %s, %s", plural(int(now.Records), "record"), plural(int(now.Files), "file"))
				if now.Bytes > 0 {
					text += ", " + units.Bytes(now.Bytes) + " of content"
				}
				p.say(text)
			}
			report, err := node.Check(ctx, c, o)
			p.clear()
			if err != nil {
				return interrupted(ctx, err)
			}
			if !report.Clean() {
				a.exit = errs.Corrupt.ExitCode()
			}
			return a.printResult(asJSON, report, func(w io.Writer) { printCheck(w, report) })
		}),
	}
	s.addStore(cmd, &asJSON)
	cmd.Flags().BoolVar(&o.Repair, "repair", false,
		"correct values that can be derived from other records, and move unused files and records into quarantine/")
	cmd.Flags().BoolVar(&o.Unreadable, "unreadable", false, "with --repair, also move damaged records into quarantine/")
	cmd.Flags().BoolVar(&o.Content, "content", false,
		"also read the content of all objects and compare it with its checksums")
	return cmd
}

func newStoreScrub(a *app) *cobra.Command {
	var s settings
	var rate int64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "scrub",
		Short: "Read the content of all objects of a store and compare it with its checksums",
		Long: `Read the content of all objects of a store and compare it with its checksums.

If a server runs on the store, the server does the scrub and continues to answer
requests. If no server runs, the command opens the store itself. The command lists
each damaged block of content. The exit code is 5 if a block of content is
damaged.`,
		Args: noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			p := a.startProgress(0, asJSON)
			report, err := ask(ctx, a, &s, func(n node.Admin) (node.ScrubReport, error) {
				return n.Scrub(ctx, rate, func(now node.ScrubProgress) { p.update(now.Done, now.Total) })
			})
			p.clear()
			if err != nil {
				return interrupted(ctx, err)
			}
			if !report.Clean() {
				a.exit = errs.Corrupt.ExitCode()
			}
			return a.printResult(asJSON, report, func(w io.Writer) { printScrub(w, report) })
		}),
	}
	s.addStore(cmd, &asJSON)
	cmd.Flags().Var(size(&rate), "rate", "largest number of bytes to read per second, such as 100MiB; 0 means no limit")
	return cmd
}

func newStoreStats(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show how many objects, versions and uploads a store has, and their size",
		Args:  noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			stats, err := ask(ctx, a, &s, func(n node.Admin) (node.Stats, error) { return n.Stats(ctx) })
			if err != nil {
				return interrupted(ctx, err)
			}
			return a.printResult(asJSON, stats, func(w io.Writer) { printStats(w, stats) })
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

func printCheck(w io.Writer, r node.CheckReport) {
	field(w, "checked", "%s, %s, %s, %s", plural(int(r.Records), "record"), plural(int(r.Versions), "version"),
		plural(int(r.Files), "file"), units.Bytes(r.Bytes))
	for _, p := range r.Problems {
		name := "wrong"
		if p.Repaired {
			name = "repaired"
		}
		field(w, name, "%s: %s (%s)", printable(p.What), printable(p.Message), p.Invariant)
		if p.Did != "" {
			field(w, "", "%s", printable(p.Did))
		}
	}
	if more := r.Found - int64(len(r.Problems)); more > 0 {
		field(w, "", "and %s more", plural(int(more), "problem"))
	}
	damaged := 0
	for _, f := range r.Metadata {
		if f.Damage != "" {
			damaged++
		}
	}
	if damaged > 0 {
		field(w, "metadata", "%d of %s damaged; nothing else was checked", damaged, plural(len(r.Metadata), "file"))
		field(w, "fix", "restore a backup with nebulaio store restore, or save what is readable with nebulaio store salvage")
	}
	switch {
	case r.Found == 0:
		field(w, "result", "clean")
	case r.Clean():
		field(w, "result", "%s, all of them repaired", plural(int(r.Found), "problem"))
	default:
		field(w, "result", "%s, %d of them repaired", plural(int(r.Found), "problem"), r.Repaired)
	}
}

func printScrub(w io.Writer, r node.ScrubReport) {
	field(w, "scrubbed", "%s, %s in %s", plural(int(r.Objects), "object"), units.Bytes(r.Bytes), seconds(r.Seconds))
	for _, d := range r.Damage {
		name := d.Bucket + "/" + d.Key
		if d.Version != "" {
			name += " version " + d.Version
		}
		where := "with the metadata"
		if d.File != "" {
			where = "in " + d.File
		}
		field(w, "damage", "%s: %s, %d bytes at %d, %s", d.What, printable(name), d.Length, d.Offset, printable(where))
	}
	if more := r.Damaged - int64(len(r.Damage)); more > 0 {
		field(w, "", "and %s more", plural(int(more), "block"))
	}
	if r.Clean() {
		field(w, "result", "clean")
	} else {
		field(w, "result", "%s", plural(int(r.Damaged), "damaged block"))
	}
}

func printStats(w io.Writer, s node.Stats) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-16s%s\n", name, fmt.Sprintf(format, args...))
	}
	row("buckets", "%d", s.Buckets)
	row("objects", "%d", s.Objects)
	row("old versions", "%d, and %s", s.Versions, plural(int(s.Markers), "delete marker"))
	row("content", "%s in %s and %s with the metadata", units.Bytes(s.Bytes-s.InlineBytes),
		plural(int(s.Files), "file"), units.Bytes(s.InlineBytes))
	row("uploads", "%d in progress, %s", s.Uploads, units.Bytes(s.UploadBytes))
	row("metadata", "%s, and a log of %s", units.Bytes(s.MetadataBytes), units.Bytes(s.LogBytes))
	row("free space", "%s", units.Bytes(s.FreeBytes))
	row("data files", "%d kept open, %d to be settled, %d to be removed", s.OpenFiles, s.Unsettled, s.Removing)
	row("handed out", "%s in %s that are gone but held, %s in %s", units.Bytes(s.HeldBytes),
		plural(int(s.HeldFiles), "file"), units.Bytes(s.DraftBytes), plural(int(s.DraftFiles), "draft"))
	if s.Failure != "" {
		row("failed", "accepts no more changes: %s", printable(s.Failure))
	} else if s.Refusing != "" {
		row("refusing", "accepts no new content: %s", printable(s.Refusing))
	}
	row("damage", "%s since the store was opened", plural(int(s.Damage), "damaged block"))
}
