// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// row is one kind of load. All its targets get the same load.
type row struct {
	Name    string `json:"name"`
	put     bool
	object  int64 // size of an object in bytes
	ranged  int64 // length of each range; 0 means whole objects
	streams int
	ops     int // operations in each round, over all streams
	byBytes bool
	only    []string // names of targets; nil means all
}

// readable returns the number of objects to read: enough to be distinct, few enough that the page cache has room for
// the copies of all targets.
func readable(size int64) int {
	switch size {
	case 64 * mib:
		return 4
	case mib:
		return 128
	}
	return 1000
}

var (
	readers = []string{"bare", "versitygw", "minio", "nebulaio", "nebulaio always"}
	writers = []string{"bare", "bare+fdatasync", "bare+md5+sync", "versitygw", "minio", "nebulaio", "nebulaio crc64"}
)

func rows() []row {
	return []row{
		{Name: tlsRow, object: 64 * mib, streams: 4, ops: 64, byBytes: true, only: append(readers, tlsName, sseName)},
		{Name: "GET ranges of 1 MiB, 8 streams", object: 64 * mib, ranged: mib, streams: 8, ops: 4000, only: readers},
		{Name: "GET ranges of 128 KiB, 8 streams", object: 64 * mib, ranged: 128 * kib, streams: 8, ops: 8000, only: readers},
		{Name: "GET 1 MiB, 8 streams", object: mib, streams: 8, ops: 3000, only: readers},
		{Name: "GET 4 KiB, 8 streams", object: 4 * kib, streams: 8, ops: 16000, only: readers},
		{Name: "PUT 64 MiB, 4 streams", put: true, object: 64 * mib, streams: 4, ops: 16, byBytes: true, only: writers},
		{Name: "PUT 1 MiB, 8 streams", put: true, object: mib, streams: 8, ops: 600, only: writers},
		{Name: "PUT 4 KiB, 8 streams", put: true, object: 4 * kib, streams: 8, ops: 6000, only: writers},
		{Name: "PUT 4 KiB, 64 streams", put: true, object: 4 * kib, streams: 64, ops: 12800, only: writers},
	}
}

// content returns random bytes that neither compress nor repeat. Every object is a beginning of them.
func content() ([]byte, error) {
	b := make([]byte, 64*mib)
	_, err := rand.Read(b)
	return b, err
}

// fill creates the bucket and the objects to read. It reads each object back once and compares it, so that a target
// with wrong bytes is not measured.
func fill(t *target, data []byte, sizes map[int64]bool) error {
	s := t.stream()
	defer s.close()
	if err := s.do(t.sign(http.MethodPut, "", nil, nil, http.StatusOK, -1), nil); err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	if err := t.encryptBucket(s); err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	for size := range sizes {
		for i := range readable(size) {
			key := readKey(size, i)
			if err := s.do(t.sign(http.MethodPut, key, nil, data[:size], http.StatusOK, -1), nil); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			off, same := 0, true
			err := s.do(t.sign(http.MethodGet, key, nil, nil, http.StatusOK, size), func(p []byte) {
				same = same && off+len(p) <= len(data) && bytes.Equal(p, data[off:off+len(p)])
				off += len(p)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			if !same {
				return fmt.Errorf("%s: %s came back with other bytes than were written", t.name, key)
			}
		}
	}
	return nil
}

func readKey(size int64, i int) string { return fmt.Sprintf("read-%d-%d", size, i) }

// work prepares one round of a row for a target: the requests of each stream in their order. Ranges are spread over
// objects and offsets without a pattern that readahead could follow.
func (r row) work(t *target, data []byte, round int) [][]request {
	lists := make([][]request, r.streams)
	objects := readable(r.object)
	for i := range r.ops {
		var q request
		switch {
		case r.put:
			q = t.sign(http.MethodPut, r.writeKey(round, i), nil, data[:r.object], http.StatusOK, -1)
		case r.ranged > 0:
			off := int64(i) * 2654435761 % (r.object / r.ranged) * r.ranged
			q = t.sign(http.MethodGet, readKey(r.object, i%objects), nil, nil, http.StatusPartialContent, r.ranged,
				fmt.Sprintf("Range: bytes=%d-%d", off, off+r.ranged-1))
		default:
			q = t.sign(http.MethodGet, readKey(r.object, i%objects), nil, nil, http.StatusOK, r.object)
		}
		lists[i%r.streams] = append(lists[i%r.streams], q)
	}
	return lists
}

func (r row) writeKey(round, i int) string {
	return fmt.Sprintf("write-%d-%d-%d-%d", r.object, r.streams, round, i)
}

// measure runs one round of the row on one target. It first waits until the disk is quiet, so that no target pays for
// another's writes. Large objects are deleted afterwards. Small ones stay, as in a store that is in use.
func (r row) measure(t *target, data []byte, round int) (sample, error) {
	work := r.work(t, data, round)
	if r.put {
		unix.Sync()
	}
	s, err := load(t, work)
	if err != nil || !r.put || r.object < mib {
		return s, err
	}
	keys := make([]string, r.ops)
	for i := range keys {
		keys[i] = r.writeKey(round, i)
	}
	return s, remove(t, keys, 8)
}

// remove deletes keys over several streams.
func remove(t *target, keys []string, streams int) error {
	return overStreams(t, len(keys), streams, func(s *stream, i int) error {
		return s.do(t.sign(http.MethodDelete, keys[i], nil, nil, http.StatusNoContent, -1), nil)
	})
}

// overStreams calls do for each number below count, spread over several streams. A stream stops at its first error.
func overStreams(t *target, count, streams int, do func(s *stream, i int) error) error {
	failures := make([]error, streams)
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			s := t.stream()
			defer s.close()
			for j := i; j < count && failures[i] == nil; j += streams {
				failures[i] = do(s, j)
			}
		})
	}
	wg.Wait()
	for _, err := range failures {
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}
