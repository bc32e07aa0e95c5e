// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/node"
	"github.com/nebulaio/nebulaio/internal/units"
)

// lifecycleJSON is the result of lifecycle status and lifecycle run.
type lifecycleJSON struct {
	Buckets []node.LifecycleReport `json:"buckets"`
}

// manageFlags are the flags of every command on the data of a store.
type manageFlags struct {
	settings
	asJSON bool
}

func (f *manageFlags) add(cmd *cobra.Command) {
	f.settings.add(cmd.Flags(), func(k config.Key) bool { return k.Name == "data" })
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the result as one JSON object")
}

// askData calls do with the store of the configuration.
func askData[T any](ctx context.Context, a *app, f *manageFlags, do func(*node.DataAdmin) (T, error)) (T, error) {
	var none T
	c, err := f.load(a)
	if err != nil {
		return none, err
	}
	d, err := node.AdministerData(ctx, c)
	if err != nil {
		return none, err
	}
	out, err := do(d)
	if closed := d.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return none, interrupted(ctx, err)
	}
	return out, nil
}

func newLifecycle(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lifecycle",
		Short: "Show what lifecycle rules have removed, and apply them now",
		Long: `Show what the lifecycle rules of buckets have removed, and apply them now.

Lifecycle rules are set over S3 (PutBucketLifecycleConfiguration). If a server runs on
the data directory, the commands ask the server. If no server runs, the commands open
the store themselves.`,
		Args: noArgs,
		RunE: a.needsCommand,
	}
	cmd.AddCommand(newLifecycleStatus(a), newLifecycleRun(a))
	return cmd
}

func newLifecycleStatus(a *app) *cobra.Command {
	var f manageFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the lifecycle rules of each bucket have removed",
		Long: `Show what the lifecycle rules of each bucket have removed.

The totals are exact: they are written in the same durable step as each removal, even
if the server is killed.`,
		Args: noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			all, err := askData(ctx, a, &f, func(d *node.DataAdmin) ([]node.LifecycleReport, error) { return d.Lifecycle(ctx) })
			if err != nil {
				return err
			}
			return a.printResult(f.asJSON, lifecycleJSON{all}, func(w io.Writer) { printLifecycle(w, all) })
		}),
	}
	f.add(cmd)
	return cmd
}

func newLifecycleRun(a *app) *cobra.Command {
	var f manageFlags
	var ask node.LifecycleRun
	cmd := &cobra.Command{
		Use:   "run [BUCKET]",
		Short: "Apply lifecycle rules now, without waiting for midnight",
		Long: `Apply the lifecycle rules of BUCKET now, or of all buckets.

The server applies lifecycle rules by itself once after each midnight UTC, and when
rules change. With --dry-run, nothing is removed, and the numbers tell what is due.`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if len(args) > 0 {
				ask.Bucket = node.ParseCacheName(args[0]).Bucket
			}
			all, err := askData(ctx, a, &f, func(d *node.DataAdmin) ([]node.LifecycleReport, error) {
				return d.RunLifecycle(ctx, ask, nil)
			})
			if err != nil {
				return err
			}
			return a.printResult(f.asJSON, lifecycleJSON{all}, func(w io.Writer) { printPasses(w, all) })
		}),
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&ask.DryRun, "dry-run", false, "count what is due and remove nothing")
	return cmd
}

func printLifecycle(w io.Writer, all []node.LifecycleReport) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no bucket has lifecycle rules")
		return
	}
	t := newTable("bucket", ">rules", "last pass", ">expired", ">noncurrent", ">markers", ">uploads", ">bytes", ">locked",
		">failed")
	for i := range all {
		r := &all[i]
		last := "none yet"
		switch {
		case r.Pass != nil && r.Pass.Ended == nil:
			last = "in progress"
		case r.Last != nil && r.Last.Ended != nil:
			last = r.Last.Ended.UTC().Format(time.RFC3339)
		}
		c := r.Total
		t.add(printable(r.Bucket), strconv.Itoa(r.Rules), last, decimal(c.Expired), decimal(c.Noncurrent), decimal(c.Markers),
			decimal(c.Uploads), units.Bytes(c.Bytes), decimal(c.Locked), decimal(c.Failed))
	}
	t.print(w)
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func printPasses(w io.Writer, all []node.LifecycleReport) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no bucket has lifecycle rules")
		return
	}
	t := newTable("bucket", ">rules", ">examined", ">expired", ">noncurrent", ">markers", ">uploads", ">bytes", ">locked",
		">failed")
	for i := range all {
		c := all[i].Pass.Counts
		t.add(printable(all[i].Bucket), strconv.Itoa(all[i].Rules), decimal(c.Examined), decimal(c.Expired),
			decimal(c.Noncurrent), decimal(c.Markers), decimal(c.Uploads), units.Bytes(c.Bytes), decimal(c.Locked),
			decimal(c.Failed))
	}
	t.print(w)
	if all[0].DryRun {
		fmt.Fprintln(w, "nothing was removed: this was a dry run")
	}
}
