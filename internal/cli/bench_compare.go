// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bench/report"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func readResults(name string) (*record.File, error) {
	b, err := readBounded("read results", name, record.MaxFile)
	if err != nil {
		return nil, err
	}
	return record.Parse(name, b)
}

// readBounded reads a file that the user names, up to limit bytes.
func readBounded(op, name string, limit int64) ([]byte, error) {
	// A pipe without a writer would wait in open, where no signal ends it.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errs.Wrap(op, name, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, errs.Wrap(op, name, err)
	}
	if int64(len(b)) > limit {
		return nil, errs.New(errs.Invalid, op, name, fmt.Sprintf("is longer than %d bytes; expected what --out or --json wrote", limit))
	}
	return b, nil
}

func newBenchCompare(a *app) *cobra.Command {
	var asJSON bool
	var most float64
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Hold the results in B against those in A, run by run",
		Long: `Hold the results in B against those in A, run by run.

Runs are matched by their settings. A difference within the spread of both is
called the same. With --max-regression the exit code is 1 when a run of B is
slower than that.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errs.New(errs.Invalid, "compare", "", fmt.Sprintf("%s given; expected two files of results", plural(len(args), "file")))
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&asJSON, "json", false, "print one JSON object")
	fs.Var(share(&most), "max-regression", "fail when a run is slower by more than this `SHARE`")
	cmd.RunE = a.run(func(_ context.Context, args []string) error {
		before, err := readResults(args[0])
		if err != nil {
			return err
		}
		after, err := readResults(args[1])
		if err != nil {
			return err
		}
		c := report.Compare(before, after)
		if asJSON {
			err = a.printJSON(c)
		} else {
			a.printText(func(w io.Writer) { _ = report.WriteComparison(w, c) }) // the writer below remembers
		}
		if err != nil || most == 0 {
			return err
		}
		if err := c.Check(most); err != nil {
			a.fault(err)
		}
		return nil
	})
	return cmd
}

func newBenchReport(a *app) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "report FILE",
		Short: "Print kept results, or make a report of them",
		Args:  onePath("a file that --out or --json wrote"),
	}
	f.output(cmd.Flags())
	cmd.RunE = a.run(func(_ context.Context, args []string) error {
		file, err := readResults(args[0])
		if err != nil {
			return err
		}
		return a.emit(&f, file)
	})
	return cmd
}
