// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/bench"
	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bench/report"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

func newBenchCeilings(a *app) *cobra.Command {
	var f benchFlags
	var rounds int
	var round time.Duration
	cmd := &cobra.Command{
		Use:   "ceilings [DIR...]",
		Short: "Measure the highest rates of this machine and store them for comparison with later benchmarks",
		Long: `Measure the highest rates of this machine and store them for comparison with later
benchmarks.

The command measures the rates of memory copies, of TCP over loopback, and of
copies between host and GPU. With DIR, the command also measures reads from the
page cache, and direct reads from and writes to the storage of that directory.
Each stored rate is the median of several rounds. Later benchmarks show each
result as a percentage of the stored rate that limits it.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return somePaths(cmd, args)
		},
	}
	fs := cmd.Flags()
	fs.Var(count(&rounds, 5, 1), "rounds", "number of rounds in which each rate is measured")
	fs.Var(duration(&round), "time", "duration of one round that measures storage, such as 5s; default 2s")
	f.define(fs, true)
	f.data.FileSize = 4 * units.GiB
	size := fs.Lookup("size")
	size.Value.(*value).text = units.Bytes(f.data.FileSize)
	size.DefValue = size.Value.String() // help shows the default as it was at definition
	cmd.RunE = a.run(func(ctx context.Context, args []string) (err error) {
		f.remeasure = true
		b, err := a.openBench(ctx, &f, args, true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.close()) }()
		stopped := b.measureCeilings(ctx, args, rounds, round)
		b.live.clear()
		b.File.Seconds = time.Since(b.File.Started).Seconds()
		c := b.File.Ceilings
		if stopped != nil && (!errs.Is(stopped, errs.Cancelled) || c == nil) {
			return stopped
		}
		if err := a.emitCeilings(&f, b, c); err != nil {
			return err
		}
		if stopped != nil {
			a.fault(errs.Wrap("benchmark", "the limits so far are printed and were not stored", stopped))
		}
		return nil
	})
	return cmd
}

// measureCeilings measures the limits and stores them. Later runs of the session
// are compared with them. A file that cannot be written becomes a note.
func (b *bencher) measureCeilings(ctx context.Context, paths []string, rounds int, round time.Duration) error {
	o := bench.CeilingOptions{
		Version: nebulaio.Version(),
		Machine: b.File.Machine,
		Device:  b.Device,
		Set:     b.Set,
		Rounds:  rounds,
		Time:    round,
		Step:    func(name string, i, n int) { b.live.step("ceilings: "+name, i, n) },
	}
	if len(paths) > 0 {
		spare, err := b.spareSet(ctx, paths)
		if err != nil {
			return err
		}
		o.Spare = spare
	}
	c, err := bench.MeasureCeilings(ctx, o)
	b.live.clear()
	if len(c.Limits) > 0 {
		b.File.Ceilings = c
	}
	if err != nil {
		return interrupted(ctx, err)
	}
	b.File.Notes = nil // the note that no limits are known
	if err := bench.KeepCeilings(b.f.ceilingsFile(b.a), c); err != nil {
		fix := errs.FixOf(err)
		if fix == "" {
			fix = "give --ceilings FILE in this and in later commands"
		}
		b.File.Notes = append(b.File.Notes, "the limits were not stored: "+errs.MessageOf(err)+"; "+fix)
	}
	return nil
}

func (a *app) emitCeilings(f *benchFlags, b *bencher, c *record.Ceilings) error {
	switch {
	case f.out != "" || f.html != "" || f.csv != "":
		return a.emit(f, &b.File)
	case f.json:
		return a.printJSON(c)
	}
	a.printText(func(w io.Writer) {
		_ = report.WriteText(w, &b.File) // checkedWriter records the error
		if len(b.File.Notes) == 0 {
			field(w, "kept", "in %s", printable(f.ceilingsFile(a)))
		}
	})
	return nil
}
