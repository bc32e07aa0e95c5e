// SPDX-License-Identifier: Apache-2.0

package copying

import (
	"context"
	"crypto/md5" //nolint:gosec // ETags of parts are MD5 sums; they detect damage here
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

const (
	leastPart = 8 << 20
	mostParts = 10_000
	// MostUploaded is the size in bytes of the largest object that S3 allows.
	MostUploaded = 5 << 40
)

// partSize returns the size of the parts of an upload: a multiple of a block.
func partSize(size int64) int64 {
	n := max(leastPart, (size+mostParts-1)/mostParts)
	return (n + block - 1) / block * block
}

// blocks are the blocks of one part, read from a source and summed by the client as they are sent.
type blocks struct {
	c    *Copier
	ctx  context.Context //nolint:containedctx // vfs.Blocks has no context of its own
	body io.ReadCloser
	buf  *[]byte
	left int64
	tell func(n int64)
}

// openBlocks begins to read n bytes of a source.
func (c *Copier) openBlocks(ctx context.Context, src source, off, n int64, tell func(n int64)) (*blocks, error) {
	body, err := src.fetch(ctx, off, n)
	if err != nil {
		return nil, err
	}
	return &blocks{c: c, ctx: ctx, body: body, left: n, tell: tell, buf: c.buffers.Get().(*[]byte)}, nil
}

// Next returns the next block, or io.EOF.
func (b *blocks) Next() ([]byte, error) {
	if b.left == 0 || b.buf == nil {
		return nil, io.EOF
	}
	p := (*b.buf)[:min(block, b.left)]
	if err := b.c.limit.wait(b.ctx, len(p)); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(b.body, p); err != nil {
		return nil, err
	}
	b.left -= int64(len(p))
	b.tell(int64(len(p)))
	return p, nil
}

// Close releases the buffer.
func (b *blocks) Close() error {
	if b.buf == nil {
		return nil
	}
	b.c.buffers.Put(b.buf)
	b.buf = nil
	return b.body.Close()
}

// upload sends a source as a new object.
func (c *Copier) upload(ctx context.Context, src source, dst Remote) (Result, error) {
	c.gate.watch(dst.Client)
	size := src.id().Size
	if size > MostUploaded {
		return Result{}, errs.New(errs.Unsupported, "upload", src.name(), fmt.Sprintf("has %d bytes, expected at most %d", size,
			int64(MostUploaded)))
	}
	u, err := dst.Client.NewUpload(s3.Put{Bucket: dst.Bucket, Key: dst.Key, ContentType: c.o.ContentType})
	if err != nil {
		return Result{}, err
	}
	r := Result{Source: src.name(), Destination: dst.Name(), Bytes: size, Way: "http"}
	if size <= whole {
		err = c.sendWhole(ctx, src, u, size)
		r.Moved = size
	} else {
		err = c.sendParts(ctx, src, dst, u, size, &r)
	}
	if err != nil {
		return Result{}, err
	}
	info := u.Info()
	r.Verified, r.CRC64 = "crc64nvme", fmt.Sprintf("%016x", info.CRC64)
	r.Notes = u.Notes()
	if f := src.facts(); f.algorithm == "crc64nvme" && info.HasCRC64 && info.CRC64 != f.sum {
		return r, errs.New(errs.Corrupt, "copy", src.name(), fmt.Sprintf("the content differs from the checksum that its "+
			"server keeps: %016x was copied, expected %016x", info.CRC64, f.sum)).WithFix("remove " + dst.Name() + ", and copy again")
	}
	for _, n := range r.Notes {
		if n == s3.NoSumsNote {
			r.Verified = "length+etag"
		}
	}
	c.files.Add(1)
	return r, nil
}

// sendWhole sends a small object with one request.
func (c *Copier) sendWhole(ctx context.Context, src source, u *s3.Upload, size int64) error {
	if err := c.gate.enter(ctx); err != nil {
		return err
	}
	defer c.gate.leave()
	err := u.Whole(ctx, size, func() (vfs.Blocks, error) {
		b, err := c.openBlocks(ctx, src, 0, size, func(int64) {})
		if err != nil {
			return nil, err
		}
		return &checkedBlocks{b, src}, nil
	})
	if err == nil {
		c.moved.Add(size)
	}
	return err
}

// checkedBlocks fails at the end if the source changed, before the request is sent.
type checkedBlocks struct {
	*blocks
	src source
}

func (b *checkedBlocks) Next() ([]byte, error) {
	p, err := b.blocks.Next()
	if err == io.EOF {
		if e := b.src.unchanged(); e != nil {
			err = e
		}
	}
	return p, err
}

// sendParts sends a large object in parts, and resumes an upload that an earlier copy began.
func (c *Copier) sendParts(ctx context.Context, src source, dst Remote, u *s3.Upload, size int64, r *Result) error {
	state, err := openState(c.o.States, src.id(), dst)
	if err != nil {
		return err
	}
	defer state.close()
	part := partSize(size)
	sent, err := c.resume(ctx, src, u, state, part, size)
	if err != nil {
		return err
	}
	if id, _ := u.ID(); id == "" {
		if err := u.Begin(ctx); err != nil {
			return err
		}
		id, sums := u.ID()
		if err := state.write(id, sums, part); err != nil {
			return err
		}
	}
	for _, n := range sent {
		r.Resumed += n
	}
	c.moved.Add(r.Resumed)
	if err := c.sendRest(ctx, src, u, part, size, sent); err != nil {
		if !state.kept() {
			_ = u.Abort(ctx)
		}
		return err
	}
	r.Moved = size - r.Resumed
	if err := src.unchanged(); err != nil {
		_ = u.Abort(ctx)
		state.forget()
		return err
	}
	if err := u.Complete(ctx); err != nil {
		if code := s3.CodeOf(err); code == "NoSuchUpload" || code == "InvalidPart" {
			state.forget()
		}
		return err
	}
	state.forget()
	return nil
}

// sendRest sends the parts that the server does not have.
func (c *Copier) sendRest(ctx context.Context, src source, u *s3.Upload, part, size int64, sent map[int]int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var group sync.WaitGroup
	count := int((size + part - 1) / part)
	for range min(c.o.Concurrency, count) {
		group.Go(func() {
			for number := range next {
				if err := c.sendPart(ctx, src, u, number, part, size); err != nil {
					cancel(err)
				}
			}
		})
	}
	for number := 1; number <= count && ctx.Err() == nil; number++ {
		if _, ok := sent[number]; !ok {
			select {
			case next <- number:
			case <-ctx.Done():
			}
		}
	}
	close(next)
	group.Wait()
	return context.Cause(ctx)
}

func (c *Copier) sendPart(ctx context.Context, src source, u *s3.Upload, number int, part, size int64) error {
	if err := c.gate.enter(ctx); err != nil {
		return err
	}
	defer c.gate.leave()
	off := int64(number-1) * part
	n := min(part, size-off)
	told := int64(0) // a repeated part is not counted twice
	return u.Part(ctx, number, n, block, func() (vfs.Blocks, error) {
		c.moved.Add(-told)
		told = 0
		return c.openBlocks(ctx, src, off, n, func(n int64) {
			told += n
			c.moved.Add(n)
		})
	})
}

// resume asks the server which parts it has of an upload that an earlier copy began. It compares each part with the
// source, and returns the sizes of the parts that need not be sent again.
func (c *Copier) resume(ctx context.Context, src source, u *s3.Upload, state *state, part, size int64) (map[int]int64, error) {
	if state.ID == "" || state.Part != part {
		return nil, nil
	}
	u.Resume(state.ID, state.Sums)
	parts, err := u.Sent(ctx)
	if errs.Is(err, errs.NotFound) || s3.CodeOf(err) == "NoSuchUpload" {
		u.Resume("", false) // it was completed, aborted or has expired
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sent := map[int]int64{}
	for _, p := range parts {
		off := int64(p.Number-1) * part
		if off >= size || p.Size != min(part, size-off) {
			continue
		}
		sum, ok, err := c.samePart(ctx, src, p, off)
		if err != nil {
			return nil, err
		}
		if ok {
			u.Adopt(p, sum)
			sent[p.Number] = p.Size
		}
	}
	return sent, nil
}

// samePart compares a part on the server with the source, by its CRC-64/NVME, or else by its MD5.
func (c *Copier) samePart(ctx context.Context, src source, p s3.SentPart, off int64) (sum uint64, same bool, err error) {
	var h hash.Hash
	if !p.HasCRC64 {
		h = md5.New() //nolint:gosec // as above
	}
	b, err := c.openBlocks(ctx, src, off, p.Size, func(int64) {})
	if err != nil {
		return 0, false, err
	}
	defer b.Close()
	for {
		data, err := b.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, false, err
		}
		sum = c.join.After(sum, int64(len(data))) ^ checksum.Of(data)
		if h != nil {
			h.Write(data)
		}
	}
	if h != nil {
		return sum, hex.EncodeToString(h.Sum(nil)) == p.ETag, nil
	}
	return sum, sum == p.CRC64, nil
}
