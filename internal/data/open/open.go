// SPDX-License-Identifier: Apache-2.0

// Package open finds the samples of training data: it recognizes the format of files, folders and prefixes, and reads
// their indexes.
package open

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/nearest"
)

// Format is a form of training data.
type Format string

// The formats.
const (
	Auto        Format = "auto"        // recognized by names and content
	Tar         Format = "tar"         // WebDataset archives
	MDS         Format = "mds"         // MosaicML Streaming, version 2
	LitData     Format = "litdata"     // chunks of litData
	Megatron    Format = "megatron"    // .bin and .idx
	TFRecord    Format = "tfrecord"    // TFRecord files
	NPY         Format = "npy"         // each row of the arrays is a sample
	SafeTensors Format = "safetensors" // each row of the tensors is a sample
	Files       Format = "files"       // each file is a sample
	Groups      Format = "groups"      // files with the same name up to the first dot are the parts of a sample
)

// Formats returns all formats, Auto first.
func Formats() []Format {
	return []Format{Auto, Tar, MDS, LitData, Megatron, TFRecord, NPY, SafeTensors, Files, Groups}
}

// Options says how data is opened. The zero value recognizes the format.
type Options struct {
	Format Format // "" means Auto
	// Block makes samples of so many tokens from the tokens of Megatron and litData, across the borders of documents;
	// 0 makes a sample of each sequence.
	Block int
	// MaxSample is the most bytes of a part of a sample; 0 means no limit but that of the format. A larger part is an
	// error of kind Invalid.
	MaxSample int64
	// Verify reads all data once and compares it with its checksums. Checksums are FILE.crc64nvme beside a file, the
	// CRCs of TFRecord, and the SHA-1 and SHA-256 hashes in the index of MDS.
	Verify bool
	// SkipBad leaves out files that are missing or damaged and samples above MaxSample, and lists them in Data.Bad.
	SkipBad bool
	// Progress, if not nil, is called while files are verified or scanned. The total is that of all files, or 0 if it is
	// not known. Calls do not overlap.
	Progress func(done, total int64)
}

// Column describes a column of the samples.
type Column struct {
	Name     string
	Encoding string  // how the format calls the encoding, such as "jpeg"; "" if the format does not say
	DType    string  // NumPy's name for the type of the elements, such as "float32", or "" for bytes
	Shape    []int64 // of each sample; nil if samples have different sizes
	Fixed    bool    // whether Shape is known: a number alone has no dimensions
}

// Bad is a file or a sample that was left out.
type Bad struct {
	Name    string // file or sample
	Samples int64  // how many samples are missing; 0 if it is not known
	Why     error
}

// Data is opened training data.
type Data struct {
	Set      *dataset.Set
	Format   Format
	Columns  []Column
	Bad      []Bad // the first of the files and samples that were left out, up to MostBad
	BadAll   int64 // the number of all files and samples that were left out
	Ignored  int   // files that are no part of the data, such as a README beside archives
	Verified int   // files that Options.Verify compared with checksums; the others have none
}

// MostBad is the most entries of Data.Bad. A damaged file can have millions of bad samples.
const MostBad = 1000

// maxBlock is the most tokens of a block. Larger blocks do not fit in a part of a sample.
const maxBlock = sample.MaxPart / 16

// Open finds the samples of sources: files, folders, prefixes, globs, and names with braces such as
// "train-{0000..0099}.tar". All sources have the same format. If there is no sample, the error is of kind NotFound
// or Invalid.
func Open(ctx context.Context, place Place, sources []string, o Options) (*Data, error) {
	if o.Format == "" {
		o.Format = Auto
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if len(sources) == 0 {
		return nil, errs.New(errs.Invalid, "open data set", "", "no file, folder or prefix is named")
	}
	w := &work{place: place, o: o, data: &Data{Format: o.Format}}
	for _, source := range sources {
		if err := (finder{w}).find(ctx, source, len(sources) > 1); err != nil {
			return nil, err
		}
	}
	if err := w.read(ctx); err != nil {
		return nil, err
	}
	slices.SortStableFunc(w.data.Bad, func(a, b Bad) int { return strings.Compare(a.Name, b.Name) })
	return w.data, nil
}

func (o Options) check() error {
	invalid := func(text, fix string) error {
		return errs.New(errs.Invalid, "open data set", "", text).WithFix(fix)
	}
	all := Formats()
	names := make([]string, len(all))
	for i, f := range all {
		names[i] = string(f)
	}
	if !slices.Contains(all, o.Format) {
		return invalid(fmt.Sprintf("the format %.50q is not known, expected one of %q%s", o.Format, names,
			nearest.Hint(string(o.Format), names...)), "use one of these formats, or auto")
	}
	if o.Block < 0 || o.Block > maxBlock {
		return invalid(fmt.Sprintf("blocks of %d tokens, expected 0 to %d", o.Block, maxBlock), "use 0 for whole documents")
	}
	if o.MaxSample < 0 {
		return invalid(fmt.Sprintf("samples of at most %d bytes, expected 0 or more", o.MaxSample), "use 0 for no limit")
	}
	return nil
}

// work is an Open in progress.
type work struct {
	place Place
	o     Options
	data  *Data
	parts []part         // packed files, in order
	loose []looseFile    // files that are samples or parts of samples
	known map[string]int // columns of Data by name
	mu    sync.Mutex     // of Data.Bad, Data.BadAll, Data.Verified and done

	done, total int64 // bytes, for Progress
}

// part is a packed file that is still to be read.
type part struct {
	file    Entry
	samples int64             // as an index of all files says; 0 if it is not known
	hashes  map[string]string // of the file, by algorithm, as the index says
	table   func(ctx context.Context) (*sample.Table, []Column, error)
}

// settle sets the format, or says that two sources have different formats.
func (w *work) settle(source string, f Format) error {
	if w.data.Format == Auto {
		w.data.Format = f
	}
	if w.o.Block > 0 && f != Megatron && f != LitData {
		return errs.New(errs.Invalid, "open data set", source,
			fmt.Sprintf("blocks of %d tokens of the format %s", w.o.Block, f)).
			WithFix("use blocks only with the tokens of megatron and litdata")
	}
	if w.data.Format == f {
		return nil
	}
	return errs.New(errs.Invalid, "open data set", source,
		fmt.Sprintf("has the format %s, expected %s", f, w.data.Format)).
		WithFix("open data of different formats by itself")
}

// bad keeps the reason why a file or a sample is left out, or returns the reason as an error.
func (w *work) bad(name string, samples int64, err error) error {
	if !w.o.SkipBad || !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Corrupt) && !errs.Is(err, errs.Invalid) &&
		!errs.Is(err, errs.Unsupported) {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.data.BadAll++; len(w.data.Bad) < MostBad {
		w.data.Bad = append(w.data.Bad, Bad{Name: name, Samples: samples, Why: err})
	}
	return nil
}

// column adds a column's description. If files describe a column differently, only its name is left.
func (w *work) column(c Column) {
	if w.known == nil {
		w.known = map[string]int{}
	}
	i, there := w.known[c.Name]
	if !there {
		w.known[c.Name] = len(w.data.Columns)
		w.data.Columns = append(w.data.Columns, c)
		return
	}
	have := &w.data.Columns[i]
	if have.Encoding != c.Encoding {
		have.Encoding = ""
	}
	if have.DType != c.DType {
		have.DType, have.Shape, have.Fixed = "", nil, false
	}
	if have.Fixed != c.Fixed || !slices.Equal(have.Shape, c.Shape) {
		have.Shape, have.Fixed = nil, false
	}
}
