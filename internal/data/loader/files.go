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

// files keeps files open while batches read them, and some of them for longer. The filler acquires files; other
// goroutines open files of later batches, and any goroutine may release files.
type files struct {
	open func(ctx context.Context, names []string) ([]dataset.Opened, []error)
	most int // the most open files, unless more are being read

	closing sync.WaitGroup // goroutines that close files

	mu      sync.Mutex
	opening map[int]bool // files that are being opened for later batches
	all     map[int]*held
	rest    list.List // of *held without a reader, the longest unused first
	err     error     // of closing files
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
		f.take(h)
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
		out[i] = f.keep(n, opened[k])
		f.take(out[i])
	}
	return out, bad
}

// keep adds an open file that nobody reads yet, and returns it. If the file was opened twice, keep closes the second
// one and returns the first. The caller holds mu.
func (f *files) keep(number int, o dataset.Opened) *held {
	if h := f.all[number]; h != nil {
		f.err = errors.Join(f.err, o.File.Close())
		return h
	}
	h := &held{Opened: o, number: number}
	h.at = f.rest.PushBack(h)
	f.all[number] = h
	return h
}

// take counts a reader of an open file. The caller holds mu.
func (f *files) take(h *held) {
	h.readers++
	if h.at != nil {
		f.rest.Remove(h.at)
		h.at = nil
	}
}

// prepare begins to open files for a later batch, and returns a channel that is closed when they are open. It returns
// nil if there is nothing to open. A file that cannot be opened is left to acquire. Files are prepared only if
// twice as many can stay open, so that no file is closed before its batch comes.
func (f *files) prepare(ctx context.Context, set *dataset.Set, numbers []int) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	var missing []int
	if len(numbers) <= f.most/(2*batchesComing) {
		for _, n := range numbers {
			if f.all[n] == nil && !f.opening[n] {
				missing = append(missing, n)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	names := make([]string, len(missing))
	for i, n := range missing {
		names[i], _ = set.File(n)
		f.opening[n] = true
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		opened, fails := f.open(ctx, names)
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, n := range missing {
			delete(f.opening, n)
			if fails[i] != nil {
				continue
			}
			if _, size := set.File(n); opened[i].File.Size() != size {
				f.err = errors.Join(f.err, opened[i].File.Close())
				continue
			}
			f.keep(n, opened[i])
		}
		f.shrink(f.most)
	}()
	return done
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
	if len(at) == 0 || f.rest.Len() == 0 {
		f.mu.Unlock()
		return
	}
	f.most = max(len(f.all)/2, 1)
	closed := f.shrink(0)
	f.mu.Unlock()
	<-closed
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
	f.shrink(f.most)
}

// shrink closes files that nobody reads, until at most n files are open. It returns a channel that is closed when they
// are closed. The caller holds mu.
func (f *files) shrink(n int) <-chan struct{} {
	var unused []*held
	done := make(chan struct{})
	for f.rest.Len() > 0 && len(f.all) > n {
		h := f.rest.Remove(f.rest.Front()).(*held)
		delete(f.all, h.number)
		unused = append(unused, h)
	}
	if len(unused) == 0 {
		close(done)
		return done
	}
	f.closing.Go(func() { // not in the time of a caller that waits for its batch
		defer close(done)
		var all error
		for _, h := range unused {
			all = errors.Join(all, h.File.Close())
		}
		if all != nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.err = errors.Join(f.err, all)
		}
	})
	return done
}

// close closes all files. No batch may read one.
func (f *files) close() error {
	f.mu.Lock()
	f.shrink(0)
	f.mu.Unlock()
	f.closing.Wait()
	return f.err
}
