// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// startBytes is the number of first bytes of a part that inspect shows.
const startBytes = 48

// dataFlags are the flags of inspect for training data.
type dataFlags struct {
	o      nebulaio.DataOptions
	sample int64 // -1 for none
	fs     *pflag.FlagSet
}

func (f *dataFlags) define(fs *pflag.FlagSet) {
	f.fs, f.sample = fs, -1
	formats := nebulaio.DataFormats()
	fs.Var(choice(&f.o.Format, "FORMAT", formats...), "format",
		"format of training data: "+list(formats)+"; a format also shows .safetensors files as training data")
	sample := &value{kind: "N", want: "a whole number of 0 or more", set: func(s string) (err error) {
		if f.sample, err = strconv.ParseInt(s, 10, 64); err != nil || f.sample < 0 {
			return errForm
		}
		return nil
	}}
	fs.Var(sample, "sample", "show the parts of the sample with this number, and their first bytes")
	fs.Var(count(&f.o.Block, 0, 0), "block",
		"number of tokens in a sample, for megatron and litdata; 0 makes a sample of each sequence")
	fs.Var(size(&f.o.MaxSample), "max-sample", "largest size of a part of a sample; 0 means no limit")
	fs.BoolVar(&f.o.Verify, "verify", false,
		"read all training data and compare it with its checksums: FILE.crc64nvme, CRCs of TFRecord, hashes of MDS")
	fs.BoolVar(&f.o.SkipBad, "skip-bad", false, "leave out bad files and samples of training data, and count them")
}

// given reports whether a flag for training data was given.
func (f *dataFlags) given() bool {
	return slices.ContainsFunc([]string{"format", "sample", "block", "max-sample", "verify", "skip-bad"}, f.fs.Changed)
}

// isData reports whether a path is training data and no model. A path that tells nothing is a model, or neither.
func isData(name string) bool {
	base := strings.ToLower(path.Base(name))
	for _, end := range []string{".tar", ".mds", ".tfrecord", ".tfrecords", ".tfrec", ".idx", ".bin", ".npy"} {
		if strings.HasSuffix(base, end) {
			return true
		}
	}
	if base == "index.json" || strings.Contains(base, ".tfrecord-") {
		return true
	}
	if nebulaio.IsObjectURL(name) || strings.HasSuffix(base, ".safetensors") || strings.HasSuffix(base, ".json") {
		return strings.ContainsAny(base, "*?[{")
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		_, err := os.Stat(name + ".idx")
		return strings.ContainsAny(name, "*?[{") || err == nil
	}
	return len(entries) > 0 && !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return strings.HasSuffix(e.Name(), ".safetensors") || strings.HasSuffix(e.Name(), ".safetensors.index.json")
	})
}

// dataJSON describes training data.
type dataJSON struct {
	Path string `json:"path"`
	nebulaio.DataInfo
	// SampleSizes describes whole samples, and ColumnSizes their parts.
	SampleSizes nebulaio.DataSizes   `json:"sample_sizes"`
	ColumnSizes []nebulaio.DataSizes `json:"column_sizes"`
	VerifyAsked bool                 `json:"verify"`
	Sample      *sampleJSON          `json:"sample,omitempty"`
	Seconds     float64              `json:"seconds"` // time to find the samples, and to verify them
}

type sampleJSON struct {
	Number int64      `json:"number"`
	Key    string     `json:"key,omitempty"`
	Parts  []partJSON `json:"parts"`
}

type partJSON struct {
	nebulaio.DataPart
	Start string `json:"start"` // the first bytes in hexadecimal digits
	text  string
}

// inspectData finds the samples of training data and describes them.
func inspectData(ctx context.Context, a *app, name string, f *dataFlags, objects *objectFlags, quiet bool) (r *dataJSON,
	err error) {
	o := f.o
	if o.Client, err = objects.options(a); err != nil {
		return nil, err
	}
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	began := a.Now()
	p := a.startProgress(0, quiet)
	o.Progress = p.update
	d, err := sys.OpenData(ctx, []string{name}, o)
	p.clear()
	if err != nil {
		return nil, interrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	r = &dataJSON{Path: name, DataInfo: d.Info(), VerifyAsked: o.Verify, Seconds: a.Now().Sub(began).Seconds()}
	sizes := d.Sizes()
	r.SampleSizes, r.ColumnSizes = sizes[0], sizes[1:]
	if f.sample >= 0 {
		if r.Sample, err = sampleOf(ctx, d, f.sample); err != nil {
			return nil, interrupted(ctx, err)
		}
	}
	return r, nil
}

// sampleOf describes one sample and reads the first bytes of its parts.
func sampleOf(ctx context.Context, d *nebulaio.Data, n int64) (*sampleJSON, error) {
	s, err := d.Sample(n)
	if err != nil {
		return nil, err
	}
	out := &sampleJSON{Number: n, Key: s.Key, Parts: []partJSON{}}
	for _, p := range s.Parts {
		b, err := d.ReadStart(ctx, n, p.Column, startBytes)
		if err != nil {
			return nil, err
		}
		out.Parts = append(out.Parts, partJSON{DataPart: p, Start: hex.EncodeToString(b), text: string(b)})
	}
	return out, nil
}

func (r *dataJSON) print(w io.Writer) {
	field(w, "path", "%s", printable(r.Path))
	field(w, "format", "%s", r.Format)
	field(w, "samples", "%d", r.Samples)
	field(w, "files", "%d, %s", r.Files, sized(r.Bytes))
	s := r.SampleSizes
	field(w, "sizes", "min %s, median %s, max %s per sample", units.Bytes(s.Min), units.Bytes(s.Median),
		units.Bytes(s.Max))
	parts, aligned := int64(0), int64(0)
	for _, c := range r.ColumnSizes {
		parts, aligned = parts+c.Parts, aligned+c.Aligned
	}
	field(w, "aligned", "%d of %d parts (%s) begin at a multiple of 4096 bytes", aligned, parts, percent(aligned, parts))
	fmt.Fprintf(w, "fingerprint %s\n", r.Fingerprint)
	if r.Ignored > 0 {
		field(w, "ignored", "%s beside the data", plural(r.Ignored, "file"))
	}
	if r.VerifyAsked {
		field(w, "verified", "%d of %s match their checksums; the others have none", r.Verified, plural(r.Files, "file"))
	}
	fmt.Fprintln(w)
	r.printColumns(w)
	if r.Sample != nil {
		fmt.Fprintln(w)
		r.Sample.print(w)
	}
	if r.BadAll == 0 {
		return
	}
	lost := int64(0)
	for _, b := range r.Bad {
		lost += b.Samples
	}
	fmt.Fprintf(w, "\nskipped %s or samples", plural(int(r.BadAll), "bad file"))
	if lost > 0 {
		fmt.Fprintf(w, ", with at least %d samples", lost)
	}
	fmt.Fprintln(w)
	for i, b := range r.Bad {
		if i == 20 {
			fmt.Fprintf(w, "  and %d more; --json lists up to 1000\n", r.BadAll-20)
			break
		}
		fmt.Fprintf(w, "  %s: %s\n", printable(b.Name), printable(b.Reason))
	}
}

func (r *dataJSON) printColumns(w io.Writer) {
	t := newTable("column", "dtype", "shape", "encoding", ">parts", ">min", ">median", ">max")
	for _, sizes := range r.ColumnSizes {
		c := nebulaio.DataColumn{Name: sizes.Column}
		for _, other := range r.Columns {
			if other.Name == c.Name {
				c = other
			}
		}
		dtype, shape, encoding := "bytes", "varies", "-"
		if c.DType != "" {
			dtype = c.DType
		}
		if c.Fixed {
			shape = shapeText(c.Shape)
		}
		if c.Encoding != "" {
			encoding = c.Encoding
		}
		t.add(printable(c.Name), dtype, shape, printable(encoding), strconv.FormatInt(sizes.Parts, 10),
			units.Bytes(sizes.Min), units.Bytes(sizes.Median), units.Bytes(sizes.Max))
	}
	t.print(w)
}

func (s *sampleJSON) print(w io.Writer) {
	key := ""
	if s.Key != "" {
		key = ", key " + printable(s.Key)
	}
	field(w, "sample", "%d%s", s.Number, key)
	t := newTable("column", ">offset", ">size", "file", "first bytes")
	for _, p := range s.Parts {
		t.add(printable(p.Column), strconv.FormatInt(p.Offset, 10), strconv.FormatInt(p.Size, 10), printable(p.File),
			printable(p.text))
	}
	t.print(w)
}

// viewData prints training data if the path or the flags say so. If the path is no model of a bucket, viewData tries
// whether it is training data. The result is false if the path is to be shown as a model.
func viewData(ctx context.Context, a *app, name string, f *dataFlags, objects *objectFlags, asJSON bool,
	otherwise error) (bool, error) {
	if otherwise != nil && (!nebulaio.IsObjectURL(name) || !errs.Is(otherwise, errs.NotFound)) {
		return false, otherwise
	}
	if otherwise == nil && !f.given() && !isData(name) {
		return false, nil
	}
	r, err := inspectData(ctx, a, name, f, objects, asJSON)
	if err != nil && otherwise != nil && errs.Is(err, errs.NotFound) {
		return false, otherwise
	}
	if err != nil {
		return false, err
	}
	return true, a.printResult(asJSON, r, r.print)
}
