// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"maps"
	"slices"
	"sync"
)

// holds are the files that must keep their names.
type holds struct {
	mu sync.Mutex
	of map[ID]*hold
}

type hold struct {
	n      int   // under holds.mu
	size   int64 // under holds.mu; size of the content, for Stats
	wanted bool  // under holds.mu; Remove was called for it
	parked bool  // under holds.mu; settling has left the name in tmp/, under which it may be open

	sumsMu sync.Mutex
	sums   []uint64 // shared by all Handouts of the file
	loaded bool
	of     int64 // the size of the content that the sums belong to
}

// Hold keeps the names of a file until the caller calls the returned function release; further calls of release do
// nothing. A client with a descriptor may need the file's name, because cuFile refuses a file without a name. Readers
// need no Hold, because an open file keeps its bytes even without a name.
func (f *Files) Hold(id ID) (release func()) {
	_, release = f.hold(id, 0)
	return release
}

// hold is Hold for content of this size.
func (f *Files) hold(id ID, size int64) (h *hold, release func()) {
	f.holds.mu.Lock()
	defer f.holds.mu.Unlock()
	if f.holds.of == nil {
		f.holds.of = map[ID]*hold{}
	}
	h = f.holds.of[id]
	if h == nil {
		h = &hold{}
		f.holds.of[id] = h
	}
	h.n++
	h.size = max(h.size, size)
	return h, sync.OnceFunc(func() {
		f.holds.mu.Lock()
		h.n--
		last := h.n == 0
		if last {
			delete(f.holds.of, id)
		}
		wanted, parked := last && h.wanted, last && h.parked
		f.holds.mu.Unlock()
		switch {
		case wanted && f.opts.Released != nil:
			f.opts.Released(id)
		case parked && !wanted:
			f.settler.resume(id)
		}
	})
}

// want reports whether a file is held, and if so records that it is to be removed.
func (h *holds) want(id ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.of[id]
	if x != nil {
		x.wanted = true
	}
	return x != nil
}

// park removes the name in tmp/ of a settled file, unless the file is held. For a held file, park records that the
// removal is left to do, and returns true. Nobody can hold the file in between.
func (h *holds) park(id ID, take func() error) (parked bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x := h.of[id]; x != nil {
		x.parked = true
		return true, nil
	}
	return false, take()
}

// orphans counts the files that exist only because they are held, and their bytes.
func (h *holds) orphans() (n int, bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.of {
		if x.wanted {
			n++
			bytes += x.size
		}
	}
	return n, bytes
}

// Remove durably removes the names that the given files have in tmp/ and in data/. After Remove has succeeded, the
// caller can delete the removed files from its removal list. For Remove, a missing file is no error. Remove keeps files
// that are held, and returns their IDs; Options.Released is called when a held file can be removed.
func (f *Files) Remove(ids ...ID) (held []ID, err error) {
	const op = "remove"
	dirs := map[string]struct{}{}
	note := func(e error) {
		if err == nil {
			err = e
		}
	}
	f.names.Lock()
	for _, id := range ids {
		if f.holds.want(id) {
			held = append(held, id)
			continue
		}
		f.settler.forget(id)
		// First the name in tmp/, from which settling links: after that, settling can create no other name.
		tmp, home := f.tmpName(id), f.home(id)
		if e := f.fs.Remove(tmp); e == nil {
			dirs[f.tmp] = struct{}{}
		} else if !missing(e) {
			note(fail(op, tmp, e))
			continue
		}
		if e := f.fs.Remove(f.dataName(id)); e == nil {
			dirs[home] = struct{}{}
		} else if !missing(e) {
			note(fail(op, f.dataName(id), e))
			continue
		}
		f.cache.forget(id)
	}
	f.names.Unlock()
	if _, ok := dirs[f.tmp]; ok {
		note(fail(op, f.tmp, f.tmpDir.wait()))
		delete(dirs, f.tmp)
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if e := f.syncDir(dir); e != nil && !missing(e) {
			note(fail(op, dir, e))
		}
	}
	return held, err
}
