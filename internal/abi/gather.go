// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Ranges has the functions that read ranges of files and write pieces of memory, and shares the handles of a Table.
type Ranges struct{ *Table }

type gatherOptions struct {
	Device string               `json:"device"`
	Route  nebulaio.Route       `json:"route"`
	Cache  nebulaio.CachePolicy `json:"cache"`
	Verify bool                 `json:"verify"`
	Gap    int64                `json:"gap"`
	Client clientOptions        `json:"client"`
}

// StartGather is nebulaio_gather_start.
func (t Ranges) StartGather(system uint64, files []string, segments []nebulaio.GatherSegment, stream uint64,
	options string) (uint64, error) {
	s, err := get[*nebulaio.System](t.Table, system, "system")
	if err != nil {
		return 0, err
	}
	var o gatherOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	client, err := o.Client.client()
	if err != nil {
		return 0, err
	}
	for i, g := range segments {
		// Numbers of the caller are unsigned: one of 2^63 or more is negative here.
		if g.File < 0 || min(g.Offset, g.Size, g.Width, g.Stride) < 0 {
			return 0, errs.New(errs.Invalid, "gather", fmt.Sprintf("segment %d", i), fmt.Sprintf(
				"names file %d, offset %d, size %d, width %d and stride %d; expected numbers below 2^63", uint64(g.File),
				uint64(g.Offset), uint64(g.Size), uint64(g.Width), uint64(g.Stride)))
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	g, err := s.StartGather(ctx, files, segments, nebulaio.GatherOptions{Device: o.Device, Route: o.Route, Cache: o.Cache,
		Verify: o.Verify, Gap: o.Gap, Stream: stream, HasStream: true, Client: client})
	if err != nil {
		cancel(nil)
		return 0, err
	}
	return t.put(&job{work: g, report: func() any { return g.Report() }, cancel: cancel}), nil
}

type writePiecesOptions struct {
	Checksum *bool             `json:"checksum"`
	Route    nebulaio.Route    `json:"route"`
	Streams  map[string]uint64 `json:"streams"`
	Client   clientOptions     `json:"client"`
}

// StartWritePieces is nebulaio_write_start. StartWritePieces chooses the streams of the GPUs as StartSave does.
func (t Ranges) StartWritePieces(system uint64, path string, pieces []nebulaio.Piece, stream uint64,
	options string) (uint64, error) {
	s, err := get[*nebulaio.System](t.Table, system, "system")
	if err != nil {
		return 0, err
	}
	var o writePiecesOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	client, err := o.Client.client()
	if err != nil {
		return 0, err
	}
	devices := make([]string, len(pieces))
	for i := range pieces {
		if devices[i] = pieces[i].Device; pieces[i].Size < 0 {
			return 0, errs.New(errs.Invalid, "write", path, fmt.Sprintf("piece %d has %d bytes; expected less than 2^63", i,
				uint64(pieces[i].Size)))
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	w, err := s.StartWritePieces(ctx, path, pieces, nebulaio.WriteOptions{NoChecksums: no(o.Checksum), Route: o.Route,
		Streams: streamsOf(devices, stream, o.Streams), Client: client})
	if err != nil {
		cancel(nil)
		return 0, err
	}
	return t.put(&job{work: w, report: func() any { return w.Report() }, cancel: cancel}), nil
}
