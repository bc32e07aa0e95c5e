// SPDX-License-Identifier: Apache-2.0

// Package preview describes the content of objects for the console: the tensors of safetensors files, the samples of
// packed training data, and the beginning of texts.
//
// Objects are not trusted. A preview reads a bounded number of bytes, and its result has a bounded size.
package preview

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/data/mds"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/data/tfrecord"
	"github.com/nebulaio/nebulaio/internal/data/wds"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Kind is a kind of preview.
type Kind string

// The kinds of previews.
const (
	SafeTensors Kind = "safetensors"
	Pack        Kind = "pack"
	Text        Kind = "text"
	None        Kind = "none"
)

// Limits of a preview.
const (
	MaxHeader  = 16 << 20 // bytes of the header of a safetensors file
	MaxRead    = 24 << 20 // bytes that are read of one object
	MaxTensors = 2000     // tensors in the result
	MaxSamples = 200      // samples in the result
	MaxText    = 64 << 10 // bytes of a text
	maxFields  = 64       // parts of one sample in the result
	maxMeta    = 64       // entries of a file's metadata in the result
	maxValue   = 1024     // bytes of one value of the metadata
	blockSize  = 256 << 10
)

// Result is a preview. Only the fields of its kind are set.
type Result struct {
	Kind       Kind              `json:"kind"`
	Why        string            `json:"why,omitempty"` // why there is no preview
	Format     string            `json:"format,omitempty"`
	Tensors    []Tensor          `json:"tensors,omitempty"`
	Samples    []Sample          `json:"samples,omitempty"`
	Total      int64             `json:"total"` // number of tensors or samples; -1 if it is not known
	Parameters int64             `json:"parameters,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Text       string            `json:"text,omitempty"`
	Truncated  bool              `json:"truncated"`
}

// Tensor is one tensor of a file.
type Tensor struct {
	Name   string  `json:"name"`
	DType  string  `json:"dtype"`
	Shape  []int64 `json:"shape"`
	Bytes  int64   `json:"bytes"`
	Offset int64   `json:"offset"`
}

// Sample is one sample of packed training data.
type Sample struct {
	Key    string  `json:"key"`
	Fields []Field `json:"fields"`
}

// Field is one part of a sample.
type Field struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// formats has the formats of packed data by the end of a key.
func formatOf(key string) string {
	base := strings.ToLower(path.Base(key))
	switch {
	case strings.HasSuffix(base, ".tar"):
		return "tar"
	case strings.HasSuffix(base, ".mds"):
		return "mds"
	case strings.HasSuffix(base, ".tfrecord"), strings.HasSuffix(base, ".tfrecords"), strings.HasSuffix(base, ".tfrec"),
		strings.Contains(base, ".tfrecord-"):
		return "tfrecord"
	}
	return ""
}

// KindOf returns the kind of preview that an object probably has, by its key, its content type and its size in bytes.
func KindOf(key, contentType string, size int64) Kind {
	switch lower := strings.ToLower(key); {
	case size == 0:
		return None
	case strings.HasSuffix(lower, ".safetensors"):
		return SafeTensors
	case formatOf(key) != "":
		return Pack
	case strings.HasPrefix(contentType, "text/"), contentType == "application/json", isTextName(lower):
		return Text
	}
	return None
}

func isTextName(lower string) bool {
	for _, end := range []string{".txt", ".json", ".jsonl", ".md", ".csv", ".tsv", ".yaml", ".yml", ".log", ".xml", ".py",
		".toml", ".sh"} {
		if strings.HasSuffix(lower, end) {
			return true
		}
	}
	return false
}

// Read returns the bytes of a range of the object.
type Read func(ctx context.Context, off, n int64) (io.ReadCloser, error)

// Of returns the preview of an object. An object that is damaged or has another form gives a Result of the kind None
// with the reason. Of fails only if the object cannot be read.
func Of(ctx context.Context, kind Kind, key string, size int64, read Read) (*Result, error) {
	src := &source{ctx: ctx, read: read, size: size}
	var r *Result
	var err error
	switch kind {
	case SafeTensors:
		r, err = tensors(src, key)
	case Pack:
		r, err = samples(src, key)
	case Text:
		r, err = text(src)
	default:
		return none("there is no preview of this kind of object"), nil
	}
	if src.failed != nil {
		return nil, src.failed
	}
	if err != nil {
		return none(errs.MessageOf(err)), nil
	}
	return r, nil
}

func none(why string) *Result { return &Result{Kind: None, Why: why} }

// tensors reads the header of a safetensors file.
func tensors(src *source, key string) (*Result, error) {
	var length [8]byte
	if src.size < int64(len(length)) {
		return none(fmt.Sprintf("the file has %d bytes; a safetensors file has at least 8", src.size)), nil
	}
	if _, err := src.ReadAt(length[:], 0); err != nil {
		return nil, err
	}
	// The parser would accept a longer header, and needs several times its size in memory.
	if n := binary.LittleEndian.Uint64(length[:]); n > MaxHeader {
		return none(fmt.Sprintf("the header has %d bytes; a preview reads at most %s", n, units.Bytes(MaxHeader))), nil
	}
	f, err := safetensors.Parse(src, src.size, path.Base(key), safetensors.Lenient)
	if err != nil {
		return nil, err
	}
	r := &Result{Kind: SafeTensors, Total: int64(len(f.Tensors)), Tensors: []Tensor{}, Metadata: map[string]string{}}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		n := int64(1)
		for _, d := range t.Shape {
			n *= d // Parse has checked that it does not overflow
		}
		r.Parameters += n
		if i < MaxTensors {
			r.Tensors = append(r.Tensors, Tensor{t.Name, string(t.DType), append([]int64{}, t.Shape...), t.Size, t.Offset})
		}
	}
	for k, v := range f.Metadata {
		if len(r.Metadata) == maxMeta {
			r.Truncated = true
			break
		}
		r.Metadata[clip(k)] = clip(v)
	}
	r.Truncated = r.Truncated || len(f.Tensors) > MaxTensors
	return r, nil
}

func clip(s string) string {
	if len(s) <= maxValue {
		return s
	}
	return strings.ToValidUTF8(s[:maxValue], "") + "…"
}

// samples lists the first samples of packed data.
func samples(src *source, key string) (*Result, error) {
	format, name := formatOf(key), path.Base(key)
	var table *sample.Table
	var err error
	switch format {
	case "tar":
		var s *wds.Shard
		if s, err = wds.Open(src, src.size, name); s != nil {
			table = s.Table
		}
	case "tfrecord":
		var s *tfrecord.Shard
		if s, err = tfrecord.Open(src, src.size, name, tfrecord.Options{}); s != nil {
			table = s.Table
		}
	case "mds":
		table, err = mds.Open(src, src.size, name, nil)
	default:
		return none("the name does not tell the format of the samples"), nil
	}
	if err != nil && (table == nil || !src.spent) {
		return nil, err
	}
	r := &Result{Kind: Pack, Format: format, Total: int64(table.Len()), Samples: []Sample{}, Truncated: err != nil}
	if err != nil {
		r.Total = -1 // the scan ended at the limit of bytes
	}
	for i := range min(table.Len(), MaxSamples) {
		one := Sample{Key: clip(table.Key(i)), Fields: []Field{}}
		for c, column := range table.Columns() {
			if e, ok := table.Part(i, c); ok && len(one.Fields) < maxFields {
				one.Fields = append(one.Fields, Field{clip(column), e.Size})
			}
		}
		r.Samples = append(r.Samples, one)
	}
	r.Truncated = r.Truncated || table.Len() > MaxSamples
	return r, nil
}

// text returns the beginning of a text.
func text(src *source) (*Result, error) {
	b := make([]byte, min(src.size, MaxText))
	if _, err := src.ReadAt(b, 0); err != nil {
		return nil, err
	}
	short := int64(len(b)) < src.size
	for range utf8.UTFMax { // the limit may have cut a character
		if r, n := utf8.DecodeLastRune(b); short && r == utf8.RuneError && n == 1 {
			b = b[:len(b)-1]
		}
	}
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		return none("the content is no text in UTF-8"), nil
	}
	return &Result{Kind: Text, Text: string(b), Total: src.size, Truncated: short}, nil
}
