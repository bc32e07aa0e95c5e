// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/node"
)

// grantJSON is a grant that was made or revoked.
type grantJSON struct {
	User    string     `json:"user"`
	Bucket  string     `json:"bucket"`
	Access  iam.Access `json:"access,omitempty"`
	Prefix  string     `json:"prefix,omitempty"`
	Changed bool       `json:"changed"`
}

func newUserGrant(a *app) *cobra.Command {
	var s settings
	var read, write, both, asJSON bool
	var prefix string
	cmd := &cobra.Command{
		Use:   "grant USER BUCKET",
		Short: "Let an account use a bucket, or only the keys of the bucket that begin with a prefix",
		Long: `Let an account use a bucket, or only the keys of the bucket that begin with a
prefix.

The command adds statements to the bucket's policy. The Sid of an added statement
begins with NebulaioGrant. All other statements of the policy stay as they are.
Repeating a grant changes nothing. A second grant to the same account for the same
prefix replaces the first grant.

The flag --read allows listing and reading, and --write allows writing and
deleting. The default --read-write allows listing, reading, writing and deleting.
No grant allows an account to change the bucket's settings or to delete old
versions.`,
		Args: userAndBucket,
		RunE: a.run(func(ctx context.Context, args []string) error {
			g := iam.Grant{User: args[0], Bucket: args[1], Access: iam.AccessReadWrite, Prefix: prefix}
			switch {
			case both, read && write:
			case read:
				g.Access = iam.AccessRead
			case write:
				g.Access = iam.AccessWrite
			}
			done := grantJSON{User: g.User, Bucket: g.Bucket, Access: g.Access, Prefix: g.Prefix}
			err := a.administer(ctx, &s, func(n node.Admin) (err error) {
				done.Changed, err = n.Grant(ctx, g)
				return err
			})
			if err != nil {
				return err
			}
			return a.printGrant("granted", done, asJSON)
		}),
	}
	s.addStore(cmd, &asJSON)
	cmd.Flags().BoolVar(&read, "read", false, "allow listing and reading objects")
	cmd.Flags().BoolVar(&write, "write", false, "allow writing and deleting objects")
	cmd.Flags().BoolVar(&both, "read-write", false, "allow listing, reading, writing and deleting objects; the default")
	cmd.Flags().StringVar(&prefix, "prefix", "", "grant access only to keys that begin with `PREFIX`, such as logs/")
	return cmd
}

func newUserRevoke(a *app) *cobra.Command {
	var s settings
	var prefix string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "revoke USER BUCKET",
		Short: "Revoke the grants of an account in a bucket",
		Long: `Revoke the grants of an account in a bucket.

Without --prefix, the command revokes all grants of the account in the bucket.
With --prefix, the command revokes only the grant for that prefix. Policy
statements that were not added by nebulaio user grant stay as they are.`,
		Args: userAndBucket,
	}
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		done := grantJSON{User: args[0], Bucket: args[1], Prefix: prefix}
		var only *string
		if cmd.Flags().Changed("prefix") {
			only = &prefix
		}
		err := a.administer(ctx, &s, func(n node.Admin) (err error) {
			done.Changed, err = n.Revoke(ctx, args[1], args[0], only)
			return err
		})
		if err != nil {
			return err
		}
		return a.printGrant("revoked", done, asJSON)
	})
	s.addStore(cmd, &asJSON)
	cmd.Flags().StringVar(&prefix, "prefix", "", "revoke only the grant for `PREFIX`; \"\" is the grant for all keys")
	return cmd
}

func newUserShow(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show USER",
		Short: "Show the role, the buckets and the grants of an account",
		Args:  oneName("the access key of an account"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			access, err := ask(ctx, a, &s, func(n node.Admin) (node.UserAccess, error) { return n.Access(ctx, args[0]) })
			if err != nil {
				return err
			}
			return a.printResult(asJSON, access, func(w io.Writer) { printAccess(w, access) })
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

func printAccess(w io.Writer, u node.UserAccess) {
	field(w, "user", "%s", printable(u.AccessKey))
	field(w, "role", "%s", u.Role)
	if len(u.Groups) > 0 {
		field(w, "groups", "%s", orNone(u.Groups))
	}
	if len(u.Attached) > 0 {
		field(w, "policies", "%s", orNone(u.Attached))
	}
	if len(u.Owns) > 0 {
		field(w, "owns", "%s", printable(strings.Join(u.Owns, ", ")))
	}
	if len(u.Grants) > 0 {
		fmt.Fprintln(w)
		t := newTable("bucket", "access", "keys")
		for _, g := range u.Grants {
			keys := "all"
			if g.Prefix != "" {
				keys = printable(g.Prefix) + "*"
			}
			t.add(printable(g.Bucket), string(g.Access), keys)
		}
		t.print(w)
	}
	if len(u.Policies) > 0 {
		fmt.Fprintf(w, "\nThe policies of these buckets have other statements on this account, or on everybody: %s\n",
			printable(strings.Join(u.Policies, ", ")))
	}
}

func (a *app) printGrant(what string, g grantJSON, asJSON bool) error {
	if asJSON {
		return a.printJSON(g)
	}
	if !g.Changed {
		what = "unchanged"
	}
	a.printText(func(w io.Writer) {
		field(w, what, "%s", printable(g.User))
		field(w, "bucket", "%s", printable(g.Bucket))
		if g.Access != "" {
			field(w, "access", "%s", g.Access)
		}
		if g.Prefix != "" {
			field(w, "prefix", "%s", printable(g.Prefix))
		}
	})
	return nil
}

// userAndBucket checks that a command has an account and a bucket.
func userAndBucket(_ *cobra.Command, args []string) error {
	if len(args) != 2 || args[0] == "" || args[1] == "" {
		return errs.New(errs.Invalid, "", "",
			fmt.Sprintf("%d names given; expected the access key of an account and the name of a bucket", len(args)))
	}
	return nil
}
