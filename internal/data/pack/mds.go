// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/data/mds"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// keyColumn is the column of MDS samples, and the feature of TFRecord examples, that has the key of the sample.
const keyColumn = "__key__"

// encodingOf returns the encoding of a column, with the size of its values.
func encodingOf(column string, o *Options) (size int64, encoding string) {
	encoding = "bytes"
	if column == keyColumn {
		encoding = "str"
	} else if e := o.Encodings[column]; e != "" {
		encoding = e
	}
	size, _ = mds.EncodingSize(encoding)
	return size, encoding
}

// mdsColumns returns the columns of samples: the key, then all parts.
func mdsColumns(parts []string, o *Options) []mds.Column {
	columns := make([]mds.Column, 0, 1+len(parts))
	for _, name := range append([]string{keyColumn}, parts...) {
		size, encoding := encodingOf(name, o)
		columns = append(columns, mds.Column{Name: name, Encoding: encoding, Size: size})
	}
	return columns
}

// mdsOverhead returns the size of a shard without samples.
func mdsOverhead(parts []string, o *Options) int64 {
	w, err := mds.NewWriter(mdsColumns(parts, o), mds.Options{SizeLimit: o.ShardSize})
	if err != nil {
		return 0 // newShape returns the error
	}
	return w.Size()
}

// mdsShape writes the shards of MosaicML Streaming.
type mdsShape struct {
	columns []mds.Column
	limit   int64
}

func newMDS(parts []string, o *Options) (*mdsShape, error) {
	s := &mdsShape{columns: mdsColumns(parts, o), limit: o.ShardSize}
	_, err := mds.NewWriter(s.columns, mds.Options{SizeLimit: s.limit})
	return s, err
}

func (s *mdsShape) name(shard int) string { return mds.ShardName(shard) }

func (s *mdsShape) prepare(context.Context, Reader, *loaded) {}

func (s *mdsShape) begin(out *blockFile, name, _ string) (shardWriter, error) {
	w, err := mds.NewWriter(s.columns, mds.Options{SizeLimit: s.limit})
	return &mdsWriter{shape: s, w: w, out: out, name: name}, err
}

// index returns index.json, which lists all shards.
func (s *mdsShape) index(records []*record) ([]sideFile, error) {
	var shards []mds.Shard
	for _, r := range records {
		if len(r.Files) > 0 {
			shards = append(shards, mds.Shard{Columns: s.sorted(), Samples: r.Samples, SizeLimit: s.limit,
				Raw: mds.File{Basename: r.Files[0].Name, Bytes: r.Files[0].Size, Hashes: map[string]string{}}})
		}
	}
	var b bytes.Buffer
	err := mds.WriteIndex(&b, shards)
	return []sideFile{{mds.IndexName, b.Bytes()}}, err
}

// sorted returns the columns in the order of shards. The order of the parts is that already.
func (s *mdsShape) sorted() []mds.Column {
	at := 0
	for at < len(s.columns)-1 && s.columns[at+1].Name < keyColumn {
		at++
	}
	sorted := append([]mds.Column{}, s.columns[1:at+1]...)
	return append(append(sorted, s.columns[0]), s.columns[at+1:]...)
}

// mdsWriter writes one shard.
type mdsWriter struct {
	shape *mdsShape
	w     *mds.Writer
	out   *blockFile
	name  string
	parts [][]byte
}

func (w *mdsWriter) add(ctx context.Context, r Reader, one *loaded) (int64, error) {
	w.parts = append(w.parts[:0], []byte(one.key))
	for i := range one.parts {
		data, err := one.parts[i].bytes(ctx, r)
		if err != nil {
			return 0, &sourceFault{one.position, err}
		}
		switch c := w.shape.columns[1+i]; {
		case c.Encoding == "str" && !utf8.Valid(data):
			return 0, refuse("part .%s is no UTF-8, and its encoding is str", c.Name)
		case c.Encoding == "json" && !json.Valid(data):
			return 0, refuse("part .%s is no JSON, and its encoding is json", c.Name)
		}
		w.parts = append(w.parts, data)
	}
	if err := w.w.Add(w.parts...); err != nil {
		if errs.Is(err, errs.Invalid) {
			return 0, &badSample{err}
		}
		return 0, err
	}
	return 1, nil
}

func (w *mdsWriter) close() ([]sideFile, error) {
	_, err := w.w.Flush(w.out, w.name)
	return nil, err
}
