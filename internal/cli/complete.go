// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio/internal/bench"
	"github.com/nebulaio/nebulaio/internal/process/target"
)

// completer returns the words that can be typed at a position.
type completer = cobra.CompletionFunc

// noWords completes to nothing, not even files.
func noWords(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// ofWords completes to one of the given words.
func ofWords(words ...string) completer {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var all []string
		for _, w := range words {
			if strings.HasPrefix(w, typed) {
				all = append(all, w)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// ofFiles completes to files with one of these endings, and to directories.
func ofFiles(endings ...string) completer {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return endings, cobra.ShellCompDirectiveFilterFileExt
	}
}

// ofDirectories completes to directories.
func ofDirectories(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// anyFile completes to files of every kind.
func anyFile(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// upTo completes the first n arguments and nothing after them.
func upTo(n int, f completer) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= n {
			return noWords(cmd, args, typed)
		}
		return f(cmd, args, typed)
	}
}

// deviceNames completes to the devices of this machine. It reads the GPUs from
// /proc, because opening the driver would make the user wait.
func deviceNames(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names := []string{"auto", "host", "cuda"}
	gpus, _ := os.ReadDir("/proc/driver/nvidia/gpus") // none without a driver
	for i := range max(len(gpus), 1) {
		names = append(names, "cuda:"+strconv.Itoa(i))
	}
	return ofWords(names...)(cmd, args, typed)
}

// processIDs completes to the processes that have loaded the CUDA driver, with their names.
func processIDs(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var all []string
	for _, p := range target.UsingCUDA(target.Tree{}) {
		if id := strconv.Itoa(p.PID); strings.HasPrefix(id, typed) {
			all = append(all, cobra.CompletionWithDesc(id, p.Name))
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// fileFlags returns the completers of flags whose type does not tell what they name.
func fileFlags() map[string]completer {
	results, certificate := ofFiles("json"), ofFiles("pem", "crt", "cer", "key")
	return map[string]completer{
		"config": ofFiles("yaml", "yml"), "data": ofDirectories, "to": ofDirectories, "out": anyFile,
		"criu": anyFile, "log": anyFile, "from": ofFiles("safetensors"),
		"csv": ofFiles("csv"), "html": ofFiles("html",
			"htm"), "ceilings": results, "baseline": results, "root": ofFiles("tar"),
		"ca-file": certificate, "tls-cert": certificate, "tls-key": certificate,
		"record": anyFile, "replay": ofFiles("jsonl", "json"), "server": ofWords("auto", "off"),
		"secret-file": anyFile, "source-secret-file": anyFile, "source-ca-file": certificate, "journal": ofFiles("json"),
		"cluster-key-file": anyFile, "gpudirect-socket": ofFiles("sock"), "tokenizer": ofFiles("json"),
		"policy": ofFiles("json"), "secret": ofWords("-"), "device": deviceNames, "door": ofWords("auto", "require", "off"),
	}
}

// arguments returns the completers of arguments by command path. A command that
// is missing here takes no arguments, or names that only a store knows.
func arguments() map[string]completer {
	model, results := ofFiles("safetensors", "json"), ofFiles("json")
	questions := append(bench.Sweeps(), "prefetch", "all")
	return map[string]completer{
		"nebulaio load": upTo(1, model), "nebulaio inspect": anyFile, "nebulaio index": ofFiles("tar", "tfrecord"),
		"nebulaio cp": upTo(2, anyFile), "nebulaio sync": upTo(2, ofDirectories),
		"nebulaio pack": upTo(2, ofDirectories), "nebulaio unpack": upTo(2, ofDirectories), "nebulaio save": upTo(2, model),
		"nebulaio doctor": upTo(1, anyFile), "nebulaio doctor prove": upTo(1, anyFile),
		"nebulaio doctor capture": func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			if len(args) == 0 {
				return ofFiles("tar")(cmd, args, typed)
			}
			return upTo(2, anyFile)(cmd, args, typed)
		},
		"nebulaio bench read": anyFile, "nebulaio bench train": anyFile,
		"nebulaio bench write": ofDirectories, "nebulaio bench all": ofDirectories,
		"nebulaio bench ceilings": ofDirectories, "nebulaio bench compare": upTo(2, results), "nebulaio bench report": upTo(1,
			results),
		"nebulaio bench sweep": func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			if len(args) == 0 {
				return ofWords(questions...)(cmd, args, typed)
			}
			return anyFile(cmd, args, typed)
		},
		"nebulaio store backup": upTo(1, ofDirectories), "nebulaio store restore": upTo(1,
			ofDirectories), "nebulaio store salvage": upTo(1, ofDirectories),
		"nebulaio process suspend": upTo(1, processIDs), "nebulaio process resume": upTo(1, processIDs),
		"nebulaio process status": upTo(1, processIDs), "nebulaio process restore": upTo(1, ofDirectories),
		"nebulaio process dump": func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			if len(args) == 0 {
				return processIDs(cmd, args, typed)
			}
			return upTo(2, ofDirectories)(cmd, args, typed)
		},
		"nebulaio policy set": upTo(2, ofFiles("json")), "nebulaio user import": upTo(1, ofFiles("zip")),
		"nebulaio completion": upTo(1, ofWords(shells()...)),

		"nebulaio ls": anyFile, "nebulaio cat": anyFile, "nebulaio du": anyFile, "nebulaio verify": upTo(2, anyFile),
		"nebulaio warm": anyFile,

		"nebulaio checkpoint list": upTo(1, ofDirectories), "nebulaio checkpoint prune": upTo(1, ofDirectories),
		"nebulaio checkpoint verify": upTo(1, anyFile),
	}
}

// addCompletions registers the completers of cmd and of all commands below it.
func addCompletions(cmd *cobra.Command, args, flags map[string]completer) {
	if cmd.ValidArgsFunction = args[cmd.CommandPath()]; cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = noWords
	}
	cmd.ValidArgs = nil
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		v, ours := f.Value.(*value)
		complete, named := flags[f.Name]
		switch {
		case ours && len(v.words) > 0:
			complete = ofWords(v.words...)
		case !named:
			complete = noWords
		}
		// This fails only for an unknown flag, or for one that has a completer already.
		_ = cmd.RegisterFlagCompletionFunc(f.Name, complete)
	})
	for _, c := range cmd.Commands() {
		addCompletions(c, args, flags)
	}
}
