// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completed asks as a shell does, and returns the words and cobra's directive.
func completed(t *testing.T, args ...string) (words []string, directive string) {
	t.Helper()
	r := run(t, append([]string{"__complete"}, args...))
	if r.code != 0 {
		t.Fatalf("%q: exit code %d: %s", args, r.code, r.stderr)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(r.out), "\n") {
		if d, ok := strings.CutPrefix(line, ":"); ok {
			return words, d
		}
		word, _, _ := strings.Cut(line, "\t")
		words = append(words, word)
	}
	t.Fatalf("%q: no directive in %q", args, r.out)
	return nil, ""
}

func TestCompletion(t *testing.T) {
	const noFiles, ofKind, directories, any = "4", "8", "16", "0"
	for line, want := range map[string]struct{ words, directive string }{
		"loa|":                                {"load", noFiles},
		"store |":                             {"backup check quarantine restore salvage scrub stats", noFiles},
		"load --route |":                      {"auto buffered direct cufile", noFiles},
		"load --route d|":                     {"direct", noFiles},
		"load --cache |":                      {"auto keep bypass", noFiles},
		"load --device |":                     {"auto host cuda cuda:0", noFiles},
		"load --devices |":                    {"auto require off", noFiles},
		"load --door |":                       {"auto require off", noFiles},
		"load --cufile |":                     {"sync async batch", noFiles},
		"load --verify-on |":                  {"auto host device", noFiles},
		"load --repeat |":                     {"", noFiles},
		"load |":                              {"safetensors json", ofKind},
		"load model.safetensors |":            {"", noFiles},
		"load --ca-file |":                    {"pem crt cer key", ofKind},
		"save a |":                            {"safetensors json", ofKind},
		"save --route |":                      {"auto buffered direct", noFiles},
		"generate --shapes |":                 {"qwen3-0.6b qwen2.5-7b tiny", noFiles},
		"bench read --to |":                   {"host pageable pinned engine cufile", noFiles},
		"bench read --cache |":                {"cold warm as-is", noFiles},
		"bench read --html |":                 {"html htm", ofKind},
		"bench read |":                        {"", any},
		"bench write |":                       {"", directories},
		"bench sweep |":                       {"pattern block-size workers memory prefetch all", noFiles},
		"bench train --workload |":            {"unet3d resnet50 cosmoflow", noFiles},
		"bench compare |":                     {"json", ofKind},
		"doctor --profile |":                  {"train infer checkpoint", noFiles},
		"server --log-format |":               {"auto text json", noFiles},
		"server --etag |":                     {"md5 crc64nvme", noFiles},
		"server --verify-reads |":             {"first always never", noFiles},
		"server --config |":                   {"yaml yml", ofKind},
		"server --data |":                     {"", directories},
		"server --tls-cert |":                 {"pem crt cer key", ofKind},
		"server --access-log=|":               {"true false", noFiles},
		"server |":                            {"", noFiles},
		"user add --role |":                   {"user userplus admin", noFiles},
		"store salvage old --to |":            {"", directories},
		"completion |":                        {"bash zsh fish powershell", noFiles},
		"completion f|":                       {"fish", noFiles},
		"version |":                           {"", noFiles},
		"store quarantine restore --data x |": {"", noFiles},
		"process restore |":                   {"", directories},
		"process dump 1 |":                    {"", directories},
		"process dump 1 --criu |":             {"", any},
		"process resume 1 |":                  {"", noFiles},
	} {
		line := strings.TrimSuffix(line, "|")
		args := strings.Fields(line)
		if strings.HasSuffix(line, " ") {
			args = append(args, "")
		}
		words, directive := completed(t, args...)
		// On a machine with several GPUs there are more devices.
		if got := strings.Join(words, " "); directive != want.directive || got != want.words &&
			!(strings.Contains(line, "--device ") && strings.HasPrefix(got, want.words)) {
			t.Errorf("%q: %q and directive %s, expected %q and %s", line, got, directive, want.words, want.directive)
		}
	}
}

// TestEveryFlagKnowsItsValues: a flag that takes one of some words completes to them.
func TestEveryFlagKnowsItsValues(t *testing.T) {
	eachCommand(testRoot(), func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "bool" {
				return
			}
			if _, ok := cmd.GetFlagCompletionFunc(f.Name); !ok {
				t.Errorf("%s --%s completes to files of any kind", cmd.CommandPath(), f.Name)
			}
			if v, ok := f.Value.(*value); ok && v.kind == "WORD" && len(v.words) == 0 {
				t.Errorf("%s --%s has no words to complete to", cmd.CommandPath(), f.Name)
			}
		})
	})
}

// TestScriptsForShells: each shell gets a script, and the name of the program is in it.
func TestScriptsForShells(t *testing.T) {
	for _, shell := range shells() {
		run(t, []string{"completion", shell}).want(t, 0, "nebulaio", "__complete")
	}
	run(t, []string{"completion"}).want(t, 2, "0 shells given; expected one, bash, zsh, fish or powershell")
}
