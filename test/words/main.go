// SPDX-License-Identifier: Apache-2.0

// Command words lists the sentences that users and engineers read, so that each can be read alone and judged.
//
// A sentence comes from a Markdown page, the help of the command, the HELP of a metric or the comment of an exported
// name. The flags `-draw 20 -seed 7` draw twenty sentences at random. The flag `-hard` lists the sentences that break
// a rule of CONTRIBUTING.md.
package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run executes the command and returns its exit code.
func run(arguments []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet("words", flag.ContinueOnError)
	flags.SetOutput(errOut)
	root := flags.String("root", ".", "the folder of the repository")
	under := flags.String("under", "", "list only the sentences of files whose path begins so; commas separate several")
	hard := flags.Bool("hard", false, "list only the sentences that break a rule, each with the rule")
	draw := flags.Int("draw", 0, "draw this many sentences at random")
	seed := flags.Uint64("seed", 0, "the seed of the draw")
	bare := flags.Bool("bare", false, "print the sentences alone, without the places where they stand")
	if err := flags.Parse(arguments); err != nil {
		return 2
	}
	all, err := collect(*root)
	if err != nil {
		fmt.Fprintf(errOut, "list the sentences of %s: %v\n", *root, err)
		return 1
	}
	all = within(all, *under)
	if *hard {
		all = hardOnly(all)
	}
	if *draw > 0 {
		order := rand.New(rand.NewPCG(*seed, 0))
		order.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:min(*draw, len(all))]
	}
	for i, s := range all {
		switch {
		case *bare:
			fmt.Fprintf(out, "%d. %s\n", i+1, s.text)
		case s.fault != "":
			fmt.Fprintf(out, "%s:%d: [%s] %s\n", s.file, s.line, s.fault, s.text)
		default:
			fmt.Fprintf(out, "%s:%d: (%s) %s\n", s.file, s.line, s.kind, s.text)
		}
	}
	fmt.Fprintf(errOut, "%d sentences\n", len(all))
	return 0
}

// within keeps the sentences of files whose path begins with one of the given prefixes.
func within(all []sentence, under string) []sentence {
	if under == "" {
		return all
	}
	var kept []sentence
	for _, s := range all {
		for _, prefix := range strings.Split(under, ",") {
			if strings.HasPrefix(s.file, prefix) {
				kept = append(kept, s)
				break
			}
		}
	}
	return kept
}
