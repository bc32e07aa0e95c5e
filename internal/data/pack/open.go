// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/litdata"
	"github.com/nebulaio/nebulaio/internal/data/mds"
	"github.com/nebulaio/nebulaio/internal/data/megatron"
	"github.com/nebulaio/nebulaio/internal/data/npy"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/data/tfrecord"
	"github.com/nebulaio/nebulaio/internal/data/wds"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

// maxIndex is the most bytes of an index that is read.
const maxIndex = 1 << 30

// opener opens the files of a pack.
type opener struct {
	ctx    context.Context
	place  Place
	there  map[string]Entry
	byName map[string]string // relative names by the names that tables have
	kinds  []format.DType    // by file of the set: the type of its .npy parts
	shapes [][]int64         // by file of the set: the shape of its .npy parts, or nil for tokens
}

// OpenPack finds out the format of the pack in a place, and opens it. OpenPack knows tar, MDS, litData, Megatron,
// TFRecord and .npy.
func OpenPack(ctx context.Context, p Place) (*Packed, error) {
	listed, _, err := p.List(ctx)
	if err != nil {
		return nil, err
	}
	o := &opener{ctx: ctx, place: p, there: map[string]Entry{}, byName: map[string]string{}}
	var names []string
	for _, e := range listed {
		if !ours(e.Name) {
			o.there[e.Name] = e
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	tables, err := o.tables(names)
	if err != nil {
		return nil, err
	}
	set, err := dataset.New(tables)
	if err != nil {
		return nil, err
	}
	out := &Packed{Set: set, Tables: tables, Open: o.open, Sums: o.sums}
	if len(o.kinds) > 0 {
		out.Header = o.header
	}
	return out, nil
}

// tables opens all files of the format that the names belong to.
func (o *opener) tables(names []string) ([]*sample.Table, error) {
	if _, ok := o.there[mds.IndexName]; ok {
		return o.indexed()
	}
	var tables []*sample.Table
	kind := ""
	for _, name := range names {
		var t *sample.Table
		var err error
		ext := path.Ext(name)
		switch ext {
		case ".tar":
			t, err = o.tar(name)
		case ".tfrecord", ".tfrecords":
			t, err = o.records(name)
		case ".npy":
			t, err = o.array(name)
		case ".bin":
			t, err = o.tokens(name)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		if kind != "" && kind != ext {
			return nil, errs.New(errs.Invalid, "open pack", o.place.Shown(""), fmt.Sprintf("it has %s and %s files", kind, ext)).
				WithFix("name a folder with one pack")
		}
		kind = ext
		o.byName[t.File()] = name
		tables = append(tables, t)
	}
	if len(tables) == 0 {
		return nil, errs.New(errs.NotFound, "open pack", o.place.Shown(""),
			fmt.Sprintf("none of its %d files is a pack", len(names))).
			WithFix("name a folder with .tar, .tfrecord, .bin and .idx, or .npy files, or with an index.json")
	}
	return tables, nil
}

// fileAt is a file of a place.
type fileAt struct {
	ctx context.Context
	r   Reader
	e   Entry
}

// ReadAt reads a range of the file, as io.ReaderAt describes.
func (f *fileAt) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.r.ReadAt(f.ctx, f.e, b, off)
	if err == nil && n < len(b) {
		err = io.EOF
	}
	return n, err
}

// Close releases the file.
func (f *fileAt) Close() error { return f.r.Close() }

func (o *opener) at(name string) (*fileAt, error) {
	e, ok := o.there[name]
	if !ok {
		return nil, errs.New(errs.NotFound, "open pack", o.place.Shown(name), "the file is missing").
			WithFix("copy the whole pack again")
	}
	return &fileAt{o.ctx, o.place.NewReader(), e}, nil
}

func (o *opener) open(ctx context.Context, shown string) (Opened, error) {
	f, err := o.at(o.byName[shown])
	if err != nil {
		return nil, err
	}
	f.ctx = ctx
	return f, nil
}

// sums returns the checksums in the sidecar of a file, or nil if there is no sidecar.
func (o *opener) sums(ctx context.Context, shown string) (*checksum.Sums, error) {
	e, ok := o.there[o.byName[shown]+checksum.Suffix]
	if !ok {
		return nil, nil
	}
	b, err := readFile(ctx, o.place, e, maxSidecar)
	if err != nil {
		return nil, err
	}
	return checksum.Parse(o.place.Shown(e.Name), b)
}

// header returns the header of a .npy file with the part of a sample.
func (o *opener) header(file int, n int64) ([]byte, error) {
	shape := o.shapes[file]
	if shape == nil {
		shape = []int64{n / int64(o.kinds[file].Bits()/8)}
	}
	return npy.Header(o.kinds[file], shape)
}

// tar opens an archive, by its index if there is one.
func (o *opener) tar(name string) (*sample.Table, error) {
	f, err := o.at(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	index, ok := o.there[name+wds.Suffix]
	if !ok {
		s, err := wds.Open(f, f.e.Size, o.place.Shown(name))
		if err != nil {
			return nil, err
		}
		return s.Table, nil
	}
	r := &fileAt{o.ctx, o.place.NewReader(), index}
	defer r.Close()
	s, err := wds.ReadIndex(r, index.Size, o.place.Shown(index.Name))
	if err != nil {
		return nil, err
	}
	return s.Table, s.Check(f, f.e.Size)
}

// records opens a TFRecord file. Without a sidecar, the CRCs of all records are compared.
func (o *opener) records(name string) (*sample.Table, error) {
	f, err := o.at(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_, sided := o.there[name+checksum.Suffix]
	s, err := tfrecord.Open(f, f.e.Size, o.place.Shown(name), tfrecord.Options{CheckData: !sided})
	if err != nil {
		return nil, err
	}
	return s.Table, nil
}

// array opens a .npy file.
func (o *opener) array(name string) (*sample.Table, error) {
	f, err := o.at(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a, err := npy.Open(f, f.e.Size, o.place.Shown(name))
	if err != nil {
		return nil, err
	}
	shape := a.Shape[1:]
	if len(shape) == 0 {
		shape = []int64{1}
	}
	o.kinds, o.shapes = append(o.kinds, a.DType), append(o.shapes, shape)
	return a.Table, nil
}

// tokens opens a Megatron dataset.
func (o *opener) tokens(name string) (*sample.Table, error) {
	bin, err := o.at(name)
	if err != nil {
		return nil, err
	}
	defer bin.Close()
	idx, err := o.at(strings.TrimSuffix(name, ".bin") + ".idx")
	if err != nil {
		return nil, err
	}
	defer idx.Close()
	x, err := megatron.Open(idx, idx.e.Size, o.place.Shown(idx.e.Name), o.place.Shown(name), bin.e.Size,
		megatron.Options{})
	if err != nil {
		return nil, err
	}
	o.kinds, o.shapes = append(o.kinds, x.DType), append(o.shapes, nil)
	return x.Table, nil
}

// indexed opens the files that an index.json of MDS or litData lists.
func (o *opener) indexed() ([]*sample.Table, error) {
	shown := o.place.Shown(mds.IndexName)
	text, err := readFile(o.ctx, o.place, o.there[mds.IndexName], maxIndex)
	if err != nil {
		return nil, err
	}
	var tables []*sample.Table
	add := func(name string, open func(f *fileAt, shown string) (*sample.Table, error)) error {
		f, err := o.at(name)
		if err != nil {
			return err
		}
		defer f.Close()
		t, err := open(f, o.place.Shown(name))
		if err == nil {
			o.byName[t.File()] = name
			tables = append(tables, t)
		}
		return err
	}
	if !bytes.Contains(text, []byte(`"shards"`)) {
		x, err := litdata.ParseIndex(text, shown)
		if err != nil {
			return nil, err
		}
		for i := range x.Chunks {
			c := &x.Chunks[i]
			if err := add(c.Filename, func(f *fileAt, shown string) (*sample.Table, error) {
				return litdata.Open(f, f.e.Size, shown, &x.Config, c)
			}); err != nil {
				return nil, err
			}
		}
		return tables, nil
	}
	x, err := mds.ParseIndex(text, shown)
	if err != nil {
		return nil, err
	}
	for i := range x.Shards {
		s := &x.Shards[i]
		file := s.Raw.Basename
		if s.Compressed() {
			file = s.Zip.Basename // mds.Open says that it cannot read the file
		}
		if err := add(file, func(f *fileAt, shown string) (*sample.Table, error) {
			return mds.Open(f, f.e.Size, shown, s)
		}); err != nil {
			return nil, err
		}
	}
	return tables, nil
}
