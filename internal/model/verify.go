// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// verify lets a request check its files. Each must have checksums that were
// made of a file of its size. The headers are checked too, with tensors of the
// file or without: they say where everything else lies.
func (m *Model) verify(ctx context.Context, r *transfer.Request) error {
	for i, f := range m.Files {
		s, err := m.sums(ctx, i, f.Path)
		if err != nil {
			return err
		}
		r.Verify = append(r.Verify, s)
		r.Also = append(r.Also, transfer.Extent{File: i, Len: f.DataStart})
	}
	r.Holds = m.holds
	return nil
}

// summed is a tree that knows what the blocks of its files should be.
type summed interface {
	// Sums are those of a file that Open of the same tree gave for name. Kind NotFound where there are none.
	Sums(ctx context.Context, name string, f *vfs.File) (*checksum.Sums, error)
}

// sums are what the blocks of file i are compared with.
func (m *Model) sums(ctx context.Context, i int, path string) (*checksum.Sums, error) {
	f := m.sources[i]
	if m.tree == nil {
		return checksum.ReadFor(path, f.Size(), checksum.ID(f.Identity()))
	}
	if t, ok := m.tree.(summed); ok {
		return t.Sums(ctx, m.names[i], f)
	}
	return nil, errs.New(errs.Unsupported, "verify", path, "where it lies there are no checksums of its blocks")
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
