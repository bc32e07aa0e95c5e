// SPDX-License-Identifier: Apache-2.0

package litdata

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/data/chunk"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// TokenType is the type of the tokens of a chunk.
type TokenType struct {
	Name string // such as "int32"
	Size int64  // in bytes
}

// Tokens returns the type of the tokens of a dataset. If the format of the leaf is no format of tokens, the error is of
// kind Unsupported. The parameter `name` is the path or URL for messages.
func (c *Config) Tokens(name string) (TokenType, error) {
	if len(c.Leaves) == 1 {
		serializer, code, _ := strings.Cut(c.Leaves[0].Format, ":")
		if i, err := strconv.ParseUint(code, 10, 8); err == nil {
			types := tokenTypes(serializer)
			if i < uint64(len(types)) {
				return types[i], nil
			}
		}
	}
	format := ""
	if len(c.Leaves) > 0 {
		format = c.Leaves[0].Format
	}
	return TokenType{}, errs.New(errs.Unsupported, operation, name,
		fmt.Sprintf("%d leaves with the format %.100q are no tokens", len(c.Leaves), format)).WithFix(
		"write the dataset again with one tensor or array of whole numbers for each item")
}

// tokenTypes returns the types of a serializer by their codes. The codes of numpy above 10 are left out: they depend on
// the version of litData.
func tokenTypes(serializer string) []TokenType {
	switch serializer {
	case "no_header_tensor":
		return []TokenType{{"float32", 4}, {"float32", 4}, {"float64", 8}, {"float64", 8}, {"complex64", 8}, {"complex64", 8},
			{"complex128", 16}, {"complex128", 16}, {"float16", 2}, {"float16", 2}, {"bfloat16", 2}, {"uint8", 1},
			{"int8", 1}, {"int16", 2}, {"int16", 2}, {"int32", 4}, {"int32", 4}, {"int64", 8}, {"int64", 8}, {"bool", 1},
			{"uint16", 2}}
	case "no_header_numpy":
		return []TokenType{{"int8", 1}, {"int16", 2}, {"int32", 4}, {"int64", 8}, {"uint8", 1}, {"uint16", 2},
			{"uint32", 4}, {"uint64", 8}, {"float16", 2}, {"float32", 4}, {"float64", 8}}
	}
	return nil
}

// OpenBlocks reads a chunk of the TokensLoader as blocks of equal size. A block has `block` tokens and can start and
// end inside of an item. The tokens after the last whole block are in no block. The blocks are those of litData with
// TokensLoader(block_size=block).
func OpenBlocks(r io.ReaderAt, size int64, name string, config *Config, c *Chunk, block int) (*sample.Table, error) {
	f := chunk.File{R: r, Size: size, Name: name, Op: operation}
	if block < 1 {
		return nil, errs.New(errs.Invalid, operation, name, fmt.Sprintf("blocks of %d tokens", block)).WithFix(
			"use blocks of one token or more")
	}
	offsets, err := offsets(f, config, c)
	if err != nil {
		return nil, err
	}
	if !config.tokens(c) {
		return nil, errs.New(errs.Invalid, operation, name, "its items are no tokens").WithFix("open it without blocks")
	}
	kind, err := config.Tokens(name)
	if err != nil {
		return nil, err
	}
	first, last := int64(offsets[0]), int64(offsets[len(offsets)-1])
	if most := (last - first) / kind.Size; c.Dim < 0 || c.Dim > most {
		return nil, f.Corrupt("the index says %d tokens, but there are %d bytes, which is room for %d tokens of type %s",
			c.Dim, last-first, most, kind.Name)
	}
	n := c.Dim / int64(block)
	table := sample.NewTable(name, size, []string{config.Leaves[0].Name}, int(n))
	for i := range n {
		width := int64(block) * kind.Size // no overflow, because there is a block
		if err := table.Add("", sample.Extent{Offset: first + i*width, Size: width}); err != nil {
			return nil, err
		}
	}
	return table, nil
}

// rows returns a table with the tokens of each item.
func rows(f chunk.File, offsets []uint32, config *Config) (*sample.Table, error) {
	kind, err := config.Tokens(f.Name)
	if err != nil {
		return nil, err
	}
	n := len(offsets) - 1
	table := sample.NewTable(f.Name, f.Size, []string{config.Leaves[0].Name}, n)
	for i, start := range offsets[:n] {
		size := int64(offsets[i+1] - start)
		if size%kind.Size != 0 {
			return nil, f.Corrupt("item %d at offset %d has %d bytes, expected a multiple of %d", i, start, size, kind.Size)
		}
		if err := table.Add("", sample.Extent{Offset: int64(start), Size: size}); err != nil {
			return nil, err
		}
	}
	return table, nil
}
