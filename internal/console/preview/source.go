// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"context"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// mostRequests is the largest number of reads of one preview.
const mostRequests = 256

// source reads an object for the parsers, within the limits of a preview. It keeps the last block, because parsers read
// small pieces in order.
type source struct {
	ctx  context.Context //nolint:containedctx // io.ReaderAt has no context
	read Read
	size int64

	bytes    int64
	requests int
	spent    bool  // the limit is reached
	failed   error // the first failure of a read
	block    []byte
	at       int64
}

// ReadAt implements io.ReaderAt. At the limits of a preview, ReadAt fails with kind Corrupt: the parsers then return
// what they have found before.
func (s *source) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= s.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), s.size-off))
	for done := 0; done < n; {
		from := off + int64(done)
		if from < s.at || from >= s.at+int64(len(s.block)) {
			if err := s.fetch(from, int64(n-done)); err != nil {
				return done, err
			}
		}
		done += copy(p[done:n], s.block[from-s.at:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// fetch reads a block that begins at off and has at least min(want, MaxRead) bytes.
func (s *source) fetch(off, want int64) error {
	n := min(max(want, blockSize), s.size-off)
	if s.bytes+n > MaxRead || s.requests == mostRequests {
		s.spent = true
		return errs.New(errs.Corrupt, "preview", "", fmt.Sprintf("a preview reads at most %s of an object in %d requests",
			units.Bytes(MaxRead), mostRequests))
	}
	if s.failed != nil {
		return s.failed
	}
	s.requests++
	body, err := s.read(s.ctx, off, n)
	if err != nil {
		s.failed = err
		return err
	}
	defer body.Close()
	block := make([]byte, n)
	if _, err := io.ReadFull(body, block); err != nil {
		s.failed = errs.Wrap("read", "the object", err)
		return s.failed
	}
	s.bytes += n
	s.block, s.at = block, off
	return nil
}
