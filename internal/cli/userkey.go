// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/node"
)

// keyJSON is a service account that was created or changed. The secret is present only if it was generated.
type keyJSON struct {
	AccessKey string    `json:"access_key"`
	Secret    string    `json:"secret_key,omitempty"`
	User      string    `json:"user,omitempty"`
	Expires   time.Time `json:"expires,omitzero"`
}

type keysJSON struct {
	Keys []node.Key `json:"keys"`
}

func newUserKey(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Manage service accounts: further keys of a user for programs",
		Long: `Manage service accounts: further keys of a user for programs.

A service account has the rights of its user. With a policy of its own, it has only
those rights of its user that the policy allows. With an end, its keys are refused
from that time on.`,
		Args: noArgs,
		RunE: a.needsCommand,
	}
	cmd.AddCommand(newUserKeyAdd(a), newUserKeyUpdate(a), newUserKeyList(a), newUserKeyRemove(a))
	return cmd
}

// keyFlags are the flags that service accounts have at their creation and later.
type keyFlags struct {
	secret, policy, expires, description string
}

func (k *keyFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&k.policy, "policy", "",
		"limit the service account to the policy in `FILE`; - is standard input")
	cmd.Flags().StringVar(&k.expires, "expires", "",
		"time from which on the keys are refused, such as 24h or 2030-12-31T00:00:00Z, as `TIME`")
	cmd.Flags().StringVar(&k.description, "description", "", "a `TEXT` that tells what the service account is for")
}

// end returns the time of --expires.
func (k *keyFlags) end(now time.Time) (time.Time, error) {
	if k.expires == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, k.expires); err == nil {
		return t, nil
	}
	d, err := time.ParseDuration(k.expires)
	if err != nil || d <= 0 {
		return time.Time{}, errs.New(errs.Invalid, "", "",
			fmt.Sprintf("--expires %q, expected a duration such as 24h or a time such as 2030-12-31T00:00:00Z", k.expires))
	}
	return now.Add(d).UTC().Truncate(time.Second), nil
}

func newUserKeyAdd(a *app) *cobra.Command {
	var s settings
	var k keyFlags
	var accessKey string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "add USER",
		Short: "Create a service account of a user",
		Args:  oneName("the access key of a user"),
		RunE: a.run(func(ctx context.Context, args []string) (err error) {
			key := iam.Account{AccessKey: accessKey, Parent: args[0], Description: k.description}
			if key.AccessKey == "" {
				key.AccessKey = iam.NewAccessKey()
			}
			if key.Expires, err = k.end(a.Now()); err != nil {
				return err
			}
			if k.policy == "-" && k.secret == "-" {
				return errs.New(errs.Invalid, "", "", "--secret and --policy cannot both read standard input")
			}
			if key.Secret, err = a.secret(ctx, k.secret); err != nil {
				return err
			}
			made := keyJSON{AccessKey: key.AccessKey, User: key.Parent, Expires: key.Expires}
			if key.Secret == "" {
				key.Secret = iam.NewSecret()
				made.Secret = key.Secret
			}
			if k.policy != "" {
				if key.SessionPolicy, err = readPolicy(a, k.policy); err != nil {
					return err
				}
			}
			if err := a.administer(ctx, &s, func(n node.Admin) error { return n.AddKey(ctx, key) }); err != nil {
				return err
			}
			return printKey(a, "added", made, asJSON)
		}),
	}
	s.addStore(cmd, &asJSON)
	k.add(cmd)
	cmd.Flags().StringVar(&k.secret, "secret", "", secretFrom+"; without this flag a secret is generated and shown once")
	cmd.Flags().StringVar(&accessKey, "access-key", "",
		"access key of the service account; without `KEY` one is generated")
	return cmd
}

func newUserKeyUpdate(a *app) *cobra.Command {
	var s settings
	var k keyFlags
	var generate, asJSON bool
	cmd := &cobra.Command{
		Use:   "update KEY",
		Short: "Change the secret, the policy or the end of a service account",
		Long: `Change the secret, the policy or the end of a service account. An empty --policy
removes the policy, and an empty --expires removes the end.`,
		Args: oneName("the access key of a service account"),
	}
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		done := keyJSON{AccessKey: args[0]}
		var c iam.KeyChange
		secret, err := a.secret(ctx, k.secret)
		if err != nil {
			return err
		}
		if generate {
			secret = iam.NewSecret()
			done.Secret = secret
		}
		if secret != "" {
			c.Secret = &secret
		}
		if cmd.Flags().Changed("expires") {
			end, err := k.end(a.Now())
			if err != nil {
				return err
			}
			c.Expires, done.Expires = &end, end
		}
		if cmd.Flags().Changed("policy") {
			text := ""
			if k.policy != "" {
				if text, err = readPolicy(a, k.policy); err != nil {
					return err
				}
			}
			c.SessionPolicy = &text
		}
		if cmd.Flags().Changed("description") {
			c.Description = &k.description
		}
		if c == (iam.KeyChange{}) {
			return errs.New(errs.Invalid, "update", args[0],
				"nothing to change; expected --secret -, --generate, --policy, --expires or --description")
		}
		if err := a.administer(ctx, &s, func(n node.Admin) error { return n.UpdateKey(ctx, args[0], c) }); err != nil {
			return err
		}
		return printKey(a, "changed", done, asJSON)
	})
	s.addStore(cmd, &asJSON)
	k.add(cmd)
	cmd.Flags().StringVar(&k.secret, "secret", "", secretFrom)
	cmd.Flags().BoolVar(&generate, "generate", false, "generate a new secret key and show it once")
	cmd.MarkFlagsMutuallyExclusive("secret", "generate")
	return cmd
}

func newUserKeyList(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list USER",
		Short: "List the service accounts of a user",
		Args:  oneName("the access key of a user"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			all, err := ask(ctx, a, &s, func(n node.Admin) ([]node.Key, error) { return n.Keys(ctx, args[0]) })
			if err != nil {
				return err
			}
			return a.printResult(asJSON, keysJSON{append([]node.Key{}, all...)}, func(w io.Writer) {
				t := newTable("access key", "policy", "expires", "description")
				for _, k := range all {
					policy, end := "none", "never"
					if k.Policy != "" {
						policy = "own"
					}
					if !k.Expires.IsZero() {
						end = k.Expires.UTC().Format(time.RFC3339)
					}
					if k.Expired {
						end += " (expired)"
					}
					t.add(printable(k.AccessKey), policy, end, printable(k.Description))
				}
				t.print(w)
			})
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

func newUserKeyRemove(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "remove KEY",
		Short: "Remove a service account",
		Args:  oneName("the access key of a service account"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if err := a.administer(ctx, &s, func(n node.Admin) error { return n.RemoveKey(ctx, args[0]) }); err != nil {
				return err
			}
			return printKey(a, "removed", keyJSON{AccessKey: args[0]}, asJSON)
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

func printKey(a *app, what string, k keyJSON, asJSON bool) error {
	return a.printResult(asJSON, k, func(w io.Writer) {
		field(w, what, "%s", printable(k.AccessKey))
		if k.User != "" {
			field(w, "user", "%s", printable(k.User))
		}
		if k.Secret != "" {
			field(w, "secret", "%s (shown only once)", k.Secret)
		}
		if !k.Expires.IsZero() {
			field(w, "expires", "%s", k.Expires.UTC().Format(time.RFC3339))
		}
	})
}
