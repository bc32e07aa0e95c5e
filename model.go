// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Model is a loaded model: tensors in device memory. All methods of a Model are safe for concurrent use, including
// Free.
type Model struct {
	sys      *boot.System
	dev      device.Device
	bufs     []device.Buffer
	names    []string
	tensors  map[string]Tensor
	metadata map[string]string // nil: the files have none
	report   ModelReport
	life     lifetime
}

// Tensor is one array of a model in device memory. The memory of a tensor is valid until Model.Free.
type Tensor struct {
	Name  string
	DType DType
	Shape []int64
	Ptr   Ptr
	Size  int64
}

// Names returns the names of the tensors, ordered by file and by offset in the file.
func (m *Model) Names() []string { return m.names }

// Tensor finds a tensor by name. After Free, the Ptr of the tensor is 0.
func (m *Model) Tensor(name string) (Tensor, bool) {
	t, ok := m.tensors[name]
	if !m.life.alive() {
		t.Ptr = 0
	}
	return t, ok
}

// Report returns the report of the load that made the model.
func (m *Model) Report() ModelReport { return m.report }

// use adds a user of the device memory. The user calls leave at the end.
func (m *Model) use(op, name string) (leave func(), err error) {
	if err := m.life.enter(op, name, "the model was freed"); err != nil {
		return nil, err
	}
	if err := m.sys.Enter(op, name); err != nil {
		m.life.leave()
		return nil, err
	}
	return func() {
		m.sys.Leave()
		m.life.leave()
	}, nil
}

// Read copies a tensor to host memory, for checks and examples. After Free, Read fails with kind Closed.
func (m *Model) Read(name string) ([]byte, error) {
	leave, err := m.use("read tensor", name)
	if err != nil {
		return nil, err
	}
	defer leave()
	t, ok := m.tensors[name]
	if !ok {
		return nil, errs.New(errs.NotFound, "read tensor", fmt.Sprintf("%q", name), "is not in the model")
	}
	out := make([]byte, t.Size)
	q, err := m.dev.NewQueue()
	if err != nil {
		return nil, err
	}
	defer q.Close()
	if t.Size == 0 {
		return out, nil
	}
	if err := q.CopyOut(out, device.Ptr(t.Ptr)); err != nil {
		return nil, errs.Wrap("read tensor", name, err)
	}
	return out, errs.Wrap("read tensor", name, q.Drain())
}

// Free waits for running calls of Read and Save and frees the device memory. A Progress function must not call Free,
// because Free would wait for ever. The addresses of the tensors are not valid after Free. Free must be called before
// System.Close. A second call of Free does nothing.
func (m *Model) Free() error {
	return m.life.end(func() error {
		var first error
		for _, b := range m.bufs {
			if b == nil {
				continue
			}
			if err := free(m.sys, m.dev, b); err != nil && first == nil {
				first = err
			}
		}
		m.bufs = nil
		return first
	})
}
