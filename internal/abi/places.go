// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// places is a model's description for callers that read it entry by entry instead of as JSON. It is made on first
// use.
type places struct {
	once    sync.Once
	files   []nebulaio.SourceFile
	tensors []nebulaio.TensorInfo
	byName  map[string]int
}

func (s *source) list() *places {
	p := &s.places
	p.once.Do(func() {
		p.files, p.tensors = s.Files(), s.Tensors()
		p.byName = make(map[string]int, len(p.tensors))
		for i, t := range p.tensors {
			p.byName[t.Name] = i
		}
	})
	return p
}

func at[T any](list []T, i uint64, what string) (T, error) {
	if i >= uint64(len(list)) {
		var none T
		return none, errs.New(errs.Invalid, "describe model", fmt.Sprintf("%s %d", what, i),
			fmt.Sprintf("is out of range; expected 0 to %d", len(list)-1))
	}
	return list[i], nil
}

// Count is nebulaio_model_count.
func (t *Table) Count(model uint64) (files, tensors int, err error) {
	s, err := get[*source](t, model, "model")
	if err != nil {
		return 0, 0, err
	}
	p := s.list()
	return len(p.files), len(p.tensors), nil
}

// File is nebulaio_model_destination.
func (t *Table) File(model, index uint64) (nebulaio.SourceFile, error) {
	s, err := get[*source](t, model, "model")
	if err != nil {
		return nebulaio.SourceFile{}, err
	}
	return at(s.list().files, index, "file")
}

// Tensor is nebulaio_model_tensor.
func (t *Table) Tensor(model, index uint64) (nebulaio.TensorInfo, error) {
	s, err := get[*source](t, model, "model")
	if err != nil {
		return nebulaio.TensorInfo{}, err
	}
	return at(s.list().tensors, index, "tensor")
}

// Find is nebulaio_model_find.
func (t *Table) Find(model uint64, name string) (int, error) {
	s, err := get[*source](t, model, "model")
	if err != nil {
		return 0, err
	}
	i, ok := s.list().byName[name]
	if !ok {
		return 0, errs.New(errs.NotFound, "find tensor", strconv.Quote(name), "is not in the model")
	}
	return i, nil
}
