// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	inText  = regexp.MustCompile("`(nebulaio [^`\n]+)`")
	inBlock = regexp.MustCompile(`(?m)^ *(?:\$ )?(nebulaio .+)$`)
	ending  = regexp.MustCompile(` (#|[|]|[|][|]|&&|&|>|2>|<) .*| &$`)
)

// TestCommandsOfTheGuideAreAccepted checks the commands and flags that docs/guide names, also those in sentences and
// those for a machine with a GPU, which no other test runs.
func TestCommandsOfTheGuideAreAccepted(t *testing.T) {
	pages, err := filepath.Glob("../../docs/guide/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, pattern := range []*regexp.Regexp{inText, inBlock} {
			for _, found := range pattern.FindAllStringSubmatch(string(text), -1) {
				checked++
				if err := understood(found[1]); err != nil {
					t.Errorf("%s: %q: %v", filepath.Base(page), found[1], err)
				}
			}
		}
	}
	if checked < 80 {
		t.Errorf("only %d commands found on %d pages", checked, len(pages))
	}
	for _, wrong := range []string{"nebulaio lode x", "nebulaio load x --no-such-flag", "nebulaio store bakup x"} {
		if understood(wrong) == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

// understood looks for the command and parses the flags of a line. What comes after the command, such as a pipe, is
// left out. The number of arguments is not checked, because a sentence may leave them out.
func understood(line string) error {
	args := strings.Fields(strings.NewReplacer("'", "", `"`, "").Replace(ending.ReplaceAllString(line, "")))
	cmd, rest, err := testRoot().Find(args[1:])
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	// Of the commands with others below them, doctor alone takes an argument itself.
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && cmd.Name() != "doctor" && len(words) > 0 {
		return noSuchCommand(cmd.CommandPath() + " " + words[0])
	}
	return nil
}

type noSuchCommand string

func (c noSuchCommand) Error() string { return string(c) + " is no command" }
