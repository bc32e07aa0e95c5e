// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/data/tfrecord"
)

// recordIndex is appended to the name of a TFRecord file to form the name of its index.
const recordIndex = ".idx"

// recordShape writes TFRecord files of tf.train.Example messages, with a text index beside each.
type recordShape struct{}

func (s *recordShape) name(shard int) string { return fmt.Sprintf("shard-%06d.tfrecord", shard) }

func (s *recordShape) prepare(context.Context, Reader, *loaded) {}

func (s *recordShape) index([]*record) ([]sideFile, error) { return nil, nil }

func (s *recordShape) begin(out *blockFile, name, shown string) (shardWriter, error) {
	w := &recordWriter{name: name}
	w.w = tfrecord.NewWriter(out, &w.index, shown)
	return w, nil
}

// recordWriter writes one TFRecord file.
type recordWriter struct {
	w     *tfrecord.Writer
	name  string
	index bytes.Buffer
	buf   []byte
	parts []feature
}

func (w *recordWriter) add(ctx context.Context, r Reader, one *loaded) (int64, error) {
	w.parts = append(w.parts[:0], feature{keyColumn, []byte(one.key)})
	for i := range one.parts {
		data, err := one.parts[i].bytes(ctx, r)
		if err != nil {
			return 0, &sourceFault{one.position, err}
		}
		w.parts = append(w.parts, feature{one.parts[i].ext, data})
	}
	w.buf = appendExample(w.buf[:0], w.parts)
	if int64(len(w.buf)) > sample.MaxPart {
		return 0, refuse("the record has %d bytes, expected at most %d", len(w.buf), int64(sample.MaxPart))
	}
	err := w.w.Add(w.buf)
	if cap(w.buf) > 2*largePart {
		w.buf = nil
	}
	return 1, err
}

func (w *recordWriter) close() ([]sideFile, error) {
	if err := w.w.Flush(); err != nil {
		return nil, err
	}
	return []sideFile{{w.name + recordIndex, w.index.Bytes()}}, nil
}
