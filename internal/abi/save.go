// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"context"

	"github.com/nebulaio/nebulaio"
)

type saveOptions struct {
	Metadata map[string]string `json:"metadata"`
	Checksum *bool             `json:"checksum"`
	Align    int64             `json:"align"`
	Route    nebulaio.Route    `json:"route"`
	Streams  map[string]uint64 `json:"streams"`
	Client   clientOptions     `json:"client"`
}

// StartSave is nebulaio_save_start. StartSave reads the tensors of each GPU only after the work that is queued on one
// CUDA stream of the caller for that GPU. The parameter named stream is the caller's CUDA stream on the first GPU
// that holds one of the tensors. The option "streams" has the caller's CUDA streams on other GPUs; the default for a
// GPU is its legacy default stream.
func (t *Table) StartSave(system uint64, path string, tensors []nebulaio.SaveTensor, stream uint64,
	options string) (uint64, error) {
	s, err := get[*nebulaio.System](t, system, "system")
	if err != nil {
		return 0, err
	}
	var o saveOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	client, err := o.Client.client()
	if err != nil {
		return 0, err
	}
	devices := make([]string, len(tensors))
	for i := range tensors {
		devices[i] = tensors[i].Device
	}
	streams := streamsOf(devices, stream, o.Streams)
	ctx, cancel := context.WithCancelCause(context.Background())
	l, err := s.StartSave(ctx, path, tensors, nebulaio.SaveOptions{Metadata: o.Metadata, NoChecksums: o.Checksum != nil &&
		!*o.Checksum,
		Align: o.Align, Route: o.Route, Streams: streams, Client: client})
	if err != nil {
		cancel(nil)
		return 0, err
	}
	return t.put(&job{work: l, report: func() any { return l.Report() }, cancel: cancel}), nil
}

// streamsOf returns the streams by device, for memory on the named devices. "cuda" and "cuda:0" are the same device.
func streamsOf(devices []string, first uint64, told map[string]uint64) map[string]uint64 {
	name := func(id string) string {
		if id == "cuda" {
			return "cuda:0"
		}
		return id
	}
	streams := map[string]uint64{}
	for _, id := range devices {
		if id == "host" || id == "cpu" {
			continue
		}
		if _, ok := streams[name(id)]; !ok {
			streams[name(id)] = first
			first = 0 // the stream is that of the first GPU
		}
	}
	for id, stream := range told {
		streams[name(id)] = stream
	}
	return streams
}
