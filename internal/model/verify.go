// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/transfer"
)

// verify lets a request check its files. Each must have checksums that were
// made of a file of its size. The headers are checked too, with tensors of the
// file or without: they say where everything else lies.
func (m *Model) verify(r *transfer.Request) error {
	for i, f := range m.Files {
		s, err := checksum.ReadFor(f.Path, m.sources[i].Size(), checksum.ID(m.sources[i].Identity()))
		if err != nil {
			return err
		}
		r.Verify = append(r.Verify, s)
		r.Also = append(r.Also, transfer.Extent{File: i, Len: f.DataStart})
	}
	r.Holds = m.holds
	return nil
}

// mostNames is how many tensors of a block are named before the rest is counted.
const mostNames = 3

// holds says what lies in a range of a file: the header, and tensors by name,
// chosen or not.
func (m *Model) holds(file int, off, n int64) string {
	f := m.Files[file]
	var parts []string
	if off < f.DataStart {
		parts = append(parts, "a part of the header")
	}
	// Tensors are in order of offset and do not overlap, but for empty ones.
	first := sort.Search(len(f.Tensors), func(i int) bool { return f.Tensors[i].Offset+f.Tensors[i].Size > off })
	count := 0
	for _, t := range f.Tensors[first:] {
		if t.Offset >= off+n {
			break
		}
		if t.Size == 0 {
			continue
		}
		if count++; count <= mostNames {
			parts = append(parts, "tensor "+strconv.Quote(t.Name))
		}
	}
	if count > mostNames {
		parts = append(parts, fmt.Sprintf("%d more", count-mostNames))
	}
	if len(parts) == 0 {
		return "no tensor"
	}
	return strings.Join(parts, ", ")
}
