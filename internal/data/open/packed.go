// SPDX-License-Identifier: Apache-2.0

package open

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/nebulaio/nebulaio/internal/data/mds"
	"github.com/nebulaio/nebulaio/internal/data/megatron"
	"github.com/nebulaio/nebulaio/internal/data/npy"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/data/tfrecord"
	"github.com/nebulaio/nebulaio/internal/data/wds"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
)

// packed takes files that each have many samples.
func (w *work) packed(f Format, files []Entry) error {
	if err := w.settle(files[0].Name, f); err != nil {
		return err
	}
	for _, e := range files {
		w.parts = append(w.parts, part{file: e, table: func(ctx context.Context) (*sample.Table, []Column, error) {
			var t *sample.Table
			var columns []Column
			err := w.with(ctx, e.Name, func(r io.ReaderAt, size int64) (err error) {
				t, columns, err = w.table(ctx, f, r, size, e.Name)
				return err
			})
			return t, columns, err
		}})
	}
	return nil
}

// table lists the samples of one packed file. With an error, the table has the samples before the damage, or is nil.
func (w *work) table(ctx context.Context, f Format, r io.ReaderAt, size int64, name string) (*sample.Table, []Column,
	error) {
	if f == TFRecord || f == Tar && !w.o.Verify {
		r = &tracked{r: r, move: w.advance, end: size}
	}
	switch f {
	case Tar:
		t, err := w.tar(ctx, r, size, name)
		return t, nil, err
	case TFRecord:
		s, err := tfrecord.Open(r, size, name, tfrecord.Options{CheckData: w.o.Verify, Skip: func(err error) bool {
			return w.bad(fmt.Sprintf("record of %s", name), 1, err) == nil
		}})
		if s == nil {
			return nil, nil, err
		}
		return s.Table, nil, err
	case MDS:
		t, err := mds.Open(r, size, name, nil)
		return t, nil, err
	case NPY:
		a, err := npy.Open(r, size, name)
		if err != nil {
			return nil, nil, err
		}
		return a.Table, []Column{{Name: npy.Column, DType: numpyName(a.DType), Shape: a.Shape[1:], Fixed: true}}, nil
	case SafeTensors:
		return rows(r, size, name)
	}
	return nil, nil, errs.New(errs.Invalid, "open data set", name, fmt.Sprintf("is no file of the format %s", f))
}

// tar lists the samples of an archive: from its index, from an index of DALI, or by a scan.
func (w *work) tar(ctx context.Context, r io.ReaderAt, size int64, name string) (*sample.Table, error) {
	var shard *wds.Shard
	index := name + wds.Suffix
	err := w.with(ctx, index, func(ir io.ReaderAt, n int64) (err error) {
		if shard, err = wds.ReadIndex(ir, n, index); err == nil {
			err = shard.Check(r, size)
		}
		return err
	})
	if err == nil {
		return shard.Table, nil
	}
	if !errs.Is(err, errs.NotFound) {
		return w.rescan(r, size, name, remake(err, name))
	}
	dali := strings.TrimSuffix(name, ".tar") + ".idx"
	text, err := w.readAll(ctx, dali, maxIndex)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return nil, err
	}
	if err == nil && strings.HasPrefix(string(text[:min(len(text), 3)]), "v1.") {
		t, err := wds.ReadDALI(text, dali, name, size)
		if err == nil {
			err = wds.CheckDALI(r, dali, t)
		}
		if err != nil {
			return w.rescan(r, size, name, err)
		}
		return t, nil
	}
	shard, err = wds.Open(r, size, name)
	if shard == nil {
		return nil, err
	}
	return shard.Table, err
}

// rescan returns the error about a bad index. If bad ones are skipped, the samples are those that a scan of the archive
// finds, and the error tells about the index.
func (w *work) rescan(r io.ReaderAt, size int64, name string, bad error) (*sample.Table, error) {
	if !w.o.SkipBad || !errs.Is(bad, errs.Corrupt) && !errs.Is(bad, errs.Unsupported) {
		return nil, bad
	}
	shard, err := wds.Open(r, size, name)
	switch {
	case err != nil && !errs.Is(err, errs.Corrupt):
		return nil, err
	case shard == nil:
		return nil, bad
	}
	return shard.Table, bad
}

// remake adds how to make an index again.
func remake(err error, name string) error {
	return errs.New(errs.KindOf(err), "open data set", name, errs.MessageOf(err)).
		WithFix("make the index again with nebulaio index, or remove " + name + wds.Suffix)
}

// megatron takes a data set of the two files STEM.bin and STEM.idx.
func (w *work) megatron(stem string) error {
	if err := w.settle(stem, Megatron); err != nil {
		return err
	}
	bin, idx := stem+".bin", stem+".idx"
	w.parts = append(w.parts, part{file: Entry{Name: bin},
		table: func(ctx context.Context) (*sample.Table, []Column, error) {
			e, _, err := w.place.Stat(ctx, bin)
			if err != nil {
				return nil, nil, err
			}
			var x *megatron.Index
			err = w.with(ctx, idx, func(r io.ReaderAt, size int64) (err error) {
				x, err = megatron.Open(r, size, idx, bin, e.Size, megatron.Options{})
				return err
			})
			if err != nil {
				return nil, nil, err
			}
			c := Column{Name: megatron.Column, DType: numpyName(x.DType)}
			if w.o.Block == 0 {
				return x.Table, []Column{c}, nil
			}
			if !x.Contiguous {
				return nil, nil, errs.New(errs.Unsupported, "open data set", idx,
					"its sequences overlap or have gaps, so the tokens have no order of their own").
					WithFix("read whole documents, without blocks")
			}
			t, err := blocks(bin, e.Size, int64(w.o.Block)*int64(x.DType.Bits()/8))
			c.Shape, c.Fixed = []int64{int64(w.o.Block)}, true
			return t, []Column{c}, err
		}})
	return nil
}

// blocks returns a table of blocks of equal size, which cover the file but for the rest at its end.
func blocks(name string, size, each int64) (*sample.Table, error) {
	t := sample.NewTable(name, size, []string{megatron.Column}, int(size/each))
	for at := int64(0); at+each <= size; at += each {
		if err := t.Add("", sample.Extent{Offset: at, Size: each}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// mostRows is the most rows of the tensors of one file.
const mostRows = 1 << 28

// rows lists the rows of the tensors of a safetensors file. All tensors have the same number of rows, along their first
// dimension.
func rows(r io.ReaderAt, size int64, name string) (*sample.Table, []Column, error) {
	f, err := safetensors.Parse(r, size, name, safetensors.Strict)
	if err != nil {
		return nil, nil, err
	}
	unsupported := func(text string, args ...any) (*sample.Table, []Column, error) {
		return nil, nil, errs.New(errs.Unsupported, "open data set", name, fmt.Sprintf(text, args...)).
			WithFix("read the files whole, with the format files")
	}
	if len(f.Tensors) == 0 {
		return unsupported("has no tensors")
	}
	var names []string
	var columns []Column
	n := int64(-1)
	for _, t := range f.Tensors {
		switch {
		case len(t.Shape) == 0:
			return unsupported("the tensor %.100q is a single number, expected rows", t.Name)
		case n >= 0 && t.Shape[0] != n:
			return unsupported("the tensor %.100q has the shape %v, expected %d rows as the tensor %.100q has", t.Name, t.Shape,
				n, f.Tensors[0].Name)
		}
		if n = t.Shape[0]; n > mostRows {
			return unsupported("the tensor %.100q has %d rows, at most %d are possible", t.Name, n, mostRows)
		}
		if n > 0 && t.Size%n != 0 {
			return unsupported("the rows of the tensor %.100q of type %s do not begin at whole bytes", t.Name, t.DType)
		}
		names = append(names, t.Name)
		c := Column{Name: t.Name, Encoding: string(t.DType), DType: numpyName(t.DType), Shape: t.Shape[1:], Fixed: true}
		if c.DType == "" && n > 0 { // bytes, of which some types have fewer than elements
			c.Shape = []int64{t.Size / n}
		}
		columns = append(columns, c)
	}
	if n*int64(len(names)) > size { // only rows without bytes cost nothing in the file
		return unsupported("%d rows of %d tensors have too few bytes", n, len(names))
	}
	table := sample.NewTable(name, size, names, int(n))
	parts := make([]sample.Extent, len(names))
	for i := range n {
		for c, t := range f.Tensors {
			parts[c] = sample.Extent{Offset: t.Offset + i*(t.Size/n), Size: t.Size / n}
		}
		if err := table.Add("", parts...); err != nil {
			return nil, nil, err
		}
	}
	return table, columns, nil
}

// numpyName returns NumPy's name for a type, or torch's for a type that NumPy does not have, or "" for bytes.
func numpyName(d format.DType) string {
	return map[format.DType]string{format.Bool: "bool", format.U8: "uint8", format.I8: "int8", format.I16: "int16",
		format.U16: "uint16", format.F16: "float16", format.BF16: "bfloat16", format.I32: "int32", format.U32: "uint32",
		format.F32: "float32", format.C64: "complex64", format.F64: "float64", format.I64: "int64",
		format.U64: "uint64"}[d]
}
