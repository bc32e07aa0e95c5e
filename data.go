// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/nebulaio/nebulaio/internal/data/open"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// DataOptions choose how OpenData reads training data. The zero value recognizes the format.
type DataOptions struct {
	// Format is one of DataFormats; empty means "auto". Folders of .npy or .safetensors files are read as whole files
	// unless Format says that each row is a sample.
	Format string
	// Block makes samples of so many tokens from the tokens of the formats megatron and litdata, across the borders of
	// documents; 0 makes a sample of each sequence.
	Block int
	// MaxSample is the most bytes of one part of a sample; 0 means 4 GiB. A larger part is an error of kind Invalid.
	MaxSample int64
	// Verify reads all data once and compares it with its checksums: FILE.crc64nvme files, the CRCs of TFRecord, and the
	// SHA-1 and SHA-256 hashes in the index of MDS.
	Verify bool
	// SkipBad leaves out missing and damaged files and samples above MaxSample. DataInfo.Bad lists them.
	SkipBad bool
	// Progress, if not nil, is called with bytes while OpenData verifies or scans files. The total is that of all files,
	// or 0 if it is not known. Calls do not overlap.
	Progress func(done, total int64)
	// Client chooses the server of data in a bucket.
	Client ClientOptions
}

// DataFormats returns the names of all formats of training data, "auto" first.
func DataFormats() []string {
	return convert(open.Formats(), func(f open.Format) string { return string(f) })
}

// Data is training data whose indexes have been read: a numbered list of samples. All methods of Data are safe for
// concurrent use.
type Data struct {
	sys   *System
	data  *open.Data
	place *dataPlace
	print func() string // fingerprint, computed once
	mu    sync.Mutex
	uses  int // open loaders
	shut  bool
}

// DataColumn describes one column of the samples.
type DataColumn struct {
	Name string `json:"name"`
	// Encoding is the format's own name for the encoding of the column, such as "jpeg", or empty.
	Encoding string `json:"encoding,omitempty"`
	// DType is NumPy's name for the type of the elements, such as "float32". DType is empty if the column has bytes.
	DType string `json:"dtype,omitempty"`
	// Fixed tells whether all samples have the same Shape. A sample that is a single number has an empty Shape.
	Fixed bool    `json:"fixed"`
	Shape []int64 `json:"shape,omitempty"`
}

// BadData is a file or a sample that OpenData left out.
type BadData struct {
	Name    string `json:"name"`
	Samples int64  `json:"samples,omitempty"` // number of missing samples; 0 if it is not known
	Reason  string `json:"reason"`
	Fix     string `json:"fix,omitempty"`
}

// DataInfo describes training data.
type DataInfo struct {
	Format  string       `json:"format"`
	Samples int64        `json:"samples"`
	Files   int          `json:"files"`
	Bytes   int64        `json:"bytes"` // of all files
	Columns []DataColumn `json:"columns"`
	// Fingerprint is equal for equal data: the same files by name, and the same places of samples. The directories of
	// the files do not matter.
	Fingerprint string `json:"fingerprint"`
	Ignored     int    `json:"ignored,omitempty"` // files beside the data that are no part of it
	// Bad lists the first 1,000 of the files and samples that were left out, and BadAll counts all of them.
	Bad    []BadData `json:"bad,omitempty"`
	BadAll int64     `json:"bad_all,omitempty"`
	// Verified is the number of files that DataOptions.Verify compared with checksums. Other files have none.
	Verified int `json:"verified,omitempty"`
}

// OpenData finds the samples of sources: files, folders, bucket prefixes, patterns such as "*.tar", and names with
// braces such as "s3://bucket/train-{0000..0099}.tar". All sources have the same format and, if they are in buckets,
// the same server. The caller closes the data after its loaders.
func (s *System) OpenData(ctx context.Context, sources []string, o DataOptions) (*Data, error) {
	if err := s.sys.Enter("open data set", ""); err != nil {
		return nil, err
	}
	defer s.sys.Leave()
	place, err := newDataPlace(s, sources, o.Client)
	if err != nil {
		return nil, err
	}
	found, err := open.Open(ctx, place, sources, open.Options{Format: open.Format(o.Format), Block: o.Block,
		MaxSample: o.MaxSample, Verify: o.Verify, SkipBad: o.SkipBad, Progress: o.Progress})
	if err != nil {
		return nil, errors.Join(err, place.Close())
	}
	return &Data{sys: s, data: found, place: place, print: sync.OnceValue(found.Set.Fingerprint)}, nil
}

// Len returns the number of samples.
func (d *Data) Len() int64 { return d.data.Set.Len() }

// Info describes the data. The first call of Info computes the fingerprint.
func (d *Data) Info() DataInfo {
	set := d.data.Set
	info := DataInfo{Format: string(d.data.Format), Samples: set.Len(), Files: set.Files(), Fingerprint: d.print(),
		Ignored: d.data.Ignored, BadAll: d.data.BadAll, Verified: d.data.Verified}
	for i := range set.Files() {
		_, size := set.File(i)
		info.Bytes += size
	}
	info.Columns = d.columns()
	info.Bad = convert(d.data.Bad, func(b open.Bad) BadData {
		return BadData{Name: b.Name, Samples: b.Samples, Reason: errs.MessageOf(b.Why), Fix: errs.FixOf(b.Why)}
	})
	return info
}

// columns describes the columns of the samples.
func (d *Data) columns() []DataColumn {
	return convert(d.data.Columns, func(c open.Column) DataColumn {
		return DataColumn{Name: c.Name, Encoding: c.Encoding, DType: c.DType, Fixed: c.Fixed, Shape: c.Shape}
	})
}

// File returns the name and the size in bytes of file i of the data, from 0 to DataInfo.Files-1.
func (d *Data) File(i int) (name string, size int64, err error) {
	if i < 0 || i >= d.data.Set.Files() {
		return "", 0, errs.New(errs.Invalid, "find file", fmt.Sprint(i), fmt.Sprintf("expected 0 to %d",
			d.data.Set.Files()-1))
	}
	name, size = d.data.Set.File(i)
	return name, size, nil
}

// DataPart is the place of one part of a sample.
type DataPart struct {
	Column string `json:"column"`
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
}

// DataSample describes one sample.
type DataSample struct {
	Number int64      `json:"number"`
	Key    string     `json:"key,omitempty"`
	Parts  []DataPart `json:"parts"`
}

// Sample returns the places of the parts of sample n, from 0 to Len()-1.
func (d *Data) Sample(n int64) (DataSample, error) {
	set := d.data.Set
	if n < 0 || n >= set.Len() {
		return DataSample{}, errs.New(errs.Invalid, "find sample", fmt.Sprint(n), fmt.Sprintf("expected 0 to %d",
			set.Len()-1))
	}
	s := DataSample{Number: n, Key: set.Key(n)}
	for c, column := range set.Columns() {
		if file, e, ok := set.Part(n, c); ok {
			name, _ := set.File(file)
			s.Parts = append(s.Parts, DataPart{Column: column, File: name, Offset: e.Offset, Size: e.Size})
		}
	}
	return s, nil
}

// Keys returns the keys of samples. If a sample has no key in its format, its number takes the place of the key.
func (d *Data) Keys(samples []int64) ([]string, error) {
	set := d.data.Set
	out := make([]string, len(samples))
	for i, n := range samples {
		if n < 0 || n >= set.Len() {
			return nil, errs.New(errs.Invalid, "find sample", fmt.Sprint(n), fmt.Sprintf("expected 0 to %d", set.Len()-1))
		}
		if out[i] = set.Key(n); out[i] == "" {
			out[i] = fmt.Sprint(n)
		}
	}
	return out, nil
}

// Read returns the bytes of one part of sample n in host memory, without a loader. If the sample has no such column,
// the error is of kind NotFound.
func (d *Data) Read(ctx context.Context, n int64, column string) ([]byte, error) {
	return d.ReadStart(ctx, n, column, math.MaxInt64)
}

// ReadStart does what Read does, and returns at most the first `most` bytes.
func (d *Data) ReadStart(ctx context.Context, n int64, column string, most int64) ([]byte, error) {
	s, err := d.Sample(n)
	if err != nil {
		return nil, err
	}
	for _, p := range s.Parts {
		if p.Column == column {
			p.Size = min(p.Size, max(most, 0))
			return d.place.read(ctx, p)
		}
	}
	return nil, errs.New(errs.NotFound, "read sample", d.data.Set.Name(n), fmt.Sprintf("has no part %q", column))
}

// Close ends the use of the data. Close fails with kind Invalid while loaders of the data are open.
func (d *Data) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.uses > 0 {
		return errs.New(errs.Invalid, "close data set", "", fmt.Sprintf("%d of its loaders are open", d.uses)).
			WithFix("close the loaders first")
	}
	if d.shut {
		return nil
	}
	d.shut = true
	return d.place.Close()
}
