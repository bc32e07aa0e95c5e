// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// loadFlags are the flags of load.
type loadFlags struct {
	objects   objectFlags
	system    nebulaio.Options
	load      nebulaio.LoadOptions
	repeat    int
	dropCache bool
	asJSON    bool
}

// loadJSON is the report of one load and of the steps before it.
type loadJSON struct {
	nebulaio.ModelReport
	// Dropped is present if the page cache was dropped before this load.
	Dropped *droppedJSON `json:"cache_dropped,omitempty"`
}

// droppedJSON reports how many bytes stayed in the page cache.
type droppedJSON struct {
	Left int64 `json:"left_bytes"`
}

func newLoad(a *app) *cobra.Command {
	var f loadFlags
	cmd := &cobra.Command{
		Use:   "load PATH",
		Short: "Load a model into device memory and report the rate and the routes of the bytes",
		Long: `Load a model into device memory, report the rate and the routes of the bytes, and
free the memory.

PATH is a .safetensors file, the index of a sharded model, or a model directory.
PATH can also be s3://BUCKET/KEY on the server that --endpoint names. A flag
overrides its environment variable; the list of flags shows the variable in
brackets.

To measure loads that do not use the page cache, give --drop-cache with --cache
bypass. With --cache auto, a file that is read from disk by two loads stays in the
page cache after the second load.`,
		Args: onePath("one model file, index or directory"),
		RunE: a.run(func(ctx context.Context, args []string) error { return a.load(ctx, args[0], f) }),
	}
	f.define(cmd.Flags())
	return cmd
}

func (f *loadFlags) define(fs *pflag.FlagSet) {
	fs.SortFlags = false
	envVar(fs, deviceValue(&f.load.Device), "device", "device that receives the model: auto, host, cuda or cuda:N")
	envVar(fs, choice(&f.load.Route, "ROUTE", "auto", "buffered", "direct", "cufile"), "route",
		"route of reads: best for each chunk (auto), "+
			"through the page cache (buffered), past it (direct), or NVIDIA's libcufile (cufile)")
	envVar(fs, choice(&f.load.Cache, "POLICY", "auto", "keep", "bypass"), "cache",
		"what a load leaves in the page cache: auto, keep or bypass")
	fs.StringArrayVar(&f.load.Tensors, "tensors", nil, "load only tensors whose name matches `GLOB`; repeatable")
	sliceFlags(fs, &f.load.Slices, &f.load.Shards)
	fs.BoolVar(&f.load.Verify, "verify", false,
		"check every block against the checksums that inspect --checksum wrote to FILE.crc64nvme")
	systemFlags(fs, &f.system, "verify_on")
	fs.BoolVar(&f.load.Lenient, "lenient", false,
		"also accept headers that the Python package safetensors accepts but nebulaio refuses by default")
	fs.Var(count(&f.repeat, 1, 1), "repeat", "number of times to load the model; the model is freed after each load")
	fs.BoolVar(&f.dropCache, "drop-cache", false, "drop the files of the model from the page cache before each load")
	fs.BoolVar(&f.asJSON, "json", false, "print the result as one JSON object")
	f.objects.define(fs)
	engineFlags(fs, &f.system)
	systemFlags(fs, &f.system, "cufile")
}

// load runs all loads of the command and prints their reports.
func (a *app) load(ctx context.Context, path string, f loadFlags) (err error) {
	var cu cuFileHome
	f.system.BeforeCuFile = func() error { return cu.prepare(a) }
	if f.load.Client, err = f.objects.options(a); err != nil {
		return err
	}
	f.system.CUDALibrary, f.system.NVMLLibrary, f.system.CuFileLibrary = a.CUDALibrary, a.NVMLLibrary, a.CuFileLibrary
	sys, err := nebulaio.NewSystem(f.system)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sys.Close(), cu.remove()) }()
	var all []loadJSON
	for i := 1; i <= f.repeat; i++ {
		l, err := a.loadOnce(ctx, sys, path, f)
		if err != nil {
			return ofLoad(err, path, i, f.repeat)
		}
		all = append(all, l)
		if f.repeat > 1 && !f.asJSON {
			a.printText(func(w io.Writer) { printLoadLine(w, i, f.repeat, l) })
		}
		if err := a.out.failed(); err != nil {
			return err // stdout is closed
		}
	}
	sum := summarize(all)
	if f.asJSON {
		return a.printJSON(struct {
			Loads   []loadJSON  `json:"loads"`
			Summary summaryJSON `json:"summary"`
		}{all, sum})
	}
	a.printText(func(w io.Writer) {
		if f.repeat > 1 {
			fmt.Fprintln(w)
		}
		printLoad(w, all[len(all)-1])
		if f.repeat > 1 {
			fmt.Fprintln(w)
			sum.print(w)
		}
	})
	return nil
}

// ofLoad names the load that an interrupt ended. Other errors name their file already.
func ofLoad(err error, path string, i, n int) error {
	if !errs.Is(err, errs.Cancelled) {
		return err
	}
	if n > 1 {
		return errs.Wrap(fmt.Sprintf("load %d of %d of", i, n), path, err)
	}
	return errs.Wrap("load", path, err)
}

// loadOnce opens, loads and frees the model once.
func (a *app) loadOnce(ctx context.Context, sys *nebulaio.System, path string, f loadFlags) (l loadJSON, err error) {
	if ctx.Err() != nil {
		return l, context.Cause(ctx)
	}
	open := nebulaio.SourceOptions{
		Device:  f.load.Device,
		Tensors: f.load.Tensors,
		Slices:  f.load.Slices,
		Shards:  f.load.Shards,
		Lenient: f.load.Lenient,
		Client:  f.load.Client,
	}
	if f.dropCache {
		// Use a separate source and close it, so that the load also reads the
		// header from storage and the time to open is a cold one.
		src, err := sys.OpenSource(ctx, path, open)
		if err != nil {
			return l, interrupted(ctx, err)
		}
		left, err := src.DropCache()
		if err := errors.Join(err, src.Close()); err != nil {
			return l, err
		}
		l.Dropped = &droppedJSON{Left: left}
	}
	src, err := sys.OpenSource(ctx, path, open)
	if err != nil {
		return l, interrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	p := a.startProgress(src.Bytes(), f.asJSON)
	m, err := src.Load(ctx, nebulaio.SourceLoadOptions{Route: f.load.Route, Cache: f.load.Cache, Verify: f.load.Verify,
		Progress: p.update})
	p.clear()
	if err != nil {
		return l, err
	}
	l.ModelReport = m.Report()
	return l, m.Free()
}

// printLoadLine prints one of several loads in one line.
func printLoadLine(w io.Writer, i, n int, l loadJSON) {
	fmt.Fprintf(w, "load %d of %d: %s to %s in %s, %s", i, n, units.Bytes(l.Bytes), l.Device.ID,
		seconds(l.Seconds), units.Rate(l.GBps))
	for _, r := range l.Routes {
		fmt.Fprintf(w, ", %s %s", r.Route, percent(r.Bytes, routed(l.Routes)))
	}
	if l.Dropped != nil {
		fmt.Fprintf(w, "; %s", l.Dropped)
	}
	fmt.Fprintln(w)
}

func (d *droppedJSON) String() string {
	if d.Left == 0 {
		return "page cache dropped before the load"
	}
	return "page cache dropped before the load, " + sized(d.Left) + " stayed"
}
