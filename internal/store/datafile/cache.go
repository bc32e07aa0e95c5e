// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"container/list"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// mostSums limits the sums that are kept for files without a reader to 64 MiB: the sums of one file of any size, or
// of a thousand files of 8 GiB. Without the limit a thousand of the largest files would take 40 GiB.
const mostSums = 8 << 20

// cache keeps files open between readers, so that reading a range needs no open, and remembers which blocks were
// compared.
type cache struct {
	f *Files

	mu      sync.Mutex
	entries map[ID]*entry
	idle    list.List // of *entry without users, the one that was used last in front
	sums    int       // how many sums those of idle have
	most    int       // of sums; see mostSums
	closed  bool
}

// entry is one open file. The fields under mu belong to the cache.
type entry struct {
	id    ID
	refs  int           // under mu
	place *list.Element // under mu; nil while in use
	kept  int           // under mu; the sums that it has while idle
	dead  bool          // under mu; no longer to be found

	once sync.Once
	err  error
	file vfs.File
	fd   int // -1 where the file has no descriptor
	size int64
	seen []atomic.Uint64 // a bit for each block that was compared

	sumsMu sync.Mutex
	sums   []uint64
	right  int64 // how many blocks were compared
}

func (c *cache) start(f *Files) {
	c.f = f
	c.entries, c.most = map[ID]*entry{}, mostSums
}

// rest adds an entry without users to the idle ones.
func (c *cache) rest(e *entry) {
	e.sumsMu.Lock()
	e.kept = len(e.sums)
	e.sumsMu.Unlock()
	c.sums += e.kept
	e.place = c.idle.PushFront(e)
}

// rouse removes an entry from the idle ones.
func (c *cache) rouse(e *entry) {
	c.idle.Remove(e.place)
	c.sums -= e.kept
	e.place = nil
}

// stop closes the unused files; the last user of a file closes it otherwise.
func (c *cache) stop() {
	c.mu.Lock()
	c.closed = true
	var idle []*entry
	for e := c.idle.Front(); e != nil; e = e.Next() {
		idle = append(idle, e.Value.(*entry))
	}
	c.idle.Init()
	clear(c.entries)
	c.mu.Unlock()
	for _, e := range idle {
		e.close()
	}
}

// acquire opens a file or finds it open. release gives it back.
func (c *cache) acquire(id ID) (*entry, error) {
	c.mu.Lock()
	e := c.entries[id]
	if e == nil {
		e = &entry{id: id, fd: -1}
		c.entries[id] = e
	}
	e.refs++
	if e.place != nil {
		c.rouse(e)
	}
	c.mu.Unlock()
	e.once.Do(func() { e.err = e.open(c.f) })
	if e.err != nil {
		c.drop(e)
		c.release(e)
		return nil, e.err
	}
	return e, nil
}

// again adds one more user of a file that is in use.
func (c *cache) again(e *entry) {
	c.mu.Lock()
	e.refs++
	c.mu.Unlock()
}

// drop hides the file from new users.
func (c *cache) drop(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.dead = true
	if c.entries[e.id] == e {
		delete(c.entries, e.id)
	}
}

// release ends a use. The file stays open while the cache has room for it.
func (c *cache) release(e *entry) {
	c.mu.Lock()
	var out []*entry
	if e.refs--; e.refs == 0 {
		switch {
		case e.dead, c.closed:
			out = append(out, e)
		default:
			c.rest(e)
			for c.idle.Len() > c.f.opts.OpenFiles || c.sums > c.most {
				old := c.idle.Back().Value.(*entry)
				c.rouse(old)
				delete(c.entries, old.id)
				out = append(out, old)
			}
		}
	}
	c.mu.Unlock()
	for _, e := range out {
		e.close()
	}
}

// forget closes a file that was removed, so that its space is freed.
func (c *cache) forget(id ID) {
	c.mu.Lock()
	e := c.entries[id]
	if e == nil {
		c.mu.Unlock()
		return
	}
	delete(c.entries, id)
	e.dead = true
	idle := e.place != nil
	if idle {
		c.rouse(e)
	}
	c.mu.Unlock()
	if idle {
		e.close()
	}
}

// open finds the file in data/, in tmp/, or, if it was settled in between, in data/.
func (e *entry) open(f *Files) error {
	file, err := f.find(e.id)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return err
	}
	e.file, e.size = file, info.Size()
	if fd := file.Fd(); fd != vfs.InvalidFd {
		e.fd = int(fd)
	}
	if f.opts.Verify == VerifyFirst && e.size <= MaxSize {
		e.seen = make([]atomic.Uint64, (blocks(e.size)+63)/64)
	}
	return nil
}

// find opens a file for reading, in data/ or tmp/.
func (f *Files) find(id ID) (vfs.File, error) {
	names := []string{f.dataName(id), f.tmpName(id), f.dataName(id)}
	if f.settler.inTmp(id) {
		names = names[1:]
	}
	var file vfs.File
	var err error
	for _, name := range names {
		err = f.guarded(name, unix.O_RDONLY, func() (err error) {
			file, err = f.fs.Open(name)
			return err
		})
		if !missing(err) {
			return file, err
		}
	}
	return nil, err
}

func (e *entry) close() {
	if e.file != nil {
		_ = e.file.Close() // nothing was written through it
	}
}

// compared reports whether block i was compared before and matched.
func (e *entry) compared(i int64) bool {
	return i>>6 < int64(len(e.seen)) && e.seen[i>>6].Load()>>(uint(i)&63)&1 == 1
}

// remember records that block i matched. When all blocks have matched, the sums are not needed any more.
func (e *entry) remember(i, of int64) {
	if i>>6 >= int64(len(e.seen)) {
		return
	}
	bit := uint64(1) << (uint(i) & 63)
	if e.seen[i>>6].Or(bit)&bit != 0 {
		return
	}
	e.sumsMu.Lock()
	defer e.sumsMu.Unlock()
	if e.right++; e.right == of {
		e.sums = nil
	}
}

// allRight reports whether all blocks were compared before and matched.
func (e *entry) allRight(of int64) bool {
	e.sumsMu.Lock()
	defer e.sumsMu.Unlock()
	return e.right == of
}

// load returns the sums, which are loaded once.
func (e *entry) load(sums func() ([]uint64, error)) ([]uint64, error) {
	e.sumsMu.Lock()
	defer e.sumsMu.Unlock()
	if e.sums == nil {
		s, err := sums()
		if err != nil {
			return nil, err
		}
		e.sums = s
	}
	return e.sums, nil
}
