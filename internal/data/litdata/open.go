// SPDX-License-Identifier: Apache-2.0

package litdata

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/data/chunk"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const operation = "read litData chunk"

// Open reads the table of offsets and the heads of all items of a chunk. The result has a column for each leaf, with
// the name of the leaf. The parameter size is the size of the file, and `name` is its path or URL for messages. The
// parameter c is the entry of the index for this file.
//
// Chunks of the TokensLoader have one column, and each item is a row of tokens. To read blocks of equal size, as
// litData does, use OpenBlocks. Compressed, encrypted and Arrow chunks are errors of kind Unsupported.
func Open(r io.ReaderAt, size int64, name string, config *Config, c *Chunk) (*sample.Table, error) {
	f := chunk.File{R: r, Size: size, Name: name, Op: operation}
	offsets, err := offsets(f, config, c)
	if err != nil {
		return nil, err
	}
	if config.tokens(c) {
		return rows(f, offsets, config)
	}

	names, fixed := make([]string, len(config.Leaves)), make([]int64, len(config.Leaves))
	for i, leaf := range config.Leaves {
		names[i] = leaf.Name
	}
	return f.Table(offsets, names, fixed)
}

// offsets checks that the chunk can be read, and reads its table of offsets.
func offsets(f chunk.File, config *Config, c *Chunk) ([]uint32, error) {
	if err := readable(f, config); err != nil {
		return nil, err
	}
	// Old versions of litData count only the bytes of the items.
	head := chunk.Start(int(c.Items))
	if c.Bytes != f.Size && c.Bytes != f.Size-head {
		return nil, f.Corrupt("it has %d bytes, but the index says %d", f.Size, c.Bytes)
	}
	offsets, err := f.Offsets()
	if err != nil {
		return nil, err
	}
	n := len(offsets) - 1
	if c.Items != int64(n) {
		return nil, f.Corrupt("it has %d items, but the index says %d", n, c.Items)
	}
	if first := int64(offsets[0]); first != head {
		return nil, f.Corrupt("its first item is at offset %d, expected %d", first, head)
	}
	if last := int64(offsets[n]); last != f.Size {
		if err := footer(f, last); err != nil {
			return nil, err
		}
		if n > 0 && last == head {
			return nil, unsupported(f, "write the dataset again with items that are tuples, or convert it to another format",
				"its items are rows of an Arrow table")
		}
	}
	return offsets, nil
}

// readable returns an error if the items cannot be read from chunks of this dataset.
func readable(f chunk.File, config *Config) error {
	switch {
	case len(config.Leaves) == 0:
		return errs.New(errs.Invalid, f.Op, f.Name, "the configuration has no leaves").WithFix("use the result of ParseIndex")
	case config.Encryption != "":
		return unsupported(f, "write the dataset again without encryption", "the chunk is encrypted (%s)", config.Encryption)
	case config.Compression != "":
		return unsupported(f, "write the dataset again without compression",
			"the chunk is compressed (%s)", config.Compression)
	case config.Loader != "" && config.Loader != PyTreeLoader && config.Loader != TokensLoader:
		return unsupported(f, "write the dataset again with the PyTreeLoader or the TokensLoader",
			"the chunk is for the item loader %.100q", config.Loader)
	}
	return nil
}

func unsupported(f chunk.File, fix, format string, args ...any) error {
	return errs.New(errs.Unsupported, f.Op, f.Name, fmt.Sprintf(format, args...)).WithFix(fix)
}

// footer checks what follows the last item. New versions of litData append an Arrow table, its size and a mark.
func footer(f chunk.File, last int64) error {
	const mark = "LDARW01\x00"
	end := make([]byte, 4+len(mark))
	if table := f.Size - last - int64(len(end)); table > 0 {
		if err := f.Read(end, f.Size-int64(len(end))); err != nil {
			return err
		}
		if string(end[4:]) == mark && int64(binary.LittleEndian.Uint32(end)) == table {
			return nil
		}
	}
	return f.Corrupt("its items end at offset %d, but the file has %d bytes", last, f.Size)
}

// tokens reports whether the items of a chunk are tokens without a head. Old versions of litData do not name the loader
// in the index, and write each item that is a single tensor in this way.
func (c *Config) tokens(entry *Chunk) bool {
	if c.Loader == "" {
		return len(c.Leaves) == 1 && entry.Dim >= 0
	}
	return c.Loader == TokensLoader
}
