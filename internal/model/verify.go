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

// verify adds the checksums of the files to a request. Each file must have checksums that were computed for a file of
// its size. Headers are always checked too, because they define where everything else is.
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

// summed is a tree that has checksums of its files' blocks.
type summed interface {
	// Sums are those of a file that Open of the same tree gave for name. Kind NotFound where there are none.
	Sums(ctx context.Context, name string, f *vfs.File) (*checksum.Sums, error)
}

// sums returns the checksums for the blocks of file i.
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

// mostNames is the number of tensors of a block that a message names; the others are counted.
const mostNames = 3

// holds describes the content of a range of a file: the header and the names of tensors, chosen or not.
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
