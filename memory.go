// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Memory is an allocation of device memory, for programs without an allocator of their own. All methods of Memory are
// safe for concurrent use, including Free.
type Memory struct {
	sys  *boot.System
	dev  device.Device
	buf  device.Buffer
	ptr  Ptr
	size int64
	life lifetime
}

// Alloc allocates `size` bytes on a device: "auto", "host", "cuda" or "cuda:N". The caller must free the memory before
// System.Close.
func (s *System) Alloc(ctx context.Context, device string, size int64) (*Memory, error) {
	if size <= 0 {
		return nil, errs.New(errs.Invalid, "allocate", device, fmt.Sprintf("%d bytes; expected more than 0", size))
	}
	if err := s.sys.Enter("allocate", device); err != nil {
		return nil, err
	}
	defer s.sys.Leave()
	dev, err := s.sys.Devices.Open(ctx, device)
	if err != nil {
		return nil, err
	}
	b, err := dev.Alloc(size)
	if err != nil {
		return nil, err
	}
	return &Memory{sys: s.sys, dev: dev, buf: b, ptr: Ptr(b.Ptr()), size: b.Size()}, nil
}

// Ptr returns the address of the first byte, or 0 after Free.
func (m *Memory) Ptr() Ptr {
	if !m.life.alive() {
		return 0
	}
	return m.ptr
}

// Size returns the number of bytes that were allocated, also after Free.
func (m *Memory) Size() int64 { return m.size }

// Device describes the device on which the memory was allocated.
func (m *Memory) Device() DeviceInfo { return infoOf(m.dev.Info()) }

// Read copies len(p) bytes at offset off of the device memory to p. After Free, Read fails with kind Closed.
func (m *Memory) Read(p []byte, off int64) error {
	return m.move("read", p, off, func(q device.Queue, at device.Ptr) error { return q.CopyOut(p, at) })
}

// Write copies p to offset off of the device memory. After Free, Write fails with kind Closed.
func (m *Memory) Write(p []byte, off int64) error {
	return m.move("write", p, off, func(q device.Queue, at device.Ptr) error { return q.CopyIn(at, p) })
}

func (m *Memory) move(op string, p []byte, off int64, queue func(q device.Queue, at device.Ptr) error) error {
	if err := m.life.enter(op, m.dev.Info().ID, "the memory was freed"); err != nil {
		return err
	}
	defer m.life.leave()
	if err := m.sys.Enter(op, m.dev.Info().ID); err != nil {
		return err
	}
	defer m.sys.Leave()
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
	err = queue(q, device.Ptr(m.ptr)+device.Ptr(off))
	if err == nil {
		err = q.Drain()
	}
	if cerr := q.Close(); err == nil {
		err = cerr
	}
	return errs.Wrap(op, m.dev.Info().ID, err)
}

// Free waits for running calls of Read and Write and frees the memory. Transfers that use the memory must have ended
// before Free. Free must be called before System.Close. A second call of Free does nothing.
func (m *Memory) Free() error { return m.life.end(func() error { return free(m.sys, m.dev, m.buf) }) }

// free frees a buffer. It fails if the system was closed and the buffer is GPU memory.
func free(sys *boot.System, dev device.Device, b device.Buffer) error {
	if dev.Info().Kind != device.Host {
		if err := sys.Enter("free memory on", dev.Info().ID); err != nil {
			return err
		}
		defer sys.Leave()
	}
	return b.Free()
}
