// SPDX-License-Identifier: Apache-2.0

// Package litdata reads the chunks of litData, the packed form of training data of Lightning.
package litdata

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"github.com/nebulaio/nebulaio/internal/data/chunk"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// IndexName is the name of the index in the directory of a dataset.
const IndexName = "index.json"

// Loaders are the item loaders of litData whose chunks this package reads.
const (
	PyTreeLoader = "PyTreeLoader" // each item has one part for each leaf of a tree of Python objects
	TokensLoader = "TokensLoader" // each item is a row of tokens without a head
)

// mostLeaves is the most leaves of an item.
const mostLeaves = 4096

// Index lists the chunks of a dataset, as index.json has them.
type Index struct {
	Chunks []Chunk
	Config Config
}

// Chunk describes one chunk of a dataset.
type Chunk struct {
	Filename string // relative to the directory of the index, and never outside of it
	Bytes    int64  // size of the chunk before compression; old versions of litData count only the items
	Items    int64  // number of items
	Dim      int64  // number of tokens, or -1 if the items are not tokens
}

// Config describes what all chunks of a dataset have in common.
type Config struct {
	Leaves      []Leaf
	Loader      string // the class of the item loader, or "" in indexes of old versions of litData
	Compression string // such as "zstd", or "" for chunks that are not compressed
	Encryption  string // the algorithm and level, or "" for chunks that are not encrypted
}

// Leaf is a part that each item has.
type Leaf struct {
	// Name is the path to the leaf in an item: keys of dictionaries and positions in lists, separated by dots. If the
	// index does not tell the path, or if two leaves have the same path, Name is the position of the leaf among all.
	Name string
	// Format names the serializer of the leaf, such as "jpeg" or "no_header_tensor:16".
	Format string
}

type document struct {
	Chunks *[]record       `json:"chunks"`
	Config *configRecord   `json:"config"`
	Shards json.RawMessage `json:"shards"`
}

type record struct {
	Filename   string `json:"filename"`
	ChunkBytes *int64 `json:"chunk_bytes"`
	ChunkSize  *int64 `json:"chunk_size"`
	Dim        *int64 `json:"dim"`
}

type configRecord struct {
	Compression *string         `json:"compression"`
	DataFormat  []string        `json:"data_format"`
	DataSpec    json.RawMessage `json:"data_spec"`
	Encryption  json.RawMessage `json:"encryption"`
	ItemLoader  *string         `json:"item_loader"`
}

// ParseIndex parses the bytes of index.json. The parameter `name` is its path or URL for messages. An index of
// compressed or encrypted chunks is valid: Open refuses such chunks.
func ParseIndex(data []byte, name string) (*Index, error) {
	fail := func(format string, args ...any) error {
		return errs.New(errs.Corrupt, "read litData index", name, fmt.Sprintf(format, args...)).WithFix(
			"copy the index again, or write the dataset again with litdata")
	}
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fail("it is not an index in JSON: %v", err)
	}
	if d.Chunks == nil && d.Shards != nil {
		return nil, errs.New(errs.Unsupported, "read litData index", name, "it is an index of MDS shards").WithFix(
			"read the dataset as MDS")
	}
	if d.Chunks == nil || d.Config == nil {
		return nil, fail("it has no chunks or no config, expected both")
	}
	x := &Index{Chunks: make([]Chunk, 0, len(*d.Chunks))}
	for i, r := range *d.Chunks {
		c, why := r.chunk()
		if why != "" {
			return nil, fail("chunk %d: %s", i, why)
		}
		x.Chunks = append(x.Chunks, c)
	}
	var why string
	if x.Config, why = d.Config.config(); why != "" {
		return nil, fail("config: %s", why)
	}
	return x, nil
}

// chunk checks a record of the index, and returns why it is wrong.
func (r *record) chunk() (c Chunk, why string) {
	switch {
	case !chunk.IsBelow(r.Filename):
		return c, fmt.Sprintf("filename %.200q, expected a file in the directory of the index", r.Filename)
	case r.ChunkBytes == nil || *r.ChunkBytes < 0:
		return c, fmt.Sprintf("chunk_bytes is %s, expected 0 or more", number(r.ChunkBytes))
	case r.ChunkSize == nil || *r.ChunkSize < 0 || *r.ChunkSize > math.MaxUint32:
		return c, fmt.Sprintf("chunk_size is %s, expected 0 to %d", number(r.ChunkSize), uint32(math.MaxUint32))
	case r.Dim != nil && *r.Dim < 0:
		return c, fmt.Sprintf("dim is %d, expected 0 or more", *r.Dim)
	}
	c = Chunk{Filename: r.Filename, Bytes: *r.ChunkBytes, Items: *r.ChunkSize, Dim: -1}
	if r.Dim != nil {
		c.Dim = *r.Dim
	}
	return c, ""
}

// config checks the configuration of a dataset, and returns why it is wrong.
func (r *configRecord) config() (c Config, why string) {
	if n := len(r.DataFormat); n == 0 || n > mostLeaves {
		return c, fmt.Sprintf("data_format has %d leaves, expected 1 to %d", n, mostLeaves)
	}
	if r.Compression != nil {
		c.Compression = *r.Compression
	}
	if r.ItemLoader != nil {
		c.Loader = *r.ItemLoader
	}
	c.Encryption = encryption(r.Encryption)
	names := leafNames(r.DataSpec, len(r.DataFormat))
	for i, format := range r.DataFormat {
		c.Leaves = append(c.Leaves, Leaf{Name: names[i], Format: format})
	}
	return c, ""
}

// encryption returns the algorithm and level of an encryption, or "" for none.
func encryption(raw json.RawMessage) string {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var e struct{ Algorithm, Level string }
	if json.Unmarshal(raw, &e) != nil || e.Algorithm == "" {
		return "unknown"
	}
	return e.Algorithm + ", level " + e.Level
}

// number returns how messages show a number that can be missing.
func number(p *int64) string {
	if p == nil {
		return "missing"
	}
	return fmt.Sprint(*p)
}
