// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// take reads a body of size bytes, or of any size if size is -1, to its end.
func take(ctx context.Context, op, name string, body io.Reader, size int64) ([]byte, error) {
	if size < -1 {
		return nil, errs.New(errs.Invalid, op, name, fmt.Sprintf("size %d, expected -1 or more", size))
	}
	if body == nil {
		body = bytes.NewReader(nil)
	}
	var data []byte
	piece := make([]byte, 64<<10)
	for {
		if err := ctx.Err(); err != nil {
			return nil, errs.Wrap(op, name, err)
		}
		n, err := body.Read(piece)
		data = append(data, piece[:n]...)
		if size >= 0 && int64(len(data)) > size {
			return nil, object.Fail(op, name, object.ErrIncompleteBody, fmt.Sprintf("the body goes on after %d bytes", size))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: reading the body: %w", op, name, err)
		}
	}
	if size >= 0 && int64(len(data)) < size {
		return nil, object.Fail(op, name, object.ErrIncompleteBody,
			fmt.Sprintf("the body ends after %d of %d bytes", len(data), size))
	}
	return data, nil
}

// written describes data, with its MD5 if that was requested.
func written(data []byte, withMD5 bool) object.Written {
	w := object.Written{Size: int64(len(data)), CRC64: checksum.Of(data)}
	if withMD5 {
		sum := md5.Sum(data)
		w.MD5 = sum[:]
	}
	return w
}

// crcETag is the ETag of content in a bucket of kind ETagCRC64.
func crcETag(crc uint64, size int64, parts int) string {
	return fmt.Sprintf("%016x%016x-%d", crc, size, parts)
}

// etagOf is the ETag of content that was written in one go.
func etagOf(kind object.ETagKind, w object.Written) string {
	if kind == object.ETagCRC64 {
		return crcETag(w.CRC64, w.Size, 1)
	}
	return fmt.Sprintf("%x", w.MD5)
}

// content is the content of one version, open for reading.
type content struct {
	info   object.Info
	data   []byte
	closed atomic.Bool
}

// Info implements object.Content.
func (c *content) Info() object.Info { return copyInfo(c.info) }

// Section implements object.Content.
func (c *content) Section(r object.Range) (object.Body, error) {
	if c.closed.Load() {
		return nil, object.Fail("read", c.info.Key, object.ErrClosed, "")
	}
	size := int64(len(c.data))
	if r.Off < 0 || r.N < 0 || r.Off > size || r.N > size-r.Off {
		return nil, object.Fail("read", c.info.Key, object.ErrInvalidRange,
			fmt.Sprintf("%d bytes from %d of %d", r.N, r.Off, size))
	}
	return &body{*bytes.NewReader(c.data[r.Off : r.Off+r.N])}, nil
}

// Close implements object.Content.
func (c *content) Close() error {
	c.closed.Store(true)
	return nil
}

// body is a range on its way to a reader.
type body struct{ bytes.Reader }

// Len implements object.Body.
func (b *body) Len() int64 { return int64(b.Reader.Len()) }

// Close implements object.Body.
func (b *body) Close() error { return nil }
