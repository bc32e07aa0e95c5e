// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Sink is a destination that somebody else has opened and will make durable:
// the engine writes every byte of it and no more. Direct writes of the last
// block are filled up with zeros to a whole page, which the owner cuts off.
type Sink interface {
	// Name is what messages and reports call it.
	Name() string
	// FS names the file system below it.
	FS() vfs.FSType
	// Direct reports whether it can be written past the page cache, else why not.
	Direct() (bool, *vfs.Refusal)
	// Align is what direct writes must observe.
	Align() vfs.Alignment
	// WriteDirect writes all of p past the page cache; vfs.ErrDirectRefused where
	// the file system declines that kind of write. Many writes run at once.
	WriteDirect(p []byte, off int64) error
	// WriteBuffered writes all of p through the page cache.
	WriteBuffered(p []byte, off int64) error
}

// described is a Sink whose descriptors a library can be given.
type described interface {
	FD() int
	DirectFD() int // -1: none
}

// cuFileSink is libcufile's part of a save to a sink.
type cuFileSink struct {
	lib    *library
	port   *port
	file   device.DirectFile
	fd     int
	opened bool
	before device.DirectCounters
	counts device.DirectCounters
}

// openCuFileSink lets libcufile write the sink called name.
func openCuFileSink(ctx context.Context, o *tuned, sink Sink, name string, from *sources) (*cuFileSink, error) {
	const op = "write through cuFile"
	if len(from.ports) != 1 || from.ports[0].dev.Info().Kind == device.Host {
		return nil, errs.New(errs.Unsupported, op, name, "its bytes come from "+from.devices()+"; expected one GPU").
			WithFix("use route auto")
	}
	s, ok := sink.(described)
	if !ok {
		return nil, errs.New(errs.Unsupported, op, name, "it has no descriptor that cuFile could be given").
			WithFix("use route auto")
	}
	p := from.ports[0]
	c := &cuFileSink{lib: p.lib, port: p, fd: s.FD()}
	var err error
	if c.opened, err = c.lib.open(ctx, o, p.dev, true); err != nil {
		return nil, err
	}
	fd := s.DirectFD()
	if fd < 0 {
		fd = s.FD()
	}
	if c.file, err = c.lib.opened().OpenFile(fd); err != nil {
		return nil, errs.Wrap("give to cuFile", name, err)
	}
	c.before = c.lib.count()
	return c, nil
}

// close reads what the library has counted and makes it forget the file.
func (c *cuFileSink) close(name string) error {
	if c == nil {
		return nil
	}
	if c.counts = c.lib.count().Minus(c.before); c.counts.Known {
		c.lib.learn(c.fd, c.counts.Writes.Route())
	}
	return errs.Wrap("take from cuFile", name, c.file.Close())
}

// write lets the library write the whole pages of n bytes at off from the device, and returns how many bytes they are.
// None means that it does not take them: they lie in several places.
func (c *cuFileSink) write(from *sources, off, n int64) (done int64, err error) {
	n = n / putAlign * putAlign
	var src device.Ptr
	_ = from.pieces(off, n, func(s *source, at, _, k int64) error {
		if k == n && s.port == c.port {
			src = s.Ptr + device.Ptr(at)
		}
		return nil
	})
	if src == 0 || n == 0 {
		return 0, nil
	}
	if _, err := c.file.Write(src, 0, n, off); err != nil {
		return 0, errs.Wrap(fmt.Sprintf("write %d bytes at offset %d through cuFile to", n, off), from.name, err)
	}
	return n, nil
}

// route names what the library's counters tell; a nil sink used none.
func (c *cuFileSink) route() report.RouteTaken {
	if c == nil {
		return report.RouteTakenCuFileUnknown
	}
	return taken(c.counts.Known, c.counts.Writes)
}

// founded is a destination that tells what lies below it.
type founded interface{ Storage() vfs.Storage }

// storageBelow is what lies below the destination of a save, while it is open.
func storageBelow(s Sink, below *vfs.Storages) vfs.Storage {
	switch d := s.(type) {
	case described:
		return below.Of(d.FD())
	case founded:
		return d.Storage()
	}
	return vfs.Storage{FS: s.FS(), Hidden: "the destination does not tell what lies below it"}
}

// putAlign is what direct writes in place, and those of cuFile, are aligned to.
const putAlign = 4096
