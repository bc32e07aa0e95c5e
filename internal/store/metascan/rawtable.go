// SPDX-License-Identifier: Apache-2.0

package metascan

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/blob"
	"github.com/cockroachdb/pebble/v2/sstable/block"

	"github.com/nebulaio/nebulaio/internal/store/codec"
	"github.com/nebulaio/nebulaio/internal/store/metafile"
)

const (
	// rawBlock limits the size of the blocks of keys that are searched for: Pebble ends one at about 4 KiB, and no
	// entry is over 3 KiB.
	rawBlock = 16 << 10
	// rawSkip limits how far the next block is searched for behind a damaged one. Each byte costs some microseconds.
	rawSkip = 256 << 10
)

// rawTable reads a table with an unreadable index. The blocks of keys are at its beginning, one after the other, each
// with its checksum. A block ends where the checksum matches, and behind a damaged block every offset is tried.
type rawTable struct {
	ctx    context.Context
	text   []byte
	number uint64
	end    int // where the blocks of keys end; -1: not known
	each   func(Entry) error

	last []byte // the last key that was read
	gaps []Gap
}

// maxRawTable limits the size of tables that are read without their index. Pebble's tables are smaller.
const maxRawTable = 256 << 20

// readRaw reads a whole file for rawTable.
func readRaw(file io.ReaderAt, size int64) ([]byte, error) {
	if size > maxRawTable {
		return nil, errors.New("the table is too large to be read without its index")
	}
	text := make([]byte, size)
	if _, err := file.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return text, nil
}

// run reads all blocks of keys. why is the damage of the index, which is the reason of all gaps.
func (r *rawTable) run(t *metafile.Table, why error) error {
	off, lost := 0, -1 // lost is where the damage begins behind which a block is looked for
	for off < len(r.text) && (r.end < 0 || off < r.end) {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		n, b := r.blockAt(off)
		if n == 0 {
			if lost < 0 {
				lost = off
			}
			if off++; off-lost > rawSkip {
				break
			}
			continue
		}
		if err := r.keys(b, lost >= 0 && lost < off, why); err != nil {
			return err
		}
		off, lost = off+n, -1
	}
	atEnd := r.end >= 0 && off >= r.end && lost < 0 || t.Largest != nil && bytes.Equal(r.last, t.Largest)
	if !atEnd {
		r.gaps = append(r.gaps, Gap{From: r.last, To: t.Largest, err: why})
	}
	return nil
}

// blockAt finds the block of keys at an offset. It returns the length of the block with its trailer, or 0.
func (r *rawTable) blockAt(off int) (int, []byte) {
	n := blockOf(r.text[off:], looksLikeKeys)
	if n == 0 {
		return 0, nil
	}
	b, err := openBlock(r.text[off : off+n])
	if err != nil {
		return 0, nil
	}
	return n, b
}

// keys passes the entries of a block on. behind means that a damaged place lies before it.
func (r *rawTable) keys(b []byte, behind bool, why error) error {
	var failed error
	err := eachKey(b, func(key []byte, trailer uint64, value []byte, external bool) error {
		if behind {
			r.gaps = append(r.gaps, Gap{From: r.last, To: bytes.Clone(key), err: why})
			behind = false
		}
		r.last = key
		e := Entry{Key: key, Seq: trailer >> 8, Kind: pebble.InternalKeyKind(trailer & 0xff), Value: bytes.Clone(value)}
		if external {
			e.Blob, e.Lost = r.handle(value)
			e.Value = nil
		}
		failed = r.each(e)
		return failed
	})
	if failed == nil && err != nil {
		r.gaps = append(r.gaps, Gap{From: r.last, err: err})
	}
	return failed
}

// handle decodes the reference to a value that is not in the table.
func (r *rawTable) handle(v []byte) (*BlobHandle, error) {
	const most = blob.MaxInlineHandleLength
	if len(v) < 2 || len(v) > 1+most || !block.ValuePrefix(v[0]).IsBlobValueHandle() {
		return nil, errors.New("the value lies in a block of the table that cannot be found without its index")
	}
	t := codec.Decoder{Rest: v[1:]}
	h := &BlobHandle{Table: r.number, Ref: t.Uint(), Size: t.Uint(), Block: t.Uint(), ID: t.Uint()}
	if !t.Done() {
		return nil, errors.New("the place of the value cannot be read")
	}
	return h, ErrUnnamed
}
