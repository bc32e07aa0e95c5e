// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// widestHelp is the longest line of help: longer ones are hard to read.
const widestHelp = 100

// helpWidth returns the longest line of help: the width of the terminal, or 80
// columns if stdout is not a terminal.
func (a *app) helpWidth() int {
	if a.StdoutWidth == nil {
		return usualWidth
	}
	if n := a.StdoutWidth(); n > 0 {
		return min(n, widestHelp)
	}
	return usualWidth
}

// printHelp explains a command.
func (a *app) printHelp(w io.Writer, cmd *cobra.Command) {
	width := a.helpWidth()
	about := cmd.Long
	if about == "" {
		about = cmd.Short
		if !strings.HasSuffix(about, ".") {
			about += "."
		}
	}
	fmt.Fprintf(w, "%s\n\nUsage:\n", wrapText(about, width))
	if cmd.Runnable() && (cmd.HasParent() || !cmd.HasAvailableSubCommands()) {
		fmt.Fprintf(w, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s [command]\n", cmd.CommandPath())
	}
	if cmd.Example != "" {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example) // not wrapped, so that lines can be copied
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintln(w, "\nCommands:")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() || c.Name() == "help" {
				hang(w, "  "+c.Name(), c.Short, commandColumn, width)
			}
		}
	}
	flags := cmd.LocalFlags()
	if flags.HasAvailableFlags() {
		fmt.Fprintln(w, "\nFlags:")
		flags.SortFlags = cmd.Flags().SortFlags
		flags.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				left, text := flagHelp(f)
				hang(w, left, text, flagColumn, width)
			}
		})
	}
	if cmd.HasAvailableSubCommands() {
		more := fmt.Sprintf("See \"%s COMMAND --help\" for more about a command.", cmd.CommandPath())
		fmt.Fprintf(w, "\n%s\n", wrapText(more, width))
	}
}

// The columns at which explanations begin.
const (
	commandColumn = 14
	flagColumn    = 28
)

// flagHelp returns a flag as it is typed, and its explanation with its default
// and its environment variable.
func flagHelp(f *pflag.Flag) (left, text string) {
	name, usage := pflag.UnquoteUsage(f)
	left = "      --" + f.Name
	if f.Shorthand != "" {
		left = "  -" + f.Shorthand + ", --" + f.Name
	}
	if name != "" && f.Value.Type() != "bool" {
		left += " " + name
	}
	variable := ""
	if i := strings.LastIndex(usage, " [NEBULAIO_"); i >= 0 {
		usage, variable = usage[:i], usage[i:]
	}
	if d := f.DefValue; d != "" && d != "0" && d != "false" && d != "[]" && !strings.Contains(usage, "default") {
		usage = strings.TrimSuffix(usage, ".") + " (default " + d + ")"
	}
	return left, usage + variable
}

// hang prints left and, from column on, text in lines that fit into width.
func hang(w io.Writer, left, text string, column, width int) {
	column = min(column, width/2)
	lines := strings.Split(wrap(text, max(width-column, 20)), "\n")
	if columns(left)+2 > column {
		fmt.Fprintln(w, left)
		left = ""
	}
	for _, l := range lines {
		fmt.Fprintln(w, strings.TrimRight(left+strings.Repeat(" ", column-columns(left))+l, " "))
		left = ""
	}
}

// wrapText wraps the paragraphs of a text to width. Lines that begin with a
// space are rows of a table and stay separate.
func wrapText(text string, width int) string {
	var out []string
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		var run []string
		flush := func() {
			if len(run) > 0 {
				out = append(out, wrap(strings.Join(run, " "), width))
				run = nil
			}
		}
		for line := range strings.SplitSeq(paragraph, "\n") {
			if strings.HasPrefix(line, " ") {
				flush()
				out = append(out, wrapTable(line, width))
				continue
			}
			run = append(run, line)
		}
		flush()
		out = append(out, "")
	}
	return strings.TrimSuffix(strings.Join(out, "\n"), "\n")
}

// wrapTable wraps a row "  word  explanation". The explanation keeps its column.
func wrapTable(line string, width int) string {
	if columns(line) <= width {
		return line
	}
	body := strings.TrimLeft(line, " ")
	indent := len(line) - len(body)
	if i := strings.Index(body, "  "); i >= 0 {
		indent += i + len(body[i:]) - len(strings.TrimLeft(body[i:], " "))
	}
	var b strings.Builder
	hang(&b, strings.TrimRight(line[:indent], " "), line[indent:], indent, width)
	return strings.TrimRight(b.String(), "\n")
}

// wrap breaks text between words into lines of at most width columns. A word
// that is longer than width gets a line of its own.
func wrap(text string, width int) string {
	var b strings.Builder
	n := 0
	for _, word := range strings.Fields(text) {
		c := columns(word)
		switch {
		case n == 0:
		case n+1+c > width:
			b.WriteByte('\n')
			n = 0
		default:
			b.WriteByte(' ')
			n++
		}
		b.WriteString(word)
		n += c
	}
	return b.String()
}
