// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/iam/document"
	"github.com/nebulaio/nebulaio/internal/node"
)

// policyJSON is a policy with its document as JSON.
type policyJSON struct {
	Name     string          `json:"name"`
	BuiltIn  bool            `json:"built_in"`
	Users    []string        `json:"users"`
	Groups   []string        `json:"groups"`
	Document json.RawMessage `json:"document,omitempty"`
}

type policiesJSON struct {
	Policies []policyJSON `json:"policies"`
}

// changedJSON is the result of a command that changes a policy, a group or a service account.
type changedJSON struct {
	Name    string   `json:"name"`
	Changed bool     `json:"changed"`
	Unknown []string `json:"unknown_actions,omitempty"`
}

// attachedJSON is the result of attaching and detaching policies.
type attachedJSON struct {
	iam.Holder
	Policies []string `json:"policies"`
	Changed  bool     `json:"changed"`
}

// answerJSON is the result of a test.
type answerJSON struct {
	node.Question
	node.Answer
}

func newPolicy(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Manage the policies of users and groups",
		Long: `Manage the policies of users and groups.

A policy is a JSON document in the policy language of AWS. A policy has effect for
the users and the groups to which it is attached. The policies readonly, readwrite
and writeonly are built in.

If a server runs, the command sends its request to the administration socket in
the server's data directory. If no server runs, the command opens the store itself.`,
		Args: noArgs,
		RunE: a.needsCommand,
	}
	cmd.AddCommand(newPolicySet(a), newPolicyShow(a), newPolicyList(a), newPolicyRemove(a),
		newPolicyAttach(a, true), newPolicyAttach(a, false), newPolicyTest(a))
	return cmd
}

func newPolicySet(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "set NAME FILE",
		Short: "Store a policy from a file, and replace the policy of the same name",
		Long: `Store a policy from a file, and replace the policy of the same name. The FILE "-"
is standard input. A change has effect at once for everybody who has the policy.

The command refuses a policy that has a part which the server does not understand.
The command warns of actions of S3 that no request to this server has.`,
		Args: countOf(2, 2, "the name of a policy and a file"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			text, err := readPolicy(a, args[1])
			if err != nil {
				return err
			}
			done := changedJSON{Name: args[0], Changed: true}
			err = a.administer(ctx, &s, func(n node.Admin) (err error) {
				done.Unknown, err = n.PutPolicy(ctx, args[0], text)
				return err
			})
			if err != nil {
				return err
			}
			if len(done.Unknown) > 0 {
				a.warn([]string{"no request to this server has the actions " + printable(strings.Join(done.Unknown, ", "))})
			}
			return a.printResult(asJSON, done, func(w io.Writer) { field(w, "set", "policy %s", printable(args[0])) })
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

// readPolicy reads a policy from a file, or from standard input if the name is "-".
func readPolicy(a *app, name string) (string, error) {
	src, shown := a.Stdin, "standard input"
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", errs.Wrap("read the policy in", name, err)
		}
		defer f.Close()
		src, shown = f, name
	}
	text, err := io.ReadAll(io.LimitReader(src, document.MaxSize+1))
	if err != nil {
		return "", errs.Wrap("read the policy in", shown, err)
	}
	if len(text) > document.MaxSize {
		return "", errs.New(errs.Invalid, "read the policy in", shown,
			fmt.Sprintf("it has more than %d bytes", document.MaxSize))
	}
	return string(text), nil
}

func newPolicyShow(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a policy, and the users and groups to which it is attached",
		Args:  oneName("the name of a policy"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			all, err := ask(ctx, a, &s, func(n node.Admin) ([]node.PolicyUse, error) { return n.Policies(ctx) })
			if err != nil {
				return err
			}
			at := slices.IndexFunc(all, func(p node.PolicyUse) bool { return p.Name == args[0] })
			if at < 0 {
				return &errs.Error{Kind: errs.NotFound, Op: "show policy", Name: args[0], Err: iam.ErrNoSuchPolicy,
					Fix: "list the policies with nebulaio policy list"}
			}
			p := all[at]
			out := policyOf(p)
			out.Document = json.RawMessage(p.Text)
			return a.printResult(asJSON, out, func(w io.Writer) {
				field(w, "policy", "%s", printable(p.Name))
				field(w, "users", "%s", orNone(p.Users))
				field(w, "groups", "%s", orNone(p.Groups))
				fmt.Fprintf(w, "\n%s\n", printableLines(p.Text))
			})
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

// printableLines returns a text of several lines that is safe for a terminal.
func printableLines(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	for i := range lines {
		lines[i] = printable(strings.ReplaceAll(strings.TrimRight(lines[i], "\r"), "\t", "  "))
	}
	return strings.Join(lines, "\n")
}

func policyOf(p node.PolicyUse) policyJSON {
	return policyJSON{Name: p.Name, BuiltIn: p.BuiltIn, Users: append([]string{}, p.Users...),
		Groups: append([]string{}, p.Groups...)}
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return printable(strings.Join(names, ", "))
}

func newPolicyList(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the policies, and the users and groups to which they are attached",
		Args:  noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			all, err := ask(ctx, a, &s, func(n node.Admin) ([]node.PolicyUse, error) { return n.Policies(ctx) })
			if err != nil {
				return err
			}
			out := policiesJSON{Policies: []policyJSON{}}
			t := newTable("policy", "users", "groups")
			for _, p := range all {
				out.Policies = append(out.Policies, policyOf(p))
				t.add(printable(p.Name), orNone(p.Users), orNone(p.Groups))
			}
			return a.printResult(asJSON, out, t.print)
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

func newPolicyRemove(a *app) *cobra.Command {
	return newRemoval(a, "policy", &cobra.Command{Use: "remove NAME", Short: "Remove a policy that is attached to nobody"},
		node.Admin.RemovePolicy)
}

// newPolicyAttach returns the command attach, or the command detach.
func newPolicyAttach(a *app, attach bool) *cobra.Command {
	var s settings
	var to iam.Holder
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "attach POLICY...",
		Short: "Attach policies to a user or to a group",
		Args:  countOf(1, 100, "the names of policies"),
	}
	what := "attached"
	if !attach {
		cmd.Use, cmd.Short, what = "detach POLICY...", "Detach policies from a user or from a group", "detached"
	}
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		if (to.User == "") == (to.Group == "") {
			return errs.New(errs.Invalid, "", "", "expected one of --user and --group")
		}
		done := attachedJSON{Holder: to, Policies: args}
		err := a.administer(ctx, &s, func(n node.Admin) (err error) {
			if attach {
				done.Changed, err = n.Attach(ctx, to, args)
			} else {
				done.Changed, err = n.Detach(ctx, to, args)
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
			field(w, what, "%s", orNone(args))
			if to.User != "" {
				field(w, "user", "%s", printable(to.User))
			} else {
				field(w, "group", "%s", printable(to.Group))
			}
		})
	})
	s.addStore(cmd, &asJSON)
	cmd.Flags().StringVar(&to.User, "user", "", "change the policies of the user `NAME`")
	cmd.Flags().StringVar(&to.Group, "group", "", "change the policies of the group `NAME`")
	return cmd
}
