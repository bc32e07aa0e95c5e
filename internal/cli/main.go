// SPDX-License-Identifier: Apache-2.0

// Package cli implements the nebulaio command.
//
// Each subcommand has one file and one constructor. Arguments, standard streams, environment, clock and signals come
// from a World, which tests replace.
//
// Results go to stdout; errors and progress go to stderr. With --json, stdout carries exactly one JSON object; only
// top prints one for each sample. If the command fails, the JSON object is {"error": ...}, and stderr has the text of
// the error too. The kind of the error determines the exit code.
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Main runs the command in w.Args and returns the exit code. The first interrupt cancels the command, which then
// fails with an error of kind Cancelled. A second interrupt ends the process at once.
func Main(w World) int {
	a := &app{World: w, out: &checkedWriter{w: w.Stdout}}
	ctx, stop := a.interruptible(context.Background())
	defer stop()

	err := a.execute(ctx)
	if err == nil {
		err = a.out.failed()
	}
	if err == nil {
		return a.exit
	}
	a.printError(err)
	return errs.KindOf(err).ExitCode()
}

// app is the state that the commands share while one of them runs.
type app struct {
	World
	out *checkedWriter
	ran bool // the arguments are valid and the command has begun
	// warnings are probable mistakes that were found before the command began.
	warnings []string
	// exit is the exit code of a command that completed and found a fault.
	exit int
}

func (a *app) execute(ctx context.Context) error {
	root := newRoot(a)
	root.SetArgs(a.Args)
	root.SetIn(a.Stdin)
	root.SetOut(a.out)
	root.SetErr(a.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.ran {
		return usageError(cmd, err)
	}
	return err
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "nebulaio",
		Short: "Load model files into GPU memory, and serve an object store",
		Long: `Load model files into GPU memory, report the route of every byte, and serve an
S3-compatible object store.

The device "host" is the memory of this machine. A command uses the device "host"
if there is no usable GPU and the user named no device. If the user names a
device, a command never uses another device instead.

Exit codes: 0 success, 1 other error, 2 invalid use, 3 not found, 4 permission
denied, 5 corrupt data, 6 I/O error, 7 device, 8 memory, 9 unsupported.
10 means no checksums, and 130 interrupted.`,
		Version:            nebulaio.Version(),
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true,
		CompletionOptions:  cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:               noArgs,
		RunE:               func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("nebulaio {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newLoad(a), newSave(a), newInspect(a), newIndex(a), newPack(a), newUnpack(a), newCheckpoint(a),
		newCp(a), newSync(a), newLs(a), newRm(a), newMb(a), newRb(a), newCat(a), newDu(a), newVerify(a), newWarm(a),
		newMigrate(a),
		newDevices(a), newTop(a), newDiagnose(a), newDoctor(a), newBench(a), newGenerate(a),
		newServer(a), newConfig(a), newUser(a), newGroup(a), newPolicy(a), newEncryption(a), newStore(a), newCache(a),
		newCluster(a), newLifecycle(a), newQuota(a), newInventory(a), newEvents(a), newReplication(a),
		newGPUDirect(a), newProcess(a),
		newVersion(a), newCompletion(a))
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = knownTopic
		}
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		cmd.InitDefaultHelpFlag()
		a.printText(func(w io.Writer) { a.printHelp(w, cmd) })
	})
	addExamples(root, examples())
	addCompletions(root, arguments(), fileFlags())
	return root
}

// run wraps f as a cobra action. It applies environment variables to the flags
// first. Errors from then on are not usage errors.
func (a *app) run(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.applyEnv(cmd); err != nil {
			return err
		}
		a.ran = true
		if a.warnings = a.unknownVariables(cmd.Root()); cmd.Name() != "server" { // server logs them
			a.warn(a.warnings)
		}
		return f(cmd.Context(), args)
	}
}

// interruptible returns a context that the first interrupt cancels.
func (a *app) interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if a.Notify == nil {
		return ctx, func() { cancel(nil) }
	}
	signals := make(chan os.Signal, 1)
	stop := a.Notify(signals)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case s := <-signals:
			// Restore the system's handling before cancelling, so that a second interrupt
			// always ends a process that hangs.
			stop()
			cancel(errs.New(errs.Cancelled, "interrupted by", signalName(s), ""))
		case <-ctx.Done():
			stop()
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-watched
	}
}

func signalName(s os.Signal) string {
	switch s {
	case os.Interrupt:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	}
	return s.String()
}

// checkedWriter records the first write error. A command whose output was not
// written, for example on a full disk, fails.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if c.err == nil {
		c.err = err
	}
	return n, err
}

func (c *checkedWriter) failed() error {
	if c.err == nil {
		return nil
	}
	cause := c.err
	if pe := (*os.PathError)(nil); errors.As(cause, &pe) {
		cause = pe.Err // the path would only be /dev/stdout
	}
	return &errs.Error{Kind: errs.IO, Op: "write", Name: "standard output", Err: cause}
}
