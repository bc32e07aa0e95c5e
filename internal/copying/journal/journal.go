// SPDX-License-Identifier: Apache-2.0

// Package journal records which blocks of a download are in its draft file, with their checksums, so that a killed
// download goes on.
//
// A journal is a file beside the draft. A journal begins with a header that names the content, and each record after
// the header names one block and its CRC-64/NVME. All numbers are little-endian:
//
//	offset    bytes
//	0         8      magic "NIOCOPY1"
//	8         8      length n of the identity
//	16        n      identity of the content, as JSON
//	16+n      8      CRC-64/NVME of everything before, the seal
//	24+n+24*i 24     record i: number of the block, CRC-64/NVME of the block, and a check of the record
//
// The check of a record covers the seal, the number and the sum. A torn or foreign record is therefore ignored. A
// reader of the journal compares each recorded block with the bytes of the draft before it believes the record. So it
// does not matter in which order the draft and the journal reached the disk before a power loss.
package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Block is the number of bytes that one record covers; the last block of a content may be shorter.
const Block = checksum.DefaultBlock

const (
	magic        = "NIOCOPY1"
	recordSize   = 24
	mostIdentity = 16 << 10
)

// Journal is the open journal of one download. Only one goroutine at a time may use a Journal.
type Journal struct {
	f    *os.File
	seal uint64
	err  error // the first failed write; later records are not written
}

// Blocks returns the number of blocks of a content.
func Blocks(size int64) int64 { return (size + Block - 1) / Block }

// Create makes a new journal with this name in dir for the content id, in place of any other. The caller closes it.
func Create(dir *os.Root, path string, id object.Identity) (*Journal, error) {
	const op = "write journal"
	text, err := json.Marshal(id)
	if err != nil {
		return nil, errs.Wrap(op, path, err)
	}
	if len(text) > mostIdentity {
		return nil, errs.New(errs.Invalid, op, path,
			fmt.Sprintf("the identity has %d bytes, expected at most %d", len(text), mostIdentity))
	}
	b := append([]byte(magic), binary.LittleEndian.AppendUint64(nil, uint64(len(text)))...)
	b = append(b, text...)
	seal := checksum.Of(b)
	// The old journal goes first: its file may be open in a process that was stopped.
	if err := dir.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errs.Wrap(op, path, errs.WithoutPath(err))
	}
	f, err := dir.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, errs.Wrap(op, path, errs.WithoutPath(err))
	}
	if _, err := f.Write(binary.LittleEndian.AppendUint64(b, seal)); err != nil {
		f.Close()
		_ = dir.Remove(path)
		return nil, errs.Wrap(op, path, errs.WithoutPath(err))
	}
	return &Journal{f: f, seal: seal}, nil
}

// Sums are the checksums of the blocks that a journal records, by block number.
type Sums map[int64]uint64

// Open opens the journal with this name in dir for more records, and returns the records that the journal has. If the
// journal is missing, damaged in its header or of another content than id, Open returns a nil Journal without an error.
// The caller then begins anew with Create. The number of returned sums is at most that of the blocks of id.
func Open(dir *os.Root, path string, id object.Identity) (*Journal, Sums, error) {
	const op = "read journal"
	f, err := dir.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, errs.Wrap(op, path, errs.WithoutPath(err))
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, nil, errs.New(errs.Invalid, op, path, "is not a regular file")
	}
	found, seal, sums, torn, err := Read(f)
	if err != nil || found != id {
		f.Close()
		if err != nil && !errs.Is(err, errs.Corrupt) {
			return nil, nil, errs.Wrap(op, path, err)
		}
		return nil, nil, nil
	}
	if torn > 0 { // records are appended at multiples of their size
		end, err := f.Seek(0, io.SeekEnd)
		if err == nil {
			err = f.Truncate(end - torn)
		}
		if err != nil {
			f.Close()
			return nil, nil, errs.Wrap(op, path, errs.WithoutPath(err))
		}
	}
	return &Journal{f: f, seal: seal}, sums, nil
}

// Read reads a whole journal. The result torn is the number of bytes of an unfinished record at the end. A journal
// without a valid header gives an error of kind Corrupt; invalid records are left out. Read keeps at most one sum for
// each block of the identity.
func Read(r io.Reader) (id object.Identity, seal uint64, sums Sums, torn int64, err error) {
	bad := func(msg string) (object.Identity, uint64, Sums, int64, error) {
		return object.Identity{}, 0, nil, 0, errs.New(errs.Corrupt, "read journal", "", msg)
	}
	head := make([]byte, 16)
	if _, err := io.ReadFull(r, head); err != nil {
		return bad("the header is cut off")
	}
	n := binary.LittleEndian.Uint64(head[8:])
	if string(head[:8]) != magic || n > mostIdentity {
		return bad("the file is no journal")
	}
	rest := make([]byte, n+8)
	if _, err := io.ReadFull(r, rest); err != nil {
		return bad("the header is cut off")
	}
	head = append(head, rest[:n]...)
	if seal = binary.LittleEndian.Uint64(rest[n:]); checksum.Of(head) != seal {
		return bad("the header is damaged")
	}
	if err := json.Unmarshal(head[16:], &id); err != nil || id.Size < 0 || Blocks(id.Size) > checksum.MaxBlocks {
		return bad("the header names no content")
	}
	sums = Sums{}
	buf := make([]byte, recordSize*4096)
	for {
		got, err := io.ReadFull(r, buf)
		for p := buf[:got-got%recordSize]; len(p) > 0; p = p[recordSize:] {
			block, sum, ok := decode(p, seal)
			if ok && block < Blocks(id.Size) {
				sums[block] = sum
			}
		}
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return id, seal, sums, int64(got % recordSize), nil
		case err != nil:
			return object.Identity{}, 0, nil, 0, errs.Wrap("read", "journal", errs.WithoutPath(err))
		}
	}
}

func encode(b []byte, seal uint64, block int64, sum uint64) []byte {
	from := len(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(block))
	b = binary.LittleEndian.AppendUint64(b, sum)
	return binary.LittleEndian.AppendUint64(b, check(b[from:], seal))
}

func decode(p []byte, seal uint64) (block int64, sum uint64, ok bool) {
	block, sum = int64(binary.LittleEndian.Uint64(p)), binary.LittleEndian.Uint64(p[8:])
	return block, sum, block >= 0 && binary.LittleEndian.Uint64(p[16:]) == check(p[:16], seal)
}

// check binds a record to its journal, so that a record of an older file in the same disk blocks is not taken.
func check(p []byte, seal uint64) uint64 {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], seal)
	copy(b[8:], p)
	return checksum.Of(b[:])
}

// Add records that a block with this checksum was written to the draft. After a failed write, Add does nothing: the
// download goes on, and a later resume knows fewer blocks. Close returns the error.
func (j *Journal) Add(block int64, sum uint64) {
	if j.err != nil {
		return
	}
	var b [recordSize]byte
	_, j.err = j.f.Write(encode(b[:0], j.seal, block, sum))
}

// Close closes the journal and returns the first error of Add.
func (j *Journal) Close() error {
	return errs.Wrap("write journal", j.f.Name(), errors.Join(j.err, j.f.Close()))
}
