// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/verify"
)

// readiness tracks which parts of a transfer are final in the destination while others still arrive. It counts down
// the bytes of each part as they are delivered. Each byte is delivered once (T1), so a part without remaining bytes
// is final. If the transfer verifies, a byte counts when its block has matched its checksum. No part counts before
// the blocks of Request.Also in its file have matched.
type readiness struct {
	mu    sync.Mutex
	parts []Part
	left  []int64 // bytes that are not delivered yet, by part
	// byDst lists the parts of each file that have bytes, sorted by address.
	byDst [][]int
	ready int // parts[:ready] are final
	// wake, if not nil, is closed when ready grows.
	wake chan struct{}

	block   []int64                      // block size of each file; 0 if the file is not verified
	proved  map[verify.Block]struct{}    // blocks that matched their checksums
	waiting map[verify.Block][]openPiece // delivered ranges whose block is not complete
	gates   map[verify.Block]struct{}    // blocks of Request.Also that have not matched yet
	gated   []int                        // number of such blocks, by file
}

// openPiece is a delivered range whose block is not complete.
type openPiece struct {
	dst device.Ptr
	n   int64
}

// newReadiness returns the readiness of a request. It fails if parts of a file overlap.
func newReadiness(r *Request) (*readiness, error) {
	y := &readiness{parts: r.Parts, left: make([]int64, len(r.Parts)), byDst: make([][]int, len(r.Files)),
		block: make([]int64, len(r.Files)), gated: make([]int, len(r.Files))}
	for i, p := range r.Parts {
		if p.File < 0 || p.File >= len(r.Files) || p.Len < 0 {
			return nil, errs.New(errs.Invalid, "start transfer", fmt.Sprintf("part %d", i),
				fmt.Sprintf("has %d bytes of file %d of %d", p.Len, p.File, len(r.Files)))
		}
		y.left[i] = p.Len
		if p.Len > 0 {
			y.byDst[p.File] = append(y.byDst[p.File], i)
		}
	}
	for _, list := range y.byDst {
		slices.SortFunc(list, func(a, b int) int { return cmp.Compare(y.parts[a].Dst, y.parts[b].Dst) })
		for k := 1; k < len(list); k++ {
			if a, b := y.parts[list[k-1]], y.parts[list[k]]; a.Dst+device.Ptr(a.Len) > b.Dst {
				return nil, errs.New(errs.Invalid, "start transfer", fmt.Sprintf("parts %d and %d", list[k-1],
					list[k]), "overlap in the destination")
			}
		}
	}
	if len(r.Parts) > 0 {
		y.expectBlocks(r)
	}
	y.advance()
	return y, nil
}

// expectBlocks records the blocks of Request.Also, which must match besides the parts' own blocks.
func (y *readiness) expectBlocks(r *Request) {
	for i, s := range r.Verify {
		if s != nil {
			y.block[i] = s.Block
		}
	}
	y.proved, y.waiting, y.gates = map[verify.Block]struct{}{}, map[verify.Block][]openPiece{},
		map[verify.Block]struct{}{}
	for _, x := range r.Also {
		if y.block[x.File] == 0 || x.Len == 0 {
			continue
		}
		for b := x.Off / y.block[x.File]; b <= (x.Off+x.Len-1)/y.block[x.File]; b++ {
			if id := (verify.Block{File: x.File, Index: b}); !has(y.gates, id) {
				y.gates[id] = struct{}{}
				y.gated[x.File]++
			}
		}
	}
}

func has(set map[verify.Block]struct{}, id verify.Block) bool {
	_, ok := set[id]
	return ok
}

// landed counts the wanted bytes of a chunk, which are now in the destination.
func (y *readiness) landed(c plan.Chunk) {
	if y == nil || len(y.parts) == 0 {
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	size := y.block[c.File]
	if size == 0 {
		for dst, n := range c.Places() {
			y.count(c.File, dst, n)
		}
	}
	for size > 0 && c.Len > 0 {
		id := verify.Block{File: c.File, Index: c.Off / size}
		part := c
		part.Len = min(c.Len, (id.Index+1)*size-c.Off)
		for dst, n := range part.Places() {
			if has(y.proved, id) {
				y.count(c.File, dst, n)
			} else {
				y.waiting[id] = append(y.waiting[id], openPiece{dst, n})
			}
		}
		c.Off, c.Len = c.Off+part.Len, c.Len-part.Len
		if c.Weave == nil {
			c.Dst += device.Ptr(part.Len)
		}
	}
	y.advance()
}

// right records that a block has matched its checksum.
func (y *readiness) right(id verify.Block) {
	if len(y.parts) == 0 {
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.proved[id] = struct{}{}
	if has(y.gates, id) {
		delete(y.gates, id)
		y.gated[id.File]--
	}
	for _, p := range y.waiting[id] {
		y.count(id.File, p.dst, p.n)
	}
	delete(y.waiting, id)
	y.advance()
}

// count subtracts n bytes at dst from the parts to which they belong.
func (y *readiness) count(file int, dst device.Ptr, n int64) {
	list, end := y.byDst[file], dst+device.Ptr(n)
	// This is the first part that ends after dst.
	k, _ := slices.BinarySearchFunc(list, dst, func(i int, at device.Ptr) int {
		if y.parts[i].Dst+device.Ptr(y.parts[i].Len) <= at {
			return -1
		}
		return 1
	})
	for ; k < len(list); k++ {
		p := y.parts[list[k]]
		if p.Dst >= end {
			return
		}
		y.left[list[k]] -= int64(min(end, p.Dst+device.Ptr(p.Len)) - max(dst, p.Dst))
	}
}

// advance increases ready over all parts that are final.
func (y *readiness) advance() {
	before := y.ready
	for y.ready < len(y.parts) && y.left[y.ready] == 0 && y.gated[y.parts[y.ready].File] == 0 {
		y.ready++
	}
	if y.ready > before && y.wake != nil {
		close(y.wake)
		y.wake = nil
	}
}

// look returns the number of final parts. If it is not more than known, look also returns a channel that is closed
// when the number grows.
func (y *readiness) look(known int) (int, <-chan struct{}) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.ready > known {
		return y.ready, nil
	}
	if y.wake == nil {
		y.wake = make(chan struct{})
	}
	return y.ready, y.wake
}
