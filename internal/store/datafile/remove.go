// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"maps"
	"slices"
	"sync"
)

// holds are the files whose names must stay.
type holds struct {
	mu sync.Mutex
	of map[ID]*hold
}

type hold struct {
	n      int
	wanted bool // Remove was asked for it
}

// Hold keeps the file's name until release is called, once: who was handed a descriptor may need the name (cuFile refuses a file
// without one). Readers need no hold: a file keeps its bytes while it is open.
func (f *Files) Hold(id ID) (release func()) {
	f.holds.mu.Lock()
	defer f.holds.mu.Unlock()
	if f.holds.of == nil {
		f.holds.of = map[ID]*hold{}
	}
	h := f.holds.of[id]
	if h == nil {
		h = &hold{}
		f.holds.of[id] = h
	}
	h.n++
	return sync.OnceFunc(func() {
		f.holds.mu.Lock()
		h.n--
		last := h.n == 0
		if last {
			delete(f.holds.of, id)
		}
		wanted := last && h.wanted
		f.holds.mu.Unlock()
		if wanted && f.opts.Released != nil {
			f.opts.Released(id)
		}
	})
}

// want says whether a file is held, and if so notes that it is to be removed.
func (h *holds) want(id ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.of[id]
	if x != nil {
		x.wanted = true
	}
	return x != nil
}

// Remove takes away the names of files, in tmp/ and in data/, durably: after it the caller can strike them off its list. A file
// that is not there is no error. Those that are held stay and are returned; Options.Released tells when they can be removed.
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
		// First the name that settling links from: after that it can make no other one.
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
