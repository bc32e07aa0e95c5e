// SPDX-License-Identifier: Apache-2.0

package cachefile

// sweeper compares the files of a cache with its index after the start.
type sweeper struct{ s *Store }

// run removes files without an entry and entries without a file, which a crash has left.
func (w *sweeper) run() {
	defer close(w.s.swept)
	names, err := w.s.files.fs.List(w.s.files.data)
	if err != nil {
		w.s.opts.Failed(fail("sweep cache", w.s.files.data, err))
		return
	}
	seen := map[uint64]struct{}{}
	for _, name := range names {
		if !w.folder(w.s.files.fs.PathJoin(w.s.files.data, name), seen) {
			return
		}
	}
	w.s.index.mu.Lock()
	var lost []*version
	for _, v := range w.s.index.entries {
		if _, ok := seen[v.file]; !ok && !v.inline && v.file != 0 && v.file < w.s.files.ids.first {
			lost = append(lost, v)
		}
	}
	w.s.index.mu.Unlock()
	for _, v := range lost {
		if w.s.drop(v) {
			w.s.counts.lost.Add(1)
		}
	}
}

// folder removes the files of one folder that have no entry, and adds the others to seen. It returns false if the
// sweep cannot go on.
func (w *sweeper) folder(dir string, seen map[uint64]struct{}) bool {
	names, err := w.s.files.fs.List(dir)
	if err != nil {
		w.s.opts.Failed(fail("sweep cache", dir, err))
		return false
	}
	for _, name := range names {
		select {
		case <-w.s.stop:
			return false
		default:
		}
		n, ok := parseFile(name)
		if ok && n >= w.s.files.ids.first {
			continue // this process made it
		}
		w.s.index.mu.Lock()
		_, used := w.s.index.byFile[n]
		w.s.index.mu.Unlock()
		if ok && used {
			seen[n] = struct{}{}
			continue
		}
		w.s.files.remove(w.s.files.fs.PathJoin(dir, name))
	}
	return true
}
