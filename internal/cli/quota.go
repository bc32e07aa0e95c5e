// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/node"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/units"
)

// quotasJSON is the result of quota list, quota set and quota remove.
type quotasJSON struct {
	Quotas []node.QuotaState `json:"quotas"`
}

func newQuota(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Limit what buckets and users may store",
		Long: `Limit how many bytes and objects a bucket, or all buckets of a user, may hold.

The server checks a quota in the same step as each write, so that no write exceeds it.
A refused write gets the S3 error QuotaExceeded. All versions count, and the parts of
multipart uploads in progress. Deletions are always allowed.`,
		Args: noArgs,
		RunE: a.needsCommand,
	}
	cmd.AddCommand(newQuotaSet(a), newQuotaRemove(a), newQuotaList(a))
	return cmd
}

// quotaTarget returns the bucket of the argument, or the user of the flag.
func quotaTarget(args []string, user string) (node.QuotaTarget, error) {
	t := node.QuotaTarget{User: user}
	if len(args) > 0 {
		t.Bucket = node.ParseCacheName(args[0]).Bucket
	}
	if (t.Bucket == "") == (t.User == "") {
		return t, errs.New(errs.Invalid, "read the arguments of", "quota", "expected either BUCKET or --user NAME").
			WithFix("name one of them")
	}
	return t, nil
}

func newQuotaSet(a *app) *cobra.Command {
	var f manageFlags
	var user string
	var q object.Quota
	var objects int
	cmd := &cobra.Command{
		Use:   "set [BUCKET]",
		Short: "Set the quota of a bucket, or of all buckets that a user owns",
		Args:  cobra.MaximumNArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			q.Objects = int64(objects)
			return changeQuota(ctx, a, &f, args, user, &q)
		}),
	}
	f.add(cmd)
	cmd.Flags().StringVar(&user, "user", "", "access key of the `user` who owns the limited buckets")
	cmd.Flags().Var(size(&q.Bytes), "bytes", "largest size of all versions and parts together; 0 means no limit")
	cmd.Flags().Var(count(&objects, 0, 0), "objects", "largest number of object versions; 0 means no limit")
	return cmd
}

func newQuotaRemove(a *app) *cobra.Command {
	var f manageFlags
	var user string
	cmd := &cobra.Command{
		Use:   "remove [BUCKET]",
		Short: "Remove the quota of a bucket or of a user",
		Args:  cobra.MaximumNArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			return changeQuota(ctx, a, &f, args, user, nil)
		}),
	}
	f.add(cmd)
	cmd.Flags().StringVar(&user, "user", "", "access key of the `user` with the quota")
	return cmd
}

// changeQuota sets a quota, or removes it if q is nil.
func changeQuota(ctx context.Context, a *app, f *manageFlags, args []string, user string, q *object.Quota) error {
	target, err := quotaTarget(args, user)
	if err != nil {
		return err
	}
	state, err := askData(ctx, a, f, func(d *node.DataAdmin) (node.QuotaState, error) {
		return d.SetQuota(ctx, node.QuotaChange{QuotaTarget: target, Quota: q})
	})
	if err != nil {
		return err
	}
	return a.printResult(f.asJSON, quotasJSON{[]node.QuotaState{state}}, func(w io.Writer) {
		printQuotas(w, []node.QuotaState{state})
	})
}

func newQuotaList(a *app) *cobra.Command {
	var f manageFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all quotas, and what counts against them",
		Args:  noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			all, err := askData(ctx, a, &f, func(d *node.DataAdmin) ([]node.QuotaState, error) { return d.Quotas(ctx) })
			if err != nil {
				return err
			}
			return a.printResult(f.asJSON, quotasJSON{all}, func(w io.Writer) { printQuotas(w, all) })
		}),
	}
	f.add(cmd)
	return cmd
}

func printQuotas(w io.Writer, all []node.QuotaState) {
	if len(all) == 0 {
		fmt.Fprintln(w, "there are no quotas")
		return
	}
	limit := func(n int64, text func(int64) string) string {
		if n == 0 {
			return "none"
		}
		return text(n)
	}
	t := newTable("of", "name", ">bytes", ">limit", ">objects", ">limit")
	for i := range all {
		q := &all[i]
		of, name := "bucket", q.Bucket
		if q.User != "" {
			of, name = "user", q.User
		}
		t.add(of, printable(name), units.Bytes(q.Used.Bytes),
			limit(q.Quota.Bytes, func(n int64) string { return units.Bytes(n) }),
			decimal(q.Used.Objects), limit(q.Quota.Objects, decimal))
	}
	t.print(w)
}
