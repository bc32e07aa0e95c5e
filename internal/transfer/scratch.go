// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"sync"

	"github.com/nebulaio/nebulaio/internal/hostmem"
)

// scratch is memory for reads of blocks that several processes share. The buffer that was given back last is taken
// first, so that few buffers are in use and stay in a CPU cache. A virtual disk on a machine with an H200 delivered
// 5.3 GB/s to 16 buffers of 512 KiB, and 4.0 GB/s to 512 of them. The zero value is ready for use.
type scratch struct {
	mu      sync.Mutex
	free    [][]byte // the buffer that was given back last is the last one
	regions []*hostmem.Region
}

// take returns a buffer of size bytes, or nil if there is no memory. All calls have the same size, which divides the
// size of a huge page or is a multiple of it.
func (s *scratch) take(size int64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		r, err := hostmem.Map(max(size, hostmem.HugePage))
		if err != nil {
			return nil
		}
		s.regions = append(s.regions, r)
		for mem := r.Bytes(); int64(len(mem)) >= size; mem = mem[size:] {
			s.free = append(s.free, mem[:size:size])
		}
	}
	n := len(s.free) - 1
	mem := s.free[n]
	s.free = s.free[:n]
	return mem
}

// give gives a buffer back. The buffer may be nil.
func (s *scratch) give(mem []byte) {
	if mem == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, mem)
}

// close frees the memory. No buffer may be in use.
func (s *scratch) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []error
	for _, r := range s.regions {
		all = append(all, r.Unmap())
	}
	s.free, s.regions = nil, nil
	return errors.Join(all...)
}
