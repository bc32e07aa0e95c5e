// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// spaceFor is how long a reading of the free space is used.
const spaceFor = 100 * time.Millisecond

// space refuses content before the disk is full, so that the metadata can always be written: deletions need space
// too.
type space struct {
	s    *Store
	when atomic.Int64 // Unix nanoseconds of the last look
	free atomic.Int64 // -1: unknown
}

func (p *space) init(s *Store) { p.s = s }

// left returns the free bytes, or -1 if that is unknown.
func (p *space) left() int64 {
	now := time.Now().UnixNano()
	last := p.when.Load()
	if now-last < int64(spaceFor) || !p.when.CompareAndSwap(last, now) {
		return p.free.Load()
	}
	return p.look()
}

// look asks the file system.
func (p *space) look() int64 {
	u, err := p.s.fs.GetDiskUsage(p.s.opts.Dir)
	if err != nil {
		p.free.Store(-1)
		return -1
	}
	p.free.Store(int64(min(u.AvailBytes, 1<<62)))
	return p.free.Load()
}

// check refuses n more bytes if they do not fit beside the reserve.
func (p *space) check(op, name string, n int64) error {
	if err := p.s.writable(op, name); err != nil {
		return err
	}
	if p.s.opts.Reserve < 0 {
		return nil
	}
	short := func(free int64) bool { return free >= 0 && free-max(n, 0) < p.s.opts.Reserve }
	if !short(p.left()) {
		return nil
	}
	// Read the free space again before a refusal: space may have been freed just now.
	if free := p.look(); short(free) {
		return p.full(op, name, free)
	}
	return nil
}

// kept checks, by reading the free space, whether the reserve is still free after space was taken.
func (p *space) kept(op, name string) error {
	if p.s.opts.Reserve < 0 {
		return nil
	}
	if free := p.look(); free >= 0 && free < p.s.opts.Reserve {
		return p.full(op, name, free)
	}
	return nil
}

func (p *space) full(op, name string, free int64) error {
	return object.Fail(op, name, object.ErrNoSpace, fmt.Sprintf("%d bytes are free, %d are kept in reserve", free,
		p.s.opts.Reserve))
}
