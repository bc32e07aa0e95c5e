// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/node"
)

type groupsJSON struct {
	Groups []iam.Group `json:"groups"`
}

// membersJSON is the result of a change of a group's members.
type membersJSON struct {
	Group   string   `json:"group"`
	Users   []string `json:"users"`
	Changed bool     `json:"changed"`
}

func newGroup(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "group",
		Short: "Manage groups of users, who share policies",
		Long: `Manage groups of users, who share policies.

A user has the policies of all groups of which the user is a member. Policies are
attached to a group with nebulaio policy attach.`,
		Args: noArgs,
		RunE: a.needsCommand,
	}
	cmd.AddCommand(newGroupMembers(a, true), newGroupMembers(a, false), newGroupList(a), newGroupShow(a),
		newGroupRemove(a))
	return cmd
}

// newGroupMembers returns the command add, or the command drop.
func newGroupMembers(a *app, add bool) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "add GROUP [USER...]",
		Short: "Add users to a group, and make the group if it does not exist",
		Args:  countOf(1, 1000, "the name of a group and the access keys of users"),
	}
	what := "added"
	if !add {
		cmd.Use, cmd.Short, what = "drop GROUP USER...", "Remove users from a group", "dropped"
		cmd.Args = countOf(2, 1000, "the name of a group and the access keys of users")
	}
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		done := membersJSON{Group: args[0], Users: args[1:]}
		err := a.administer(ctx, &s, func(n node.Admin) (err error) {
			if add {
				done.Changed, err = n.AddMembers(ctx, done.Group, done.Users)
			} else {
				done.Changed, err = n.RemoveMembers(ctx, done.Group, done.Users)
			}
			return err
		})
		if err != nil {
			return err
		}
		return a.printResult(asJSON, done, func(w io.Writer) {
			if !done.Changed {
				what = "unchanged"
			}
			field(w, what, "%s", orNone(done.Users))
			field(w, "group", "%s", printable(done.Group))
		})
	})
	s.addStore(cmd, &asJSON)
	return cmd
}

func newGroupList(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the groups with their members and policies",
		Args:  noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			all, err := ask(ctx, a, &s, func(n node.Admin) ([]iam.Group, error) { return n.Groups(ctx) })
			if err != nil {
				return err
			}
			return a.printResult(asJSON, groupsJSON{append([]iam.Group{}, all...)}, func(w io.Writer) {
				t := newTable("group", "members", "policies")
				for _, g := range all {
					t.add(printable(g.Name), orNone(g.Members), orNone(g.Policies))
				}
				t.print(w)
			})
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

func newGroupShow(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show GROUP",
		Short: "Show the members and the policies of a group",
		Args:  oneName("the name of a group"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			all, err := ask(ctx, a, &s, func(n node.Admin) ([]iam.Group, error) { return n.Groups(ctx) })
			if err != nil {
				return err
			}
			at := slices.IndexFunc(all, func(g iam.Group) bool { return g.Name == args[0] })
			if at < 0 {
				return &errs.Error{Kind: errs.NotFound, Op: "show group", Name: args[0], Err: iam.ErrNoSuchGroup,
					Fix: "list the groups with nebulaio group list"}
			}
			return a.printResult(asJSON, all[at], func(w io.Writer) {
				field(w, "group", "%s", printable(all[at].Name))
				field(w, "members", "%s", orNone(all[at].Members))
				field(w, "policies", "%s", orNone(all[at].Policies))
			})
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

func newGroupRemove(a *app) *cobra.Command {
	return newRemoval(a, "group", &cobra.Command{Use: "remove GROUP", Short: "Remove a group; its users stay"},
		node.Admin.RemoveGroup)
}

// newRemoval completes a command that removes a thing with a name, such as a group.
func newRemoval(a *app, what string, cmd *cobra.Command,
	remove func(n node.Admin, ctx context.Context, name string) error) *cobra.Command {
	var s settings
	var asJSON bool
	cmd.Args = oneName("the name of a " + what)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		if err := a.administer(ctx, &s, func(n node.Admin) error { return remove(n, ctx, args[0]) }); err != nil {
			return err
		}
		return a.printResult(asJSON, changedJSON{Name: args[0], Changed: true}, func(w io.Writer) {
			field(w, "removed", "%s %s", what, printable(args[0]))
		})
	})
	s.addStore(cmd, &asJSON)
	return cmd
}
