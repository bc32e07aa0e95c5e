// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Memory is an allocation on a device, for programs that have no allocator of
// their own there. All methods are safe for concurrent use.
type Memory struct {
	dev device.Device
	buf device.Buffer
}

// Alloc takes size bytes on a device: "auto", "host", "cuda" or "cuda:N". The
// caller frees them before the system is closed.
func (s *System) Alloc(ctx context.Context, device string, size int64) (*Memory, error) {
	if size <= 0 {
		return nil, errs.New(errs.Invalid, "allocate", device, fmt.Sprintf("%d bytes; expected more than 0", size))
	}
	dev, err := s.sys.Devices.Open(ctx, device)
	if err != nil {
		return nil, err
	}
	b, err := dev.Alloc(size)
	if err != nil {
		return nil, err
	}
	return &Memory{dev: dev, buf: b}, nil
}

// Ptr is the address of the first byte.
func (m *Memory) Ptr() Ptr { return m.buf.Ptr() }

// Size is how many bytes there are.
func (m *Memory) Size() int64 { return m.buf.Size() }

// Device describes where they are.
func (m *Memory) Device() DeviceInfo { return m.dev.Info() }

// Read copies len(p) bytes from off on to p.
func (m *Memory) Read(p []byte, off int64) error {
	return m.move("read", p, off, func(q device.Queue, at Ptr) error { return q.CopyOut(p, at) })
}

// Write copies p to off.
func (m *Memory) Write(p []byte, off int64) error {
	return m.move("write", p, off, func(q device.Queue, at Ptr) error { return q.CopyIn(at, p) })
}

func (m *Memory) move(op string, p []byte, off int64, queue func(q device.Queue, at Ptr) error) error {
	if off < 0 || int64(len(p)) > m.Size()-off {
		return errs.New(errs.Invalid, op, m.dev.Info().ID, fmt.Sprintf("%d bytes at offset %d of %d", len(p), off, m.Size()))
	}
	if len(p) == 0 {
		return nil
	}
	q, err := m.dev.NewQueue()
	if err != nil {
		return err
	}
	err = queue(q, m.Ptr()+Ptr(off))
	if err == nil {
		err = q.Drain()
	}
	if cerr := q.Close(); err == nil {
		err = cerr
	}
	return errs.Wrap(op, m.dev.Info().ID, err)
}

// Free gives the memory back. No move may use it any more.
func (m *Memory) Free() error { return m.buf.Free() }
