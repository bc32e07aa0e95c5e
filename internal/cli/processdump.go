// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
	procs "github.com/nebulaio/nebulaio/internal/process"
)

// dumpFlags are the flags that dump and restore share.
type dumpFlags struct {
	objects objectFlags
	criu    string
	log     string
	asJSON  bool
}

func (f *dumpFlags) define(fs *pflag.FlagSet) {
	envVar(fs, textFlag(&f.criu, "FILE", "the path of the program criu"), "criu",
		"program criu; default is the one in PATH")
	fs.Var(textFlag(&f.log, "FILE", "a file"), "log", "file for criu's log")
	fs.BoolVar(&f.asJSON, "json", false, "print the result as one JSON object")
	f.objects.define(fs)
}

// writeLog writes criu's log to the file that the user named.
func (f *dumpFlags) writeLog(log *bytes.Buffer) error {
	if f.log == "" {
		return nil
	}
	return errs.Wrap("write", f.log, errs.WithoutPath(os.WriteFile(f.log, log.Bytes(), 0o600)))
}

// place returns the folder or object that a name means.
func (f *dumpFlags) place(a *app, name string) (procs.Place, error) {
	client, err := f.objects.options(a)
	if err != nil {
		return procs.Place{}, err
	}
	return procs.ParsePlace(name, client)
}

// split returns the arguments before and after --.
func split(cmd *cobra.Command, args []string) (ours, criu []string) {
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		return args[:at], args[at:]
	}
	return args, nil
}

func newProcessDump(a *app) *cobra.Command {
	var f dumpFlags
	var o procs.DumpOptions
	cmd := &cobra.Command{
		Use:   "dump PID DIR|s3://BUCKET/KEY [-- CRIU-OPTION...]",
		Short: "Write a process and its children to a folder or an object, and end it",
		Long: `Write a process and its children to a folder or an object, and end it.

The program criu makes the images. The images go through pipes to nebulaio.
nebulaio writes one file, DIR/process.nebulaio, or one object, with a checksum for
each MiB. The image has its name when it is complete and durable; only then the process
is ended. If the command fails or is interrupted, the process runs on, and there is
no image. A process that uses GPUs is suspended first; see nebulaio process suspend.

The command needs root. Options after -- go to criu.`,
		Args: func(cmd *cobra.Command, args []string) error {
			ours, _ := split(cmd, args)
			if len(ours) != 2 || ours[1] == "" {
				return errs.New(errs.Invalid, cmd.Name(), "", fmt.Sprintf("%d arguments given; expected the id of a process, "+
					"and a folder or s3://BUCKET/KEY", len(ours)))
			}
			_, err := parsePID(cmd.Name(), ours[0])
			return err
		},
	}
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		ours, criu := split(cmd, args)
		pid, err := parsePID("dump", ours[0])
		if err != nil {
			return err
		}
		to, err := f.place(a, ours[1])
		if err != nil {
			return err
		}
		o.CRIU, o.Args, o.Log = f.criu, criu, &bytes.Buffer{}
		return withImages(a, f.asJSON, func(sys *nebulaio.System, d procs.Driver, p *sharedProgress) error {
			o.System, o.Say = sys, p.say
			o.Progress = func(n int64) { p.update(n, 0) }
			rep, err := procs.Dump(ctx, d, pid, to, o)
			p.clear()
			if err = errors.Join(err, f.writeLog(o.Log)); err != nil {
				return interrupted(ctx, err)
			}
			return a.printResult(f.asJSON, rep, func(w io.Writer) { printProcess(w, rep) })
		})
	})
	fs := cmd.Flags()
	suspendFlags(fs, &o.Suspend)
	fs.BoolVar(&o.LeaveRunning, "leave-running", false, "let the process run on after the dump")
	fs.BoolVar(&o.TCPEstablished, "tcp-established", false, "dump open TCP connections too")
	fs.BoolVar(&o.ShellJob, "shell-job", false, "dump a process that belongs to a terminal")
	fs.BoolVar(&o.FileLocks, "file-locks", false, "dump file locks too")
	f.define(fs)
	return cmd
}

// withImages calls f with an engine that writes or reads images, and with the GPU driver.
func withImages(a *app, asJSON bool, f func(sys *nebulaio.System, d procs.Driver, p *sharedProgress) error) error {
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		return err
	}
	p := &sharedProgress{p: a.startWork("looking for criu", asJSON)}
	defer p.clear()
	return errors.Join(withDriver(a, func(d procs.Driver) error { return f(sys, d, p) }), sys.Close())
}

func newProcessRestore(a *app) *cobra.Command {
	var f dumpFlags
	var o procs.RestoreOptions
	var pairs []string
	cmd := &cobra.Command{
		Use:   "restore DIR|s3://BUCKET/KEY [-- CRIU-OPTION...]",
		Short: "Make a process from its image, so that it goes on where it was",
		Long: `Make a process from its image, so that it goes on where it was.

All checksums of the image are compared before criu begins: a damaged image makes no
process. The process gets the id that it had; its files must be where they were. A
process that used GPUs is resumed on them. If the command fails, no process is left.

The command needs root. Options after -- go to criu.`,
		Args: func(cmd *cobra.Command, args []string) error {
			ours, _ := split(cmd, args)
			return onePath("the folder of a dump or s3://BUCKET/KEY")(cmd, ours)
		},
	}
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		ours, criu := split(cmd, args)
		from, err := f.place(a, ours[0])
		if err != nil {
			return err
		}
		if o.Resume.Pairs, err = devicePairs(a, pairs); err != nil {
			return err
		}
		o.CRIU, o.Args, o.Log = f.criu, criu, &bytes.Buffer{}
		return withImages(a, f.asJSON, func(sys *nebulaio.System, d procs.Driver, p *sharedProgress) error {
			o.System, o.Say, o.Progress = sys, p.say, p.update
			rep, err := procs.Restore(ctx, d, from, o)
			p.clear()
			if err = errors.Join(err, f.writeLog(o.Log)); err != nil {
				return interrupted(ctx, err)
			}
			return a.printResult(f.asJSON, rep, func(w io.Writer) { printProcess(w, rep) })
		})
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	deviceMapFlag(fs, &pairs)
	f.define(fs)
	return cmd
}
