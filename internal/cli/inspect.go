// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
	"github.com/nebulaio/nebulaio/internal/units"
)

// inspectJSON describes the headers of a model.
type inspectJSON struct {
	Path   string            `json:"path"`
	Index  string            `json:"index,omitempty"` // the index file of a sharded model
	Files  []inspectFileJSON `json:"files"`
	Totals totalsJSON        `json:"totals"`
}

type inspectFileJSON struct {
	Path      string                `json:"path"`
	Size      int64                 `json:"size"`
	DataStart int64                 `json:"data_start"`
	Alignment int64                 `json:"alignment"` // largest power of two that divides data_start
	Tensors   []inspectTensorJSON   `json:"tensors"`
	Totals    totalsJSON            `json:"totals"`
	Metadata  map[string]string     `json:"metadata"`
	Problems  []safetensors.Problem `json:"problems"`
	// Checksum is present if --checksum wrote a sidecar.
	Checksum *checksumJSON `json:"checksum,omitempty"`
}

type inspectTensorJSON struct {
	format.Tensor
	Alignment int64 `json:"alignment"` // largest power of two that divides offset
}

type totalsJSON struct {
	Tensors  int          `json:"tensors"`
	Elements int64        `json:"elements"`
	Bytes    int64        `json:"bytes"`
	DTypes   []dtypeTotal `json:"dtypes"` // largest first
}

type dtypeTotal struct {
	DType    format.DType `json:"dtype"`
	Tensors  int          `json:"tensors"`
	Elements int64        `json:"elements"`
	Bytes    int64        `json:"bytes"`
}

func newInspect(a *app) *cobra.Command {
	var lenient, sum, asJSON bool
	var objects objectFlags
	var data dataFlags
	cmd := &cobra.Command{
		Use:   "inspect PATH",
		Short: "Check a model's headers or training data, and describe the content",
		Long: `Check a model's headers and list its files and tensors. Without --checksum, the
command reads no tensor data.

PATH is a .safetensors file, the index of a sharded model, or a model directory.
PATH can also be s3://BUCKET/KEY on the server that --endpoint names.

If PATH is training data, the command finds its samples. The command then shows
the format, the columns, the sizes of samples, and how many parts are aligned for
direct reads. Training data is a file, folder, prefix or pattern: archives (.tar),
.mds, .tfrecord, .npy, .bin with .idx, litData, or any other files. With one of
the flags from --format to --skip-bad, PATH is always training data.

With --checksum every file of the model is read whole. For each FILE of the model,
the command writes FILE.crc64nvme beside it, with one checksum per block of 1 MiB.
The command nebulaio load --verify compares each file with its checksums.`,
		Args: onePath("one model file, index or directory, or training data"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if done, err := viewData(ctx, a, args[0], &data, &objects, asJSON, nil); done || err != nil {
				return err
			}
			r, err := a.inspect(ctx, args[0], lenient, &objects)
			if err != nil {
				_, err := viewData(ctx, a, args[0], &data, &objects, asJSON, err)
				return err
			}
			if sum && nebulaio.IsObjectURL(args[0]) {
				return errs.New(errs.Unsupported, "checksum", args[0],
					"it lies in a bucket, and FILE.crc64nvme is only written beside local files").
					WithFix("omit --checksum; the server already has checksums of every object")
			}
			if sum {
				if err := a.checksum(ctx, r, asJSON); err != nil {
					return err
				}
			}
			return a.printResult(asJSON, r, r.print)
		}),
	}
	cmd.Flags().BoolVar(&lenient, "lenient", false,
		"also accept headers that the Python package safetensors accepts but nebulaio refuses by default")
	cmd.Flags().BoolVar(&sum, "checksum", false,
		"read every file of the model whole and write its checksums to FILE.crc64nvme beside it")
	data.define(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	objects.define(cmd.Flags())
	return cmd
}

// inspect reads the headers of a local model or of a model in a bucket.
func (a *app) inspect(ctx context.Context, path string, lenient bool, objects *objectFlags) (*inspectJSON, error) {
	if !nebulaio.IsObjectURL(path) {
		return inspect(ctx, path, lenient)
	}
	o, err := objects.options(a)
	if err != nil {
		return nil, err
	}
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		return nil, err
	}
	defer sys.Close()
	src, err := sys.OpenSource(ctx, path, nebulaio.SourceOptions{Device: string(device.Host), Lenient: lenient, Client: o})
	if err != nil {
		return nil, interrupted(ctx, err)
	}
	defer src.Close()
	return describe(path, src.Index(), parsed(src.Headers())), nil
}

// parsed returns headers in the form of the parser.
func parsed(headers []nebulaio.Header) []*format.File {
	var out []*format.File
	for _, h := range headers {
		f := &format.File{Path: h.Path, Size: h.Size, DataStart: h.DataStart, Metadata: h.Metadata}
		for _, t := range h.Tensors {
			f.Tensors = append(f.Tensors, format.Tensor{Name: t.Name, DType: format.DType(t.DType), Shape: t.Shape,
				Offset: t.Offset, Size: t.Size})
		}
		out = append(out, f)
	}
	return out
}

func inspect(ctx context.Context, path string, lenient bool) (*inspectJSON, error) {
	paths, index, err := safetensors.Resolve(path)
	if err != nil {
		return nil, err
	}
	mode := safetensors.Strict
	if lenient {
		mode = safetensors.Lenient
	}
	var files []*format.File
	for _, p := range paths {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		f, err := safetensors.ParseFile(p, mode)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	name := ""
	if index != nil {
		name = index.Path
		if err := index.Check(files); err != nil {
			return nil, err
		}
	} else if err := safetensors.CheckApart(path, files); err != nil {
		return nil, err
	}
	return describe(path, name, files), nil
}

// describe converts the headers of a model's files.
func describe(path, index string, files []*format.File) *inspectJSON {
	r := &inspectJSON{Path: path, Index: index}
	var all []format.Tensor
	for _, f := range files {
		r.Files = append(r.Files, inspectFile(f))
		all = append(all, f.Tensors...)
	}
	r.Totals = totals(all)
	return r
}

func inspectFile(f *format.File) inspectFileJSON {
	out := inspectFileJSON{Path: f.Path, Size: f.Size, DataStart: f.DataStart, Alignment: alignment(f.DataStart),
		Tensors: []inspectTensorJSON{}, Totals: totals(f.Tensors),
		Metadata: map[string]string{}, Problems: []safetensors.Problem{}}
	for _, t := range f.Tensors {
		out.Tensors = append(out.Tensors, inspectTensorJSON{Tensor: t, Alignment: alignment(t.Offset)})
	}
	maps.Copy(out.Metadata, f.Metadata)
	out.Problems = append(out.Problems, safetensors.Inspect(f)...)
	return out
}

// alignment returns the largest power of two that divides off. off is never 0,
// because a header comes first.
func alignment(off int64) int64 { return off & -off }

func totals(ts []format.Tensor) totalsJSON {
	sum := totalsJSON{DTypes: []dtypeTotal{}}
	by := map[format.DType]*dtypeTotal{}
	for _, t := range ts {
		n := int64(1)
		for _, d := range t.Shape {
			n *= d // the parser has checked that this does not overflow
		}
		d := by[t.DType]
		if d == nil {
			d = &dtypeTotal{DType: t.DType}
			by[t.DType] = d
		}
		d.Tensors, d.Elements, d.Bytes = d.Tensors+1, d.Elements+n, d.Bytes+t.Size
		sum.Tensors, sum.Elements, sum.Bytes = sum.Tensors+1, sum.Elements+n, sum.Bytes+t.Size
	}
	for _, d := range by {
		sum.DTypes = append(sum.DTypes, *d)
	}
	slices.SortFunc(sum.DTypes, func(a, b dtypeTotal) int {
		if a.Bytes != b.Bytes {
			return int(max(-1, min(1, b.Bytes-a.Bytes)))
		}
		return strings.Compare(string(a.DType), string(b.DType))
	})
	return sum
}

func (r *inspectJSON) print(w io.Writer) {
	if r.Index != "" {
		field(w, "index", "%s, %s", printable(r.Index), plural(len(r.Files), "file"))
		fmt.Fprintln(w)
	}
	for _, f := range r.Files {
		f.print(w)
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "total %s, %d elements, %s\n", plural(r.Totals.Tensors, "tensor"), r.Totals.Elements,
		sized(r.Totals.Bytes))
	r.Totals.print(w)
}

func (f inspectFileJSON) print(w io.Writer) {
	field(w, "file", "%s", printable(f.Path))
	field(w, "size", "%s", sized(f.Size))
	field(w, "data", "from byte %d, aligned to %d", f.DataStart, f.Alignment)
	field(w, "tensors", "%d", f.Totals.Tensors)
	if c := f.Checksum; c != nil {
		field(w, "checksum", "wrote %s: %s of %s, in %s", printable(c.Path), plural(c.Blocks, "block"),
			units.Bytes(c.Block), seconds(c.Seconds))
	}
	for _, k := range slices.Sorted(maps.Keys(f.Metadata)) {
		field(w, "metadata", "%s = %s", printable(k), printable(f.Metadata[k]))
	}
	if len(f.Tensors) > 0 {
		fmt.Fprintln(w)
		t := newTable("name", "dtype", "shape", ">offset", ">size", ">alignment")
		for _, x := range f.Tensors {
			t.add(printable(x.Name), string(x.DType), shapeText(x.Shape), strconv.FormatInt(x.Offset, 10),
				strconv.FormatInt(x.Size, 10), strconv.FormatInt(x.Alignment, 10))
		}
		t.print(w)
	}
	for _, p := range f.Problems {
		line := string(p.Severity) + ": "
		if p.Tensor != "" {
			line += "tensor " + strconv.Quote(p.Tensor) + ": "
		}
		line += printable(p.Text)
		if p.Fix != "" {
			line += "; fix: " + printable(p.Fix)
		}
		fmt.Fprintln(w, line)
	}
}

func (s totalsJSON) print(w io.Writer) {
	if len(s.DTypes) == 0 {
		return
	}
	t := newTable("dtype", ">tensors", ">elements", ">size")
	for _, d := range s.DTypes {
		t.add(string(d.DType), strconv.Itoa(d.Tensors), strconv.FormatInt(d.Elements, 10), units.Bytes(d.Bytes))
	}
	t.print(w)
}

// shapeText formats a shape as the headers do: [2,3], and [] for a scalar.
func shapeText(shape []int64) string {
	var dims []string
	for _, d := range shape {
		dims = append(dims, strconv.FormatInt(d, 10))
	}
	return "[" + strings.Join(dims, ",") + "]"
}
