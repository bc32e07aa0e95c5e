// SPDX-License-Identifier: Apache-2.0

package metadb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metafile"
)

// BlobFooter is the length in bytes of the footer of a blob file. The footer has a checksum of its other fields, the
// offset and length of the index, the checksum type, the format, the file number and a magic word. BlobNumberAt is the
// offset of the file number in the footer of a blob file.
const (
	BlobFooter   = 38
	BlobNumberAt = 22
)

// blobFS shows Pebble only regular files, and only blob files that match their names. Pebble panics if the end of a
// blob file is damaged. With a wrong blob file Pebble follows meaningless numbers, which can end the process.
type blobFS struct{ vfs.FS }

func (f blobFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	number, kind, ok := metafile.ParseName(f.PathBase(name))
	if !ok {
		return f.FS.Open(name, opts...)
	}
	file, err := layout.OpenRegular(f.FS, name, opts...)
	if err != nil {
		return nil, err
	}
	if kind == "blob" {
		if err := CheckBlob(file, name, number); err != nil {
			_ = file.Close()
			return nil, err
		}
	}
	return file, nil
}

func (f blobFS) Unwrap() vfs.FS { return f.FS }

// CheckBlob compares the footer of a blob file with its checksum, and the file number in the footer with the number in
// the file's name.
func CheckBlob(file vfs.File, name string, number uint64) error {
	damaged := func(format string, args ...any) error {
		return errs.New(errs.Corrupt, "read metadata", name, "a file of the metadata is damaged: "+
			fmt.Sprintf(format, args...)).
			WithFix("stop the server; " + layout.MetaFix)
	}
	info, err := file.Stat()
	if err != nil {
		return layout.WrapIO("read metadata", name, err)
	}
	if info.Size() < BlobFooter {
		return damaged("it has %d bytes, expected at least %d", info.Size(), BlobFooter)
	}
	b := make([]byte, BlobFooter)
	if _, err := file.ReadAt(b, info.Size()-BlobFooter); err != nil && err != io.EOF {
		return layout.WrapIO("read metadata", name, err)
	}
	if binary.LittleEndian.Uint32(b) != metafile.Checksum(b[4:]) {
		return damaged("its last %d bytes do not have their checksum", BlobFooter)
	}
	if n := binary.LittleEndian.Uint64(b[BlobNumberAt:]); n != number {
		return damaged("it is the file %06d.blob under another name", n)
	}
	return nil
}

// CheckBlobs refuses metadata with a missing or damaged blob file. Pebble checks when it opens that its tables exist,
// but opens a blob file only when it reads a value from it.
func CheckBlobs(f vfs.FS, dir string) error {
	meta := f.PathJoin(dir, layout.MetaName)
	name, err := metafile.CurrentManifest(f, meta)
	if err != nil || name == "" {
		return nil // Pebble says so
	}
	file, err := layout.OpenRegular(f, f.PathJoin(meta, name))
	if err != nil {
		return nil
	}
	m, _, err := metafile.ReadManifest(file)
	_ = file.Close()
	if err != nil {
		return nil
	}
	for _, b := range m.Blobs {
		path := f.PathJoin(meta, fmt.Sprintf("%06d.blob", b.Number))
		info, err := f.Stat(path)
		msg := "it is missing"
		if err == nil {
			msg = fmt.Sprintf("it has %d bytes, %d were written", info.Size(), b.Size)
		}
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() != int64(b.Size) {
			return errs.New(errs.Corrupt, "open store", path, "the metadata is damaged: "+msg).WithFix(layout.MetaFix +
				"; nothing was changed")
		}
		if err == nil {
			if file, err := (blobFS{f}).Open(path); err == nil {
				_ = file.Close()
			} else if errs.Is(err, errs.Corrupt) {
				return errs.Wrap("open store", dir, err)
			}
		}
	}
	return nil
}
