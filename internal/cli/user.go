// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/node"
)

// userJSON is an account that was created or changed. The secret is present only
// if it was generated, because it is not shown again.
type userJSON struct {
	AccessKey string   `json:"access_key"`
	Secret    string   `json:"secret_key,omitempty"`
	Role      iam.Role `json:"role,omitempty"`
}

type usersJSON struct {
	Users []node.User `json:"users"`
}

func newUser(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Manage the accounts of the object store and their access to buckets",
		Long: `Manage the accounts of the object store and their access to buckets.

If a server runs, the command sends its request to the administration socket in
the server's data directory. Only the user that runs the server and root may use
the administration socket. If no server runs, the command opens the store itself.`,
		Args: noArgs,
		RunE: a.needsCommand,
	}
	cmd.AddCommand(newUserAdd(a), newUserUpdate(a), newUserList(a), newUserRemove(a),
		newUserGrant(a), newUserRevoke(a), newUserShow(a), newUserKey(a), newUserSession(a), newUserImport(a))
	return cmd
}

// needsCommand refuses a command that only has commands below it.
func (a *app) needsCommand(cmd *cobra.Command, _ []string) error {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return errs.New(errs.Invalid, "", "", "no command given; expected "+list(names))
}

// secretFrom is the help of --secret.
const secretFrom = "`-` reads the secret key from standard input"

func newUserAdd(a *app) *cobra.Command {
	var s settings
	var from string
	var role iam.Role
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Create an account with the access key NAME",
		Args:  oneName("the access key of the new account"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			made := userJSON{AccessKey: args[0], Role: role}
			secret, err := a.secret(ctx, from)
			if err != nil {
				return err
			}
			if secret == "" {
				secret = iam.NewSecret()
				made.Secret = secret
			}
			err = a.administer(ctx, &s, func(n node.Admin) error {
				return n.AddUser(ctx, iam.Account{AccessKey: args[0], Secret: secret, Role: role})
			})
			if err != nil {
				return err
			}
			return a.printUser("added", made, asJSON)
		}),
	}
	s.addStore(cmd, &asJSON)
	cmd.Flags().StringVar(&from, "secret", "", secretFrom+"; without this flag a secret is generated and shown once")
	cmd.Flags().Var(choice(&role, "ROLE", iam.RoleUser, iam.RoleUserPlus, iam.RoleAdmin), "role",
		"role: user (uses buckets granted to it), userplus (can also create buckets) or admin (can do everything)")
	return cmd
}

func newUserUpdate(a *app) *cobra.Command {
	var s settings
	var from string
	var role iam.Role
	var generate, asJSON bool
	cmd := &cobra.Command{
		Use:   "update NAME",
		Short: "Change the secret key or the role of an account",
		Args:  oneName("the access key of an account"),
	}
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		changed := userJSON{AccessKey: args[0]}
		var c iam.Change
		secret, err := a.secret(ctx, from)
		if err != nil {
			return err
		}
		if generate {
			secret = iam.NewSecret()
			changed.Secret = secret
		}
		if secret != "" {
			c.Secret = &secret
		}
		if cmd.Flags().Changed("role") {
			c.Role, changed.Role = &role, role
		}
		if c == (iam.Change{}) {
			return errs.New(errs.Invalid, "update", args[0], "nothing to change; expected --secret -, --generate or --role")
		}
		err = a.administer(ctx, &s, func(n node.Admin) error { return n.UpdateUser(ctx, args[0], c) })
		if err != nil {
			return err
		}
		return a.printUser("changed", changed, asJSON)
	})
	s.addStore(cmd, &asJSON)
	cmd.Flags().StringVar(&from, "secret", "", secretFrom)
	cmd.Flags().BoolVar(&generate, "generate", false, "generate a new secret key and show it once")
	cmd.Flags().Var(choice(&role, "ROLE", iam.RoleUser, iam.RoleUserPlus, iam.RoleAdmin), "role",
		"new role of the account: user, userplus or admin")
	cmd.MarkFlagsMutuallyExclusive("secret", "generate")
	return cmd
}

func newUserList(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the accounts, except the root account of the administrator",
		Args:  noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			users, err := ask(ctx, a, &s, func(n node.Admin) ([]node.User, error) { return n.Users(ctx) })
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(usersJSON{users})
			}
			a.printText(func(w io.Writer) {
				if len(users) == 0 {
					fmt.Fprintln(w, "no accounts")
					return
				}
				t := newTable("access key", "role")
				for _, u := range users {
					t.add(printable(u.AccessKey), string(u.Role))
				}
				t.print(w)
			})
			return nil
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

func newUserRemove(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove an account and its grants; its buckets and objects stay",
		Args:  oneName("the access key of an account"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			err := a.administer(ctx, &s, func(n node.Admin) error { return n.RemoveUser(ctx, args[0]) })
			if err != nil {
				return err
			}
			return a.printUser("removed", userJSON{AccessKey: args[0]}, asJSON)
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

func (a *app) printUser(what string, u userJSON, asJSON bool) error {
	if asJSON {
		return a.printJSON(u)
	}
	a.printText(func(w io.Writer) {
		field(w, what, "%s", printable(u.AccessKey))
		if u.Role != "" {
			field(w, "role", "%s", u.Role)
		}
		if u.Secret != "" {
			field(w, "secret", "%s (shown only once)", u.Secret)
		}
	})
	return nil
}

// secret reads a secret from the source that the flag names, or returns "" if
// the flag is not given. A secret on the command line would be visible to every
// user who lists processes.
func (a *app) secret(ctx context.Context, from string) (string, error) {
	switch from {
	case "":
		return "", nil
	case "-":
		line, err := a.firstLine(ctx)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", errs.Wrap("read the secret from", "standard input", err)
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			return "", errs.New(errs.Invalid, "read the secret from", "standard input", "the first line is empty")
		}
		return line, nil
	}
	return "", errs.New(errs.Invalid, "", "",
		"--secret does not accept the secret itself, because every process could read it; expected -").
		WithFix("give the secret on standard input")
}

// firstLine reads one line of standard input, or returns when ctx ends. A read
// from a terminal blocks until somebody types, and an interrupt must end it.
func (a *app) firstLine(ctx context.Context) (string, error) {
	type answer struct {
		line string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(io.LimitReader(a.Stdin, 4096)).ReadString('\n')
		got <- answer{line, err}
	}()
	select {
	case r := <-got:
		return r.line, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// administer opens the administration of the store that s locates, and runs f with it.
func (a *app) administer(ctx context.Context, s *settings, f func(node.Admin) error) error {
	c, err := s.load(a)
	if err != nil {
		return err
	}
	n, err := node.Administer(ctx, c)
	if err != nil {
		return err
	}
	err = f(n)
	if closed := n.Close(); err == nil {
		err = closed
	}
	return err
}

// ask opens the administration of the store that s locates, and returns what f learns from it.
func ask[T any](ctx context.Context, a *app, s *settings, f func(node.Admin) (T, error)) (out T, err error) {
	err = a.administer(ctx, s, func(n node.Admin) (err error) {
		out, err = f(n)
		return err
	})
	return out, err
}

// oneName checks that a command has exactly one name. what describes the name.
func oneName(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 || args[0] == "":
			return errs.New(errs.Invalid, "", "", "no name given; expected "+what)
		case len(args) > 1:
			return errs.New(errs.Invalid, "", "",
				fmt.Sprintf("%d names given, the second is %q; expected %s", len(args), args[1], what))
		}
		return nil
	}
}
