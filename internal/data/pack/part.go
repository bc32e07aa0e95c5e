// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"context"
	"io"
)

// partReader is the content of a large file as a stream.
type partReader struct {
	ctx  context.Context
	r    Reader
	e    Entry
	show func(string) string
	at   int64
	err  error // of the source
}

// Read returns the next bytes, and fails if the file ends early or goes on after its size.
func (p *partReader) Read(b []byte) (int, error) {
	if p.ctx.Err() != nil {
		return 0, context.Cause(p.ctx)
	}
	n, err := p.r.ReadAt(p.ctx, p.e, b, p.at)
	p.at += int64(n)
	if err == nil && (p.at > p.e.Size || n < len(b) && p.at < p.e.Size) {
		err = changed(p.show(p.e.Name), p.e.Size, p.at)
	}
	if p.err = err; err == nil && n == 0 && len(b) > 0 {
		err = io.EOF
	}
	return n, err
}

// bytes returns the content of a part, also of a large one.
func (p *loadedPart) bytes(ctx context.Context, r Reader) ([]byte, error) {
	if !p.large {
		return p.data, nil
	}
	b := make([]byte, p.entry.Size, p.entry.Size+1)
	return b, r.Read(ctx, p.entry, b)
}
