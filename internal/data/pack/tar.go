// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/data/wds"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// tarShape writes WebDataset archives, with an index of ours beside each.
type tarShape struct {
	options wds.Options
	show    func(string) string
}

func (s *tarShape) name(shard int) string { return fmt.Sprintf("shard-%06d.tar", shard) }

func (s *tarShape) prepare(context.Context, Reader, *loaded) {}

func (s *tarShape) index([]*record) ([]sideFile, error) { return nil, nil }

func (s *tarShape) begin(out *blockFile, name, shown string) (shardWriter, error) {
	w, err := wds.NewWriter(out, shown, s.options)
	return &tarWriter{w: w, name: name, show: s.show}, err
}

// tarWriter writes one archive.
type tarWriter struct {
	w     *wds.Writer
	name  string
	show  func(string) string
	parts []wds.Part
	data  []bytes.Reader
	large []*partReader
}

func (w *tarWriter) add(ctx context.Context, r Reader, one *loaded) (int64, error) {
	w.parts, w.large = w.parts[:0], w.large[:0]
	if cap(w.data) < len(one.parts) {
		w.data = make([]bytes.Reader, len(one.parts))
	}
	for i, p := range one.parts {
		part := wds.Part{Ext: p.ext, Size: p.entry.Size}
		if p.large {
			large := &partReader{ctx: ctx, r: r, e: p.entry, show: w.show}
			part.Data, w.large = large, append(w.large, large)
		} else {
			data := &w.data[:cap(w.data)][i]
			data.Reset(p.data)
			part.Data = data
		}
		w.parts = append(w.parts, part)
	}
	before := w.w.Size()
	_, err := w.w.Add(one.key, w.parts...)
	switch {
	case err == nil:
		return 1, nil
	case w.w.Size() == before && errs.Is(err, errs.Invalid):
		return 0, &badSample{err}
	}
	for _, large := range w.large {
		if large.err != nil {
			return 0, &sourceFault{one.position, large.err}
		}
	}
	return 0, err
}

func (w *tarWriter) close() ([]sideFile, error) {
	shard, err := w.w.Close()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := wds.WriteIndex(&b, shard); err != nil {
		return nil, err
	}
	return []sideFile{{w.name + wds.Suffix, b.Bytes()}}, nil
}
