// SPDX-License-Identifier: Apache-2.0

package object

import (
	"bytes"
	"fmt"
	"sync/atomic"
)

// MemoryContent is the content of one object version in memory, and implements Content.
type MemoryContent struct {
	info   Info
	data   []byte
	closed atomic.Bool
}

// NewMemoryContent returns a MemoryContent with the given bytes. The caller must not change the bytes afterwards.
func NewMemoryContent(info Info, data []byte) *MemoryContent {
	return &MemoryContent{info: info, data: data}
}

// Bytes returns the content without a copy. The caller must not change the returned bytes.
func (c *MemoryContent) Bytes() []byte { return c.data }

// Info implements Content.
func (c *MemoryContent) Info() Info { return c.info.Clone() }

// Encrypted implements MaybeEncrypted.
func (c *MemoryContent) Encrypted() bool { return c.info.Stored > 0 }

// Section implements Content.
func (c *MemoryContent) Section(r Range) (Body, error) {
	if c.closed.Load() {
		return nil, Fail("read", c.info.Key, ErrClosed, "")
	}
	size := int64(len(c.data))
	if r.Off < 0 || r.N < 0 || r.Off > size || r.N > size-r.Off {
		return nil, Fail("read", c.info.Key, ErrInvalidRange, fmt.Sprintf("%d bytes from %d of %d", r.N, r.Off, size))
	}
	return &memoryBody{*bytes.NewReader(c.data[r.Off : r.Off+r.N])}, nil
}

// Close implements Content.
func (c *MemoryContent) Close() error {
	c.closed.Store(true)
	return nil
}

// memoryBody is a range of content in memory.
type memoryBody struct{ bytes.Reader }

// Len implements Body.
func (b *memoryBody) Len() int64 { return int64(b.Reader.Len()) }

// Close implements Body.
func (b *memoryBody) Close() error { return nil }
