// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"context"
	"strconv"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

type fileOptions struct {
	Device string         `json:"device"`
	Route  nebulaio.Route `json:"route"`
}

type moveOptions struct {
	Device string         `json:"device"`
	Route  nebulaio.Route `json:"route"`
	Async  bool           `json:"async"`
}

// access converts the flags of nebulaio_file_open to options.
func access(flags string) (o nebulaio.FileOptions, err error) {
	switch flags {
	case "r":
	case "r+":
		o.Write = true
	case "w", "w+":
		o.Write, o.Create, o.Truncate = true, true, true
	default:
		err = errs.New(errs.Invalid, "open file with flags", strconv.Quote(flags), "is not known; expected r, r+, w or w+").
			WithFix("to append, open with r+ and write at the file's size")
	}
	return o, err
}

// OpenFile is nebulaio_file_open.
func (t *Table) OpenFile(system uint64, path, flags, options string) (uint64, error) {
	s, err := get[*nebulaio.System](t, system, "system")
	if err != nil {
		return 0, err
	}
	o, err := access(flags)
	if err != nil {
		return 0, err
	}
	var more fileOptions
	if err := decode(options, &more); err != nil {
		return 0, err
	}
	o.Device, o.Route = more.Device, more.Route
	f, err := s.OpenFile(path, o)
	if err != nil {
		return 0, err
	}
	return t.put(f), nil
}

// FileSize is nebulaio_file_size.
func (t *Table) FileSize(file uint64) (int64, error) {
	f, err := get[*nebulaio.File](t, file, "file")
	if err != nil {
		return 0, err
	}
	return f.Size()
}

// SyncFile is nebulaio_file_sync.
func (t *Table) SyncFile(file uint64) error {
	f, err := get[*nebulaio.File](t, file, "file")
	if err != nil {
		return err
	}
	return f.Sync()
}

// StartMove implements nebulaio_file_read_start, or nebulaio_file_write_start if the parameter write is true.
func (t *Table) StartMove(file uint64, write bool, mem nebulaio.Ptr, size, offset, stream uint64,
	options string) (uint64, error) {
	f, err := get[*nebulaio.File](t, file, "file")
	if err != nil {
		return 0, err
	}
	var o moveOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	const most = 1 << 62
	if size > most || offset > most {
		return 0, errs.New(errs.Invalid, "move", f.Path(), strconv.FormatUint(size, 10)+" bytes at offset "+
			strconv.FormatUint(offset, 10)+"; expected less than 2^62")
	}
	start := f.StartRead
	if write {
		start = f.StartWrite
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	m, err := start(ctx, mem, int64(size), int64(offset),
		nebulaio.MoveOptions{Device: o.Device, Route: o.Route, Stream: stream, HasStream: true, InStream: o.Async})
	if err != nil {
		cancel(nil)
		return 0, err
	}
	return t.put(&job{work: m, report: func() any { return m.Report() }, cancel: cancel}), nil
}
