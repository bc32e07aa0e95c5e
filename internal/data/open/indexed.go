// SPDX-License-Identifier: Apache-2.0

package open

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/data/litdata"
	"github.com/nebulaio/nebulaio/internal/data/mds"
	"github.com/nebulaio/nebulaio/internal/data/sample"
)

// mdsIndex takes the shards of an MDS data set.
func (w *work) mdsIndex(dir, name string, text []byte) error {
	if err := w.settle(name, MDS); err != nil {
		return err
	}
	index, err := mds.ParseIndex(text, name)
	if err != nil {
		return err
	}
	for i := range index.Shards {
		s := &index.Shards[i]
		file := Entry{Name: dir + s.Raw.Basename, Size: s.Raw.Bytes}
		if s.Compressed() {
			file = Entry{Name: dir + s.Zip.Basename, Size: s.Zip.Bytes}
		}
		w.parts = append(w.parts, part{file: file, samples: s.Samples, hashes: s.Raw.Hashes,
			table: func(ctx context.Context) (*sample.Table,
				[]Column, error) {
				var t *sample.Table
				err := w.with(ctx, file.Name, func(r io.ReaderAt, size int64) (err error) {
					t, err = mds.Open(r, size, file.Name, s)
					return err
				})
				return t, mdsColumns(s.Columns), err
			}})
	}
	return nil
}

// mdsColumns describes columns by their encodings.
func mdsColumns(columns []mds.Column) []Column {
	out := make([]Column, len(columns))
	for i, c := range columns {
		out[i] = Column{Name: c.Name, Encoding: c.Encoding}
		kind, dims, isArray := strings.Cut(strings.TrimPrefix(c.Encoding, "ndarray:"), ":")
		switch {
		case c.Encoding == "int":
			out[i].DType, out[i].Fixed = "int64", true
		case isNumber(kind) && !strings.HasPrefix(c.Encoding, "ndarray"):
			out[i].DType, out[i].Fixed = kind, true
		case isNumber(kind) && isArray:
			if shape, ok := parseDims(dims); ok {
				out[i].DType, out[i].Shape, out[i].Fixed = kind, shape, true
			}
		}
	}
	return out
}

func isNumber(kind string) bool {
	return slices.Contains([]string{"uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32", "uint64",
		"int64", "float64"}, kind)
}

// parseDims parses a shape such as "2,3".
func parseDims(text string) ([]int64, bool) {
	var out []int64
	for _, dim := range strings.Split(text, ",") {
		n, err := strconv.ParseInt(dim, 10, 64)
		if err != nil || n < 1 {
			return nil, false
		}
		out = append(out, n)
	}
	return out, true
}

// litdataIndex takes the chunks of a litData data set.
func (w *work) litdataIndex(dir, name string, text []byte) error {
	if err := w.settle(name, LitData); err != nil {
		return err
	}
	index, err := litdata.ParseIndex(text, name)
	if err != nil {
		return err
	}
	columns := make([]Column, len(index.Config.Leaves))
	for i, leaf := range index.Config.Leaves {
		columns[i] = Column{Name: leaf.Name, Encoding: leaf.Format}
	}
	if kind, err := index.Config.Tokens(name); err == nil {
		columns[0].DType = kind.Name
		if w.o.Block > 0 {
			columns[0].Shape, columns[0].Fixed = []int64{int64(w.o.Block)}, true
		}
	} else if w.o.Block > 0 {
		return err
	}
	for i := range index.Chunks {
		c := &index.Chunks[i]
		file := Entry{Name: dir + c.Filename, Size: c.Bytes}
		items := c.Items
		if w.o.Block > 0 {
			items = max(c.Dim, 0) / int64(w.o.Block)
		}
		w.parts = append(w.parts, part{file: file, samples: items, table: func(ctx context.Context) (*sample.Table, []Column,
			error) {
			var t *sample.Table
			err := w.with(ctx, file.Name, func(r io.ReaderAt, size int64) (err error) {
				if w.o.Block > 0 {
					t, err = litdata.OpenBlocks(r, size, file.Name, &index.Config, c, w.o.Block)
				} else {
					t, err = litdata.Open(r, size, file.Name, &index.Config, c)
				}
				return err
			})
			return t, columns, err
		}})
	}
	return nil
}
