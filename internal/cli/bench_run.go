// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio/internal/bench"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/nearest"
	"github.com/nebulaio/nebulaio/internal/units"
)

// somePaths checks that a command has one or more paths.
func somePaths(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errs.New(errs.Invalid, cmd.Name(), "", "no path given; expected directories for test files, or files to read")
	}
	for _, p := range args {
		if p == "" {
			return errs.New(errs.Invalid, cmd.Name(), "", `a path is ""; expected directories or files`)
		}
	}
	return nil
}

// specFlags adds the flags that describe one run.
func specFlags(fs *pflag.FlagSet, s *bench.Spec) {
	fs.Var(choice(&s.Pattern, "ORDER", bench.Sequential, bench.Random), "pattern",
		"order in which blocks are read or written: sequential or random")
	fs.Var(sizeOf(&s.BlockSize, units.MiB), "block-size", "size of one read or write, such as 64KiB")
	fs.Var(count(&s.Workers, 4, 1), "workers",
		"number of concurrent workers; each worker reads or writes its own part of the data")
	fs.Var(count(&s.QueueDepth, 1, 1), "queue-depth", "number of reads or writes that each worker keeps in flight")
	fs.Var(choice(&s.Route, "ROUTE", bench.Auto, bench.Direct, bench.Buffered), "route",
		"route of the bytes: past the page cache (direct), through it (buffered), or direct if possible (auto)")
	timeFlags(fs, s)
	fs.BoolVar(&s.Verify, "verify", false,
		"check the bytes at their destination; the measured rate includes the time of the check")
	fs.Var(number(&s.Seed), "seed", "seed for the contents of created files and for the random order of blocks")
	fs.BoolVar(&s.SmallPages, "small-pages", false, "use ordinary memory pages for buffers instead of huge pages")
}

func timeFlags(fs *pflag.FlagSet, s *bench.Spec) {
	fs.Var(duration(&s.Time), "time",
		"repeat passes over the data for this time, such as 10s; default: one pass without a time limit")
	passes := count(&s.Passes, 0, 1)
	passes.text = ""
	fs.Var(passes, "passes", "number of passes over the data; default 1")
	stable := share(&s.Stable)
	fs.Var(stable, "until-stable",
		"end the run when the rate varies by at most this `SHARE` for two seconds, or after --time (default 1m)")
}

func duration(dst *time.Duration) *value {
	return &value{kind: "DURATION", want: "a duration such as 10s, 500ms or 2m", text: "", set: func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 {
			return errForm
		}
		*dst = d
		return nil
	}}
}

// share parses a share such as 0.05 or 5%.
func share(dst *float64) *value {
	return &value{kind: "SHARE", want: "a share such as 0.05 or 5%", text: "", set: func(s string) error {
		text, percent := strings.CutSuffix(s, "%")
		v, err := strconv.ParseFloat(text, 64)
		if percent {
			v /= 100
		}
		if err != nil || !(v > 0 && v < 1) {
			return errForm
		}
		*dst = v
		return nil
	}}
}

func newBenchRead(a *app) *cobra.Command {
	var f benchFlags
	var s bench.Spec
	cmd := &cobra.Command{
		Use:   "read PATH...",
		Short: "Measure reads from storage into host or device memory",
		Long: `Measure reads from storage into host or device memory.

The flag --to names the destination and the method of the reads:

  host      read into host memory and stop there
  pageable  read into ordinary host memory, then copy each block to the device
  pinned    read into pinned host memory, then copy each block to the device
  engine    let the transfer engine read and copy, as nebulaio load does
  cufile    let NVIDIA's cuFile read each block into device memory`,
		Args: somePaths,
	}
	fs := cmd.Flags()
	fs.Var(choice(&s.Memory, "MEMORY", bench.Host, bench.Pageable, bench.Pinned, bench.Engine, bench.CuFile),
		"to", "destination and method of the reads: host, pageable, pinned, engine or cufile")
	specFlags(fs, &s)
	fs.Var(choice(&s.IO, "HOW", bench.Pread, bench.Uring), "io",
		"system calls for the reads: pread, or io_uring (uring)")
	fs.Var(choice(&s.Cache, "STATE", bench.Cold, bench.Warm, bench.AsIs), "cache",
		"state of the page cache at the start of each pass: cold, warm or as-is")
	f.define(fs, true)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		s.Op = bench.Read
		if s.Memory == bench.Engine {
			block := s.BlockSize
			if s.Pattern == bench.Random {
				block = 0
			}
			f.forEngine(fs, s.Workers, s.QueueDepth, block)
		}
		return a.benchOne(ctx, &f, args, s)
	})
	return cmd
}

func newBenchWrite(a *app) *cobra.Command {
	var f benchFlags
	var s bench.Spec
	cmd := &cobra.Command{
		Use:   "write DIR...",
		Short: "Measure writes from host or device memory to storage, with a sync at the end",
		Args:  somePaths,
	}
	fs := cmd.Flags()
	fs.Var(choice(&s.Memory, "MEMORY", bench.Host, bench.Pageable, bench.Pinned, bench.CuFile),
		"from", "source and method of the writes: host, pageable, pinned or cufile")
	specFlags(fs, &s)
	fs.BoolVar(&s.NoSync, "no-sync", false, "end the run without a sync; written data may still be in a cache")
	f.define(fs, true)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		s.Op = bench.Write
		return a.benchOne(ctx, &f, args, s)
	})
	return cmd
}

// benchOne runs one spec and prints its result.
func (a *app) benchOne(ctx context.Context, f *benchFlags, paths []string, s bench.Spec) (err error) {
	if err := s.Check(); err != nil {
		return err
	}
	if s.Memory == bench.Host && f.device != "auto" && f.device != "host" {
		return errs.New(errs.Invalid, "benchmark", "--device "+f.device, "is not used: the bytes stay in host memory").
			WithFix("give --to or --from pageable, pinned, engine or cufile, or omit --device")
	}
	f.data.Seed = s.Seed
	f.data.Empty = s.Op == bench.Write
	b, err := a.openBench(ctx, f, paths, s.Memory != bench.Host)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	_, err = b.Run(ctx, s)
	return b.finish(err)
}

func newBenchSweep(a *app) *cobra.Command {
	var f benchFlags
	var s bench.Spec
	words := append(bench.Sweeps(), "prefetch", "all")
	cmd := &cobra.Command{
		Use:   "sweep QUESTION PATH...",
		Short: "Answer one question about this machine with a series of benchmark runs: " + list(words),
		Long: `Answer one question about this machine with a series of benchmark runs.

  pattern     how much slower is random access than sequential access?
  block-size  which read size is the fastest?
  workers     how many workers are worth using?
  memory      how much faster are pinned memory and the engine?
  prefetch    how many batches of read-ahead keep the device busy?
  all         all of these questions`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errs.New(errs.Invalid, "sweep", "", "no question given; expected "+list(words))
			}
			return somePaths(cmd, args[1:])
		},
	}
	fs := cmd.Flags()
	timeFlags(fs, &s)
	fs.Var(number(&s.Seed), "seed", "seed for the contents of created files and for the random order of blocks")
	f.define(fs, true)
	cmd.RunE = a.run(func(ctx context.Context, args []string) (err error) {
		ids, err := sweepsOf(args[0], words)
		if err != nil {
			return err
		}
		if s.Time == 0 && s.Passes == 0 && s.Stable == 0 {
			s.Time = 2 * time.Second
		}
		f.data.Seed = s.Seed
		b, err := a.openBench(ctx, &f, args[1:], true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.close()) }()
		return b.finish(b.runSteps(ctx, b.sweepSteps(ids, s)))
	})
	return cmd
}

func sweepsOf(id string, words []string) ([]string, error) {
	if id == "all" {
		return words[:len(words)-1], nil
	}
	for _, w := range words {
		if w == id {
			return []string{id}, nil
		}
	}
	return nil, errs.New(errs.Invalid, "sweep", strconv.Quote(id),
		"is not a question; expected "+list(words)+nearest.Hint(id, words...))
}

// sweepSteps returns one step per question.
func (b *bencher) sweepSteps(ids []string, s bench.Spec) (all []benchStep) {
	for _, id := range ids {
		all = append(
			all,
			benchStep{
				"sweep " + id,
				float64(b.SweepRuns(id, s)),
				func(ctx context.Context) error { return b.sweep(ctx, id, s) },
			},
		)
	}
	return all
}

func (b *bencher) sweep(ctx context.Context, id string, s bench.Spec) error {
	if id == "prefetch" {
		return b.prefetchSweep(ctx, s)
	}
	return b.Sweep(ctx, id, s)
}

func newBenchAll(a *app) *cobra.Command {
	var f benchFlags
	var s bench.Spec
	var measure bool
	var rounds int
	cmd := &cobra.Command{
		Use:   "all DIR...",
		Short: "Run every benchmark once: highest rates, reads, writes, sweeps and a simulated training loop",
		Long: `Run every benchmark once: highest rates, reads, writes, sweeps and a simulated
training loop.

Reads are measured with each method of bench read, and writes from host, pageable
and pinned memory. The flag --html writes a report about this machine.`,
		Args: somePaths,
	}
	fs := cmd.Flags()
	fs.Var(duration(&s.Time), "time", "duration of each benchmark run, such as 10s; default 2s")
	fs.Var(count(&rounds, 5, 1), "rounds", "number of rounds in which each highest rate is measured")
	fs.BoolVar(&measure, "measure-ceilings", false,
		"measure the highest rates of this machine again even if stored rates exist")
	fs.Var(number(&s.Seed), "seed", "seed for the contents of created files and for the random order of blocks")
	f.define(fs, true)
	cmd.RunE = a.run(func(ctx context.Context, args []string) (err error) {
		if s.Time == 0 {
			s.Time = 2 * time.Second
		}
		for _, p := range args {
			if info, err := os.Stat(p); err == nil && !info.IsDir() {
				return errs.New(errs.Invalid, "all", p, "is a file; expected directories, because writes are measured too")
			}
		}
		f.data.Seed = s.Seed
		b, err := a.openBench(ctx, &f, args, true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.close()) }()
		var all []benchStep
		if measure || b.File.Ceilings == nil {
			all = append(all, benchStep{"limits of this machine", float64(2 * rounds), func(ctx context.Context) error {
				return b.measureCeilings(ctx, args, rounds, s.Time)
			}})
		}
		return b.finish(b.runSteps(ctx, append(all, b.everything(args, s)...)))
	})
	return cmd
}

// everything returns the steps of bench all. A step that this machine does not support becomes a note.
func (b *bencher) everything(paths []string, s bench.Spec) (all []benchStep) {
	add := func(name string, weight int, run func(ctx context.Context) error) {
		all = append(all, benchStep{name, float64(weight), run})
	}
	for _, m := range []bench.Memory{bench.Host, bench.Pageable, bench.Pinned, bench.Engine, bench.CuFile} {
		for _, c := range []bench.Cache{bench.Cold, bench.Warm} {
			r := s
			r.Memory, r.Cache, r.Workers = m, c, 8
			if c == bench.Warm && m != bench.Engine {
				r.Route = bench.Buffered
			}
			if m == bench.CuFile && c == bench.Warm {
				continue
			}
			add(fmt.Sprintf("read to %s, %s", m, c), 1, func(ctx context.Context) error { return b.tryRun(ctx, r) })
		}
	}
	random := s
	random.Pattern, random.BlockSize, random.Workers, random.QueueDepth = bench.Random, 4*units.KiB, 8, 4
	add("random reads of 4 KiB", 1, func(ctx context.Context) error { return b.tryRun(ctx, random) })
	for _, m := range []bench.Memory{bench.Host, bench.Pageable, bench.Pinned} {
		add(fmt.Sprintf("write from %s", m), 3, func(ctx context.Context) error { return b.write(ctx, paths, s, m) })
	}
	all = append(all, b.sweepSteps(append(bench.Sweeps(), "prefetch"), s)...)
	add("training", 3, b.trainDefault)
	return all
}

// write measures writes from one kind of memory.
func (b *bencher) write(ctx context.Context, paths []string, s bench.Spec, from bench.Memory) error {
	spare, err := b.spareSet(ctx, paths)
	if err != nil {
		return err
	}
	whole := b.Set
	b.Set = spare
	defer func() { b.Set = whole }()
	s.Op, s.Memory, s.Workers, s.Time, s.Passes = bench.Write, from, 8, 0, 3
	return b.tryRun(ctx, s)
}

// tryRun runs s. If this machine does not support s, it adds a note instead of failing.
func (b *bencher) tryRun(ctx context.Context, s bench.Spec) error {
	_, err := b.Run(ctx, s)
	if errs.Is(err, errs.Unsupported) {
		b.File.Notes = append(b.File.Notes, fmt.Sprintf("skipped %s: %s", s.Name(), errs.MessageOf(err)))
		return nil
	}
	return err
}
