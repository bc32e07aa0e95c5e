// SPDX-License-Identifier: Apache-2.0

package copying

import (
	"context"
	"crypto/md5" //nolint:gosec // ETags are MD5 sums; they detect damage here
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// fetched is a block on its way to a writer.
type fetched struct {
	data []byte
	buf  *[]byte
	s    blockSums
	err  error
}

// WriteTo copies an object to a writer, in order. The blocks are read by several requests at once. The checksum of the
// whole is compared when all bytes but the last block are written. If the checksum differs, the last block is not
// written, and the error is of kind Corrupt.
func (c *Copier) WriteTo(ctx context.Context, from Remote, w io.Writer) (Result, error) {
	src, err := c.openObject(ctx, from)
	if err != nil {
		return Result{}, err
	}
	size := src.info.Size
	c.expect(size)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sums := newWholeSums(src.facts(), size, c.join)
	var md5sum hash.Hash // nil: the server keeps a checksum, or no ETag that is an MD5
	if sums.f.algorithm == "" && sums.f.md5 != "" {
		md5sum = md5.New() //nolint:gosec // the ETag is an MD5 sum; it detects damage here
	}
	order := make(chan chan fetched, c.o.Concurrency)
	go c.fetchInOrder(ctx, src, sums, order)
	r := Result{Source: src.name(), Destination: "-", Bytes: size, Moved: size, Way: "http", Verified: "length+etag"}
	last := int64(len(sums.blocks)) - 1
	for i := int64(0); i <= last; {
		one, ok := <-order
		if !ok {
			return r, errs.Wrap("copy", src.name(), context.Cause(ctx))
		}
		for b := range one {
			if b.err != nil {
				cancel(b.err)
				return r, b.err
			}
			sums.set(i, b.s)
			if md5sum != nil {
				md5sum.Write(b.data)
			}
			if i == last {
				if r.Verified, err = sums.verdict(src.name(), md5sum); err != nil {
					cancel(err)
					return r, err
				}
			}
			if _, err := w.Write(b.data); err != nil {
				return r, errs.Wrap("write", "standard output", errs.WithoutPath(err))
			}
			c.moved.Add(int64(len(b.data)))
			c.buffers.Put(b.buf)
			i++
		}
	}
	r.CRC64 = fmt.Sprintf("%016x", sums.crc64())
	c.files.Add(1)
	return r, nil
}

// verdict compares a content that was written in order, and says what was compared. The hash has the MD5 of the content
// if that is what the server knows; otherwise it is nil.
func (w *wholeSums) verdict(name string, md5sum hash.Hash) (string, error) {
	const fix = "do not use what was written"
	if md5sum != nil {
		if got := hex.EncodeToString(md5sum.Sum(nil)); got != w.f.md5 {
			return "", differsFromMD5(name, got, w.f.md5).WithFix(fix)
		}
		return "md5", nil
	}
	how, ok := w.compare()
	switch {
	case ok:
		return how, nil
	case how != "":
		return "", errs.New(errs.Corrupt, "copy", name, "the content differs from the checksum that the server keeps: "+how).
			WithFix(fix)
	}
	return "length+etag", nil
}

// fetchInOrder requests the pieces of a source, several at once, and passes on a channel of blocks for each piece.
func (c *Copier) fetchInOrder(ctx context.Context, src source, sums *wholeSums, order chan<- chan fetched) {
	defer close(order)
	size := src.id().Size
	blocks := max(1, window/block/int64(c.o.Concurrency))
	step := blocks * block
	for off := int64(0); off < size; off += step {
		out := make(chan fetched, blocks+1)
		select {
		case order <- out:
		case <-ctx.Done():
			return
		}
		n := min(step, size-off)
		if err := c.gate.enter(ctx); err != nil {
			out <- fetched{err: err}
			close(out)
			return
		}
		go func() {
			defer close(out)
			defer c.gate.leave()
			body, err := src.fetch(ctx, off, n)
			if err != nil {
				out <- fetched{err: err}
				return
			}
			defer body.Close()
			for left := n; left > 0 && err == nil; left -= block {
				buf := c.buffers.Get().(*[]byte)
				b := fetched{buf: buf, data: (*buf)[:min(block, left)]}
				b.s, b.err = sums.read(ctx, body, b.data, c.limit)
				err = b.err
				out <- b
			}
		}()
	}
}

// memoryBlocks is one part of a stream, in memory.
type memoryBlocks struct {
	data []byte
	sent bool
}

func (b *memoryBlocks) Next() ([]byte, error) {
	if b.sent {
		return nil, io.EOF
	}
	b.sent = true
	return b.data, nil
}

func (b *memoryBlocks) Close() error { return nil }

// streamPart is the size of the parts of a stream, which grows as S3 allows only so many parts.
func streamPart(number int) int64 {
	return leastPart << min((number-1)/2000, 10)
}

// ReadFrom copies a stream of unknown length to an object. A stream cannot be read twice, so ReadFrom removes what it
// has sent if it fails.
func (c *Copier) ReadFrom(ctx context.Context, r io.Reader, to Remote) (Result, error) {
	c.gate.watch(to.Client)
	u, err := to.Client.NewUpload(s3.Put{Bucket: to.Bucket, Key: to.Key, ContentType: c.o.ContentType})
	if err != nil {
		return Result{}, err
	}
	c.known.Add(1)
	res := Result{Source: "-", Destination: to.Name(), Way: "http", Verified: "crc64nvme"}
	if err := c.readFrom(ctx, r, u, &res); err != nil {
		return Result{}, errors.Join(err, u.Abort(ctx))
	}
	res.CRC64, res.Notes = fmt.Sprintf("%016x", u.Info().CRC64), u.Notes()
	for _, n := range res.Notes {
		if n == s3.NoSumsNote {
			res.Verified = "length+etag"
		}
	}
	c.files.Add(1)
	return res, nil
}

func (c *Copier) readFrom(ctx context.Context, r io.Reader, u *s3.Upload, res *Result) error {
	buf := make([]byte, leastPart)
	for number := 1; ; number++ {
		if size := streamPart(number); int64(len(buf)) < size {
			buf = make([]byte, size)
		}
		n, err := io.ReadFull(r, buf)
		ended := err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !ended {
			return errs.Wrap("read", "standard input", errs.WithoutPath(err))
		}
		if err := context.Cause(ctx); err != nil {
			return errs.Wrap("read", "standard input", err)
		}
		if err := c.limit.wait(ctx, n); err != nil {
			return err
		}
		data := buf[:n]
		open := func() (vfs.Blocks, error) { return &memoryBlocks{data: data}, nil }
		res.Bytes += int64(n)
		res.Moved += int64(n)
		c.total.Add(int64(n))
		switch {
		case number == 1 && ended:
			err = u.Whole(ctx, int64(n), open)
		case n == 0:
			err = nil
		default:
			if number == 1 {
				if err := u.Begin(ctx); err != nil {
					return err
				}
			}
			err = u.Part(ctx, number, int64(n), int64(n), open)
		}
		if err != nil {
			return err
		}
		if c.moved.Add(int64(n)); ended {
			if number > 1 {
				return u.Complete(ctx)
			}
			return nil
		}
	}
}
