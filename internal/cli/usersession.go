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

// sessionsJSON is the result of user session list.
type sessionsJSON struct {
	Running  bool           `json:"running"` // whether a server runs on the data directory
	Sessions []node.Session `json:"sessions"`
}

// sessionsEndedJSON is the result of user session revoke.
type sessionsEndedJSON struct {
	User  string `json:"user"`
	Ended int    `json:"ended"` // number of sessions that were ended
}

func newUserSession(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "List and end the sessions of temporary keys",
		Long: `List and end the sessions of temporary keys, which programs get by AssumeRole or
AssumeRoleWithWebIdentity.

The user of a session with a login service is oidc:PROVIDER:NAME.`,
		Args: noArgs,
		RunE: a.needsCommand,
	}
	cmd.AddCommand(newUserSessionList(a), newUserSessionRevoke(a))
	return cmd
}

func newUserSessionList(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list [USER]",
		Short: "List the sessions that have not expired, of one user or of all users",
		Long: `List the sessions that have not expired, of one user or of all users. Secrets and
session tokens are never shown.

If no server runs, the command reads the sessions on the disk. Then the command needs
the operator's keys in the configuration to show the operator's own sessions.`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			user := ""
			if len(args) > 0 {
				user = args[0]
			}
			out, err := ask(ctx, a, &s, func(n node.Admin) (v sessionsJSON, err error) {
				v.Running = n.Running()
				v.Sessions, err = n.Sessions(ctx, user)
				return v, err
			})
			if err != nil {
				return err
			}
			return a.printResult(asJSON, out, func(w io.Writer) { printSessions(w, out) })
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

func newUserSessionRevoke(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	var accessKey string
	cmd := &cobra.Command{
		Use:   "revoke USER",
		Short: "End all sessions of a user, or one session",
		Long: `End all sessions of a user, or the session with the access key KEY. The server refuses
the keys of an ended session from then on, also after a restart.

The user can get new temporary keys. To prevent this, change the user's secret key with
nebulaio user update, or deny sts:AssumeRole in a policy.`,
		Args: oneName("the user of the sessions"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			n, err := ask(ctx, a, &s, func(n node.Admin) (int, error) { return n.EndSessions(ctx, args[0], accessKey) })
			if err != nil {
				return err
			}
			return a.printResult(asJSON, sessionsEndedJSON{args[0], n}, func(w io.Writer) {
				field(w, "ended", "%s of %s", plural(n, "session"), printable(args[0]))
			})
		}),
	}
	s.addStore(cmd, &asJSON)
	cmd.Flags().StringVar(&accessKey, "access-key", "", "end only the session with the access key `KEY`")
	return cmd
}

func printSessions(w io.Writer, v sessionsJSON) {
	if !v.Running {
		field(w, "server", "not running: the sessions on the disk are shown")
	}
	if len(v.Sessions) == 0 {
		fmt.Fprintln(w, "there are no sessions")
		return
	}
	t := newTable("user", "access key", "source", "role", "name", "issued", "ends", "session policy")
	for i := range v.Sessions {
		x := &v.Sessions[i]
		issued, policy := "unknown", "no"
		if !x.Issued.IsZero() {
			issued = x.Issued.UTC().Format(time.RFC3339)
		}
		if x.SessionPolicy {
			policy = "yes"
		}
		t.add(printable(x.User), printable(x.AccessKey), x.Source, printable(x.Role), printable(x.Name), issued,
			x.Expires.UTC().Format(time.RFC3339), policy)
	}
	t.print(w)
}
