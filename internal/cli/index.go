// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// indexJSON is the result of index.
type indexJSON struct {
	Files   []indexFileJSON `json:"files"`
	Samples int64           `json:"samples"`
	Bytes   int64           `json:"bytes"` // of the files, without their indexes
	States  map[string]int  `json:"states"`
	Seconds float64         `json:"seconds"`
}

type indexFileJSON struct {
	nebulaio.DataIndex
	Error *faultJSON `json:"error,omitempty"`
}

// faultJSON is an error about one file.
type faultJSON struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

func newIndex(a *app) *cobra.Command {
	var o nebulaio.DataIndexOptions
	var objects objectFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "index PATH...",
		Short: "Make or check the indexes of tar archives with training data",
		Long: `Make or check the indexes of tar archives with training data.

The index FILE.tar.nbx lies beside FILE.tar, and has the place of each sample.
With the index, an archive is opened without reading all of its headers. An index
appears under its name when it is complete and durable. An index that belongs to
its archive stays as it is; any other index is made again.

PATH is an archive, a folder, a pattern such as "*.tar", or a name with braces
such as train-{0000..0099}.tar. PATH can also be s3://BUCKET/PREFIX on the server
that --endpoint names; the index is then an object beside the archive.

With --check nothing is written: every archive is read, and its index must be the
one that would be made. The exit code is 5 if an index is wrong, and 3 if one is
missing. An archive that cannot be read does not stop the others; the exit code
is that of the first error.`,
		Args: atLeastOne("an archive or a folder"),
		RunE: a.run(func(ctx context.Context, args []string) (err error) {
			if o.Client, err = objects.options(a); err != nil {
				return err
			}
			return indexData(ctx, a, args, o, asJSON)
		}),
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.Check, "check", false, "write nothing; compare every index with its archive")
	fs.BoolVar(&o.Force, "force", false, "make every index again, even if it belongs to its archive")
	fs.BoolVar(&o.DALI, "dali", false, "make the text index of NVIDIA DALI: STEM.idx for STEM.tar or STEM.tfrecord")
	fs.BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	objects.define(fs)
	return cmd
}

// atLeastOne checks the arguments of a command that takes one path or more.
func atLeastOne(want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errs.New(errs.Invalid, cmd.Name(), "", "0 paths given; expected at least one, "+want)
		}
		for _, p := range args {
			if p == "" {
				return errs.New(errs.Invalid, cmd.Name(), "", `a path is ""; expected `+want)
			}
		}
		return nil
	}
}

// indexData makes or checks indexes and prints what became of each.
func indexData(ctx context.Context, a *app, paths []string, o nebulaio.DataIndexOptions, asJSON bool) (err error) {
	if o.Check && o.Force {
		return errs.New(errs.Invalid, "index", "--check --force",
			"--check writes nothing").WithFix("give one of the two flags")
	}
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	began := a.Now()
	p := a.startProgress(0, asJSON)
	o.Progress = p.update
	all, err := sys.IndexData(ctx, paths, o)
	p.clear()
	if err != nil {
		return interrupted(ctx, err)
	}
	r := indexJSON{Files: []indexFileJSON{}, States: map[string]int{}, Seconds: a.Now().Sub(began).Seconds()}
	var first error
	for _, x := range all {
		f := indexFileJSON{DataIndex: x}
		if x.Err != nil {
			f.Error = &faultJSON{Kind: errs.KindOf(x.Err).String(), Message: errs.MessageOf(x.Err), Fix: errs.FixOf(x.Err)}
			if first == nil || errs.Is(first, errs.NotFound) && x.State == "wrong" {
				first = x.Err
			}
		}
		r.Files = append(r.Files, f)
		r.States[x.State]++
		r.Samples += x.Samples
		r.Bytes += x.Size
	}
	if first != nil {
		a.exit = errs.KindOf(first).ExitCode()
	}
	return a.printResult(asJSON, r, r.print)
}

func (r indexJSON) print(w io.Writer) {
	t := newTable("file", "index", ">samples", ">skipped", ">index size")
	for _, f := range r.Files {
		t.add(printable(f.File), f.State, strconv.FormatInt(f.Samples, 10), strconv.FormatInt(f.Skipped, 10),
			units.Bytes(f.Bytes))
	}
	t.print(w)
	fmt.Fprintln(w)
	for _, f := range r.Files {
		if f.Err == nil {
			continue
		}
		fmt.Fprintf(w, "%s: %s\n", f.State, printable(errs.MessageOf(f.Err)))
		if fix := errs.FixOf(f.Err); fix != "" {
			fmt.Fprintf(w, "  fix: %s\n", printable(fix))
		}
	}
	fmt.Fprintf(w, "%s with %d samples, %s, in %s:", plural(len(r.Files), "file"), r.Samples, sized(r.Bytes),
		seconds(r.Seconds))
	sep := " "
	for _, state := range []string{"made", "present", "missing", "wrong", "failed"} {
		if n := r.States[state]; n > 0 {
			fmt.Fprintf(w, "%s%d %s", sep, n, state)
			sep = ", "
		}
	}
	fmt.Fprintln(w)
}
