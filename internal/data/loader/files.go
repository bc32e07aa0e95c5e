// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"container/list"
	"context"
	"errors"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// files keeps files open while batches read them, and some of them for longer. Only the filler opens files; any
// goroutine may release them.
type files struct {
	open func(ctx context.Context, name string) (*vfs.File, error)
	idle int // the most open files without a reader

	mu   sync.Mutex
	all  map[int]*held
	rest list.List // of *held without a reader, the longest unused first
	err  error     // of closing files
}

// held is an open file and the number of batches that read it.
type held struct {
	number  int
	file    *vfs.File
	readers int
	at      *list.Element // in rest, nil if there is a reader
}

// acquire returns a file of the set for reading. If the file has another size than its table says, the error is of
// kind Corrupt.
func (f *files) acquire(ctx context.Context, number int, name string, size int64) (*held, error) {
	f.mu.Lock()
	h := f.all[number]
	if h != nil {
		h.readers++
		if h.at != nil {
			f.rest.Remove(h.at)
			h.at = nil
		}
	}
	f.mu.Unlock()
	if h != nil {
		return h, nil
	}
	file, err := f.open(ctx, name)
	if err != nil {
		return nil, err
	}
	if file.Size() != size {
		e := errs.New(errs.Corrupt, "read samples", name, sizes(file.Size(), size))
		e.Fix = "make the index again, or copy the file again"
		return nil, errors.Join(e, file.Close())
	}
	h = &held{number: number, file: file, readers: 1}
	f.mu.Lock()
	f.all[number] = h
	f.mu.Unlock()
	return h, nil
}

// release ends the reading of files. It closes those that have been unused for longest.
func (f *files) release(hs []*held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range hs {
		if h.readers--; h.readers == 0 {
			h.at = f.rest.PushBack(h)
		}
	}
	f.shrink(f.idle)
}

// shrink closes unused files until at most n are left. The caller holds mu.
func (f *files) shrink(n int) {
	for f.rest.Len() > n {
		h := f.rest.Remove(f.rest.Front()).(*held)
		delete(f.all, h.number)
		f.err = errors.Join(f.err, h.file.Close())
	}
}

// close closes all files. No batch may read one.
func (f *files) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shrink(0)
	return f.err
}
