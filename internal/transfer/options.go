// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
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
	// PoolSize is the most staging memory, in bytes, of all transfers together; default 128 MiB. The engine uses only
	// as many slots as make transfers faster, so a larger value is not slower.
	PoolSize int64
	// MaxTransfer is the size in bytes of the largest single read or copy; default 4 MiB. Values above 4 MiB apply
	// only to reads through cuFile, up to 16 MiB. All other reads and copies stay at 4 MiB: larger ones leave the
	// CPU's caches before they are sent, and fewer of them overlap. The report shows the size in force as chunk_size.
	MaxTransfer int64
	QueueDepth  int // number of direct reads in flight
	Workers     int // number of threads that copy data from the page cache to staging slots or into place
	IO          IO
	WriteBlock  int64 // size in bytes of the largest single write of a save; default 1 MiB
	WriteDepth  int   // number of writes of saves in flight; default 16
	// Share, if not nil, returns the staging memory and threads that a GPU has for itself. The engine calls it once for
	// each GPU. Zero values mean as much as the engine has. If it returns false, the GPU uses the engine's.
	Share func(dev device.Info) (Share, bool)
	// Near is the NUMA node of threads and staging memory. If it is nil, they use any node.
	Near   *hostmem.Node
	NoP2P  bool // copy to each peer from staging, even if the GPUs can reach each other
	Poison bool // overwrite each slot after its copy, so that tests notice early reuse
	// VerifyOn is the processor that computes checksums of verified transfers; default auto.
	VerifyOn VerifyOn
	// CuFile is the interface of libcufile that the route cufile uses.
	CuFile report.CuFileAPI
	// OpenDirect opens libcufile for a device. It is nil if libcufile is not used.
	OpenDirect func(ctx context.Context, dev device.Device) (device.Direct, error)
	// DirectPath judges, without opening libcufile, whether the disk under a file may
	// reach a device past the CPU. It is asked once for each device and file
	// system; nil means never, and then auto does not use cuFile.
	DirectPath func(path string, dev device.Info) DirectPath
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

// Share is what one device has for itself.
type Share struct {
	PoolSize int64 // bytes of staging; 0: as many as the engine
	// Near is the node that its threads stay on and its staging comes from; nil
	// where that makes no difference.
	Near *hostmem.Node
}

// DirectPath is whether storage may reach a GPU's memory past the CPU, judged
// without opening cuFile.
type DirectPath struct {
	Plausible   bool
	Reason, Fix string // why it is not
}

// VerifyOn is where what a transfer verifies is summed.
type VerifyOn string

const (
	// VerifyAuto lets the device sum what it got, where it can, and the CPU the
	// rest: what is not copied, what is packed, and what is too small to be worth it.
	VerifyAuto VerifyOn = "auto"
	// VerifyHost lets the CPU sum everything before it is sent.
	VerifyHost VerifyOn = "host"
	// VerifyDevice is VerifyAuto, but small pieces too are summed on a GPU, and
	// one that cannot makes the transfer fail.
	VerifyDevice VerifyOn = "device"
)

// ParseVerifyOn checks a place given as text; empty is VerifyAuto.
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
