// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
)

// Held is a tensor in memory that is to be saved. The data is at Ptr on Device, or in Bytes if Device is nil.
type Held struct {
	Name   string
	DType  format.DType
	Shape  []int64
	Device device.Device
	Ptr    device.Ptr
	Size   int64 // size in bytes, which must match DType and Shape
	Bytes  []byte
}

// SaveOptions selects how a tensor file is written.
type SaveOptions struct {
	Metadata  map[string]string
	Align     int64 // alignment of the first data byte; 0 means 4096
	Route     report.Route
	Checksums bool
	Streams   map[device.Device]uint64
}

// StartSave begins to write tensors to a tensor file at path, in the order of the reference writer. The caller must
// not change the tensors until the save has ended.
func StartSave(ctx context.Context, e *transfer.Engine, path string, tensors []Held, o SaveOptions) (*transfer.Save,
	error) {
	sources, err := Sources(path, tensors, o)
	if err != nil {
		return nil, err
	}
	return e.StartWrite(ctx, transfer.WriteRequest{Path: path, Route: o.Route, Checksums: o.Checksums, Streams: o.Streams,
		Sources: sources})
}

// Sources returns the header and the tensors of a tensor file as sources of a write, in the order of the reference
// writer. The parameter path is used only in errors. Sources uses only the fields Metadata and Align of the options
// o.
func Sources(path string, tensors []Held, o SaveOptions) ([]transfer.Source, error) {
	const op = "save"
	if o.Align == 0 {
		o.Align = safetensors.AlignPage
	}
	layout := make([]format.Tensor, len(tensors))
	held := make(map[string]*Held, len(tensors))
	for i := range tensors {
		h := &tensors[i]
		size, err := safetensors.SizeOf(h.DType, h.Shape)
		if err != nil {
			return nil, errs.Wrap(op, path+": tensor "+strconv.Quote(h.Name), err)
		}
		if h.Device == nil {
			h.Size = int64(len(h.Bytes))
		}
		if h.Size != size {
			return nil, errs.New(errs.Invalid, op, path, fmt.Sprintf("tensor %q has %d bytes, %s of shape %v takes %d", h.Name,
				h.Size, h.DType, h.Shape, size))
		}
		if h.Device != nil && !h.Ptr.Holds(size) {
			return nil, errs.New(errs.Invalid, op, path, fmt.Sprintf("tensor %q of %d bytes has the address 0x%x, expected "+
				"one that they can begin at", h.Name, size, uint64(h.Ptr)))
		}
		layout[i] = format.Tensor{Name: h.Name, DType: h.DType, Shape: h.Shape, Size: size}
		held[h.Name] = h
	}
	safetensors.SortReference(layout)
	header, err := safetensors.EncodeHeader(layout, o.Metadata, o.Align)
	if err != nil {
		return nil, errs.Wrap(op, path, err)
	}
	out := make([]transfer.Source, 0, len(layout)+1)
	out = append(out, transfer.Source{Len: int64(len(header)), Data: header})
	end := int64(len(header))
	for _, t := range layout {
		h := held[t.Name]
		out = append(out, transfer.Source{Off: end, Len: t.Size, Device: h.Device, Ptr: h.Ptr, Data: h.Bytes})
		end += t.Size
	}
	return out, nil
}
