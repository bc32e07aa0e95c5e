// SPDX-License-Identifier: Apache-2.0

// Package nebulaio puts the bytes of model files into GPU memory at the speed
// of the slowest wire between, and tells which path every byte took.
//
// [NewSystem] finds the devices, [System.Load] loads a model onto one of them, and
// [Model.Report] tells the way of the bytes. The examples of System are whole programs.
//
// Without a usable GPU the device is called host and is host memory; a device
// asked for by name is never replaced by another. CUDA is found at run time:
// nothing needs to be installed to build or to import this package.
package nebulaio

import (
	"context"
	_ "embed"
	"errors"
	"strings"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
	"github.com/nebulaio/nebulaio/internal/model"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
)

//go:embed VERSION
var version string

// Version is the release of this library, such as "0.1.0".
func Version() string { return strings.TrimSpace(version) }

// Words of the API that are shared with the floors below.
type (
	// Survey is what was looked for and found on this machine.
	Survey = device.Survey
	// DeviceInfo describes one device.
	DeviceInfo = device.Info
	// DeviceMode is auto, require or off.
	DeviceMode = device.Mode
	// Ptr is an address in a device's memory.
	Ptr = device.Ptr
	// DType is an element type by its safetensors name.
	DType = format.DType
	// Route is what is asked for: auto, buffered, direct or cufile.
	Route = report.Route
	// CachePolicy is what a load may leave in the page cache: auto, keep or bypass.
	CachePolicy = report.CachePolicy
	// Slice chooses a box out of each tensor that a glob matches.
	Slice = model.Slice
	// Range is the indices Start to Stop, without Stop, of one dimension; a
	// Stop of -1 is the dimension's end.
	Range = model.Range
	// Shard chooses one rank's part of each tensor that a glob matches.
	Shard = model.Shard
	// Error is the type of every error returned here; see ErrorKind. errors.Is also finds Go's own errors in it:
	// fs.ErrNotExist, fs.ErrPermission, fs.ErrExist, fs.ErrInvalid, fs.ErrClosed, context.Canceled,
	// context.DeadlineExceeded, errors.ErrUnsupported, syscall.ENOSPC and syscall.ENOMEM, of files and of objects.
	Error = errs.Error
	// ErrorKind classifies errors by what the caller can do.
	ErrorKind = errs.Kind
)

// KindOf finds the kind of an error of this package.
func KindOf(err error) ErrorKind { return errs.KindOf(err) }

// Options configure a System; the zero value suits this machine.
type Options struct {
	// Devices says whether a GPU is looked for (auto), needed (require) or
	// left alone (off).
	Devices DeviceMode
	// BufferPoolSize bounds the staging memory of all loads together, in
	// bytes; default 128 MiB.
	BufferPoolSize int64
	// MaxTransferSize is the largest single read or copy; default 4 MiB.
	MaxTransferSize int64
	// QueueDepth is how many reads past the page cache are in flight; 0 chooses.
	QueueDepth int
	// Workers is how many threads copy out of the page cache; 0 chooses.
	Workers int
	// IO is how direct reads are made: auto, uring or pread.
	IO string
	// WriteBlockSize is the largest single write of a save, default 1 MiB;
	// WriteDepth how many are in flight, 0 chooses.
	WriteBlockSize int64
	WriteDepth     int
	// DeviceIDs are the GPUs that will be used, by index; none means all. The
	// staging memory is divided among them.
	DeviceIDs []int
	// NoP2P lets GPUs that get the same bytes take them from host memory, though
	// they could reach each other.
	NoP2P bool
	// VerifyOn is where verified loads are summed: auto (the default: on the GPU
	// where bytes have arrived, where it can and they are many), host (by the
	// CPU, before they are sent) or device (on the GPU, or the load fails).
	VerifyOn string
	// CuFile is which interface of NVIDIA's libcufile the route cufile uses:
	// sync (the default), async or batch.
	CuFile string
	// BeforeCuFile, if not nil, is called right before libcufile is opened, for
	// a program that prepares its own environment for it. An error refuses it.
	BeforeCuFile func() error
	// CUDALibrary, NVMLLibrary and CuFileLibrary replace the usual library
	// names; for tests.
	CUDALibrary, NVMLLibrary, CuFileLibrary string
}

// System holds the devices and the engine of a process. All methods are safe
// for concurrent use. Programs make one and share it.
type System struct{ sys *boot.System }

// NewSystem makes a system. It fails for options out of range, and with mode require
// where no GPU works; else devices are looked for when they are first asked for.
// No GPU memory or context is taken yet.
func NewSystem(o Options) (*System, error) {
	b := boot.Options{
		Devices: open.Options{Mode: o.Devices},
		Engine: transfer.Options{PoolSize: o.BufferPoolSize, MaxTransfer: o.MaxTransferSize, QueueDepth: o.QueueDepth,
			Workers: o.Workers, IO: transfer.IO(o.IO), WriteBlock: o.WriteBlockSize, WriteDepth: o.WriteDepth, CuFile: report.CuFileAPI(o.CuFile), VerifyOn: transfer.VerifyOn(o.VerifyOn), DirectPath: directPath, NoP2P: o.NoP2P},
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
	s, err := boot.New(b)
	if err != nil {
		return nil, err
	}
	return &System{sys: s}, nil
}

// Survey tells what was looked for, found and missing, and what to do.
func (s *System) Survey() Survey { return s.sys.Devices.Survey() }

// Close frees staging memory and devices. It fails while a load is running.
func (s *System) Close() error { return s.sys.Close() }

// ModelOptions choose what of a model is opened and for which device.
type ModelOptions struct {
	// Device is "auto" (the default), "host", "cuda" or "cuda:N".
	Device string
	// Tensors are globs over tensor names; none means all.
	Tensors []string
	// Slices and Shards choose parts of chosen tensors; the others are taken
	// whole. A box that does not fit its tensor and a tensor that two of them
	// match are errors of kind Invalid, one that matches none of kind NotFound.
	Slices []Slice
	Shards []Shard
	// Lenient also takes headers that only the reference reader takes.
	Lenient bool
	// More are further models whose files follow those of the first, in order. A
	// name that two of them have comes twice.
	More []string
	// Names are exact names of tensors, in place of globs. For Source.Select.
	Names []string
	// Files, if not nil, are places in the list of files: only tensors of these
	// are chosen, and only these are listed. For Source.Select.
	Files []int
	// Client says, for a model in a bucket, which server and as whom; see
	// System.OpenModel. A Client that opens a model is the server's already.
	Client ClientOptions
}

// layout is what of the options concerns the model alone.
func (o ModelOptions) layout(dev device.Device) model.Options {
	_, addressable := dev.(device.Mapper)
	return model.Options{Tensors: o.Tensors, Slices: o.Slices, Shards: o.Shards, Lenient: o.Lenient, More: o.More, Names: o.Names, Files: o.Files, Addressable: addressable}
}

// OpenModel reads and checks the headers of a model: a .safetensors file, an
// index, or a model directory; or the same in a bucket ("s3://bucket/prefix",
// "nebula://host:port/bucket/prefix"). The caller closes the source.
func (s *System) OpenModel(ctx context.Context, path string, o ModelOptions) (*Source, error) {
	p, err := parseURL(path)
	if err != nil || p.path != "" {
		return s.openModel(ctx, path, nil, o)
	}
	if p.endpoint != "" {
		o.Client.Endpoint = p.endpoint
	}
	c, err := s.NewClient(o.Client)
	if err != nil {
		return nil, err
	}
	src, err := c.OpenModel(ctx, p.bucket, p.key, o)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	src.owned = c
	return src, nil
}

// openModel opens the model called name, in a bucket or, where tree is nil, on this machine.
func (s *System) openModel(ctx context.Context, name string, tree *client.Tree, o ModelOptions) (*Source, error) {
	dev, err := s.sys.Devices.Open(ctx, o.Device)
	if err != nil {
		return nil, err
	}
	// Pinning staging memory takes as long as reading the headers and taking
	// device memory: it happens meanwhile.
	s.sys.Engine.Prepare(dev)
	layout := o.layout(dev)
	var refused []report.Refusal
	if tree != nil {
		layout.Tree, layout.Shown = tree, tree.Shown
		if refused, err = tree.Refusals(ctx); err != nil {
			return nil, err
		}
	}
	m, err := model.Open(ctx, name, layout)
	if err != nil {
		return nil, err
	}
	src := &Source{sys: s.sys, dev: dev, model: m, refused: refused}
	if dev.Info().Kind == device.Host && (o.Device == "" || o.Device == "auto") {
		// Host memory was the second choice: the report says why.
		if v := s.sys.Devices.Survey(); v.NoGPU != "" {
			src.refused = append(src.refused, report.Refusal{What: "gpu", On: "this machine", Reason: v.NoGPU, Fix: v.Fix})
		}
	}
	return src, nil
}

// LoadOptions choose what is loaded, where to, and how.
type LoadOptions struct {
	// Device, Tensors, Slices, Shards and Lenient are as in ModelOptions; a
	// Source that is loaded has them already.
	Device  string
	Tensors []string
	Slices  []Slice
	Shards  []Shard
	Lenient bool
	// Client is as in ModelOptions.
	Client ClientOptions
	// Route and Cache default to auto.
	Route Route
	Cache CachePolicy
	// Verify checks every block that holds a byte of a chosen tensor or of a
	// header against FILE.crc64nvme beside each file, which "nebulaio inspect
	// PATH --checksum" writes. A block that differs, checksums of a file of
	// another size and damaged checksums are errors of kind Corrupt, missing
	// ones of kind NotFound. Objects that come through a server's door are checked
	// against the sums that it keeps of them.
	Verify bool
	// Progress, if not nil, is called several times a second from one
	// goroutine with the bytes delivered and in all.
	Progress func(done, total int64)
}

// Load opens a model, takes memory for it on the device and fills it. On error
// nothing is left behind. The caller frees the model.
func (s *System) Load(ctx context.Context, path string, o LoadOptions) (*Model, error) {
	src, err := s.OpenModel(ctx, path, ModelOptions{Device: o.Device, Tensors: o.Tensors, Slices: o.Slices, Shards: o.Shards, Lenient: o.Lenient, Client: o.Client})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	return src.Load(ctx, o)
}
