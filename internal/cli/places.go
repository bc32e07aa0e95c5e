// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
)

// openTree opens the place of a name with clients that the caller closes.
func openTree(ctx context.Context, c *place.Clients, name string) (place.Tree, error) {
	p, err := place.Parse(name)
	if err != nil {
		return place.Tree{}, err
	}
	return c.Open(ctx, p)
}

// withClients calls do with the clients of S3 places, and closes them. An error that a missing server causes says how
// to name one.
func (f *objectFlags) withClients(ctx context.Context, a *app, do func(c *place.Clients) error) error {
	c, err := f.clients(a)
	if err != nil {
		return err
	}
	defer c.Close()
	err = do(c)
	if errors.Is(err, syscall.ECONNREFUSED) {
		if account, e := c.Account(ctx, ""); e == nil && account.EndpointFrom == "" {
			return &errs.Error{Kind: errs.KindOf(err), Err: err, Fix: "no server was named, so " + place.LocalEndpoint +
				" was asked: start it, or name one with --endpoint URL, --endpoint aws or --profile NAME"}
		}
	}
	return interrupted(ctx, err)
}

// filterFlags adds --include and --exclude, whose order matters.
func filterFlags(fs *pflag.FlagSet, f *place.Filter) {
	fs.Var(&patternValue{set: f.Include}, "include",
		"take keys that match `PATTERN` although an earlier --exclude left them out; repeatable, the last match decides")
	fs.Var(&patternValue{set: f.Exclude}, "exclude",
		"leave out keys that match `PATTERN`, in which * also matches slashes; repeatable, the last match decides")
}

// patternValue is a flag that may be given several times.
type patternValue struct {
	set  func(string) error
	text string
}

func (v *patternValue) String() string { return v.text }
func (v *patternValue) Type() string   { return "PATTERN" }
func (v *patternValue) Set(s string) error {
	if err := v.set(s); err != nil {
		return err
	}
	v.text = s
	return nil
}

// places checks that a command has at least least and at most most places; most 0 means any number.
func places(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most > 0 && len(args) > most {
			return errs.New(errs.Invalid, cmd.Name(), "", fmt.Sprintf("%s given; expected %s", plural(len(args), "place"), what))
		}
		for _, arg := range args {
			if _, err := place.Parse(arg); err != nil {
				return err
			}
		}
		return nil
	}
}

// lines writes one JSON object per line.
type lines struct{ enc *json.Encoder }

func newLines(w io.Writer) lines {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return lines{enc}
}

func (l lines) add(v any) error { return errs.Wrap("encode", "JSON", l.enc.Encode(v)) }

// when formats a time of a listing, in UTC.
func when(t time.Time) string {
	if t.IsZero() {
		return strings.Repeat(" ", len(time.DateTime))
	}
	return t.UTC().Format(time.DateTime)
}

// whenJSON returns a time for JSON, nil if it is not known.
func whenJSON(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// onServer refuses a local path for a command that works on servers alone.
func onServer(op string, p place.Place, fix string) error {
	if p.Remote() {
		return nil
	}
	return errs.New(errs.Invalid, op, p.Path, "is a local path; expected s3://BUCKET/KEY").WithFix(fix)
}
