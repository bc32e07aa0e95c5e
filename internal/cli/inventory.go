// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/node"
)

// inventoriesJSON is the result of inventory status and inventory run.
type inventoriesJSON struct {
	Inventories []node.InventoryReport `json:"inventories"`
}

func newInventory(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inventory",
		Short: "Show the inventories of buckets, and write them now",
		Long: `Show the inventories of buckets, and write them now.

An inventory is a list of all objects of a bucket in CSV files of another bucket.
Inventories are configured over S3 (PutBucketInventoryConfiguration). If a server runs on
the data directory, the commands ask the server. If no server runs, the commands open the
store themselves.`,
		Args: noArgs,
		RunE: a.needsCommand,
	}
	cmd.AddCommand(newInventoryStatus(a), newInventoryRun(a))
	return cmd
}

func newInventoryStatus(a *app) *cobra.Command {
	var f manageFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show each inventory configuration, and when its inventory was written last",
		Args:  noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			all, err := askData(ctx, a, &f, func(d *node.DataAdmin) ([]node.InventoryReport, error) {
				return d.Inventories(ctx)
			})
			if err != nil {
				return err
			}
			return a.printResult(f.asJSON, inventoriesJSON{all}, func(w io.Writer) { printInventories(w, all) })
		}),
	}
	f.add(cmd)
	return cmd
}

func newInventoryRun(a *app) *cobra.Command {
	var f manageFlags
	cmd := &cobra.Command{
		Use:   "run BUCKET [ID]",
		Short: "Write the inventories of a bucket now, without waiting for their schedule",
		Args:  cobra.RangeArgs(1, 2),
		RunE: a.run(func(ctx context.Context, args []string) error {
			ask := node.InventoryRun{Bucket: node.ParseCacheName(args[0]).Bucket}
			if len(args) > 1 {
				ask.ID = args[1]
			}
			all, err := askData(ctx, a, &f, func(d *node.DataAdmin) ([]node.InventoryReport, error) {
				return d.RunInventory(ctx, ask)
			})
			if err != nil {
				return err
			}
			return a.printResult(f.asJSON, inventoriesJSON{all}, func(w io.Writer) { printInventories(w, all) })
		}),
	}
	f.add(cmd)
	return cmd
}

func printInventories(w io.Writer, all []node.InventoryReport) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no bucket has an inventory configuration")
		return
	}
	t := newTable("bucket", "id", "schedule", "last written", ">objects", "manifest")
	for i := range all {
		r := &all[i]
		schedule, last, place := r.Schedule, "never", "none"
		if !r.Enabled {
			schedule = "off"
		}
		if r.Ended != nil {
			last = r.Ended.UTC().Format(time.RFC3339)
			place = "s3://" + r.Target + "/" + r.Manifest
		}
		t.add(printable(r.Bucket), printable(r.ID), schedule, last, decimal(r.Objects), printable(place))
	}
	t.print(w)
	for i := range all {
		if r := &all[i]; r.Error != "" {
			field(w, "failed", "%s %s: %s", printable(r.Bucket), printable(r.ID), printable(r.Error))
		}
	}
}
