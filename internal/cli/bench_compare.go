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

// readBounded reads a file of at most limit bytes that the user names.
func readBounded(op, name string, limit int64) ([]byte, error) {
	// Without O_NONBLOCK, the open of a pipe that has no writer would block, and no signal would end it.
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
		return nil, errs.New(errs.Invalid, op, name,
			fmt.Sprintf("is longer than %d bytes; expected a file written by --out or --json", limit))
	}
	return b, nil
}

func newBenchCompare(a *app) *cobra.Command {
	var asJSON bool
	var most float64
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Compare the benchmark results in file B with the results in file A, run by run",
		Long: `Compare the benchmark results in file B with the results in file A, run by run.

Each run in B is compared with the run in A that has the same settings. Two rates
count as equal if their difference is within the noise that was measured in the
two runs. With --max-regression SHARE, the exit code is 1 if a run in B is slower
than the matching run in A by more than SHARE.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errs.New(errs.Invalid, "compare", "",
					fmt.Sprintf("%s given; expected two result files", plural(len(args), "file")))
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	fs.Var(share(&most), "max-regression",
		"exit with code 1 if a run in B is slower than the matching run in A by more than this `SHARE`, such as 5%")
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
			a.printText(func(w io.Writer) { _ = report.WriteComparison(w, c) }) // checkedWriter records the error
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
		Short: "Print stored benchmark results or write a report from them",
		Args:  onePath("a file written by --out or --json"),
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
