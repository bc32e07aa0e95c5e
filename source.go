// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"
	"reflect"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
	"github.com/nebulaio/nebulaio/internal/model"
	"github.com/nebulaio/nebulaio/report"
)

// SourceOptions choose what of a model is opened and for which device.
type SourceOptions struct {
	// Device is "auto" (the default), "host", "cuda" or "cuda:N".
	Device string
	// Tensors are globs over tensor names. None means all.
	Tensors []string
	// Slices and Shards choose parts of tensors. The other tensors are taken whole. A part that does not fit its tensor,
	// or a tensor that two of them match, is an error of kind Invalid. One that matches no tensor is of kind NotFound.
	Slices []Slice
	Shards []Shard
	// Lenient also accepts headers that the package safetensors accepts and nebulaio refuses by default.
	Lenient bool
	// More are further models. Their files follow those of the first, in order. A tensor name that two models have
	// comes twice.
	More []string
	// Client chooses the server of a model in a bucket. Client.OpenSource refuses it: the client knows its server.
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

// SelectOptions choose tensors of an open Source.
type SelectOptions struct {
	// Tensors, Slices and Shards are as in SourceOptions.
	Tensors []string
	Slices  []Slice
	Shards  []Shard
	// Names are exact tensor names. Give either Names or Tensors.
	Names []string
	// Files, if not nil, are indices of Source.Files. Only tensors of these files are chosen, and only these files are
	// listed.
	Files []int
}

// Source is a model in storage whose headers have been read. It knows each tensor and its place in device memory. A
// Source can be loaded any number of times.
type Source struct {
	sys   *boot.System
	dev   device.Device
	model *model.Model
	// refused lists what opening the device already gave up.
	refused []report.Refusal
	// owned is the client that was made for this source, or nil if the caller has one.
	owned *Client
}

// OpenSource reads and checks the headers of a model. The path is a .safetensors file, an index, a model folder, or the
// same in a bucket ("s3://bucket/prefix", "nebula://host:port/bucket/prefix"). The caller closes the source.
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
	// Pinning staging memory takes as long as reading headers and taking device memory. It starts now.
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

// OpenSource reads and checks the headers of a model in a bucket: a .safetensors object, an index, or a prefix. Further
// models of o are keys, or URLs, of the same bucket. The caller closes the source, then the client.
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

// SourceFile is one file of a model and the device memory that it needs.
type SourceFile struct {
	Path      string `json:"path"`
	Size      int64  `json:"size"`       // of the file
	DestSize  int64  `json:"dest_size"`  // bytes of device memory
	DestAlign int64  `json:"dest_align"` // alignment that the destination should have
}

// TensorInfo is one tensor and its place.
type TensorInfo struct {
	Name  string  `json:"name"`
	DType DType   `json:"dtype"`
	Shape []int64 `json:"shape"`
	// Whole is the tensor's own shape, and Start the first index of each dimension. Both are nil if all of the tensor
	// was chosen.
	Whole  []int64 `json:"whole_shape,omitempty"`
	Start  []int64 `json:"start,omitempty"`
	File   int     `json:"file"`   // index into the files
	Offset int64   `json:"offset"` // in the destination of that file
	Size   int64   `json:"size"`
}

// Select makes another source of the same open files, with another choice of tensors. It reads no header again. The
// selection is closed before s.
func (s *Source) Select(o SelectOptions) (*Source, error) {
	m, err := s.model.Select(model.Options{Tensors: o.Tensors, Slices: slicesOf(o.Slices), Shards: shardsOf(o.Shards),
		Names: o.Names, Files: o.Files, Addressable: addressable(s.dev)})
	if err != nil {
		return nil, err
	}
	return &Source{sys: s.sys, dev: s.dev, model: m, refused: s.refused}, nil
}

// Device describes the device that the source would be loaded to.
func (s *Source) Device() DeviceInfo { return infoOf(s.dev.Info()) }

// Files lists the model's files in order.
func (s *Source) Files() []SourceFile {
	out := make([]SourceFile, len(s.model.Files))
	for i, f := range s.model.Files {
		l := s.model.Layouts[i]
		out[i] = SourceFile{Path: f.Path, Size: f.Size, DestSize: l.Size, DestAlign: l.Align}
	}
	return out
}

// Header is the header of one file: its tensors in order of offset, and its metadata.
type Header struct {
	Path      string            `json:"path"`
	Size      int64             `json:"size"`       // of the whole file
	DataStart int64             `json:"data_start"` // offset of the first byte after the header
	Tensors   []HeaderTensor    `json:"tensors"`
	Metadata  map[string]string `json:"metadata,omitempty"`
}

// HeaderTensor is one tensor of a file.
type HeaderTensor struct {
	Name   string  `json:"name"`
	DType  DType   `json:"dtype"`
	Shape  []int64 `json:"shape"`
	Offset int64   `json:"offset"` // of its first byte from the start of the file
	Size   int64   `json:"size"`   // in bytes
}

// Headers returns the headers of the files, in order, whatever tensors were chosen.
func (s *Source) Headers() []Header {
	return convert(s.model.Files, func(f *format.File) Header {
		return Header{Path: f.Path, Size: f.Size, DataStart: f.DataStart, Metadata: f.Metadata,
			Tensors: convert(f.Tensors, func(t format.Tensor) HeaderTensor {
				return HeaderTensor{Name: t.Name, DType: DType(t.DType), Shape: t.Shape, Offset: t.Offset, Size: t.Size}
			})}
	})
}

// Index returns the name of the index of a sharded model, or "" if there is none.
func (s *Source) Index() string { return s.model.Index }

// Tensors lists the chosen tensors in order of file and offset.
func (s *Source) Tensors() []TensorInfo {
	out := make([]TensorInfo, len(s.model.Tensors))
	for i, t := range s.model.Tensors {
		out[i] = TensorInfo{Name: t.Name, DType: DType(t.DType), Shape: t.Shape, Whole: t.Whole, Start: t.Start, File: t.File,
			Offset: t.At, Size: t.Size}
	}
	return out
}

// Metadata merges the metadata of the files. The first file that names a key wins.
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

// Bytes returns the size of the chosen tensors together.
func (s *Source) Bytes() int64 { return s.model.Bytes() }

// DropCache asks the kernel to drop the clean pages of the files. It returns the number of bytes that stayed.
func (s *Source) DropCache() (left int64, err error) { return s.model.DropCache() }

// Cached returns the number of bytes of the files in the page cache.
func (s *Source) Cached() (int64, error) { return s.model.Cached() }

// Close closes the files. It fails with kind Invalid while a load or a selection of the source is open.
func (s *Source) Close() error {
	err := s.model.Close()
	if err == nil && s.owned != nil {
		err = s.owned.Close()
	}
	return err
}
