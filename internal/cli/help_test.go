// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio/test/effort"
)

// eachCommand calls f with every command of the tree.
func eachCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, c := range cmd.Commands() {
		eachCommand(c, f)
	}
}

func testRoot() *cobra.Command { return newRoot(&app{World: World{Now: time.Now}}) }

// TestEveryCommandExplainsItself walks the tree: each command has an example,
// each flag a phrase, and no line of help is longer than 80 columns when piped.
func TestEveryCommandExplainsItself(t *testing.T) {
	n := 0
	eachCommand(testRoot(), func(cmd *cobra.Command) {
		n++
		path := cmd.CommandPath()
		if cmd.Example == "" {
			t.Errorf("%s has no example: add one in examples.go", path)
		}
		r := run(t, append(strings.Fields(path)[1:], "--help"))
		if cmd.Name() != "help" {
			r.want(t, 0, "Usage:\n  nebulaio", "\nExamples:\n  ")
		}
		for line := range strings.SplitSeq(r.out, "\n") {
			if columns(line) > 80 {
				t.Errorf("%s: a line of %d columns: %q", path, columns(line), line)
			}
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			kind, usage := pflag.UnquoteUsage(f)
			complain := func(what string) { t.Errorf("%s --%s: %q %s", path, f.Name, usage, what) }
			if len(strings.Fields(usage)) < 3 {
				complain("is no phrase")
			}
			switch {
			case kind == "SIZE" && !containsAny(usage, "byte", "size", "memory", "space"):
				complain("does not say that it is a size")
			case kind == "DURATION" && !containsAny(usage, "how long", "duration", "time"):
				complain("does not say that it is a time")
			case kind == "N" && f.Name != "seed" && f.Name != "gpu" && cmd.Name() != "server" && cmd.Name() != "config" &&
				cmd.Name() != "status" && !containsAny(usage, "number"):
				complain("does not say that it is a number")
			}
			if _, text := flagHelp(f); f.DefValue != "" && f.DefValue != "0" && f.DefValue != "false" && f.DefValue != "[]" &&
				!strings.Contains(text, "default") {
				complain("does not tell its default")
			}
		})
	})
	if n < 30 {
		t.Errorf("%d commands were walked", n)
	}
}

// TestEveryCommandHasJSON: what a person can read, a program can.
func TestEveryCommandHasJSON(t *testing.T) {
	eachCommand(testRoot(), func(cmd *cobra.Command) {
		switch {
		case cmd.HasSubCommands() && cmd.Name() != "doctor", cmd.Name() == "help":
			return // it only has commands below it
		case cmd.CommandPath() == "nebulaio completion", cmd.CommandPath() == "nebulaio doctor prove",
			cmd.CommandPath() == "nebulaio cat":
			return // a script; JSON always; the bytes of the objects
		case cmd.Flags().Lookup("json") == nil:
			t.Errorf("%s has no --json", cmd.CommandPath())
		}
	})
}

func containsAny(s string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(s), w) })
}

// TestExamplesAreAccepted reads each line of each example as the command does:
// its flags exist and have such values, and its arguments are as many as needed.
func TestExamplesAreAccepted(t *testing.T) {
	effort.Slow(t)
	eachCommand(testRoot(), func(cmd *cobra.Command) {
		own := false
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			line, _, _ = strings.Cut(line, " > ")
			line, _, _ = strings.Cut(line, " < ")
			args := strings.Fields(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "source <("), ")"))
			if len(args) == 0 || args[0] == "#" {
				continue
			}
			if args[0] != "nebulaio" {
				t.Errorf("%s: the example %q is of another program", cmd.CommandPath(), line)
				continue
			}
			target, rest, err := testRoot().Find(args[1:])
			if err == nil {
				err = target.ParseFlags(rest)
			}
			if err == nil {
				err = target.ValidateArgs(target.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: the example %q is refused: %v", cmd.CommandPath(), strings.TrimSpace(line), err)
			}
			own = own || strings.HasPrefix(target.CommandPath()+" ", cmd.CommandPath()+" ")
		}
		if !own {
			t.Errorf("no example of %s is of that command", cmd.CommandPath())
		}
	})
}

func TestHelpFollowsTheTerminal(t *testing.T) {
	wide := func(n int) func(*World) { return func(w *World) { w.StdoutWidth = func() int { return n } } }
	longest := func(r result) (n int) {
		_, flags, _ := strings.Cut(r.out, "\nFlags:")
		for line := range strings.SplitSeq(flags, "\n") {
			n = max(n, columns(line))
		}
		return n
	}
	if n := longest(run(t, []string{"load", "--help"}, wide(60))); n > 60 {
		t.Errorf("%d columns in a terminal of 60", n)
	}
	if n := longest(run(t, []string{"load", "--help"}, wide(200))); n > 100 || n <= 80 {
		t.Errorf("%d columns in a terminal of 200", n)
	}
	run(t, []string{"load", "--help"}).want(t, 0, "route of reads", "(default auto)", "[NEBULAIO_ROUTE]")
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"one two three", 7, "one two\nthree"},
		{"unbreakableword x", 5, "unbreakableword\nx"},
		{"", 5, ""},
	} {
		if got := wrap(c.text, c.width); got != c.want {
			t.Errorf("%q: %q, expected %q", c.text, got, c.want)
		}
	}
	if got, want := wrapText("One\ntwo.\n\n  key  some words that go on and on\nThree.",
		28), "One two.\n\n  key  some words that go on\n       and on\nThree."; got != want {
		t.Errorf("%q, expected %q", got, want)
	}
}
