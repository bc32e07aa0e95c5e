// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/node"
)

func newPolicyTest(a *app) *cobra.Command {
	var s settings
	var conditions []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "test ACCESS-KEY ACTION RESOURCE",
		Short: "Tell whether an account may do something, and what decides",
		Long: `Tell whether an account may do something, and what decides.

ACTION is an action of S3, such as s3:GetObject. RESOURCE is a bucket or an object,
such as models or models/llama/config.json; RESOURCE is * for s3:ListAllMyBuckets.

The command decides as the server does. The role, the policies of the user and of
its groups, and the session policy count. The owner, the policy and the ACL of the
bucket count, too.

The command exits with code 4 if the answer is no.`,
		Args: countOf(3, 3, "an access key, an action and a resource"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			q := node.Question{AccessKey: args[0], Action: args[1], Resource: args[2], Values: map[string]string{}}
			for _, c := range conditions {
				key, value, ok := strings.Cut(c, "=")
				if !ok || key == "" {
					return errs.New(errs.Invalid, "", "", fmt.Sprintf("--condition %q, expected KEY=VALUE", c))
				}
				q.Values[key] = value
			}
			answer, err := ask(ctx, a, &s, func(n node.Admin) (node.Answer, error) { return n.TestPolicy(ctx, q) })
			if err != nil {
				return err
			}
			if !answer.Allowed {
				a.exit = errs.Permission.ExitCode()
			}
			return a.printResult(asJSON, answerJSON{q, answer}, func(w io.Writer) {
				what := "denied"
				if answer.Allowed {
					what = "allowed"
				}
				field(w, what, "%s on %s", printable(q.Action), printable(q.Resource))
				field(w, "user", "%s", printable(q.AccessKey))
				field(w, "reason", "%s", printable(answer.Reason))
			})
		}),
	}
	s.addStore(cmd, &asJSON)
	cmd.Flags().StringArrayVar(&conditions, "condition", nil,
		"set a condition key of the request, such as s3:prefix=logs/; `KEY=VALUE` may be repeated")
	return cmd
}

// countOf checks that a command has least to most names. what describes them.
func countOf(least, most int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return errs.New(errs.Invalid, "", "", fmt.Sprintf("%d names given; expected %s", len(args), what))
		}
		for _, n := range args {
			if n == "" {
				return errs.New(errs.Invalid, "", "", "an empty name given; expected "+what)
			}
		}
		return nil
	}
}
