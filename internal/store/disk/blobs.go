// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// The end of a blob file: a checksum of the rest, the place of the index, two kinds, the number of the file, a magic word.
const (
	blobFooter   = 38
	blobNumberAt = 22
)

// blobFS shows Pebble only files, and only blob files that are what their names say. Pebble panics where the end of such a file is damaged,
// and where the file is another one it follows numbers that mean nothing there, up to the end of the process.
type blobFS struct{ vfs.FS }

func (f blobFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	number, kind, ok := metaFileNumber(f.PathBase(name))
	if !ok {
		return f.FS.Open(name, opts...)
	}
	file, err := openRegular(f.FS, name, opts...)
	if err != nil {
		return nil, err
	}
	if kind == "blob" {
		if err := checkBlob(file, name, number); err != nil {
			_ = file.Close()
			return nil, err
		}
	}
	return file, nil
}

func (f blobFS) Unwrap() vfs.FS { return f.FS }

// checkBlob compares the end of a blob file with its checksum, and the number in it with that in its name.
func checkBlob(file vfs.File, name string, number uint64) error {
	damaged := func(format string, args ...any) error {
		return errs.New(errs.Corrupt, "read metadata", name, "a file of the metadata is damaged: "+fmt.Sprintf(format, args...)).
			WithFix("stop the server; " + metaFix)
	}
	info, err := file.Stat()
	if err != nil {
		return wrapIO("read metadata", name, err)
	}
	if info.Size() < blobFooter {
		return damaged("it has %d bytes, expected at least %d", info.Size(), blobFooter)
	}
	b := make([]byte, blobFooter)
	if _, err := file.ReadAt(b, info.Size()-blobFooter); err != nil && err != io.EOF {
		return wrapIO("read metadata", name, err)
	}
	if binary.LittleEndian.Uint32(b) != chunkSum(b[4:]) {
		return damaged("its last %d bytes do not have their checksum", blobFooter)
	}
	if n := binary.LittleEndian.Uint64(b[blobNumberAt:]); n != number {
		return damaged("it is the file %06d.blob under another name", n)
	}
	return nil
}
