// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"strconv"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// IO chooses the system calls for O_DIRECT reads.
type IO string

const (
	// IOAuto is the same as IOPread: on the measured disks, io_uring saves CPU time but is a few per cent slower.
	IOAuto IO = "auto"
	// IOUring submits O_DIRECT reads through io_uring.
	IOUring IO = "uring"
	// IOPread uses pread(2), with a thread for each O_DIRECT read in flight.
	IOPread IO = "pread"
)

// Options configure an engine. If a field is zero, the engine chooses a value for this machine.
type Options struct {
	// PoolSize is the most staging memory of all transfers together, in bytes; 0 means 128 MiB. The engine uses only
	// as many staging slots as make transfers faster, so a large PoolSize does no harm.
	PoolSize int64
	// MaxTransfer is the size in bytes of the largest single read or copy; 0 means 2 MiB. Values above 2 MiB apply
	// only to reads through cuFile, up to 16 MiB. Reads and copies without cuFile have at most 2 MiB, because the
	// bytes of a larger read would leave the CPU's cache before they are copied. The field chunk_size of the report
	// shows the size that the engine uses.
	MaxTransfer int64
	QueueDepth  int // number of O_DIRECT reads in flight; 0 means 16
	Workers     int // number of threads that copy from the page cache; 0 means 5/8 of the CPUs, from 2 to 12 threads
	IO          IO
	WriteBlock  int64 // size in bytes of the largest single write of a save; 0 means 1 MiB
	WriteDepth  int   // number of writes of saves in flight; 0 means 16
	// Share, if not nil, returns the staging memory and the NUMA node that only one GPU uses. The engine calls Share
	// once for each GPU. If Share returns false, the GPU uses the staging memory and threads that all devices share.
	Share func(dev device.Info) (Share, bool)
	// Near is the NUMA node for the engine's threads and staging memory; nil means any node.
	Near   *hostmem.Node
	NoP2P  bool // true to copy to each further GPU from host memory, even if the GPUs can copy to each other
	Poison bool // true to overwrite each staging slot after its copy, so that tests detect early reuse
	// Trace, if not nil, shows each stage of each transfer in a profiler. TraceError is the reason why a profiler that
	// runs the program sees no stages; reports say so.
	Trace      tally.Tracer
	TraceError error
	// VerifyOn chooses the processor that computes checksums of verified transfers; empty means VerifyAuto.
	VerifyOn VerifyOn
	// CuFile chooses the interface of libcufile for the route cufile; empty means sync.
	CuFile report.CuFileAPI
	// OpenDirect opens libcufile for a device. OpenDirect is nil if libcufile is not used.
	OpenDirect func(ctx context.Context, dev device.Device) (device.Direct, error)
	// DirectPath judges, without opening libcufile, whether the disk below a file can reach a device without the CPU.
	// The engine calls DirectPath once for each device and file system. If DirectPath is nil, the route auto does not
	// use cuFile.
	DirectPath func(path string, dev device.Info) DirectPath
	// patience is the longest time that a load waits for a load of another process that falls behind; 0 means the default
	// of package exchange. Only tests set it.
	patience time.Duration
}

// Default values and limits of Options.
const (
	DefaultPoolSize    = 128 * units.MiB
	DefaultMaxTransfer = 2 * units.MiB
	minPoolSize        = 256 * units.KiB
	maxPoolSize        = 64 * units.GiB
	minTransfer        = 64 * units.KiB
	maxTransfer        = 1 * units.GiB
	maxQueueDepth      = 1024
	maxWorkers         = 256
)

// Share is the staging memory and the NUMA node that only one device uses.
type Share struct {
	PoolSize int64 // bytes of staging memory; 0 means the same as Options.PoolSize
	// Near is the NUMA node for the device's threads and staging memory; nil means any node.
	Near *hostmem.Node
}

// DirectPath says whether storage can probably reach a GPU's memory without the CPU. A DirectPath is found without
// opening libcufile.
type DirectPath struct {
	Plausible   bool
	Reason, Fix string // why the disk can probably not reach the GPU directly, and the fix
}

// VerifyOn chooses the processor that computes the checksums of a verified transfer.
type VerifyOn string

const (
	// VerifyAuto lets the device compute checksums after the copy to the device, if the device can. With VerifyAuto,
	// the CPU computes the checksums of bytes that are not copied, of bytes that are packed from several ranges, and
	// of small chunks.
	VerifyAuto VerifyOn = "auto"
	// VerifyHost lets the CPU compute all checksums before the copy to the device.
	VerifyHost VerifyOn = "host"
	// VerifyDevice is VerifyAuto with two differences: the GPU also computes the checksums of small chunks, and a
	// transfer fails if its GPU cannot compute checksums.
	VerifyDevice VerifyOn = "device"
)

// ParseVerifyOn returns the VerifyOn with the name s. An empty name means VerifyAuto.
func ParseVerifyOn(s string) (VerifyOn, error) {
	switch v := VerifyOn(s); v {
	case "":
		return VerifyAuto, nil
	case VerifyAuto, VerifyHost, VerifyDevice:
		return v, nil
	}
	return "", errs.New(errs.Invalid, "choose where to verify", strconv.Quote(s),
		"is not a place; expected auto, host or device")
}
