// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/nearest"
)

// errorJSON is an error as --json prints it on stdout.
type errorJSON struct {
	Error struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
		Fix     string `json:"fix,omitempty"`
	} `json:"error"`
}

// printError prints the error on stderr. With --json it prints it on stdout too.
func (a *app) printError(err error) {
	text, fix := errs.MessageOf(err), errs.FixOf(err)
	if a.jsonAsked() && a.out.err == nil {
		var e errorJSON
		e.Error.Kind, e.Error.Message, e.Error.Fix = errs.KindOf(err).String(), text, fix
		if a.linesAsked() {
			line, _ := json.Marshal(e) // the fields are strings: it cannot fail
			fmt.Fprintf(a.out, "%s\n", line)
		} else {
			_ = a.printJSON(e) // err is already being reported
		}
	}
	fmt.Fprintf(a.Stderr, "nebulaio: %s\n", printable(text))
	if fix != "" {
		fmt.Fprintf(a.Stderr, "  fix: %s\n", printable(fix))
	}
}

// linesAsked reports whether the command prints one line of JSON per event. Such
// a command prints its error as one line too.
func (a *app) linesAsked() bool {
	at := slices.IndexFunc(a.Args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	return at >= 0 && slices.Contains([]string{"server", "ls", "rm", "du", "verify"}, a.Args[at])
}

// jsonAsked reports whether --json is among the arguments. It reads the arguments
// because the flag is not parsed if an earlier flag was wrong.
func (a *app) jsonAsked() bool {
	for _, arg := range a.Args {
		name, value, given := strings.Cut(arg, "=")
		switch {
		case arg == "--":
			return false
		case name == "--json" && !given:
			return true
		case name == "--json":
			on, err := strconv.ParseBool(value)
			return on && err == nil
		}
	}
	return false
}

// usageError turns cobra's error about the arguments into our own.
func usageError(cmd *cobra.Command, err error) error {
	var e *errs.Error
	if !errors.As(err, &e) {
		// cobra's own text, for example for flags that exclude each other.
		e = errs.New(errs.Invalid, "", "", err.Error())
	}
	if e.Fix != "" {
		return e
	}
	return e.WithFix("see: " + cmd.CommandPath() + " --help")
}

func commandNames(root *cobra.Command) []string {
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	slices.Sort(names)
	return names
}

// flagError names the wrong flag, its value and the expected form.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	var bad *pflag.InvalidValueError
	msg := err.Error()
	switch {
	case errors.As(err, &unknown):
		// With a mistyped command, its flags are unknown too. Report the command.
		if args := cmd.Flags().Args(); isGroup(cmd) && len(args) > 0 {
			return noArgs(cmd, args)
		}
		name := "--" + unknown.GetSpecifiedName()
		if s := unknown.GetSpecifiedShortnames(); s != "" {
			name = "-" + s
		}
		msg = "unknown flag " + name + meantFlag(cmd, unknown.GetSpecifiedName())
		if isGroup(cmd) && cmd.HasParent() {
			msg += "; expected a command before its flags: " + list(commandNames(cmd))
		}
	case errors.As(err, &missing):
		msg = "--" + missing.GetFlag().Name + " needs a value"
		if v, ok := missing.GetFlag().Value.(*value); ok {
			msg += "; expected " + v.want
		}
	case errors.As(err, &bad):
		msg = fmt.Sprintf("--%s %q ", bad.GetFlag().Name, bad.GetValue())
		if v, ok := bad.GetFlag().Value.(*value); ok {
			msg += v.complaint(bad.Unwrap()) + v.meant(bad.GetValue())
		} else {
			msg += "is not a value of this flag; expected true or false"
		}
	}
	return errs.New(errs.Invalid, cmd.Name(), "", msg)
}

// isGroup reports whether a command has commands below it and takes no arguments of its own.
func isGroup(cmd *cobra.Command) bool { return cmd.HasAvailableSubCommands() && cmd.Use == cmd.Name() }

// knownTopic checks the arguments of help. A mistyped command is an error, not a request for the main help.
func knownTopic(help *cobra.Command, args []string) error {
	cmd, rest, _ := help.Root().Find(args)
	if cmd == nil || !isGroup(cmd) || len(rest) == 0 {
		return nil
	}
	err := noArgs(cmd, rest)
	var e *errs.Error
	if errors.As(err, &e) {
		return e.WithFix("see: " + cmd.CommandPath() + " --help")
	}
	return err
}

// meantFlag suggests a flag of cmd for an unknown flag. Flags of other commands
// are not suggested.
func meantFlag(cmd *cobra.Command, name string) string {
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	if best := nearest.Of(name, known); best != "" {
		return " (did you mean --" + best + "?)"
	}
	return ""
}

// onePath checks that a command has exactly one path.
func onePath(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return errs.New(errs.Invalid, cmd.Name(), "", "no path given; expected "+what)
		case len(args) > 1:
			return errs.New(errs.Invalid, cmd.Name(), "",
				fmt.Sprintf("%d paths given, the second is %q; expected %s", len(args), args[1], what))
		case args[0] == "":
			return errs.New(errs.Invalid, cmd.Name(), "", `the path is ""; expected `+what)
		}
		return nil
	}
}

// noArgs checks that a command has no arguments, only flags or a command below it.
func noArgs(cmd *cobra.Command, args []string) error {
	if names := commandNames(cmd); len(args) > 0 && len(names) > 0 {
		op := cmd.Name()
		if !cmd.HasParent() {
			op = "" // the message begins with the program's name
		}
		return errs.New(errs.Invalid, op, "",
			fmt.Sprintf("unknown command %q; expected %s%s", args[0], list(names), nearest.Hint(args[0], names...)))
	}
	if len(args) > 0 {
		return errs.New(errs.Invalid, cmd.Name(), "", fmt.Sprintf("unknown argument %q; expected only flags", args[0]))
	}
	return nil
}

// list joins words to "a, b or c".
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// interrupted replaces the error of a cancelled context with one that names the signal.
func interrupted(ctx context.Context, err error) error {
	var e *errs.Error
	if errors.As(err, &e) && e.Err == context.Canceled {
		c := *e
		c.Err = context.Cause(ctx)
		return &c
	}
	return err
}
