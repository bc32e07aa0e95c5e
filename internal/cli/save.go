// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/bench"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// saveFlags are the flags of save.
type saveFlags struct {
	objects objectFlags
	system  nebulaio.Options
	load    nebulaio.LoadOptions
	save    nebulaio.SaveOptions
	repeat  int
	// ceiling also measures plain writes before each save.
	ceiling bool
	asJSON  bool
}

// saveJSON is the report of a save command: the load and every save.
type saveJSON struct {
	Load  nebulaio.ModelReport   `json:"load"`
	Saves []nebulaio.ModelReport `json:"saves"`
	// RawWrite holds, with --ceiling, the rate in GB/s of plain writes of the same
	// number of bytes to a new file, measured before each save.
	RawWrite []float64 `json:"raw_write_gbps,omitempty"`
}

func newSave(a *app) *cobra.Command {
	var f saveFlags
	cmd := &cobra.Command{
		Use:   "save SOURCE OUT",
		Short: "Load a model and write it from device memory to one durable file",
		Long: `Load a model and write it from device memory to one durable .safetensors file.

In the new file, the tensor data begins at a page boundary. The command writes the
checksums of the new file to OUT.crc64nvme. When the command ends, the new file is
durable. A reader of OUT always finds the old file or the complete new file.

SOURCE is a .safetensors file, the index of a sharded model, or a model directory.
OUT is the file to write; an existing file is replaced when the new file is
complete. If OUT is a symbolic link, its target is replaced. OUT cannot be a
device, a pipe or a file in a kernel file system such as /proc. OUT is checked
before SOURCE is loaded. SOURCE and OUT can also be s3://BUCKET/KEY on the server
that --endpoint names. A flag overrides its environment variable; the list of
flags shows the variable in brackets.`,
		Args: twoPaths,
		RunE: a.run(func(ctx context.Context, args []string) error { return a.save(ctx, args[0], args[1], f) }),
	}
	f.define(cmd.Flags())
	return cmd
}

// twoPaths checks the arguments of save.
func twoPaths(cmd *cobra.Command, args []string) error {
	const want = "a model and the file to write"
	if len(args) != 2 {
		return errs.New(errs.Invalid, cmd.Name(), "", fmt.Sprintf("%s given; expected two, %s", plural(len(args), "path"),
			want))
	}
	for _, p := range args {
		if p == "" {
			return errs.New(errs.Invalid, cmd.Name(), "", `a path is ""; expected `+want)
		}
	}
	return nil
}

func (f *saveFlags) define(fs *pflag.FlagSet) {
	fs.SortFlags = false
	envVar(fs, deviceValue(&f.load.Device), "device", "device that the model passes through: auto, host, cuda or cuda:N")
	fs.StringArrayVar(&f.load.Tensors, "tensors", nil, "save only tensors whose name matches `GLOB`; repeatable")
	fs.BoolVar(&f.save.NoChecksums, "no-checksum", false,
		"do not write the checksum file OUT.crc64nvme, and remove an existing one")
	fs.BoolVar(&f.load.Verify, "verify", false, "check SOURCE against its checksums while SOURCE is loaded")
	fs.Var(choice(&f.save.Route, "ROUTE", "auto", "buffered", "direct"), "route",
		"route of writes: past the page cache if possible (auto), always past it (direct), "+
			"or through the page cache (buffered)")
	fs.Var(count(&f.repeat, 1, 1), "repeat", "number of times to save the model; each save replaces OUT")
	fs.BoolVar(&f.ceiling, "ceiling", false,
		"before each save, also measure plain writes of the same size, block size and queue depth to a new file")
	fs.BoolVar(&f.asJSON, "json", false, "print the result as one JSON object")
	f.objects.define(fs)
	engineFlags(fs, &f.system)
	systemFlags(fs, &f.system, "write_block_size", "write_depth")
}

// save loads the model once, saves it and prints the reports.
func (a *app) save(ctx context.Context, source, out string, f saveFlags) (err error) {
	if f.load.Client, err = f.objects.options(a); err != nil {
		return err
	}
	f.save.Client = f.load.Client
	if f.ceiling && nebulaio.IsObjectURL(out) {
		return errs.New(errs.Invalid, "save", out,
			"--ceiling measures writes to a directory of this machine, not to a bucket")
	}
	if !nebulaio.IsObjectURL(out) {
		// Check before loading, which can take long.
		if err := vfs.CheckPlace(out); err != nil {
			return err
		}
	}
	f.system.CUDALibrary, f.system.NVMLLibrary = a.CUDALibrary, a.NVMLLibrary
	sys, err := nebulaio.NewSystem(f.system)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	src, err := sys.OpenSource(ctx, source, nebulaio.SourceOptions{Device: f.load.Device, Tensors: f.load.Tensors,
		Client: f.load.Client})
	if err != nil {
		return interrupted(ctx, err)
	}
	p := a.startProgress(src.Bytes(), f.asJSON)
	m, err := src.Load(ctx, nebulaio.SourceLoadOptions{Route: f.load.Route, Cache: f.load.Cache, Verify: f.load.Verify,
		Progress: p.update})
	p.clear()
	if err := errors.Join(err, src.Close()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Free()) }()
	r := saveJSON{Load: m.Report()}
	for range f.repeat {
		if f.ceiling {
			block, depth := sys.WriteSettings()
			p := a.startWork("measuring plain writes of "+units.Bytes(m.Report().Bytes), f.asJSON)
			rate, err := bench.RawWrite(ctx, filepath.Dir(out), m.Report().Bytes, block, depth)
			p.clear()
			if err != nil {
				return interrupted(ctx, err)
			}
			r.RawWrite = append(r.RawWrite, rate)
		}
		p := a.startProgress(m.Report().Bytes, f.asJSON)
		f.save.Progress = p.update
		s, err := m.Save(ctx, out, f.save)
		p.clear()
		if err != nil {
			return err
		}
		r.Saves = append(r.Saves, s)
	}
	return a.printResult(f.asJSON, r, func(w io.Writer) { printSave(w, r) })
}

// median returns the middle of some rates.
func median(rates []float64) float64 {
	sorted := slices.Sorted(slices.Values(rates))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// printSave prints the reports of a save as text, the last one in full.
func printSave(w io.Writer, r saveJSON) {
	fmt.Fprintf(w, "loaded %s from %s to %s in %s, %s\n", units.Bytes(r.Load.Bytes), printable(r.Load.Path),
		r.Load.Device.ID, seconds(r.Load.Seconds), units.Rate(r.Load.GBps))
	for i, s := range r.Saves {
		if len(r.Saves) > 1 {
			fmt.Fprintf(w, "save %d of %d: %s in %s, %s\n", i+1, len(r.Saves), units.Bytes(s.Bytes),
				seconds(s.Seconds), units.Rate(s.GBps))
		}
	}
	if len(r.RawWrite) > 0 {
		var rates []float64
		for _, s := range r.Saves {
			rates = append(rates, s.GBps)
		}
		fmt.Fprintf(w, "saves reach %.2f of plain writes: %s to %s, medians\n", median(rates)/median(r.RawWrite),
			units.Rate(median(rates)), units.Rate(median(r.RawWrite)))
	}
	s := r.Saves[len(r.Saves)-1]
	fmt.Fprintln(w)
	from := s.Device.ID + " (" + printable(s.Device.Model) + ")"
	if s.Device.Kind == report.HostDevice {
		from = s.Device.ID + " (memory of this machine; no GPU was used)"
	}
	field(w, "device", "%s", from)
	field(w, "path", "%s", printable(s.Path))
	field(w, "tensors", "%d", s.Tensors)
	field(w, "bytes", "%s", sized(s.Bytes))
	field(w, "total", "%s, %s", seconds(s.Seconds), units.Rate(s.GBps))
	durable := "yes: file and name were synced"
	if nebulaio.IsObjectURL(s.Path) {
		durable = "yes: the server has acknowledged it"
	}
	if !s.Save.Durable {
		durable = "no"
	}
	field(w, "durable", "%s", durable)
	if s.Save.Checksums != "" {
		field(w, "checksum", "%s, %s", printable(s.Save.Checksums), plural(s.Save.ChecksumBlocks, "block"))
	}
	fmt.Fprintln(w)
	printRoutesAndStages(w, s.Report)
	fmt.Fprintln(w)
	field(w, "limiting", "%s", s.Limiting)
	staging := "no staging, bytes were written in place"
	if e := s.Engine; e.StagingUsed {
		staging = fmt.Sprintf("staging %s (%s in huge pages, %s)",
			units.Bytes(e.StagingSize), units.Bytes(e.HugePages), e.StagingState)
	}
	field(w, "engine", "%s in flight, each up to %s; %s", plural(s.Engine.QueueDepth, "write"),
		units.Bytes(s.Engine.BlockSize), staging)
	for _, line := range refusalLines(s.Refusals) {
		fmt.Fprintln(w, line)
	}
	for _, n := range s.Notes {
		fmt.Fprintf(w, "note: %s\n", printable(n))
	}
}
