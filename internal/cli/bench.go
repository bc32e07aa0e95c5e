// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/bench"
	"github.com/nebulaio/nebulaio/internal/bench/dataset"
	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bench/report"
	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/units"
)

func newBench(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the rates of storage, memory and GPU copies as shares of this machine's highest rates",
		Long: `Measure the rates of storage, memory and GPU copies as shares of this machine's
highest rates.

PATH is a directory or a file. In a directory the command creates test files and
removes them at the end. If PATH is a file, the file is only read. If several
paths are given, neighbouring blocks go to different paths, as in RAID 0.

The first Ctrl-C ends the benchmark and prints the results so far. The flag --out
stores the results, and --html and --csv write them as a report. The command bench
compare compares two stored results.

Measure the highest rates of a machine once with: nebulaio bench ceilings DIR`,
		Args: noArgs,
		RunE: a.needsCommand,
	}
	cmd.AddCommand(newBenchRead(a), newBenchWrite(a), newBenchAll(a), newBenchSweep(a), newBenchTrain(a),
		newBenchCeilings(a), newBenchCompare(a), newBenchReport(a))
	return cmd
}

// benchFlags are the flags that all measuring commands share.
type benchFlags struct {
	system   nebulaio.Options
	device   string
	data     dataset.Options
	ceilings string

	remeasure bool // the command measures the limits anew, so a corrupt file of limits is no error

	json, gdsio    bool
	out, csv, html string
}

func (f *benchFlags) define(fs *pflag.FlagSet, deviceToo bool) {
	fs.SortFlags = false
	fs.Var(count(&f.data.Files, 1, 1), "files", "number of files to create in each directory")
	fs.Var(sizeOf(&f.data.FileSize, units.GiB), "size", "size of each file to create, such as 4GiB")
	fs.BoolVar(&f.data.Keep, "keep", false, "keep the created files in DIR/nebulaio-bench for later runs")
	if deviceToo {
		envVar(fs, deviceValue(&f.device), "device", "device that receives the bytes: auto, host, cuda or cuda:N")
		systemFlags(fs, &f.system, "devices")
	}
	fs.StringVar(&f.ceilings, "ceilings", "",
		"`FILE` with the rates that bench ceilings has measured; default ~/.cache/nebulaio/ceilings.json")
	f.output(fs)
}

func (f *benchFlags) output(fs *pflag.FlagSet) {
	fs.BoolVar(&f.json, "json", false, "print the result as one JSON object")
	fs.BoolVar(&f.gdsio, "gdsio", false, "print one line per benchmark run in the format of NVIDIA's gdsio tool")
	fs.StringVar(&f.out, "out", "", "write the benchmark results to `FILE` as JSON")
	fs.StringVar(&f.csv, "csv", "", "write the benchmark results to `FILE` as CSV")
	fs.StringVar(&f.html, "html", "", "write a report of the benchmark to `FILE` as one self-contained HTML page")
}

// places checks, before anything is measured, that the result files can be written.
func (f *benchFlags) places() error {
	if f.json && f.gdsio {
		return errs.New(errs.Invalid, "benchmark", "", "--json and --gdsio are given; expected one of them")
	}
	for _, name := range []string{f.out, f.csv, f.html} {
		if name == "" {
			continue
		}
		switch info, err := os.Stat(filepath.Dir(name)); {
		case err != nil:
			return errs.Wrap("write", name, err)
		case !info.IsDir():
			return errs.New(errs.Invalid, "write", name, filepath.Dir(name)+" is not a directory")
		}
	}
	return nil
}

// forEngine passes the engine settings that were given as flags to the engine.
// The engine chooses all others. block is the largest copy of the engine; 0
// means that blocks are requests and do not limit a copy.
func (f *benchFlags) forEngine(fs *pflag.FlagSet, workers, depth int, block int64) {
	if fs.Changed("workers") {
		f.system.Workers = workers
	}
	if fs.Changed("queue-depth") {
		f.system.QueueDepth = depth
	}
	if fs.Changed("block-size") && block > 0 {
		f.system.MaxTransferSize = block
	}
}

func deviceValue(dst *string) *value {
	*dst = "auto"
	return &value{kind: "DEVICE", want: "auto, host, cuda or cuda:N", text: "auto", set: func(s string) error {
		*dst = s // the library checks the name
		return nil
	}}
}

func sizeOf(dst *int64, first int64) *value {
	*dst = first
	v := size(dst)
	v.text = units.Bytes(first)
	return v
}

func (f *benchFlags) ceilingsFile(a *app) string {
	if f.ceilings != "" {
		return f.ceilings
	}
	return bench.CeilingsFile(a.Env)
}

// bencher holds the open parts of one measuring command.
type bencher struct {
	*bench.Session
	a     *app
	f     *benchFlags
	sys   *boot.System
	live  *liveLine
	spare *dataset.Set // empty files for writes, created at the first write
	logs  string       // temporary directory of cuFile's log
}

// quietCuFile sends cuFile's log to a temporary directory. Without that, cuFile
// writes it into the current directory. A path that the user has set is kept.
func (b *bencher) quietCuFile() (err error) {
	const place = "CUFILE_LOGFILE_PATH"
	if b.logs != "" || b.a.Env(place) != "" {
		return nil
	}
	if b.logs, err = os.MkdirTemp("", "nebulaio-cufile-"); err != nil {
		return errs.Wrap("create a directory for cuFile's log in", os.TempDir(), err)
	}
	return os.Setenv(place, filepath.Join(b.logs, "cufile.log"))
}

// openBench opens devices and files. Without needDevice no device is opened.
func (a *app) openBench(ctx context.Context, f *benchFlags, paths []string, needDevice bool) (_ *bencher, err error) {
	if err := f.places(); err != nil {
		return nil, err
	}
	b := &bencher{a: a, f: f, live: a.newLiveLine(f.json || f.gdsio)}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	var dev device.Device
	var engine *transfer.Engine
	if needDevice {
		if b.sys, err = boot.New(boot.Options{Devices: open.Options{Mode: device.Mode(f.system.Devices),
			CUDALibraries: given(a.CUDALibrary), NVMLLibraries: given(a.NVMLLibrary), CuFileLibraries: given(a.CuFileLibrary)},
			Engine: transfer.Options{Workers: f.system.Workers, QueueDepth: f.system.QueueDepth,
				MaxTransfer: f.system.MaxTransferSize}}); err != nil {
			return nil, err
		}
		if dev, err = b.sys.Devices.Open(ctx, f.device); err != nil {
			return nil, err
		}
		engine = b.sys.Engine
	}
	kept, err := bench.LoadCeilings(f.ceilingsFile(a))
	if f.remeasure && errs.Is(err, errs.Corrupt) {
		err = nil // measuring again repairs it
	}
	if err != nil {
		return nil, err
	}
	var set *dataset.Set
	if len(paths) > 0 {
		if set, err = b.makeFiles(ctx, paths, f.data); err != nil {
			return nil, err
		}
	}
	info := bench.HostOnly()
	if dev != nil {
		info = dev.Info()
		for _, d := range b.sys.Devices.Survey().Devices {
			if d.ID == info.ID {
				info = d // the survey also knows NVML's facts, such as the driver's release
			}
		}
	}
	b.Session = bench.NewSession(nebulaio.Version(), append([]string{"nebulaio"}, a.Args...), set, dev, info, engine, kept)
	b.Session.Live = b.live.update
	if needDevice {
		b.OpenDirect = func(ctx context.Context) (device.Direct, error) {
			if err := b.quietCuFile(); err != nil {
				return nil, err
			}
			return b.sys.Devices.OpenDirect(ctx, dev)
		}
	}
	if needDevice && dev.Info().Kind == device.Host && f.device == "auto" {
		if v := b.sys.Devices.Survey(); v.NoGPU != "" {
			b.File.Notes = append(b.File.Notes, "the device is host memory, not a GPU: "+v.NoGPU+"; "+v.Fix)
		}
	}
	return b, nil
}

func (b *bencher) makeFiles(ctx context.Context, paths []string, o dataset.Options) (*dataset.Set, error) {
	o.Paths = paths
	b.live.clear() // only one of the two lines is drawn at a time
	p := b.a.startProgress(int64(len(paths))*int64(o.Files)*o.FileSize, b.f.json || b.f.gdsio)
	o.Progress = p.update
	set, err := dataset.Open(ctx, o)
	p.clear()
	return set, interrupted(ctx, err)
}

// spareSet returns the files that writes go to. The first call creates them.
func (b *bencher) spareSet(ctx context.Context, paths []string) (*dataset.Set, error) {
	if b.spare != nil {
		return b.spare, nil
	}
	o := b.f.data
	o.Empty, o.Keep = true, false
	var err error
	b.spare, err = b.makeFiles(ctx, paths, o)
	return b.spare, err
}

func (b *bencher) close() error {
	b.live.clear()
	var all []error
	if b.spare != nil {
		all = append(all, b.spare.Close())
	}
	if b.Session != nil && b.Set != nil {
		all = append(all, b.Set.Close())
	}
	if b.sys != nil {
		all = append(all, b.sys.Close())
	}
	if b.logs != "" {
		all = append(all, os.RemoveAll(b.logs))
	}
	return errors.Join(all...)
}

// finish prints and stores the results. stopped is the error that ended the command early.
func (b *bencher) finish(stopped error) error {
	b.live.clear()
	b.File.Seconds = time.Since(b.File.Started).Seconds()
	if stopped != nil && len(b.File.Runs) == 0 && b.File.Train == nil {
		return stopped
	}
	b.File.Interrupted = b.File.Interrupted || errs.Is(stopped, errs.Cancelled)
	if stopped != nil && !b.File.Interrupted {
		b.File.Notes = append(b.File.Notes, "the benchmark ended early: "+errs.MessageOf(stopped))
	}
	if err := b.a.emit(b.f, &b.File); err != nil {
		return err
	}
	for _, r := range b.File.Runs {
		if r.Verify != nil && r.Verify.Mismatches > 0 {
			b.a.fault(errs.New(errs.Corrupt, "verify", r.Name,
				fmt.Sprintf("%d blocks differ, the first in %s", r.Verify.Mismatches, r.Verify.First)))
			return nil
		}
	}
	if stopped != nil {
		b.a.fault(&errs.Error{Kind: errs.KindOf(stopped), Op: "benchmark",
			Msg: "ended early; the results so far are printed", Err: stopped})
	}
	return nil
}

// fault sets the exit code for err after a command has printed its result. The
// message goes to stderr alone, because stdout carries exactly one JSON object.
func (a *app) fault(err error) {
	a.exit = errs.KindOf(err).ExitCode()
	fmt.Fprintf(a.Stderr, "nebulaio: %s\n", printable(errs.MessageOf(err)))
}

// emit writes the results to each file that a flag names, and prints them.
func (a *app) emit(f *benchFlags, file *record.File) error {
	for _, o := range []struct {
		name  string
		write func(w io.Writer) error
	}{
		{f.out, func(w io.Writer) error { return encodeJSON(w, file) }},
		{f.csv, func(w io.Writer) error { return report.WriteCSV(w, file) }},
		{f.html, func(w io.Writer) error { return report.WriteHTML(w, file) }},
	} {
		if o.name == "" {
			continue
		}
		if err := replaceFile(o.name, o.write); err != nil {
			return err
		}
	}
	switch {
	case f.json:
		return a.printJSON(file)
	case f.gdsio:
		a.printText(func(w io.Writer) {
			for _, r := range file.Runs {
				_ = report.WriteGdsio(w, &r) // checkedWriter records the error
			}
		})
	default:
		a.printText(func(w io.Writer) { _ = report.WriteText(w, file) })
	}
	return nil
}

// replaceFile replaces a file atomically.
func replaceFile(name string, write func(io.Writer) error) (err error) {
	// A device such as /dev/null is written in place: a rename would replace it
	// with a regular file.
	if info, serr := os.Stat(name); serr == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return errs.Wrap("write", name, err)
		}
		return errs.Wrap("write", name, errors.Join(write(f), f.Close()))
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return errs.Wrap("write", name, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
			err = errs.Wrap("write", name, err)
		}
	}()
	err = write(tmp)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(tmp.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	return err
}
