// SPDX-License-Identifier: Apache-2.0

// Package tuning has the table of a System's options, for the Go library, the command, the C library and Python.
//
// The command makes its flags from the table of options, and the C library makes its option keys from the same table.
// Tests compare the Go struct, the C header and the Python package with the table of options.
package tuning

import (
	"strings"

	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Kind is the type of an option's value.
type Kind string

const (
	// Size is a number of bytes; 0 means the default size.
	Size Kind = "size"
	// Count is a number, such as a number of threads; 0 lets the engine choose.
	Count Kind = "count"
	// Choice is one of the words in Option.Words; the first word is the default.
	Choice Kind = "choice"
	// Switch is a boolean that is true by default. The Go field of a Switch begins with "No" and has the opposite
	// value.
	Switch Kind = "switch"
	// Numbers is a list of numbers; the default is an empty list.
	Numbers Kind = "numbers"
	// Text is any text; the default is the empty text.
	Text Kind = "text"
)

// Option describes one option of a System and its name in each language.
type Option struct {
	Field string // field of nebulaio.Options
	Key   string // name of the option for nebulaio_system_open in C and as a keyword in Python
	// Flag is the name of the command's flag, or empty if the command has no flag for the option.
	Flag string
	// Python is the Python function or class that accepts the option as a keyword, or empty if there is none.
	Python string
	Kind   Kind
	Words  []string // allowed values of an option of kind Choice
	Form   string   // placeholder for the value of an option of kind Choice in the command's help
	// Default is the value that an option of kind Size or Count has if the user gives no value. A Default of 0 means
	// that the engine chooses the value.
	Default int64
	// Min and Max are the smallest and largest value of an option of kind Size or Count.
	Min, Max int64
	// Help is the help text of the command's flag. For an option of kind Size, HelpText adds the default value.
	Help string
}

// Values of Option.Python.
const (
	// Configure is the name of the Python function nebulaio.configure.
	Configure = "configure"
	// GPUDirectClient is the name of the Python class nebulaio.GPUDirectClient.
	GPUDirectClient = "GPUDirectClient"
)

// Options returns the table of options, in the order of the fields of nebulaio.Options.
func Options() []Option {
	const most = 1024
	return []Option{
		{Field: "Devices", Key: "devices", Flag: "devices", Python: Configure, Kind: Choice, Form: "MODE",
			Words: []string{"auto", "require", "off"},
			Help:  "GPU discovery: look for a GPU (auto), fail if none works (require), or skip GPUs (off)"},
		{Field: "BufferPoolSize", Key: "buffer_pool_size", Flag: "buffer-pool-size", Python: Configure, Kind: Size,
			Default: transfer.DefaultPoolSize, Min: 256 * units.KiB, Max: 64 * units.GiB,
			Help: "size in bytes of the staging memory of all transfers together"},
		{Field: "MaxTransferSize", Key: "max_transfer_size", Flag: "max-transfer-size", Python: Configure, Kind: Size,
			Default: transfer.DefaultMaxTransfer, Min: 64 * units.KiB, Max: units.GiB,
			Help: "size in bytes of the largest single read or copy; values above 2 MiB apply only to cuFile"},
		{Field: "QueueDepth", Key: "queue_depth", Flag: "queue-depth", Python: Configure, Kind: Count, Max: most,
			Help: "number of O_DIRECT reads in flight; 0 lets the engine choose"},
		{Field: "Workers", Key: "workers", Flag: "workers", Python: Configure, Kind: Count, Max: 256,
			Help: "number of threads that copy from the page cache; 0 lets the engine choose"},
		{Field: "IO", Key: "io", Flag: "io", Python: Configure, Kind: Choice, Form: "HOW",
			Words: []string{"auto", "uring", "pread"},
			Help:  "system calls for O_DIRECT reads: auto, uring or pread"},
		{Field: "WriteBlockSize", Key: "write_block_size", Flag: "write-block-size", Python: Configure, Kind: Size,
			Default: units.MiB, Min: 64 * units.KiB, Max: units.GiB,
			Help: "size in bytes of the largest single write of a save"},
		{Field: "WriteDepth", Key: "write_depth", Flag: "write-depth", Python: Configure, Kind: Count, Max: most,
			Help: "number of writes of saves in flight; 0 lets the engine choose"},
		{Field: "DeviceIDs", Key: "device_ids", Python: GPUDirectClient, Kind: Numbers},
		{Field: "NoP2P", Key: "enable_p2p", Python: GPUDirectClient, Kind: Switch},
		{Field: "VerifyOn", Key: "verify_on", Flag: "verify-on", Python: Configure, Kind: Choice, Form: "PLACE",
			Words: []string{"auto", "host", "device"},
			Help: "processor that computes checksums: the GPU if it can, else the CPU (auto), " +
				"the CPU (host), or only the GPU (device)"},
		{Field: "CuFile", Key: "cufile", Flag: "cufile", Python: Configure, Kind: Choice, Form: "API",
			Words: []string{"sync", "async", "batch"},
			Help:  "libcufile interface for the route cufile: sync, async or batch"},
		{Field: "CUDALibrary", Key: "cuda_library", Kind: Text},
		{Field: "NVMLLibrary", Key: "nvml_library", Kind: Text},
		{Field: "CuFileLibrary", Key: "cufile_library", Kind: Text},
	}
}

// Find returns the option with the given key. Find panics if no option has the key, because keys are constants in our
// own code.
func Find(key string) Option {
	for _, o := range Options() {
		if o.Key == key {
			return o
		}
	}
	panic("tuning: no option has the key " + key)
}

// Environment returns the environment variable that sets the option for the command and for Python, or "" if there is
// none.
func (o Option) Environment() string {
	if o.Flag == "" && o.Python != Configure {
		return ""
	}
	return "NEBULAIO_" + strings.ToUpper(o.Key)
}

// HelpText returns the help text of the command's flag, including the default value of an option of kind Size.
func (o Option) HelpText() string {
	if o.Kind == Size {
		return o.Help + "; default " + units.Bytes(o.Default)
	}
	return o.Help
}
