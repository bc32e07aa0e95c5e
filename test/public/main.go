// SPDX-License-Identifier: Apache-2.0

// Command public uses package nebulaio as a program of another module would. Command public provokes every kind of
// error that is possible without a GPU, handles each by its kind, and prints a table.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/nebulaio/nebulaio"
)

// attempt is one operation that fails, and the kind of its error.
type attempt struct {
	what string
	want nebulaio.ErrorSentinel
	// also is Go's own error for the failure, or nil.
	also error
	try  func(p *program) error
}

// program holds what the attempts share.
type program struct {
	ctx context.Context
	sys *nebulaio.System
	dir string // a folder of its own
}

// errSkipped means that this machine does not allow an attempt.
var errSkipped = errors.New("not possible here")

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "public:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "public")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // another user looks for a file in it
		return err
	}
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		return err
	}
	p := &program{ctx: context.Background(), sys: sys, dir: dir}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "kind\tprovoked by\toperation\tfix\tthe program would")
	var wrong []error
	for _, a := range attempts() {
		row, err := p.handle(a)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", a.what, err))
		}
		fmt.Fprintln(table, row)
	}
	fmt.Fprintln(table, "other\tnothing on this machine\t\t\t"+advice(nebulaio.KindOther))
	fmt.Fprintln(table, "device error\tnothing without a GPU\t\t\t"+advice(nebulaio.KindDevice))
	return errors.Join(append(wrong, table.Flush(), sys.Close())...)
}

// handle runs an attempt and checks its error as a caller would. It returns a row of the table.
func (p *program) handle(a attempt) (string, error) {
	err := a.try(p)
	if errors.Is(err, errSkipped) {
		return fmt.Sprintf("skipped\t%s\t%v\t\t", a.what, err), nil
	}
	var e *nebulaio.Error
	switch {
	case err == nil:
		return "", errors.New("did not fail")
	case !errors.As(err, &e):
		return "", fmt.Errorf("%T is no *nebulaio.Error: %w", err, err)
	case !errors.Is(err, a.want):
		return "", fmt.Errorf("is of kind %v, expected %v: %w", nebulaio.KindOf(err), a.want.Kind(), err)
	case a.also != nil && !errors.Is(err, a.also):
		return "", fmt.Errorf("is not %v: %w", a.also, err)
	case e.Op == "":
		return "", fmt.Errorf("names no operation: %w", err)
	}
	kind := nebulaio.KindOf(err)
	return fmt.Sprintf("%v\t%s\t%s\t%s\t%s", kind, a.what, e.Op, e.Fix, advice(kind)), nil
}

// advice returns what a program should do about an error of each kind.
func advice(k nebulaio.ErrorKind) string {
	switch k {
	case nebulaio.KindInvalid:
		return "correct the arguments"
	case nebulaio.KindNotFound:
		return "ask for another name"
	case nebulaio.KindPermission:
		return "ask for access"
	case nebulaio.KindCorrupt:
		return "fetch the file again"
	case nebulaio.KindIO:
		return "look at the disk, then try again"
	case nebulaio.KindDevice:
		return "use another GPU"
	case nebulaio.KindNoMemory:
		return "load less, or free memory"
	case nebulaio.KindUnsupported:
		return "choose another route"
	case nebulaio.KindCancelled:
		return "stop quietly"
	case nebulaio.KindClosed:
		return "report its own defect"
	}
	return "report the error"
}
