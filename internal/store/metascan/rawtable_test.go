// SPDX-License-Identifier: Apache-2.0

package metascan

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/metafile"
)

// pebbleFiles are the tables and the blob files of a small store.
func pebbleFiles(tb testing.TB) (tables, blobs [][]byte) {
	tb.Helper()
	mem := vfs.NewMem()
	db, err := pebble.Open("meta", metadb.ToolOptions(mem, 1<<20, false))
	if err != nil {
		tb.Fatal(err)
	}
	for i := range 60 {
		value := bytes.Repeat([]byte{byte(i)}, 40*i)
		if err := db.Set(binary.BigEndian.AppendUint32([]byte("key"), uint32(i)), value, pebble.NoSync); err != nil {
			tb.Fatal(err)
		}
	}
	if err := errors.Join(db.Flush(), db.Close()); err != nil {
		tb.Fatal(err)
	}
	names, err := mem.List("meta")
	if err != nil {
		tb.Fatal(err)
	}
	for _, n := range names {
		f, err := mem.Open("meta/" + n)
		if err != nil {
			tb.Fatal(err)
		}
		b, err := io.ReadAll(f)
		if err != nil || f.Close() != nil {
			tb.Fatal(err)
		}
		switch {
		case strings.HasSuffix(n, ".sst"):
			tables = append(tables, b)
		case strings.HasSuffix(n, ".blob"):
			blobs = append(blobs, b)
		}
	}
	if len(tables) == 0 || len(blobs) == 0 {
		tb.Fatalf("%d tables and %d blob files", len(tables), len(blobs))
	}
	return tables, blobs
}

// Whatever is damaged in a table, reading it without its index ends, and gives keys with their own values.
func FuzzRawTable(f *testing.F) {
	tables, _ := pebbleFiles(f)
	for _, b := range tables {
		f.Add(b)
		f.Add(b[:len(b)/2])
		f.Add(append([]byte{1, 2, 3}, b...))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<20 {
			return
		}
		r := &rawTable{ctx: context.Background(), text: text, end: -1, each: func(e Entry) error {
			if i := bytes.TrimPrefix(e.Key, []byte("key")); e.Lost == nil && len(i) == 4 {
				if n := int(binary.BigEndian.Uint32(i)); !bytes.Equal(e.Value, bytes.Repeat([]byte{byte(n)}, 40*n)) {
					t.Fatalf("key %d has another value", n)
				}
			}
			return nil
		}}
		if err := r.run(&metafile.Table{}, errBlockSum); err != nil {
			t.Fatal(err)
		}
	})
}

// Whatever is damaged in a blob file, a value of it is the right one or none.
func FuzzBlobFile(f *testing.F) {
	_, blobs := pebbleFiles(f)
	for _, b := range blobs {
		f.Add(b, uint64(0), uint64(0))
		f.Add(b, uint64(0), uint64(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, at, id uint64) {
		if len(text) > 1<<20 {
			return
		}
		mem := vfs.NewMem()
		file, err := mem.Create("x.blob", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(bytes.Clone(text)); err != nil || file.Close() != nil {
			t.Fatal(err)
		}
		var number uint64
		if n := len(text) - metadb.BlobFooter + metadb.BlobNumberAt; n >= 0 && n+8 <= len(text) {
			number = binary.LittleEndian.Uint64(text[n:])
		}
		b, err := OpenBlob(mem, "x.blob", number)
		if err != nil {
			return
		}
		for size := range uint64(60) {
			v, err := b.Value(&BlobHandle{Block: at, ID: id, Size: 40 * size})
			if err == nil && !bytes.Equal(v, bytes.Repeat([]byte{byte(size)}, int(40*size))) {
				t.Fatalf("a value of %d bytes is another one", len(v))
			}
		}
	})
}
