// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"
	"maps"
	"reflect"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
	"github.com/nebulaio/nebulaio/internal/model"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// SourceOptions choose the tensors of a model that OpenSource opens, and their device.
type SourceOptions struct {
	// Device is the device to load to: "auto" (the default), "host", "cuda" or "cuda:N".
	Device string
	// Tensors are glob patterns for tensor names. An empty list chooses all tensors.
	Tensors []string
	// Slices and Shards choose ranges of tensors. Tensors that match no entry of Slices and Shards are loaded whole.
	// If a range does not fit its tensor, or two entries of Slices and Shards match one tensor, the error is of kind
	// Invalid. If an entry of Slices or Shards matches no tensor, the error is of kind NotFound.
	Slices []Slice
	Shards []Shard
	// Lenient also accepts headers that NebulaIO refuses by default but the Python package safetensors accepts.
	Lenient bool
	// More are paths of further models that are opened together with the first model. The files of further models
	// follow the files of the first model, in order. If two models have a tensor of the same name, both tensors are
	// listed.
	More []string
	// Client chooses the server of a model in a bucket. For Client.OpenSource, the field Client must be empty,
	// because the client already has a server.
	Client ClientOptions
}

// layout returns the options of the model's layout on dev.
func (o SourceOptions) layout(dev device.Device) model.Options {
	return model.Options{Tensors: o.Tensors, Slices: slicesOf(o.Slices), Shards: shardsOf(o.Shards), Lenient: o.Lenient,
		More: o.More, Addressable: addressable(dev)}
}

// addressable reports whether the CPU can address the memory of dev.
func addressable(dev device.Device) bool {
	_, ok := dev.(device.Mapper)
	return ok
}

// SelectOptions choose tensors of an open Source for Source.Select.
type SelectOptions struct {
	// Tensors, Slices and Shards have the same meaning as in SourceOptions.
	Tensors []string
	Slices  []Slice
	Shards  []Shard
	// Names are exact tensor names. Names and Tensors cannot both be set.
	Names []string
	// Files, if not nil, are indices into Source.Files. If Files is not nil, the selection has only the files in Files
	// and their tensors.
	Files []int
}

// Source is a model in storage whose headers have been read. A Source knows each tensor and its offset in the
// destination memory. A Source can be loaded any number of times.
type Source struct {
	sys   *boot.System
	dev   device.Device
	model *model.Model
	// tree holds the objects of the model; nil if the model is in files of this machine.
	tree *client.Tree
	// refused lists the refusals from before the load: no usable GPU, or no door.
	refused []report.Refusal
	// owned is the client that was made for this source, or nil.
	owned *Client
}

// OpenSource reads and checks the headers of a model. The path names a .safetensors file, an index file or a model
// folder, on disk or in a bucket ("s3://bucket/prefix", "nebula://host:port/bucket/prefix"). The caller closes the
// source.
func (s *System) OpenSource(ctx context.Context, path string, o SourceOptions) (*Source, error) {
	p, err := parseURL(path)
	if err != nil || p.path != "" {
		return s.openSource(ctx, path, nil, o)
	}
	if p.endpoint != "" {
		o.Client.Endpoint = p.endpoint
	}
	c, err := s.NewClient(o.Client)
	if err != nil {
		return nil, err
	}
	o.Client = ClientOptions{}
	src, err := c.OpenSource(ctx, p.bucket, p.key, o)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	src.owned = c
	return src, nil
}

// openSource opens the model called name. If tree is nil, the model is in files of this machine, else in a bucket.
func (s *System) openSource(ctx context.Context, name string, tree *client.Tree, o SourceOptions) (*Source, error) {
	dev, err := s.sys.Devices.Open(ctx, o.Device)
	if err != nil {
		return nil, err
	}
	// Pinning staging memory takes as long as reading headers and allocating device memory, so it starts now.
	s.sys.Engine.Prepare(dev)
	layout := o.layout(dev)
	layout.Memo = s.headers
	layout.Opened = func(f *vfs.File) { s.sys.Engine.Foresee(dev, f) }
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
	src := &Source{sys: s.sys, dev: dev, model: m, tree: tree, refused: refused}
	if why := s.noGPU(dev, o.Device); why != nil {
		src.refused = append(src.refused, *why)
	}
	return src, nil
}

// noGPU returns why host memory was chosen, or nil if the caller asked for it or a GPU was chosen.
func (s *System) noGPU(dev device.Device, asked string) *report.Refusal {
	if dev.Info().Kind != device.Host || asked != "" && asked != "auto" {
		return nil
	}
	v := s.sys.Devices.Survey()
	if v.NoGPU == "" {
		return nil
	}
	return &report.Refusal{What: "gpu", On: "this machine", Reason: v.NoGPU, Fix: v.Fix}
}

// OpenSource reads and checks the headers of a model in a bucket. The key names a .safetensors object, an index object
// or a prefix. The entries of SourceOptions.More are keys or URLs in the bucket of the model. The caller must close
// the source before it closes the client.
func (c *Client) OpenSource(ctx context.Context, bucket, key string, o SourceOptions) (*Source, error) {
	if !reflect.ValueOf(o.Client).IsZero() {
		return nil, errs.New(errs.Invalid, "open model", "s3://"+bucket+"/"+key,
			"client options are given to a client that has a server already").
			WithFix("leave SourceOptions.Client empty, or use System.OpenSource")
	}
	if o.Device == "" {
		o.Device = c.opt.Device
	}
	more := make([]string, len(o.More))
	for i, name := range o.More {
		more[i] = name
		if !IsObjectURL(name) {
			continue
		}
		p, err := parseURL(name)
		if err != nil {
			return nil, err
		}
		if p.bucket != bucket || p.endpoint != "" && p.endpoint != c.opt.Endpoint {
			return nil, errs.New(errs.Invalid, "open model", name,
				"lies elsewhere than s3://"+bucket+"/"+key+"; expected models of one bucket").WithFix("open each by itself")
		}
		more[i] = p.key
	}
	o.More = more
	return c.sys.openSource(ctx, key, c.c.Tree(bucket, o.Device), o)
}

// SourceFile describes one file of a model and the device memory that the file needs.
type SourceFile struct {
	Path      string `json:"path"`
	Size      int64  `json:"size"`       // size of the file in bytes
	DestSize  int64  `json:"dest_size"`  // size in bytes of the device memory that the file's tensors need
	DestAlign int64  `json:"dest_align"` // alignment in bytes that the destination memory should have
}

// TensorInfo describes one chosen tensor and its location in the destination memory.
type TensorInfo struct {
	Name  string  `json:"name"`
	DType DType   `json:"dtype"`
	Shape []int64 `json:"shape"`
	// Whole is the shape of the complete tensor, and Start the first chosen index of each dimension. If the complete
	// tensor was chosen, Whole and Start are nil.
	Whole  []int64 `json:"whole_shape,omitempty"`
	Start  []int64 `json:"start,omitempty"`
	File   int     `json:"file"`   // index into Source.Files
	Offset int64   `json:"offset"` // offset of the tensor in bytes in the destination of its file
	// FileOffset is the offset in bytes of the tensor's first chosen byte in its file.
	FileOffset int64 `json:"file_offset"`
	Size       int64 `json:"size"`
}

// Select returns another source of the same open files, with another choice of tensors. Select does not read the
// headers again. The caller must close the selection before it closes the source s.
func (s *Source) Select(o SelectOptions) (*Source, error) {
	m, err := s.model.Select(model.Options{Tensors: o.Tensors, Slices: slicesOf(o.Slices), Shards: shardsOf(o.Shards),
		Names: o.Names, Files: o.Files, Addressable: addressable(s.dev)})
	if err != nil {
		return nil, err
	}
	return &Source{sys: s.sys, dev: s.dev, model: m, tree: s.tree, refused: s.refused}, nil
}

// Device describes the device to which the source is loaded.
func (s *Source) Device() DeviceInfo { return infoOf(s.dev.Info()) }

// Files lists the files of the model. StartLoad takes one Destination for each file, in the order of Files.
func (s *Source) Files() []SourceFile {
	out := make([]SourceFile, len(s.model.Files))
	for i, f := range s.model.Files {
		l := s.model.Layouts[i]
		out[i] = SourceFile{Path: f.Path, Size: f.Size, DestSize: l.Size, DestAlign: l.Align}
	}
	return out
}

// Header is the header of one .safetensors file: its metadata and its tensors, sorted by offset.
type Header struct {
	Path      string            `json:"path"`
	Size      int64             `json:"size"`       // size of the whole file in bytes
	DataStart int64             `json:"data_start"` // offset of the first byte after the header
	Tensors   []HeaderTensor    `json:"tensors"`
	Metadata  map[string]string `json:"metadata,omitempty"`
}

// HeaderTensor describes one tensor in the header of a file.
type HeaderTensor struct {
	Name   string  `json:"name"`
	DType  DType   `json:"dtype"`
	Shape  []int64 `json:"shape"`
	Offset int64   `json:"offset"` // offset of the tensor's first byte from the start of the file
	Size   int64   `json:"size"`   // in bytes
}

// Headers returns the headers of all files of the source, including tensors that were not chosen.
func (s *Source) Headers() []Header {
	return convert(s.model.Files, func(f *format.File) Header {
		var own shapes
		return Header{Path: f.Path, Size: f.Size, DataStart: f.DataStart, Metadata: maps.Clone(f.Metadata),
			Tensors: convert(f.Tensors, func(t format.Tensor) HeaderTensor {
				return HeaderTensor{Name: t.Name, DType: DType(t.DType), Shape: own.clone(t.Shape), Offset: t.Offset, Size: t.Size}
			})}
	})
}

// Index returns the path of the index file of a sharded model, or "" if the model has no index.
func (s *Source) Index() string { return s.model.Index }

// Tensors lists the chosen tensors, sorted by file and offset.
func (s *Source) Tensors() []TensorInfo {
	var own shapes
	out := make([]TensorInfo, len(s.model.Tensors))
	for i := range s.model.Tensors {
		t := &s.model.Tensors[i]
		out[i] = TensorInfo{Name: t.Name, DType: DType(t.DType), Shape: own.clone(t.Shape), Whole: own.clone(t.Whole),
			Start: own.clone(t.Start), File: t.File, Offset: t.At, FileOffset: t.Offset, Size: t.Size}
	}
	return out
}

// shapes copies shapes for callers, who may change them. The copies are cut from blocks, because a model has thousands.
type shapes struct{ block []int64 }

func (s *shapes) clone(shape []int64) []int64 {
	if len(shape) == 0 {
		return shape // nothing to change; nil stays nil, and the shape of a scalar stays empty
	}
	n := len(shape)
	if len(s.block) < n {
		s.block = make([]int64, max(n, 4096))
	}
	out := s.block[:n:n]
	s.block = s.block[n:]
	copy(out, shape)
	return out
}

// Metadata returns the merged metadata of all files. If several files have the same metadata key, the value of the
// first file is used.
func (s *Source) Metadata() map[string]string {
	out := map[string]string{}
	for _, f := range s.model.Files {
		for k, v := range f.Metadata {
			if _, ok := out[k]; !ok {
				out[k] = v
			}
		}
	}
	return out
}

// Bytes returns the total size of the chosen tensors in bytes.
func (s *Source) Bytes() int64 { return s.model.Bytes() }

// DropCache asks the kernel to drop the files' clean pages from the page cache. DropCache returns the number of bytes
// that stayed in the page cache.
func (s *Source) DropCache() (left int64, err error) { return s.model.DropCache() }

// Cached returns the number of bytes of the files that are in the page cache.
func (s *Source) Cached() (int64, error) { return s.model.Cached() }

// Close closes the files of the source. Close fails with kind Invalid while a load of the source runs or a selection
// of the source is open.
func (s *Source) Close() error {
	err := s.model.Close()
	if err == nil && s.owned != nil {
		err = s.owned.Close()
	}
	return err
}
