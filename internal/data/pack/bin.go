// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/data/megatron"
	"github.com/nebulaio/nebulaio/internal/data/npy"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

// linesPiece is the number of bytes of a .jsonl file that one goroutine encodes at a time.
const linesPiece = 4 << 20

// unknownDocument returns why files with this extension have no documents, or "".
func unknownDocument(ext string) string {
	if slices.Contains([]string{"npy", "bin", "txt", "jsonl"}, ext) {
		return ""
	}
	return fmt.Sprintf("its extension is %.100q, expected .npy or .bin with tokens, or .txt or .jsonl with text", ext)
}

// isLines reports whether a file has a document in each line.
func isLines(ext string) bool { return ext == "jsonl" }

// documents makes units of file i: one, or one for each piece of a .jsonl file.
func (p *plan) documents(i int) {
	f := &p.files[i]
	p.bytes += f.Size
	if !isLines(f.ext) {
		p.units = append(p.units, unit{first: i, count: 1, size: f.Size})
		return
	}
	for at := int64(0); at < f.Size; at += linesPiece {
		p.units = append(p.units, unit{first: i, count: 1, from: at, size: min(linesPiece, f.Size-at)})
	}
}

// newShape returns the format of a pack. For tokens without a type, newShape takes the type of the first file.
func newShape(ctx context.Context, src Place, p *plan, o *Options) (shape, error) {
	switch o.Format {
	case MDS:
		return newMDS(p.columns, o)
	case TFRecord:
		return &recordShape{}, nil
	case Bin:
		if err := o.chooseType(ctx, src, p); err != nil {
			return nil, err
		}
		at := slices.IndexFunc(tokenTypes(), func(t tokenType) bool { return t.dtype == o.DType })
		return &binShape{o: o, token: tokenTypes()[at], show: src.Shown}, nil
	}
	s := &tarShape{show: src.Shown}
	if o.Aligned {
		s.options.Align = 4096
	}
	return s, nil
}

// chooseType sets the type of tokens from the first .npy file.
func (o *Options) chooseType(ctx context.Context, src Place, p *plan) error {
	for i := range p.files {
		f := &p.files[i]
		if (f.ext == "txt" || isLines(f.ext)) && o.Encoder == nil {
			return errs.New(errs.Invalid, "pack", src.Shown(f.Name), "it has text, and no tokenizer is given").
				WithFix("give --tokenizer tokenizer.json")
		}
	}
	if o.DType != "" {
		return nil
	}
	first := slices.IndexFunc(p.files, func(f source) bool { return f.ext == "npy" })
	if raw := slices.IndexFunc(p.files, func(f source) bool { return f.ext == "bin" }); raw >= 0 || first < 0 {
		return errs.New(errs.Invalid, "pack", src.Shown(p.files[max(raw, 0)].Name),
			"a .bin file does not say the type of its tokens").WithFix("give --dtype, such as --dtype uint16")
	}
	r := src.NewReader()
	defer r.Close()
	h, err := npy.Describe(&readerAt{ctx, r, p.files[first].Entry}, p.files[first].Size, src.Shown(p.files[first].Name))
	if err != nil {
		return err
	}
	switch o.DType = h.DType; h.DType {
	case format.U32:
		o.DType = format.I32
	case format.U64:
		o.DType = format.I64
	}
	err = o.checkTokens(func(fix, msg string, args ...any) error {
		return errs.New(errs.Invalid, "pack", src.Shown(p.files[first].Name), fmt.Sprintf(msg, args...)).WithFix(fix)
	})
	return err
}

// readerAt reads one file of a place.
type readerAt struct {
	ctx context.Context
	r   Reader
	e   Entry
}

// ReadAt reads a range of the file.
func (r *readerAt) ReadAt(b []byte, off int64) (int, error) { return r.r.ReadAt(r.ctx, r.e, b, off) }

// binShape writes the indexed datasets of Megatron.
type binShape struct {
	o     *Options
	token tokenType
	show  func(string) string
}

func (s *binShape) name(shard int) string { return fmt.Sprintf("shard-%06d.bin", shard) }

func (s *binShape) index([]*record) ([]sideFile, error) { return nil, nil }

func (s *binShape) begin(out *blockFile, name, shown string) (shardWriter, error) {
	w, err := megatron.NewWriter(out, shown, s.token.dtype, false)
	return &binWriter{shape: s, w: w, name: name}, err
}

// binWriter writes one dataset.
type binWriter struct {
	shape *binShape
	w     *megatron.Writer
	name  string
}

func (w *binWriter) add(ctx context.Context, r Reader, one *loaded) (int64, error) {
	if len(one.parts) > 0 && one.parts[0].large {
		data, err := one.parts[0].bytes(ctx, r)
		if err != nil {
			return 0, &sourceFault{one.position, err}
		}
		one.parts[0].data, one.parts[0].large = data, false
		if w.shape.prepare(ctx, r, one); one.err != nil {
			return 0, &badSample{one.err}
		}
	}
	for _, d := range one.documents {
		if err := w.w.Add(d, 0); err != nil {
			return 0, err
		}
		w.w.EndDocument()
	}
	return int64(len(one.documents)), nil
}

func (w *binWriter) close() ([]sideFile, error) {
	var b bytes.Buffer
	name := strings.TrimSuffix(w.name, ".bin") + ".idx"
	err := w.w.WriteIndex(&b, name)
	return []sideFile{{name, b.Bytes()}}, err
}
