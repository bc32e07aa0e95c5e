// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	_ "embed"
	"strings"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/model"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
)

//go:embed VERSION
var version string

// Version returns the release number of this library, such as "0.1.0".
func Version() string { return strings.TrimSpace(version) }

// Options configure a System. The zero value of Options is a good choice for every machine.
type Options struct {
	// Devices chooses whether GPUs are used; empty means DevicesAuto.
	Devices DeviceMode
	// BufferPoolSize is the most staging memory of all transfers together, in bytes; 0 means 128 MiB. If there are
	// several GPUs, a value other than 0 is divided among them.
	BufferPoolSize int64
	// MaxTransferSize is the size of the largest single read or copy in bytes; 0 means 2 MiB.
	MaxTransferSize int64
	// QueueDepth is the number of O_DIRECT reads in flight; 0 lets the engine choose.
	QueueDepth int
	// Workers is the number of threads that copy from the page cache; 0 lets the engine choose.
	Workers int
	// IO chooses the system calls for O_DIRECT reads: "auto" (the default), "uring" or "pread".
	IO string
	// WriteBlockSize is the size of the largest single write of a save in bytes; 0 means 1 MiB.
	WriteBlockSize int64
	// WriteDepth is the number of writes of saves in flight; 0 lets the engine choose.
	WriteDepth int
	// DeviceIDs are the indices of the GPUs among which the staging memory is divided. An empty DeviceIDs means all
	// GPUs.
	DeviceIDs []int
	// NoP2P forbids copies from GPU to GPU. If NoP2P is set, bytes for several GPUs are copied to each GPU from host
	// memory.
	NoP2P bool
	// VerifyOn chooses the processor that computes the checksums of verified loads. If VerifyOn is "host", the CPU
	// computes checksums before the copy to the device. If VerifyOn is "device", the GPU computes checksums after the
	// copy; if the GPU cannot, the load fails. If VerifyOn is "auto", the default, the GPU computes the checksums of
	// large loads if it can, else the CPU.
	VerifyOn string
	// CuFile is the interface of libcufile that RouteCuFile uses: "sync" (the default), "async" or "batch".
	CuFile string
	// BeforeCuFile, if not nil, is called before libcufile is opened. A program can use BeforeCuFile to set the
	// environment variables of libcufile. If BeforeCuFile returns an error, libcufile is not opened.
	BeforeCuFile func() error
	// CUDALibrary, NVMLLibrary and CuFileLibrary are paths of shared libraries that tests use in place of NVIDIA's
	// libraries.
	CUDALibrary, NVMLLibrary, CuFileLibrary string
}

// parts converts the options to those of the internal packages.
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

// System holds the devices and the transfer engine of a process. A program makes one System and uses it everywhere.
// All methods of a System are safe for concurrent use.
type System struct {
	sys     *boot.System
	headers *model.Memo // of models that were opened lately
}

// NewSystem makes a System; the caller closes it. NewSystem fails if an option is out of range, or if Devices is
// DevicesRequire and no GPU works. GPU memory is allocated and GPU contexts are made at the first use of a GPU, not
// by NewSystem.
func NewSystem(o Options) (*System, error) {
	s, err := boot.New(o.parts())
	if err != nil {
		return nil, err
	}
	return &System{sys: s, headers: &model.Memo{}}, nil
}

// Survey lists the devices and libraries that were found or are missing on this machine, with fixes.
func (s *System) Survey() Survey { return surveyOf(s.sys.Devices.Survey()) }

// Close frees the staging memory and closes the devices. If a transfer is running, Close fails with kind Invalid and
// closes nothing.
func (s *System) Close() error { return s.sys.Close() }
