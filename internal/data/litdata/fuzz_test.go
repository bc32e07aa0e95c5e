// SPDX-License-Identifier: Apache-2.0

package litdata_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/chunk"
	"github.com/nebulaio/nebulaio/internal/data/litdata"
)

// FuzzOpen opens arbitrary bytes as items of two leaves, and as tokens. The parts of an accepted chunk with their heads
// are the bytes of the chunk, in order and without gaps.
func FuzzOpen(f *testing.F) {
	for _, name := range [][]string{{"tree", "chunk-0-0.bin"}, {"tokens", "chunk-0-0.bin"}, {"arrow", "chunk-0-0.bin"},
		{"zstd-file", "chunk-0-0.zstd.bin"}} {
		f.Add(load(f, name...), 5)
	}
	f.Add(pack([][][]byte{{[]byte("a"), nil}, {nil, []byte("xyz")}}), 1)
	f.Add(append(pack([][][]byte{{nil, nil}}), "1\x01\x00\x00\x00LDARW01\x00"...), 1)
	f.Fuzz(func(t *testing.T, data []byte, block int) {
		c := litdata.Chunk{Bytes: int64(len(data)), Dim: -1}
		if len(data) >= 4 {
			c.Items = int64(binary.LittleEndian.Uint32(data))
		}
		two := litdata.Config{Loader: litdata.PyTreeLoader, Leaves: []litdata.Leaf{{"a", "bytes"}, {"b", "int"}}}
		if table, err := open(data, two, c); err == nil {
			at := chunk.Start(int(c.Items))
			for i := range table.Len() {
				a, _ := table.Part(i, 0)
				b, _ := table.Part(i, 1)
				if a.Offset != at+8 || b.Offset != a.Offset+a.Size || b.Offset+b.Size > int64(len(data)) {
					t.Fatalf("item %d at %d: %v and %v in a file of %d bytes", i, at, a, b, len(data))
				}
				if head := binary.LittleEndian.Uint64(data[at:]); head != uint64(a.Size)|uint64(b.Size)<<32 {
					t.Fatalf("item %d at %d has the head %x, expected %v and %v", i, at, head, a, b)
				}
				at = b.Offset + b.Size
			}
			if int64(table.Len()) != c.Items {
				t.Fatalf("%d items, expected %d", table.Len(), c.Items)
			}
		}

		tokens := litdata.Config{Loader: litdata.TokensLoader, Leaves: []litdata.Leaf{{"0", "no_header_numpy:5"}}}
		table, err := open(data, tokens, c)
		if err != nil {
			return
		}
		sum := int64(0)
		for i := range table.Len() {
			p, _ := table.Part(i, 0)
			if p.Offset != chunk.Start(int(c.Items))+sum || p.Size%2 != 0 {
				t.Fatalf("item %d is %v after %d bytes", i, p, sum)
			}
			sum += p.Size
		}
		c.Dim = sum / 2
		blocks, err := litdata.OpenBlocks(bytes.NewReader(data), int64(len(data)), "x", &tokens, &c, block)
		if (err == nil) != (block > 0) {
			t.Fatalf("blocks of %d: %v", block, err)
		}
		if err != nil {
			return
		}
		for i := range blocks.Len() {
			if p, _ := blocks.Part(i, 0); p.Size != 2*int64(block) || p.Offset != chunk.Start(int(c.Items))+int64(i)*p.Size {
				t.Fatalf("block %d is %v", i, p)
			}
		}
		if int64(blocks.Len()) != c.Dim/int64(block) {
			t.Fatalf("%d blocks of %d of %d tokens", blocks.Len(), block, c.Dim)
		}
	})
}

// FuzzParseIndex parses arbitrary bytes. The files of an accepted index are below its directory, and its leaves have
// different names.
func FuzzParseIndex(f *testing.F) {
	for _, dataset := range []string{"tree", "old-tree", "tokens", "zstd-batch"} {
		f.Add(load(f, dataset, litdata.IndexName))
	}
	f.Add([]byte(goodIndex))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := litdata.ParseIndex(data, "index.json")
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, leaf := range x.Config.Leaves {
			if seen[leaf.Name] || leaf.Name == "" || len(leaf.Name) > 4096 {
				t.Fatalf("leaf %q", leaf.Name)
			}
			seen[leaf.Name] = true
		}
		for _, c := range x.Chunks {
			if !chunk.IsBelow(c.Filename) || c.Bytes < 0 || c.Items < 0 || c.Dim < -1 || len(seen) == 0 {
				t.Fatalf("chunk %+v", c)
			}
		}
	})
}
