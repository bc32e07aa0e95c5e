// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	_ "embed"
	"strings"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
)

//go:embed VERSION
var version string

// Version returns the release of this library, such as "0.1.0".
func Version() string { return strings.TrimSpace(version) }

// Options configure a System. The zero value suits every machine.
type Options struct {
	// Devices says whether GPUs are used. The default is DevicesAuto.
	Devices DeviceMode
	// BufferPoolSize bounds the staging memory of all transfers together, in bytes. The default is 128 MiB.
	BufferPoolSize int64
	// MaxTransferSize is the size of the largest single read or copy in bytes. The default is 4 MiB.
	MaxTransferSize int64
	// QueueDepth is the number of direct reads in flight; 0 lets the engine choose.
	QueueDepth int
	// Workers is the number of threads that copy out of the page cache; 0 lets the engine choose.
	Workers int
	// IO is the mechanism of direct reads: "auto" (the default), "uring" or "pread".
	IO string
	// WriteBlockSize is the size of the largest single write of a save in bytes. The default is 1 MiB.
	WriteBlockSize int64
	// WriteDepth is the number of writes in flight; 0 lets the engine choose.
	WriteDepth int
	// DeviceIDs are the GPUs that will be used, by index. They share the staging memory. None means all.
	DeviceIDs []int
	// NoP2P forbids copies from GPU to GPU. Each GPU that receives the same bytes then takes them from host memory.
	NoP2P bool
	// VerifyOn is the place where verified loads compute checksums. "host" computes on the CPU before the copy. "device"
	// computes on the GPU after the copy, or fails. "auto", the default, uses the GPU for large loads if it can.
	VerifyOn string
	// CuFile is the interface of libcufile that RouteCuFile uses: "sync" (the default), "async" or "batch".
	CuFile string
	// BeforeCuFile, if not nil, runs before libcufile is opened. A program can prepare the environment of libcufile in
	// it. If it returns an error, libcufile is not opened.
	BeforeCuFile func() error
	// CUDALibrary, NVMLLibrary and CuFileLibrary are files to open in place of the driver's own. They are for tests.
	CUDALibrary, NVMLLibrary, CuFileLibrary string
}

// parts returns the options of the parts that a System is made of.
func (o Options) parts() boot.Options {
	b := boot.Options{
		Devices: open.Options{Mode: device.Mode(o.Devices)},
		Engine: transfer.Options{PoolSize: o.BufferPoolSize, MaxTransfer: o.MaxTransferSize, QueueDepth: o.QueueDepth,
			Workers: o.Workers, IO: transfer.IO(o.IO), WriteBlock: o.WriteBlockSize, WriteDepth: o.WriteDepth,
			CuFile: report.CuFileAPI(o.CuFile), VerifyOn: transfer.VerifyOn(o.VerifyOn), DirectPath: directPath, NoP2P: o.NoP2P},
		DeviceIDs:    o.DeviceIDs,
		BeforeCuFile: o.BeforeCuFile,
	}
	if o.CUDALibrary != "" {
		b.Devices.CUDALibraries = []string{o.CUDALibrary}
	}
	if o.NVMLLibrary != "" {
		b.Devices.NVMLLibraries = []string{o.NVMLLibrary}
	}
	if o.CuFileLibrary != "" {
		b.Devices.CuFileLibraries = []string{o.CuFileLibrary}
	}
	return b
}

// System holds the devices and the transfer engine of a process. A program makes one and shares it. All methods are
// safe for concurrent use.
type System struct{ sys *boot.System }

// NewSystem makes a System. It fails for options out of range, and for DevicesRequire if no GPU works. It takes no GPU
// memory and makes no GPU context: that happens with the first use of a GPU. The caller closes the System.
func NewSystem(o Options) (*System, error) {
	s, err := boot.New(o.parts())
	if err != nil {
		return nil, err
	}
	return &System{sys: s}, nil
}

// Survey says what was looked for, found and missing on this machine, and what to do.
func (s *System) Survey() Survey { return surveyOf(s.sys.Devices.Survey()) }

// Close frees staging memory and devices. While a transfer runs it fails with kind Invalid and closes nothing.
func (s *System) Close() error { return s.sys.Close() }
