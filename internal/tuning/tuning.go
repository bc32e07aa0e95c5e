// SPDX-License-Identifier: Apache-2.0

// Package tuning lists the options of a system: one table for the Go library, the command, the C library and Python.
//
// The command makes its flags from the table, and the C library its option keys. Tests compare the Go struct, the C
// header and the Python package with it.
package tuning

import (
	"strings"

	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Kind is the form of an option's value.
type Kind string

const (
	// Size is a number of bytes; 0 is the default.
	Size Kind = "size"
	// Count is a number of things; 0 lets the engine choose.
	Count Kind = "count"
	// Choice is one of Option.Words; the first is the default.
	Choice Kind = "choice"
	// Switch is true by default. In Go its field says No and is false by default.
	Switch Kind = "switch"
	// Numbers is a list of numbers; none is the default.
	Numbers Kind = "numbers"
	// Text is any text; none is the default.
	Text Kind = "text"
)

// Option is one option and its name in each language.
type Option struct {
	Field string // of nebulaio.Options
	Key   string // of the options of nebulaio_system_open, and the keyword in Python
	// Flag is the command's flag. It is empty if no command has one.
	Flag string
	// Python is the function or class that takes the keyword. It is empty if none does.
	Python string
	Kind   Kind
	Words  []string // of a Choice
	Form   string   // of a Choice, as the command's help shows it
	// Default is the value in force if none is given. It is 0 if the engine chooses.
	Default int64
	// Min and Max bound a Size or a Count.
	Min, Max int64
	// Help is the command's help. It needs no default of a Size: HelpText adds it.
	Help string
}

// Values of Option.Python.
const (
	// Configure is the function nebulaio.configure.
	Configure = "configure"
	// GPUDirectClient is the class nebulaio.GPUDirectClient.
	GPUDirectClient = "GPUDirectClient"
)

// Options returns the table in the order of nebulaio.Options.
func Options() []Option {
	const most = 1024
	return []Option{
		{Field: "Devices", Key: "devices", Flag: "devices", Python: Configure, Kind: Choice, Form: "MODE",
			Words: []string{"auto", "require", "off"},
			Help:  "GPU discovery: look for a GPU (auto), fail if none works (require), or skip GPUs (off)"},
		{Field: "BufferPoolSize", Key: "buffer_pool_size", Flag: "buffer-pool-size", Python: Configure, Kind: Size,
			Default: transfer.DefaultPoolSize, Min: 256 * units.KiB, Max: 64 * units.GiB,
			Help: "size in bytes of the process's staging memory"},
		{Field: "MaxTransferSize", Key: "max_transfer_size", Flag: "max-transfer-size", Python: Configure, Kind: Size,
			Default: transfer.DefaultMaxTransfer, Min: 64 * units.KiB, Max: units.GiB,
			Help: "size in bytes of the largest single read or copy; above 4 MiB it concerns only cuFile"},
		{Field: "QueueDepth", Key: "queue_depth", Flag: "queue-depth", Python: Configure, Kind: Count, Max: most,
			Help: "number of direct reads in flight; 0 lets the engine choose"},
		{Field: "Workers", Key: "workers", Flag: "workers", Python: Configure, Kind: Count, Max: 256,
			Help: "number of threads that copy from the page cache; 0 lets the engine choose"},
		{Field: "IO", Key: "io", Flag: "io", Python: Configure, Kind: Choice, Form: "HOW",
			Words: []string{"auto", "uring", "pread"},
			Help:  "system calls for direct reads: auto, uring or pread"},
		{Field: "WriteBlockSize", Key: "write_block_size", Flag: "write-block-size", Python: Configure, Kind: Size,
			Default: units.MiB, Min: 64 * units.KiB, Max: units.GiB,
			Help: "size in bytes of the largest single write"},
		{Field: "WriteDepth", Key: "write_depth", Flag: "write-depth", Python: Configure, Kind: Count, Max: most,
			Help: "number of writes in flight; 0 lets the engine choose"},
		{Field: "DeviceIDs", Key: "device_ids", Python: GPUDirectClient, Kind: Numbers},
		{Field: "NoP2P", Key: "enable_p2p", Python: GPUDirectClient, Kind: Switch},
		{Field: "VerifyOn", Key: "verify_on", Flag: "verify-on", Python: Configure, Kind: Choice, Form: "PLACE",
			Words: []string{"auto", "host", "device"},
			Help: "processor that checks bytes: the GPU if it can, else the CPU (auto), " +
				"the CPU (host), or only the GPU (device)"},
		{Field: "CuFile", Key: "cufile", Flag: "cufile", Python: Configure, Kind: Choice, Form: "API",
			Words: []string{"sync", "async", "batch"},
			Help:  "libcufile interface for the route cufile: sync, async or batch"},
		{Field: "CUDALibrary", Key: "cuda_library", Kind: Text},
		{Field: "NVMLLibrary", Key: "nvml_library", Kind: Text},
		{Field: "CuFileLibrary", Key: "cufile_library", Kind: Text},
	}
}

// Find returns the option with that key. It panics if there is none: keys are constants of our own code.
func Find(key string) Option {
	for _, o := range Options() {
		if o.Key == key {
			return o
		}
	}
	panic("tuning: no option has the key " + key)
}

// Environment returns the variable that sets the option for the command and for Python, or "" if neither reads one.
func (o Option) Environment() string {
	if o.Flag == "" && o.Python != Configure {
		return ""
	}
	return "NEBULAIO_" + strings.ToUpper(o.Key)
}

// HelpText returns the help of the command's flag, with the default of a Size.
func (o Option) HelpText() string {
	if o.Kind == Size {
		return o.Help + "; default " + units.Bytes(o.Default)
	}
	return o.Help
}
