// SPDX-License-Identifier: Apache-2.0

// Package loader reads batches of a data set into device memory, several batches ahead of their use.
package loader

import (
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/order"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
	"golang.org/x/sys/unix"
)

// DefaultAhead is the default of Options.Ahead.
const DefaultAhead = 1 << 30

// Bounds of the files that stay open, if the caller names no number.
const (
	fewestOpen = 64
	mostOpen   = 16384
)

// openFiles returns how many files stay open by default: seven sixteenths of the limit of this process. An open file
// has two descriptors, so an eighth of the limit is left to the caller.
func openFiles() int {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return fewestOpen
	}
	return int(min(max(l.Cur/16*7, fewestOpen), mostOpen))
}

// Options describes a loader. Set, Open, Engine, Device, Columns, Mixing and Split are required.
type Options struct {
	Set *dataset.Set
	// Open opens files of the set by their names. The result has a file or an error for each name. Several
	// goroutines call Open at once. The loader closes the files.
	Open    func(ctx context.Context, names []string) ([]dataset.Opened, []error)
	Engine  *transfer.Engine
	Device  device.Device
	Columns []int // columns of the set, in the order of Batch.Columns
	Mixing  order.Mixing
	Split   order.Split
	State   order.State // where to begin
	Epochs  int64       // number of epochs from State on, the first of which may be begun; 0 for no end
	Route   report.Route
	Cache   report.CachePolicy
	// Ahead is the most bytes of batches that the caller has not taken yet; 0 means DefaultAhead. A single batch of
	// more bytes is an error of Next.
	Ahead int64
	// OpenFiles is the most files that stay open; 0 means seven sixteenths of the limit of open files of this process,
	// from 64 to 16384. Batches of so many files are read ahead that no more than OpenFiles files are being read, but
	// always one batch.
	OpenFiles int
	// SkipBad leaves samples out of their batches if their files cannot be opened or have another size. Stats counts
	// these samples. A batch can then have fewer samples, or none.
	SkipBad bool
}

// check returns the options with their defaults, or an error of kind Invalid.
func (o Options) check() (Options, error) {
	invalid := func(format string, args ...any) (Options, error) {
		return o, errs.New(errs.Invalid, "make loader", "", fmt.Sprintf(format, args...))
	}
	if o.Ahead == 0 {
		o.Ahead = DefaultAhead
	}
	if o.OpenFiles == 0 {
		o.OpenFiles = openFiles()
	}
	switch {
	case o.Set == nil || o.Open == nil || o.Engine == nil || o.Device == nil:
		return invalid("a data set, a way to open its files, an engine and a device are needed")
	case len(o.Columns) == 0:
		return invalid("no column is chosen; the samples have %q", o.Set.Columns())
	case o.Ahead < 0:
		return invalid("%d bytes ahead, expected more than 0", o.Ahead)
	case o.OpenFiles < 0:
		return invalid("%d open files, expected more than 0", o.OpenFiles)
	case o.Epochs < 0:
		return invalid("%d epochs, expected 0 or more", o.Epochs)
	}
	for _, c := range o.Columns {
		if c < 0 || c >= len(o.Set.Columns()) {
			return invalid("column %d, expected 0 to %d", c, len(o.Set.Columns())-1)
		}
	}
	whole, err := order.NewCursor(o.Set.Len(), o.Mixing, o.Split, order.State{Seed: o.State.Seed, Epoch: o.State.Epoch})
	if err != nil {
		return o, err
	}
	if whole.Batches() == 0 {
		e := errs.New(errs.Invalid, "make loader", "", fmt.Sprintf(
			"the %d samples do not fill one batch of %d samples for each of %d ranks with %d workers", o.Set.Len(),
			o.Split.Batch, max(o.Split.World, 1), max(o.Split.Workers, 1)))
		e.Fix = "use smaller batches, fewer ranks or workers, or the tail pad or short"
		return o, e
	}
	return o, nil
}
