// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"slices"
	"sync"

	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Bounds of a Memo.
const (
	mostKnown      = 64
	mostKnownBytes = 32 * units.MiB
)

// Memo keeps the parsed headers of files that were opened lately, so that the next open of a file with thousands of
// tensors does not parse them again. The header is still read each time, and compared byte by byte: a file that was
// replaced is never mistaken for the old one. All methods of Memo are safe for concurrent use. The zero Memo is empty.
type Memo struct {
	mu    sync.Mutex
	known []*known // the last one was used last
	bytes int
}

// known is a parsed header. Nobody changes it.
type known struct {
	header []byte // as it was read
	mode   safetensors.Mode
	file   *format.File

	mu     sync.Mutex
	placed [2]*placed // in device memory, and in addressable memory; nil until it is needed
}

// placed is the place of all tensors of a file.
type placed struct {
	layout  Layout
	tensors []Placement // as those of the first file of a model
}

// parse returns the parsed header of the file at path. A nil Memo keeps nothing.
func (m *Memo) parse(header []byte, size int64, path string, mode safetensors.Mode) (*known, error) {
	if k := m.find(header, size, path, mode); k != nil {
		return k, nil
	}
	k := &known{mode: mode}
	if m != nil {
		k.header = bytes.Clone(header) // the parser changes the bytes
	}
	var err error
	if k.file, err = safetensors.ParseHeader(header, size, path, mode); err != nil {
		return nil, err
	}
	m.keep(k)
	return k, nil
}

// find returns the kept header of the file at path, if it is the same.
func (m *Memo) find(header []byte, size int64, path string, mode safetensors.Mode) *known {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.at(path)
	if i < 0 {
		return nil
	}
	k := m.known[i]
	if k.mode != mode || k.file.Size != size || !bytes.Equal(k.header, header) {
		return nil
	}
	m.known = append(slices.Delete(m.known, i, i+1), k)
	return k
}

// at returns the position of the header of the file at path, or -1. The caller holds mu.
func (m *Memo) at(path string) int {
	return slices.IndexFunc(m.known, func(k *known) bool { return k.file.Path == path })
}

// keep keeps a header instead of an older one of the same path. Headers that were not used for longest make room.
func (m *Memo) keep(k *known) {
	if m == nil || len(k.header) > mostKnownBytes/2 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.at(k.file.Path); i >= 0 {
		m.bytes -= len(m.known[i].header)
		m.known = slices.Delete(m.known, i, i+1)
	}
	m.known, m.bytes = append(m.known, k), m.bytes+len(k.header)
	for len(m.known) > mostKnown || m.bytes > mostKnownBytes {
		m.bytes -= len(m.known[0].header)
		m.known = slices.Delete(m.known, 0, 1)
	}
}

// place returns the layout of the file and the places of its tensors, of which all are loaded. The caller must not
// change them.
func (k *known) place(addressable bool) (Layout, []Placement) {
	which := 0
	if addressable {
		which = 1
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.placed[which] == nil {
		parts := make([]part, len(k.file.Tensors))
		for i := range parts {
			parts[i] = all(k.file.Tensors[i])
		}
		l, at := layout(parts, addressable)
		tensors := make([]Placement, len(parts))
		for i := range tensors {
			tensors[i] = Placement{Tensor: k.file.Tensors[i], At: at[i]}
		}
		k.placed[which] = &placed{layout: l, tensors: tensors}
	}
	return k.placed[which].layout, k.placed[which].tensors
}
