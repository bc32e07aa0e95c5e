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
		return Result{}, errs.New(errs.Unsupported, "upload", src.name(),
			fmt.Sprintf("has %d bytes, expected at most %d", size, int64(MostUploaded)))
	}
	u, err := dst.Client.NewUpload(s3.Put{Bucket: dst.Bucket, Key: dst.Key, ContentType: c.o.ContentType})
	if err != nil {
		return Result{}, err
	}
	r := Result{Source: src.name(), Destination: dst.Name(), Bytes: size, Way: "http"}
	s := &sender{c: c, src: src, u: u, size: size, part: partSize(size)}
	if size <= whole {
		err = s.whole(ctx)
		r.Moved = size
	} else {
		err = s.parts(ctx, dst, &r)
	}
	if err != nil {
		return Result{}, err
	}
	info := u.Info()
	r.Verified, r.CRC64 = "crc64nvme", fmt.Sprintf("%016x", info.CRC64)
	r.Notes = u.Notes()
	if f := src.facts(); f.algorithm == "crc64nvme" && info.HasCRC64 && info.CRC64 != f.sum {
		return r, errs.New(errs.Corrupt, "copy", src.name(), fmt.Sprintf("the content differs from the checksum that its "+
			"server keeps: %016x was copied, expected %016x", info.CRC64, f.sum)).WithFix("remove " + dst.Name() +
			", and copy again")
	}
	for _, n := range r.Notes {
		if n == s3.NoSumsNote {
			r.Verified = "length+etag"
		}
	}
	c.files.Add(1)
	return r, nil
}

// sender is one content on its way to a new object.
type sender struct {
	c          *Copier
	src        source
	u          *s3.Upload
	size, part int64
}

// whole sends a small object with one request.
func (s *sender) whole(ctx context.Context) error {
	if err := s.c.gate.enter(ctx); err != nil {
		return err
	}
	defer s.c.gate.leave()
	err := s.u.Whole(ctx, s.size, func() (vfs.Blocks, error) {
		b, err := s.c.openBlocks(ctx, s.src, 0, s.size, func(int64) {})
		if err != nil {
			return nil, err
		}
		return &checkedBlocks{b, s.src}, nil
	})
	if err == nil {
		s.c.moved.Add(s.size)
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

// parts sends a large object in parts, and resumes an upload that an earlier copy began.
func (s *sender) parts(ctx context.Context, dst Remote, r *Result) error {
	state, err := openState(s.c.o.States, s.src.id(), dst)
	if err != nil {
		return err
	}
	defer state.close()
	sent, err := s.resume(ctx, state)
	if err != nil {
		return err
	}
	if id, _ := s.u.ID(); id == "" {
		if err := s.u.Begin(ctx); err != nil {
			return err
		}
		id, sums := s.u.ID()
		if err := state.write(id, sums, s.part); err != nil {
			return err
		}
	}
	for _, n := range sent {
		r.Resumed += n
	}
	s.c.moved.Add(r.Resumed)
	if err := s.rest(ctx, sent); err != nil {
		if !state.kept() {
			_ = s.u.Abort(ctx)
		}
		return err
	}
	r.Moved = s.size - r.Resumed
	if err := s.src.unchanged(); err != nil {
		_ = s.u.Abort(ctx)
		state.forget()
		return err
	}
	if err := s.u.Complete(ctx); err != nil {
		if code := s3.CodeOf(err); code == "NoSuchUpload" || code == "InvalidPart" {
			state.forget()
		}
		return err
	}
	state.forget()
	return nil
}

// rest sends the parts that the server does not have.
func (s *sender) rest(ctx context.Context, sent map[int]int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var group sync.WaitGroup
	count := int((s.size + s.part - 1) / s.part)
	for range min(s.c.o.Concurrency, count) {
		group.Go(func() {
			for number := range next {
				if err := s.one(ctx, number); err != nil {
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

// one sends one part.
func (s *sender) one(ctx context.Context, number int) error {
	if err := s.c.gate.enter(ctx); err != nil {
		return err
	}
	defer s.c.gate.leave()
	off := int64(number-1) * s.part
	n := min(s.part, s.size-off)
	told := int64(0) // a repeated part is not counted twice
	return s.u.Part(ctx, number, n, block, func() (vfs.Blocks, error) {
		s.c.moved.Add(-told)
		told = 0
		return s.c.openBlocks(ctx, s.src, off, n, func(n int64) {
			told += n
			s.c.moved.Add(n)
		})
	})
}

// resume asks the server which parts it has of an upload that an earlier copy began. It compares each part with the
// source, and returns the sizes of the parts that need not be sent again.
func (s *sender) resume(ctx context.Context, state *state) (map[int]int64, error) {
	if state.ID == "" || state.Part != s.part {
		return nil, nil
	}
	s.u.Resume(state.ID, state.Sums)
	parts, err := s.u.Sent(ctx)
	if errs.Is(err, errs.NotFound) || s3.CodeOf(err) == "NoSuchUpload" {
		s.u.Resume("", false) // it was completed, aborted or has expired
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sent := map[int]int64{}
	for _, p := range parts {
		off := int64(p.Number-1) * s.part
		if off >= s.size || p.Size != min(s.part, s.size-off) {
			continue
		}
		sum, ok, err := s.same(ctx, p, off)
		if err != nil {
			return nil, err
		}
		if ok {
			s.u.Adopt(p, sum)
			sent[p.Number] = p.Size
		}
	}
	return sent, nil
}

// same compares a part on the server with the source, by its CRC-64/NVME, or else by its MD5.
func (s *sender) same(ctx context.Context, p s3.SentPart, off int64) (sum uint64, same bool, err error) {
	var h hash.Hash
	if !p.HasCRC64 {
		h = md5.New() //nolint:gosec // as above
	}
	b, err := s.c.openBlocks(ctx, s.src, off, p.Size, func(int64) {})
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
		sum = s.c.join.After(sum, int64(len(data))) ^ checksum.Of(data)
		if h != nil {
			h.Write(data)
		}
	}
	if h != nil {
		return sum, hex.EncodeToString(h.Sum(nil)) == p.ETag, nil
	}
	return sum, sum == p.CRC64, nil
}
