// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/bench"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/meters"
	"github.com/nebulaio/nebulaio/internal/top"
)

// topFlags are the flags of top.
type topFlags struct {
	interval       time.Duration
	samples        int
	once, json     bool
	record, replay string
	speed          float64
	view           top.View
	server, ca     string
	ceilings       string
	noGPU          bool
}

// usualConsole is the console address of a server that was started without settings.
const usualConsole = "http://127.0.0.1:9001"

func newTop(a *app) *cobra.Command {
	f := topFlags{interval: time.Second, speed: 1}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show disks, page cache, network, PCIe and GPUs live, and what limits now",
		Long: `Show disks, page cache, network, PCIe and GPUs live, and what limits now.

The first line says what holds the machine back, with the figures behind it; the
second says what to do. Below them are the disks, the GPUs, the network, file
servers, control groups that are stopped, NebulaIO's own transfers, and the
processes that read most. Press ? for the keys.

With --json, the command prints one JSON object per sample and line. With --once,
it prints one sample and ends. --record writes the samples to a file, and --replay
shows them again. As root, the command sees the I/O of all processes; other users
see their own.`,
		Args: noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error { return f.run(ctx, a) }),
	}
	fs := cmd.Flags()
	interval := duration(&f.interval)
	f.interval, interval.text = time.Second, "1s"
	fs.Var(interval, "interval", "time between two samples, at least 100ms, such as 500ms or 5s")
	fs.Var(count(&f.samples, 0, 0), "samples", "number of samples after which the command ends; 0 means no end")
	fs.BoolVar(&f.once, "once", false, "print one sample, which covers one interval, and end")
	fs.BoolVar(&f.json, "json", false, "print each sample with its verdict as one JSON object in one line")
	fs.StringVar(&f.record, "record", "", "write each sample with its verdict as one line of JSON to this new `file`")
	fs.StringVar(&f.replay, "replay", "", "show the samples of this recorded `file` instead of the machine's")
	fs.Var(speed(&f.speed), "speed", "replay so many times faster than recorded; 0 means without pauses")
	fs.Var(choice(&f.view.Order, "COLUMN", top.Orders()...), "sort", "column by which processes are sorted: read, write, "+
		"cpu, wait or name")
	fs.StringVar(&f.view.Filter, "filter", "",
		"show only rows with this `text` in their name, mount point or command line")
	fs.BoolVar(&f.view.All, "all", false, "show idle disks, interfaces and control groups too")
	fs.StringVar(&f.server, "server", "auto", "console `URL` of a NebulaIO server to show, such as "+usualConsole+
		"; auto shows the server at that address if there is one, off shows none")
	fs.StringVar(&f.ca, "ca-file", "", "PEM `file` with the certificates that sign the certificate of --server")
	fs.StringVar(&f.ceilings, "ceilings", "", "`file` with the measured limits of this machine, as written by "+
		"nebulaio bench ceilings")
	fs.BoolVar(&f.noGPU, "no-gpu", false, "do not read the meters of GPUs")
	return cmd
}

// speed is the flag of a factor of 0 or more.
func speed(dst *float64) *value {
	return &value{kind: "FACTOR", want: "a number from 0 to 1000, such as 10", text: "1", set: func(s string) error {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || !(v >= 0 && v <= 1000) {
			return errForm
		}
		*dst = v
		return nil
	}}
}

// leastInterval is the shortest time between two samples. Shorter ones measure the command itself.
const leastInterval = 100 * time.Millisecond

func (f *topFlags) check(a *app) error {
	bad := func(flag, msg string) error {
		return errs.New(errs.Invalid, "top", flag, msg).WithFix("see: nebulaio top --help")
	}
	switch {
	case f.interval < leastInterval:
		return bad("--interval "+f.interval.String(), "is too short; expected at least 100ms")
	case f.replay != "" && f.record != "":
		return bad("--record", "a replay cannot be recorded again; expected --record or --replay")
	case f.replay == "" && f.speed != 1:
		return bad("--speed", "only a replay has a speed; expected --replay FILE")
	case f.ca != "" && (f.server == "auto" || f.server == "off"):
		return bad("--ca-file", "is for the certificate of a server; expected --server https://…")
	case !f.json && !f.once && f.samples == 0 && (a.StdoutWidth == nil || a.StdoutWidth() <= 0):
		return errs.New(errs.Invalid, "top", "standard output", "is no terminal; expected one, or --json or --once").
			WithFix("add --json for one line per sample, or --once for one sample")
	}
	return nil
}

// run shows or prints samples until the user or a flag ends it.
func (f *topFlags) run(ctx context.Context, a *app) (err error) {
	if err := f.check(a); err != nil {
		return err
	}
	ctx, stop := a.interruptible(ctx)
	defer stop()
	src, done, err := f.openSource(a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	f.view.Color = a.Env("NO_COLOR") == ""
	var env []string
	if a.Environ != nil {
		env = a.Environ()
	}
	if !f.json && !f.once && f.samples == 0 {
		return quitted(top.Run(ctx, src, top.Options{In: a.Stdin, Out: a.Stdout, View: f.view, Replay: f.replay != "",
			Env: env}))
	}
	return quitted(f.print(ctx, a, src))
}

// quitted makes an interrupt the normal end: whoever watches ends the command with Ctrl-C.
func quitted(err error) error {
	if errs.Is(err, errs.Cancelled) {
		return nil
	}
	return err
}

// print prints samples to stdout, as JSON or as text, until as many as wanted are printed.
func (f *topFlags) print(ctx context.Context, a *app, src top.Source) error {
	if f.once {
		f.samples = 1
	}
	f.view.Color = false
	if a.StdoutWidth != nil {
		f.view.Width = a.StdoutWidth()
	}
	for n := 0; f.samples == 0 || n < f.samples; n++ {
		s, err := src.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line := top.Judged(s)
		if f.json {
			err = writeLine(a.out, line)
		} else {
			if n > 0 {
				fmt.Fprintln(a.out)
			}
			a.printText(func(w io.Writer) {
				for _, text := range f.view.Draw(s, line.Verdict) {
					fmt.Fprintln(w, text)
				}
			})
		}
		if err != nil || a.out.err != nil {
			return err // checkedWriter reports its own
		}
	}
	return nil
}

// writeLine writes a line of JSON in one piece.
func writeLine(w io.Writer, line top.Line) error {
	b, err := json.Marshal(line)
	if err != nil {
		return errs.Wrap("encode", "JSON", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// openSource opens the meters or the recording, and the file to record to. The returned function closes them.
func (f *topFlags) openSource(a *app) (top.Source, func() error, error) {
	if f.replay != "" {
		// A pipe without a writer would wait in open, where no signal ends it.
		file, err := os.OpenFile(f.replay, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, nil, errs.Wrap("replay", f.replay, err)
		}
		return top.Replay(meters.ReadRecording(file, f.replay), f.speed), file.Close, nil
	}
	c, closing, err := openMeters(a, f)
	if err != nil {
		return nil, nil, err
	}
	src := top.Live(c, f.interval)
	if f.record == "" {
		return src, closing, nil
	}
	// Command lines of processes are nobody else's business.
	file, err := os.OpenFile(f.record, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		err = errs.Wrap("record to", f.record, err)
		if os.IsExist(errors.Unwrap(err)) {
			err = errs.New(errs.Invalid, "record to", f.record, "the file exists; expected a new file").
				WithFix("name a file that does not exist")
		}
		return nil, nil, errors.Join(err, closing())
	}
	write := func(l top.Line) error {
		if err := writeLine(file, l); err != nil {
			return errs.Wrap("record to", f.record, err)
		}
		return nil
	}
	return top.Recorded(src, write), func() error { return errors.Join(file.Close(), closing()) }, nil
}

// openMeters opens the meters of this machine. The returned function closes them.
func openMeters(a *app, f *topFlags) (*meters.Collector, func() error, error) {
	o := meters.Options{Server: meters.ServerOptions{Address: f.server, CAFile: f.ca}}
	switch f.server {
	case "auto":
		o.Server = meters.ServerOptions{Address: usualConsole, Quiet: true}
	case "off":
		o.Server = meters.ServerOptions{}
	}
	file := f.ceilings
	if file == "" {
		file = bench.CeilingsFile(a.Env)
	}
	var err error
	if o.Ceilings, err = bench.LoadCeilings(file); err != nil {
		return nil, nil, err
	}
	if !f.noGPU {
		o.GPUs, o.NoGPU = open.Gauge(open.Options{NVMLLibraries: given(a.NVMLLibrary)})
	}
	c, err := meters.Open(o)
	if err != nil {
		if o.GPUs != nil {
			err = errors.Join(err, o.GPUs.Close())
		}
		return nil, nil, err
	}
	return c, func() error {
		c.Close()
		if o.GPUs != nil {
			return o.GPUs.Close()
		}
		return nil
	}, nil
}
