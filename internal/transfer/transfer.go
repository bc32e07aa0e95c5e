// SPDX-License-Identifier: Apache-2.0

// Package transfer is the engine: it moves runs of bytes from files into device
// memory, each by the fastest route open to it, with reading and copying
// overlapped, and reports which route every byte took.
//
// The flow of a byte: the planner cuts segments into chunks and decides, by
// what is in the page cache, how each is read; workers take chunks in turn from
// all running transfers, read into staging slots of their own, queue the copy
// to the device and go on with their other slot; a slot is used again when the
// mark behind its copy has been passed. Where the device's memory is
// addressable, bytes are read into place and no slot is used. Where there are
// several GPUs, each may have workers and slots of its own (lanes.go), and
// several may be served by one read (peers.go).
//
// Invariants:
//
//	T1  Each wanted byte of each segment is read once and delivered once; what
//	    is read between them goes nowhere.
//	T2  A transfer ends only when no copy of it is queued any more, whether it
//	    succeeded, failed or was cancelled.
//	T3  Staging of reads never exceeds Options.PoolSize, however many transfers
//	    run; that of writes in place is fixed and comes with the first one, and so
//	    are two slots for each connection that reads, or writes, over a network, at most 64 each way.
//	T4  A transfer succeeds only if every read was whole and no file changed.
//	T5  A transfer that verifies succeeds only if every block with a byte of a
//	    segment in it has its sum; each byte is summed before it is sent on, or
//	    by the device behind its copy, and then before it counts as delivered.
//	T6  A part that Ready has counted is not touched any more.
//	T7  A save that ends without an error has put a whole, durable file in place;
//	    one that fails before the file has its name leaves what was there. One to a
//	    sink has written every byte of it, and no more is promised.
//	T8  An upload that ends without an error was acknowledged whole by its server;
//	    one that fails takes its parts back, or says that it could not.
//	T9  What peers get is what the first device gets: a transfer ends, and a part
//	    counts as ready, only when every copy to every peer has been done.
package transfer

import (
	"context"
	"runtime"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// IO is the mechanism of direct reads.
type IO string

const (
	// IOAuto takes threads: on the disks measured so far io_uring saves CPU
	// but is a few per cent slower.
	IOAuto IO = "auto"
	// IOUring submits direct reads through io_uring.
	IOUring IO = "uring"
	// IOPread uses a thread for each read in flight.
	IOPread IO = "pread"
)

// Options size an engine. Zero values are chosen for this machine.
type Options struct {
	// PoolSize bounds the staging of all transfers together; default 128 MiB. A
	// larger one is not slower: only as many slots are made of it as pay.
	PoolSize int64
	// MaxTransfer bounds a single read or copy; default 4 MiB. A copy larger than
	// that never pays (what is read leaves the CPU's caches before it is sent, and
	// fewer of them overlap), so only reads through cuFile go beyond, to 16 MiB.
	MaxTransfer int64
	QueueDepth  int // direct reads in flight
	Workers     int // threads that copy out of the page cache
	IO          IO
	WriteBlock  int64 // largest single write of a save; default 1 MiB
	WriteDepth  int   // writes of saves in flight; default 16
	// Share, if not nil, says what a GPU has for itself, asked once for each:
	// staging and threads, as many as this engine has unless it says otherwise.
	// false: it shares the engine's. A PoolSize above is then what each has.
	Share func(dev device.Info) (Share, bool)
	// Near keeps threads and staging on one NUMA node; nil: anywhere.
	Near   *hostmem.Node
	NoP2P  bool // peers get their bytes from staging though they could reach each other
	Poison bool // overwrite each slot when its copy is done: tests catch early reuse
	// VerifyOn is where transfers that verify sum what they move; default auto.
	VerifyOn VerifyOn
	// CuFile is which interface of libcufile the route cufile uses.
	CuFile report.CuFileAPI
	// OpenDirect opens libcufile for a device; nil where there is none.
	OpenDirect func(ctx context.Context, dev device.Device) (device.Direct, error)
	// Peers judges, without opening libcufile, whether the disk under a file may
	// reach a device past the CPU. It is asked once for each device and file
	// system; nil means never, and then auto does not use cuFile.
	Peers func(path string, dev device.Info) Peers
}

// Defaults and bounds of Options.
const (
	DefaultPoolSize    = 128 * units.MiB
	DefaultMaxTransfer = 4 * units.MiB
	minPoolSize        = 256 * units.KiB
	maxPoolSize        = 64 * units.GiB
	minTransfer        = 64 * units.KiB
	maxTransfer        = 1 * units.GiB
	maxQueueDepth      = 1024
	maxWorkers         = 256
)

// tuned is Options with every choice made and the staging memory dealt out.
type tuned struct {
	Options
	block       int64 // largest read from storage
	piece       int64 // largest read through cuFile
	fillers     int   // threads that read through the page cache from storage
	largeSlots  int   // staging slots of MaxTransfer, for page-cache copies
	smallSlots  int   // staging slots of block, for reads from storage
	directSlots int   // of the small ones
	writeSlots  int   // staging slots of WriteBlock, for saves
}

// Defaults of what is in flight. Ten page-cache threads on 16 cores saturate a
// PCIe 5 x16 link; more of them only wait, and pin more memory.
const (
	defaultQueueDepth = 16
	defaultFillers    = 8
	mostWorkers       = 12
)

// defaultWriteBlock is the size of one write of a save: a block of checksums,
// so that each is summed in one piece.
const defaultWriteBlock = 1 * units.MiB

// tune fills in the zero values and checks the rest.
func (o Options) tune() (tuned, error) {
	bad := func(key string, v int64, want string) (tuned, error) {
		return tuned{}, errs.New(errs.Invalid, "configure engine", key+"="+strconv.FormatInt(v, 10), "is out of range; expected "+want)
	}
	if o.PoolSize == 0 {
		o.PoolSize = DefaultPoolSize
	}
	if o.PoolSize < minPoolSize || o.PoolSize > maxPoolSize {
		return bad("buffer_pool_size", o.PoolSize, "256 KiB to 64 GiB")
	}
	piece := o.piece()
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
		return tuned{}, errs.New(errs.Invalid, "configure engine", "io="+strconv.Quote(string(o.IO)), "is not a mechanism; expected auto, uring or pread")
	}
	if o.WriteBlock == 0 {
		o.WriteBlock = defaultWriteBlock
	}
	if o.WriteBlock < minTransfer || o.WriteBlock > maxTransfer {
		return bad("write_block_size", o.WriteBlock, "64 KiB to 1 GiB")
	}
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

// deal divides the pool: a quarter for reads from storage, three sixteenths for
// saves, the rest for copies out of the page cache, two slots a thread, so that
// one is read into while the other is copied. Whoever gets less than that runs
// with fewer threads.
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
	t.WriteBlock = min(o.WriteBlock, o.MaxTransfer) &^ (minTransfer - 1)
	t.writeSlots = int(min(int64(2*o.WriteDepth), max(1, o.PoolSize*3/16/t.WriteBlock)))
	t.WriteDepth = min(o.WriteDepth, t.writeSlots)
	rest := o.PoolSize - int64(t.smallSlots)*t.block - int64(t.writeSlots)*t.WriteBlock
	t.largeSlots = int(min(int64(2*o.Workers), rest/o.MaxTransfer))
	t.Workers = max(1, min(o.Workers, t.largeSlots/2))
	return t
}

// staging is the memory that the slots take in all.
func (t tuned) staging() int64 {
	return int64(t.largeSlots)*t.MaxTransfer + int64(t.smallSlots)*t.block + int64(t.writeSlots)*t.WriteBlock
}

// Segment is a run of bytes of one file and the place they go to.
type Segment = plan.Segment

// DefaultGap is the least number of unwanted bytes that is worth a second read; see Request.Gap.
const DefaultGap = plan.DefaultGap

// Request is one transfer.
type Request struct {
	Device   device.Device
	Peers    []Peer      // other devices that get the same bytes
	NoP2P    bool        // from staging, though they could reach each other
	Files    []*vfs.File // open until the transfer has ended
	Segments []Segment
	// Gap joins segments that follow each other in a file with fewer unwanted
	// bytes between them into one read, and so the rows of a strided one; 0
	// reads each by itself. With it, the segments of a file are in order of
	// offset. See DefaultGap.
	Gap   int64
	Route report.Route
	Cache report.CachePolicy
	// Seen, one per file or nil, says that the file was loaded before, not
	// long ago: with CacheAuto it is then kept in the page cache.
	Seen []bool
	// Stream, with HasStream, is the caller's stream whose queued work may
	// still use the destinations.
	Stream    uint64
	HasStream bool
	// Live says that the files may change while they are read, as those may that
	// the caller itself writes to; else a change fails the transfer.
	Live bool
	// Verify, one per file or nil, are the sums that files must have: nil for a
	// file that is not verified. A block that differs ends the transfer with
	// kind Corrupt, as do sums of a file of another size. Segments of a verified
	// file do not overlap.
	Verify []*checksum.Sums
	// Also are bytes whose blocks are verified though no segment holds them.
	Also []Extent
	// Parts, in the order in which Transfer.Ready counts them, are what the caller
	// wants to use before the transfer has ended; may be nil. Those of one file
	// do not overlap.
	Parts []Part
	// Holds, if not nil, says in words what lies in a range of a file, for the
	// error about a block that differs. Any goroutine may call it.
	Holds func(file int, off, n int64) string
}
