// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"cmp"
	"runtime"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/staging"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// tuned is Options with all defaults filled in and the staging memory divided.
type tuned struct {
	Options
	block       int64 // largest read from storage
	piece       int64 // largest read through cuFile
	fillers     int   // threads that read through the page cache from storage
	largeSlots  int   // staging slots of MaxTransfer, for page-cache copies
	smallSlots  int   // staging slots of block, for reads from storage
	directSlots int   // small slots for O_DIRECT reads
	writeSlots  int   // staging slots of WriteBlock, for saves
}

// Default numbers of reads in flight and threads. Ten page-cache threads on 16 cores saturate a PCIe 5 x16 link; more
// threads only wait, and pin more memory.
const (
	defaultQueueDepth = 16
	defaultFillers    = 8
	mostWorkers       = 12
)

// slotsOfReader is the number of staging slots of a thread that reads from the page cache. The first load of a process
// has only two of them if it is small: memory takes a tenth of a millisecond per MiB to pin.
const slotsOfReader = 3

// defaultWriteBlock is the size in bytes of one write of a save. It is the checksum block, so that each block is
// summed at once.
const defaultWriteBlock = 1 * units.MiB

// mostWritten is the most bytes of one write of a save.
const mostWritten = 4 * units.MiB

// tune fills in the zero values and checks the rest.
func (o Options) tune() (tuned, error) {
	bad := func(key string, v int64, want string) (tuned, error) {
		return tuned{}, errs.New(errs.Invalid, "configure engine", key+"="+strconv.FormatInt(v, 10),
			"is out of range; expected "+want)
	}
	if o.PoolSize == 0 {
		o.PoolSize = DefaultPoolSize
	}
	if o.PoolSize < minPoolSize || o.PoolSize > maxPoolSize {
		return bad("buffer_pool_size", o.PoolSize, "256 KiB to 64 GiB")
	}
	piece := o.piece()
	limit := min(mostWritten, cmp.Or(o.MaxTransfer, mostWritten)) // of one write
	if o.MaxTransfer == 0 {
		o.MaxTransfer = DefaultMaxTransfer
	}
	if o.MaxTransfer < minTransfer || o.MaxTransfer > maxTransfer {
		return bad("max_transfer_size", o.MaxTransfer, "64 KiB to 1 GiB")
	}
	o.MaxTransfer = min(o.MaxTransfer, DefaultMaxTransfer)
	if o.QueueDepth < 0 || o.QueueDepth > maxQueueDepth {
		return bad("queue_depth", int64(o.QueueDepth), "1 to 1024, or 0 to choose")
	}
	if o.Workers < 0 || o.Workers > maxWorkers {
		return bad("workers", int64(o.Workers), "1 to 256, or 0 to choose")
	}
	switch o.IO {
	case "":
		o.IO = IOAuto
	case IOAuto, IOUring, IOPread:
	default:
		return tuned{}, errs.New(errs.Invalid, "configure engine", "io="+strconv.Quote(string(o.IO)),
			"is not a mechanism; expected auto, uring or pread")
	}
	if o.WriteBlock == 0 {
		o.WriteBlock = defaultWriteBlock
	}
	if o.WriteBlock < minTransfer || o.WriteBlock > maxTransfer {
		return bad("write_block_size", o.WriteBlock, "64 KiB to 1 GiB")
	}
	o.WriteBlock = min(o.WriteBlock, limit)
	if o.WriteDepth < 0 || o.WriteDepth > maxQueueDepth {
		return bad("write_depth", int64(o.WriteDepth), "1 to 1024, or 0 to choose")
	}
	if o.WriteDepth == 0 {
		o.WriteDepth = defaultQueueDepth
	}
	var err error
	if o.VerifyOn, err = ParseVerifyOn(string(o.VerifyOn)); err != nil {
		return tuned{}, err
	}
	if o.CuFile, err = report.ParseCuFileAPI(string(o.CuFile)); err != nil {
		return tuned{}, err
	}
	if o.Workers == 0 {
		cpus := runtime.NumCPU()
		if o.Near != nil {
			cpus = min(cpus, len(o.Near.CPUs))
		}
		o.Workers = min(mostWorkers, max(2, cpus*5/8))
	}
	if o.QueueDepth == 0 {
		o.QueueDepth = defaultQueueDepth
	}
	t := o.deal()
	t.piece = piece
	return t, nil
}

// deal divides the pool: a quarter for reads from storage, three sixteenths for saves, and the rest for copies from
// the page cache. Each thread gets two slots, so that it reads into one while the other is copied. Copies from the page
// cache go in batches, so their threads get three. If there are too few slots, fewer threads run.
func (o Options) deal() tuned {
	o.MaxTransfer = min(o.MaxTransfer, o.PoolSize/4) &^ (minTransfer - 1)
	t := tuned{Options: o, block: min(plan.StorageBlock, o.MaxTransfer)}
	for o.MaxTransfer%t.block != 0 {
		t.block -= minTransfer
	}
	t.smallSlots = int(min(int64(2*(o.QueueDepth+defaultFillers)), max(2, o.PoolSize/4/t.block)))
	t.directSlots = max(1, t.smallSlots*o.QueueDepth/(o.QueueDepth+defaultFillers))
	t.directSlots = min(t.directSlots, t.smallSlots-1)
	t.QueueDepth = min(o.QueueDepth, t.directSlots)
	t.fillers = min(defaultFillers, t.smallSlots-t.directSlots)
	t.WriteBlock = min(o.WriteBlock, o.PoolSize/4) &^ (minTransfer - 1)
	t.writeSlots = int(min(int64(2*o.WriteDepth), max(1, o.PoolSize*3/16/t.WriteBlock)))
	t.WriteDepth = min(o.WriteDepth, t.writeSlots)
	rest := o.PoolSize - int64(t.smallSlots)*t.block - int64(t.writeSlots)*t.WriteBlock
	t.largeSlots = int(min(int64(slotsOfReader*o.Workers), rest/o.MaxTransfer))
	t.Workers = max(1, min(o.Workers, t.largeSlots/2))
	return t
}

// layout returns the number and size of the staging slots.
func (t tuned) layout() staging.Layout {
	return staging.Layout{Large: staging.Cut{Slots: t.largeSlots, Size: t.MaxTransfer},
		Small: staging.Cut{Slots: t.smallSlots, Size: t.block},
		Write: staging.Cut{Slots: t.writeSlots, Size: t.WriteBlock}, Near: t.Near}
}

// Sizes of reads by the route cufile. Reads of 16 MiB reach the disk's rate. Requests of a batch are smaller, because
// larger ones were seen to fail while libcufile makes its slabs.
const (
	cuFileChunk   = 16 * units.MiB
	cuFileRequest = 1 * units.MiB
)

// piece returns the size of reads through cuFile in bytes.
func (o Options) piece() int64 {
	n := int64(cuFileChunk)
	if o.CuFile == report.CuFileBatch {
		n = cuFileRequest
	}
	if o.MaxTransfer > 0 {
		n = min(n, o.MaxTransfer&^(minTransfer-1))
	}
	return n
}
