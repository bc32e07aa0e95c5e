// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"container/list"
	"context"
	"errors"
	"sync"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// files keeps files open while batches read them, and some of them for longer. Only the filler opens files; any
// goroutine may release them.
type files struct {
	open func(ctx context.Context, names []string) ([]dataset.Opened, []error)
	idle int // the most open files without a reader

	mu   sync.Mutex
	all  map[int]*held
	rest list.List // of *held without a reader, the longest unused first
	err  error     // of closing files
}

// held is an open file and the number of batches that read it.
type held struct {
	dataset.Opened
	number  int
	readers int
	at      *list.Element // in rest, nil if there is a reader
}

// acquire returns files of the set for reading, in the order of their numbers. If a file cannot be opened, its entry is
// nil and the error is in the map. If a file has another size than the set says, the error is of kind Corrupt.
func (f *files) acquire(ctx context.Context, set *dataset.Set, numbers []int) ([]*held, map[int]error) {
	out := make([]*held, len(numbers))
	var missing []int // positions in numbers
	f.mu.Lock()
	for i, n := range numbers {
		h := f.all[n]
		if h == nil {
			missing = append(missing, i)
			continue
		}
		h.readers++
		if h.at != nil {
			f.rest.Remove(h.at)
			h.at = nil
		}
		out[i] = h
	}
	f.mu.Unlock()
	if len(missing) == 0 {
		return out, nil
	}
	names := make([]string, len(missing))
	for k, i := range missing {
		names[k], _ = set.File(numbers[i])
	}
	opened, fails := f.open(ctx, names)
	f.again(ctx, names, opened, fails)
	bad := map[int]error{}
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, i := range missing {
		n := numbers[i]
		err := fails[k]
		if _, size := set.File(n); err == nil && opened[k].File.Size() != size {
			e := errs.New(errs.Corrupt, "read samples", names[k], sizes(opened[k].File.Size(), size))
			e.Fix = "make the index again, or copy the file again"
			err = errors.Join(e, opened[k].File.Close())
		}
		if err != nil {
			bad[n] = err
			continue
		}
		out[i] = &held{Opened: opened[k], number: n, readers: 1}
		f.all[n] = out[i]
	}
	return out, bad
}

// again closes all files that are not being read and opens the failed ones once more: a limit of open files of this
// process, or of handles of a server, can be reached. After that, fewer files stay open. Missing and damaged files are
// not tried again.
func (f *files) again(ctx context.Context, names []string, opened []dataset.Opened, fails []error) {
	var at []int
	var want []string
	for i, err := range fails {
		if err != nil && !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Corrupt) {
			at, want = append(at, i), append(want, names[i])
		}
	}
	f.mu.Lock()
	crowded := len(at) > 0 && f.rest.Len() > 0
	if crowded {
		f.idle = max(f.rest.Len()/2, 1)
		f.shrink(0)
	}
	f.mu.Unlock()
	if !crowded {
		return
	}
	files, errors := f.open(ctx, want)
	for k, i := range at {
		opened[i], fails[i] = files[k], errors[k]
	}
}

// release ends the reading of files. It closes those that have been unused for longest.
func (f *files) release(hs []*held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range hs {
		if h == nil {
			continue
		}
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
		f.err = errors.Join(f.err, h.File.Close())
	}
}

// close closes all files. No batch may read one.
func (f *files) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shrink(0)
	return f.err
}
