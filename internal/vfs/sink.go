// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Sink is a file that is written through descriptors opened by another process, the owner. The owner of a Sink makes
// the file durable and gives the file its name. Writes to a Sink are safe for concurrent use; Close must be the last
// call.
type Sink struct {
	name string
	output
}

// SinkFromDescriptors returns a Sink for descriptors of one regular file that are open for writing. The Sink owns the
// descriptors: Sink.Close closes them. If SinkFromDescriptors fails, it closes the descriptors. d.Buffered is
// required; d.Direct may be missing or turn out to be unusable.
func SinkFromDescriptors(d Descriptors) (*Sink, error) {
	s := &Sink{name: d.Name, output: output{size: d.Size, buffered: d.Buffered, direct: d.Direct}}
	if err := s.settle(d.Refused); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Sink) settle(why string) error {
	const op = "write through a descriptor of"
	if s.buffered < 0 {
		return errs.New(errs.Invalid, op, s.name, "there is no descriptor that goes through the page cache; expected one")
	}
	var a, b unix.Stat_t
	if err := unix.Fstat(s.buffered, &a); err != nil {
		return errs.Wrap(op, s.name, err)
	}
	if a.Mode&unix.S_IFMT != unix.S_IFREG {
		return errs.New(errs.Invalid, op, s.name, "is "+kindOfMode(a.Mode)+", expected a regular file")
	}
	s.fs = fsType(s.buffered)
	if s.direct < 0 {
		if why == "" {
			why = "no descriptor for direct writes was handed over"
		}
		s.refuse(why, "keep the store on a file system with direct I/O, such as ext4 or XFS")
		return nil
	}
	if err := unix.Fstat(s.direct, &b); err != nil {
		return errs.Wrap(op, s.name, err)
	}
	if a.Ino != b.Ino || a.Dev != b.Dev {
		return errs.New(errs.Invalid, op, s.name, "the two descriptors are of different files")
	}
	if s.align, why = directAlign(s.direct); why != "" {
		s.refuse(fmt.Sprintf("%s reports that this file cannot be written with O_DIRECT (%s)", s.fs.Name, why),
			"keep the store on ext4 or XFS without encryption, verity or data journalling")
	}
	return nil
}

// Name returns the name of the file in messages.
func (s *Sink) Name() string { return s.name }

// FD returns the file descriptor without O_DIRECT, for a library that needs one. The Sink owns the descriptor.
func (s *Sink) FD() int { return s.buffered }

// DirectFD returns the file descriptor with O_DIRECT, or -1 if there is none. The Sink owns the descriptor.
func (s *Sink) DirectFD() int { return s.direct }

// WriteDirect writes p at offset off with O_DIRECT. The offset, len(p) and the address of p must have the alignment
// that Align returns. If the file system refuses the write, the error is ErrDirectRefused, and the caller should write
// through the page cache.
func (s *Sink) WriteDirect(p []byte, off int64) error {
	at, err := writeDirect(s.direct, s.align.Offset, p, off)
	if at == off && (err == unix.EINVAL || err == unix.EOPNOTSUPP) {
		s.refuse(fmt.Sprintf("%s accepted O_DIRECT at open but refused an aligned write: %v", s.fs.Name, err),
			"keep the store on a file system with direct I/O, such as ext4 or XFS")
		return ErrDirectRefused
	}
	return s.fail(at, err)
}

// WriteBuffered writes p at offset off through the page cache.
func (s *Sink) WriteBuffered(p []byte, off int64) error {
	at, err := writeBuffered(s.buffered, p, off)
	return s.fail(at, err)
}

func (s *Sink) fail(at int64, err error) error {
	if err == nil {
		return nil
	}
	e := &errs.Error{Kind: errs.KindOf(err), Op: fmt.Sprintf("write at offset %d of", at), Name: s.name, Err: err}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		e.Kind, e.Fix = errs.IO, "free space where the store lies, or write elsewhere"
	case errors.Is(err, unix.EBADF):
		e.Kind, e.Fix = errs.Invalid, "hand over a descriptor that is open for writing"
	}
	return e
}

// Close closes the descriptors. No write to the Sink may be in flight during Close.
func (s *Sink) Close() error {
	var err error
	for _, fd := range []*int{&s.direct, &s.buffered} {
		if *fd >= 0 {
			err = errors.Join(err, unix.Close(*fd))
		}
		*fd = -1
	}
	return errs.Wrap("close", s.name, err)
}
