// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
)

// Put stores one whole block: object.SumBlock bytes, or what remains for the last block. The block is readable at once,
// and durable after the next flush. If the block is present already, Put compares the sums: it fails with kind Corrupt
// if data differs, and does nothing otherwise. If the disk or the cache is full, Put fails with object.ErrNoSpace, and
// the entry keeps what it has. If the entry was evicted, Put fails with ErrAbsent. Put keeps no reference to data.
func (e *Entry) Put(ctx context.Context, block int64, data []byte) error {
	return e.v.put(ctx, block, data)
}

func (v *version) put(ctx context.Context, block int64, data []byte) error {
	const op = "write cache"
	if block < 0 || block >= v.all() || int64(len(data)) != v.size(block) {
		return errs.New(errs.Invalid, op, v.name(),
			fmt.Sprintf("block %d with %d bytes; the content has %d bytes and %d blocks "+
				"of %d bytes", block, len(data), v.id.Size, v.all(), object.SumBlock))
	}
	if err := context.Cause(ctx); err != nil {
		return fail(op, v.name(), err)
	}
	sum := checksum.Of(data)
	v.mu.Lock()
	defer v.mu.Unlock()
	b := v.blocks
	for b.writing.has(block) {
		v.done.Wait()
	}
	if b.have.has(block) {
		if b.sums[block] != sum {
			return errs.New(errs.Corrupt, op, v.name(), fmt.Sprintf("block %d was cached with the sum %016x, and now has the "+
				"sum %016x", block, b.sums[block], sum)).WithFix("drop the entry, and look whether the other server reuses ETags")
		}
		return nil
	}
	out, err := v.s.index.charge(op, v, int64(len(data)))
	if err != nil {
		return err
	}
	v.s.discard(out)
	b.writing.set(block)
	err = v.write(op, block, data)
	b.writing.clear(block)
	v.done.Broadcast()
	if err != nil {
		v.s.index.refund(v, int64(len(data)), true)
		v.s.counts.abandoned.Add(1)
		return err
	}
	b.sums[block] = sum
	b.have.set(block)
	b.count++
	b.pending.set(block)
	b.seen.clear(block)
	v.s.writer.changed(v)
	return nil
}

// write writes the bytes of a block. The caller holds v.mu, which write releases while it writes.
func (v *version) write(op string, block int64, data []byte) error {
	b := v.blocks
	if v.file == 0 {
		n, err := v.s.files.ids.take(v.s.meta)
		if err != nil {
			return err
		}
		v.s.index.mu.Lock()
		v.file = n
		v.s.index.byFile[n] = v
		if v.gone {
			v.s.index.doom(v)
		}
		v.s.index.mu.Unlock()
	}
	if v.inline {
		b.data = append(make([]byte, 0, len(data)), data...)
		return nil
	}
	if err := v.s.files.checkSpace(op, v.name(), int64(len(data))); err != nil {
		return err
	}
	if b.file == nil {
		file, err := v.s.files.create(v.file, v.id.Size)
		if err != nil {
			return err
		}
		b.file, b.fd = file, descriptor(file)
	}
	v.mu.Unlock()
	n, err := b.file.WriteAt(data, block*object.SumBlock)
	if err == nil && n < len(data) {
		err = unix.ENOSPC
	}
	if err == nil && b.fd >= 0 {
		// The disk begins to write now, so that the flusher has little left to do. It is a hint.
		_ = unix.SyncFileRange(b.fd, block*object.SumBlock, int64(len(data)), unix.SYNC_FILE_RANGE_WRITE)
	}
	v.mu.Lock()
	return fail(op, v.s.files.path(v.file), err)
}

// descriptor returns the file's descriptor, or -1.
func descriptor(file vfs.File) int {
	if fd := file.Fd(); fd != vfs.InvalidFd {
		return int(fd)
	}
	return -1
}

// load opens the file and reads which blocks are present. The error is errLost if there is no usable file. The caller
// holds v.mu.
func (v *version) load() error {
	if v.blocks != nil {
		return nil
	}
	b := v.empty()
	if v.file == 0 {
		v.blocks = b
		return nil
	}
	if err := v.loadSums(b); err != nil {
		return err
	}
	switch {
	case v.inline:
		if err := v.loadContent(b); err != nil {
			return err
		}
	default:
		file, err := v.s.files.reopen(v)
		if err != nil {
			return err
		}
		b.file, b.fd = file, descriptor(file)
	}
	v.blocks = b
	return nil
}

// loadSums reads which blocks are present, and their sums.
func (v *version) loadSums(b *blocks) error {
	done, err := v.s.meta.use("read cache", v.name())
	if err != nil {
		return err
	}
	defer done()
	it, err := v.s.meta.db.NewIter(&pebble.IterOptions{LowerBound: numberKey(kindSums, v.file),
		UpperBound: numberKey(kindSums, v.file+1)})
	if err != nil {
		return metadb.WrapRead("", err)
	}
	var count int64
	for it.First(); it.Valid() && err == nil; it.Next() {
		chunk, ok := chunkOf(it.Key())
		if !ok || chunk >= int64(len(b.have)) {
			err = unreadable("sums", it.Key())
			break
		}
		from := chunk * chunkBlocks
		var value []byte
		if value, err = it.ValueAndErr(); err != nil {
			err = metadb.WrapRead("", err)
			break
		}
		b.have[chunk], err = decodeChunk(value, b.sums[from:min(from+chunkBlocks, v.all())])
		for w := b.have[chunk]; w != 0; w &= w - 1 {
			count++
		}
	}
	if e := it.Close(); err == nil {
		err = metadb.WrapRead("", e)
	}
	if err != nil {
		return err
	}
	if count != v.countNow() {
		return unreadable("entry", fmt.Appendf(nil, "%d blocks, %d sums", v.countNow(), count))
	}
	b.count = count
	return nil
}

// countNow returns the number of present blocks.
func (v *version) countNow() int64 {
	v.s.index.mu.Lock()
	defer v.s.index.mu.Unlock()
	return v.count
}

// loadContent reads inline content.
func (v *version) loadContent(b *blocks) error {
	if v.id.Size == 0 || !b.have.has(0) {
		return nil
	}
	done, err := v.s.meta.use("read cache", v.name())
	if err != nil {
		return err
	}
	defer done()
	data, err := metadb.Get(v.s.meta.db, numberKey(kindContent, v.file))
	if err != nil {
		return err
	}
	if int64(len(data)) != v.id.Size {
		return errLost
	}
	b.data = data
	return nil
}
