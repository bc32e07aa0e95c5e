// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"hash/maphash"
	"slices"
	"sync"
)

// stripeCount is the number of locks that keys share: enough that hundreds of concurrent writers seldom meet, since a
// lock is held while the log is synced.
const stripeCount = 8192

// stripes are the locks of keys. A change of a key holds its lock from reading the state until the change is durable;
// a read holds it for reading. So conditions are checked at the moment of the change, and nobody sees a change that a
// power loss could still undo.
type stripes struct {
	seed  maphash.Seed
	locks [stripeCount]sync.RWMutex
}

func (s *stripes) index(bucket uint64, key string) int {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for range 8 {
		_ = h.WriteByte(byte(bucket))
		bucket >>= 8
	}
	_, _ = h.WriteString(key)
	return int(h.Sum64() % stripeCount)
}

func (s *stripes) of(bucket uint64, key string) *sync.RWMutex {
	return &s.locks[s.index(bucket, key)]
}

// lockAll locks the stripes of several keys, each once and in order, and returns the function that unlocks them.
func (s *stripes) lockAll(bucket uint64, keys []string) (unlock func()) {
	is := make([]int, len(keys))
	for i, k := range keys {
		is[i] = s.index(bucket, k)
	}
	slices.Sort(is)
	is = slices.Compact(is)
	for _, i := range is {
		s.locks[i].Lock()
	}
	return func() {
		for _, i := range is {
			s.locks[i].Unlock()
		}
	}
}
