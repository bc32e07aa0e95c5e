// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// Select returns a Model with another choice of tensors from the same open files. Select reads no header again, so a
// Model with one tensor costs microseconds. The caller closes the selected Model before the Model m, because m cannot
// be closed while selections are open.
func (m *Model) Select(o Options) (*Model, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.Names != nil && o.Tensors != nil {
		return nil, errs.New(errs.Invalid, "select tensors", m.Path, "names and globs are given; expected one of them")
	}
	if m.sources == nil {
		return nil, errs.New(errs.Closed, "select tensors", m.Path, "the model is closed")
	}
	s := &Model{Path: m.Path, Sharded: m.Sharded, Index: m.Index, Files: m.Files, sources: m.sources, names: m.names,
		tree: m.tree, seen: m.seen, from: m}
	if o.Files != nil {
		s.Files, s.sources, s.names, s.seen = []*format.File{}, []*vfs.File{}, []string{}, []bool{}
		for _, i := range o.Files {
			if i < 0 || i >= len(m.Files) {
				return nil, errs.New(errs.Invalid, "select tensors", m.Path,
					fmt.Sprintf("has %d files; file %d was chosen", len(m.Files), i))
			}
			s.Files, s.sources, s.names, s.seen = append(s.Files, m.Files[i]), append(s.sources, m.sources[i]),
				append(s.names, m.names[i]), append(s.seen, m.seen[i])
		}
	}
	if err := s.place(o); err != nil {
		return nil, err
	}
	m.selections++
	return s, nil
}

// located is the position of a tensor's description: its file and its index there.
type located struct{ file, tensor int }

// named returns every tensor with this name. The caller holds m.mu.
func (m *Model) named(name string) []located {
	if m.byName == nil {
		m.byName = map[string][]located{}
		for i, f := range m.Files {
			for k, t := range f.Tensors {
				m.byName[t.Name] = append(m.byName[t.Name], located{i, k})
			}
		}
	}
	return m.byName[name]
}

// choose returns the chosen tensors of one file, in order of offset.
func (m *Model) choose(f *format.File, pick *selection, o Options) ([]format.Tensor, error) {
	if o.Names == nil && len(pick.globs) == 0 {
		return f.Tensors, nil // a copy of thousands of tensors would take as long as their parse
	}
	var chosen []format.Tensor
	if o.Names == nil {
		for _, t := range f.Tensors {
			if pick.take(t.Name) {
				chosen = append(chosen, t)
			}
		}
		return chosen, nil
	}
	// By the index: a file of many tensors is not gone through for each of them.
	var at []int
	for _, name := range o.Names {
		found := m.from.named(name)
		if len(found) == 0 {
			return nil, errs.New(errs.NotFound, "select tensors", strconv.Quote(name), "is no tensor of "+
				m.Path).WithFix("list the names with: nebulaio inspect " + m.Path)
		}
		for _, l := range found {
			if m.from.Files[l.file] == f {
				at = append(at, l.tensor)
			}
		}
	}
	slices.Sort(at)
	for _, k := range slices.Compact(at) {
		chosen = append(chosen, f.Tensors[k])
	}
	return chosen, nil
}

// leave ends a selection. The caller holds the selection's mu.
func (m *Model) leave() {
	if m.sources == nil {
		return
	}
	m.sources = nil
	m.from.mu.Lock()
	defer m.from.mu.Unlock()
	m.from.selections--
}
