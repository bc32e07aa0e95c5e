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

// Sink is an open file that a save writes, and that belongs to another owner, such as a server. The engine writes
// every byte of the Sink; the owner of the Sink makes the file durable. With O_DIRECT, the engine pads the last block
// with zeros to a whole page, and the owner of the Sink truncates the file to its size.
type Sink interface {
	// Name returns the name of the sink in messages and reports.
	Name() string
	// FS returns the type of the file system on which the sink is, such as ext4.
	FS() vfs.FSType
	// Direct reports whether the sink can be written with O_DIRECT; if false, the Refusal gives the reason.
	Direct() (bool, *vfs.Refusal)
	// Align returns the alignment in bytes that WriteDirect needs.
	Align() vfs.Alignment
	// WriteDirect writes all of p at offset off with O_DIRECT. The error is vfs.ErrDirectRefused if the file system
	// refuses the write. WriteDirect must be safe for concurrent use.
	WriteDirect(p []byte, off int64) error
	// WriteBuffered writes all of p at offset off through the page cache.
	WriteBuffered(p []byte, off int64) error
}

// described is a Sink with file descriptors, which can be given to a library.
type described interface {
	FD() int
	DirectFD() int // -1 if there is none
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

// openCuFileSink opens the sink called name in libcufile.
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

// close reads the counters of libcufile and deregisters the file.
func (c *cuFileSink) close(name string) error {
	if c == nil {
		return nil
	}
	if c.counts = c.lib.count().Minus(c.before); c.counts.Known {
		c.lib.learn(c.fd, c.counts.Writes.Route())
	}
	return errs.Wrap("take from cuFile", name, c.file.Close())
}

// write lets libcufile write the whole pages of n bytes at off from the device, and returns their number of bytes. It
// returns 0 if the bytes come from several sources, which libcufile cannot write at once.
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

// route returns the route that the counters of libcufile show.
func (c *cuFileSink) route() report.RouteTaken {
	if c == nil {
		return report.RouteTakenCuFileUnknown
	}
	return taken(c.counts.Known, c.counts.Writes)
}

// founded is a destination that knows its storage.
type founded interface{ Storage() vfs.Storage }

// storageBelow returns the storage of a save's destination, which must be open.
func storageBelow(s Sink, below *vfs.Storages) vfs.Storage {
	switch d := s.(type) {
	case described:
		return below.Of(d.FD())
	case founded:
		return d.Storage()
	}
	return vfs.Storage{FS: s.FS(), Hidden: "the destination does not tell what lies below it"}
}

// putAlign is the alignment in bytes of O_DIRECT writes to open files, and of writes by cuFile.
const putAlign = 4096
