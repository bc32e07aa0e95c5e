// SPDX-License-Identifier: Apache-2.0

package checksum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	magic      = "NIOCRC64"
	version    = 1
	headSize   = 40
	tailSize   = 8
	maxSidecar = headSize + 8*MaxBlocks + tailSize
)

// Encode returns the checksums in the format of a sidecar.
func (s *Sums) Encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, headSize+8*len(s.Blocks)+tailSize)
	b = append(b, magic...)
	for _, v := range []uint64{version, uint64(s.Size), uint64(s.Block), uint64(len(s.Blocks))} {
		b = le.AppendUint64(b, v)
	}
	for _, v := range s.Blocks {
		b = le.AppendUint64(b, v)
	}
	return le.AppendUint64(b, Of(b))
}

// Parse parses the content b of a sidecar. Errors show the parameter `name` as the sidecar's name. A wrong format is
// an error of kind Corrupt; an unknown format version is an error of kind Unsupported. Parse allocates at most len(b)
// bytes for the checksums.
func Parse(name string, b []byte) (*Sums, error) {
	bad := func(format string, args ...any) (*Sums, error) {
		return nil, errs.New(errs.Corrupt, "read checksums", name,
			fmt.Sprintf(format, args...)).WithFix("remove it and make it anew with: nebulaio inspect PATH --checksum")
	}
	if len(b) < headSize+tailSize {
		return bad("has %d bytes and is truncated; expected at least %d", len(b), headSize+tailSize)
	}
	if string(b[:8]) != magic {
		return bad("begins with %q, expected %q: it is no file of checksums", b[:8], magic)
	}
	word := func(off int) uint64 { return binary.LittleEndian.Uint64(b[off:]) }
	if v := word(8); v != version {
		return nil, errs.New(errs.Unsupported, "read checksums", name,
			fmt.Sprintf("has version %d, expected %d", v, version)).
			WithFix("use a newer nebulaio, or make it anew with: nebulaio inspect PATH --checksum")
	}
	size, block, count := int64(word(16)), int64(word(24)), word(32)
	if size < 0 {
		return bad("says that the file has %d bytes", uint64(size))
	}
	if err := checkBlock(block); err != nil {
		return bad("has block size %d, expected a power of two from %d to %d", uint64(block), MinBlock, MaxBlock)
	}
	if want := uint64(blocksOf(size, block)); count != want || count > MaxBlocks {
		return bad("has %d blocks for %d bytes in blocks of %d, expected %d and at most %d", count, size, block, want,
			MaxBlocks)
	}
	if want := headSize + 8*int(count) + tailSize; len(b) < want {
		return bad("has %d bytes and is truncated; expected %d", len(b), want)
	} else if len(b) > want {
		return bad("has %d bytes, expected %d: something follows the checksums", len(b), want)
	}
	end := len(b) - tailSize
	if got := Of(b[:end]); got != word(end) {
		return bad("is damaged: its own checksum is %016x, expected %016x", got, word(end))
	}
	s := &Sums{Size: size, Block: block, Blocks: make([]uint64, count)}
	for i := range s.Blocks {
		s.Blocks[i] = word(headSize + 8*i)
	}
	return s, nil
}

// Write writes the sidecar of file atomically and durably, and returns the sidecar's path. An existing sidecar stays
// in place until the new sidecar replaces it. If file was replaced after Compute read it, the error is of kind IO.
func (s *Sums) Write(file string) (string, error) {
	const op = "write checksums"
	name := Path(file)
	if err := CheckName(file); err != nil {
		return name, err
	}
	dir := filepath.Dir(name)
	temp := filepath.Join(dir, fmt.Sprintf(".%s.%016x.tmp", filepath.Base(name), rand.Uint64()))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return name, wrap(op, name, err)
	}
	_, err = f.Write(s.Encode())
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil && s.replaced(file) {
		err = errs.New(errs.IO, "", "",
			file+" was replaced while it was being read").WithFix("run it again when nobody saves to the file")
	}
	if err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		_ = os.Remove(temp)
		return name, wrap(op, name, err)
	}
	if s.replaced(file) { // the file was replaced just now: wrong sums are worse than none
		_, err := Forget(file)
		return name, errors.Join(errs.New(errs.IO, op, name,
			file+" was replaced at the same moment").WithFix("run it again when nobody saves to the file"), err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return name, wrap(op, dir, err)
	}
	defer d.Close()
	return name, wrap(op, dir, d.Sync())
}

// replaced reports whether another file has taken the path of the file that was summed.
func (s *Sums) replaced(file string) bool { return s.of != (ID{}) && !Current(file, s.of) }

// wrap converts a file system error to ours, without repeating the path.
func wrap(op, name string, err error) error {
	return errs.Wrap(op, name, errs.WithoutPath(err))
}
