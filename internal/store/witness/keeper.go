// SPDX-License-Identifier: Apache-2.0

// Package witness records how far the metadata of a store is durable, and later proves with this record that no
// durable change is lost.
package witness

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metafile"
)

const (
	reachMagic = "nebureach1"
	reachSlots = 4    // of one copy
	reachSlot  = 1024 // bytes of a slot
	reachGap   = 4096 // from one slot to the next, so that no two share a page
	reachMost  = 30   // files that one slot names
	reachName  = 64   // bytes of the store's UUID that a slot holds
	// reachDelay limits how long a promise is only in the page cache. A kill of the process never loses a promise. A
	// power loss may lose the last ones, and with them the proof that the log is complete.
	reachDelay = 100 * time.Millisecond
)

// Keeper writes the witness: two small files outside the metadata that record the durable lengths of its log and its
// manifest. After each sync of a log or a manifest, Keeper records its new length before Pebble acknowledges the synced
// changes. At the next start the witness reveals a shortened log, which Pebble alone would accept as complete.
type Keeper struct {
	fs   vfs.FS
	Tell func(error) // called when a copy of the witness cannot be written any more
	fail func(error) // ends all changes of the store

	mu      sync.Mutex
	idle    *sync.Cond // signals that a copy is no longer being synced
	state   State
	pending uint64 // the manifest named by a new marker that is not synced yet
	copies  [2]reachCopy
	turn    int // the copy that is synced next
	timer   *time.Timer
	started bool
	closed  bool
}

// reachCopy is one file of the witness. The durable slot is not overwritten before another one is durable.
type reachCopy struct {
	file                   vfs.File
	durable, syncing, last int
}

// NewKeeper returns a Keeper that writes the witness to the given file system. The Keeper calls the function fail if no
// copy of the witness can be written any more.
func NewKeeper(under vfs.FS, fail func(error)) *Keeper {
	r := &Keeper{fs: under, fail: fail, Tell: func(error) {}}
	r.idle = sync.NewCond(&r.mu)
	return r
}

// Start opens or creates the files of the witness, and makes them durable with everything recorded so far. If the files
// of the witness exist, Start needs no disk space: it overwrites an older state and keeps the newest state.
func (r *Keeper) Start(dir, uuid string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, _, err := Read(r.fs, dir, uuid)
	if err != nil {
		return err
	}
	r.state.uuid, r.state.count = uuid, old.count+1
	text := r.state.encode()
	made := false
	for i, name := range layout.WitnessNames {
		path := r.fs.PathJoin(dir, name)
		c, ok, err := r.reuse(path, text, old.count)
		if err == nil && !ok {
			made = true
			c.file, err = r.create(path, text)
		}
		if err != nil {
			return layout.WrapIO("open store", path, err)
		}
		c.syncing, c.last = -1, c.durable
		r.copies[i] = c
	}
	if made {
		if err := layout.SyncDir(r.fs, dir); err != nil {
			return layout.WrapIO("open store", dir, err)
		}
	}
	r.started = true
	return nil
}

// reuse writes to an existing copy and makes it durable. It reports whether there is a copy of the right length.
func (r *Keeper) reuse(path string, text []byte, newest uint64) (c reachCopy, ok bool, err error) {
	info, err := r.fs.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return c, false, errs.New(errs.Corrupt, "", "", fmt.Sprintf("it is no file (mode %v)", info.Mode())).
			WithFix("stop the server and run nebulaio store check --repair, which moves it aside")
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() != reachGap*reachSlots {
		return c, false, nil
	}
	if err != nil {
		return c, false, err
	}
	if c.file, err = layout.Private(r.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)); err != nil {
		return c, false, err
	}
	b := make([]byte, reachSlot)
	for i := range reachSlots {
		if _, err := c.file.ReadAt(b, int64(i)*reachGap); err == nil {
			if s, ok := decodeReach(b); ok && s.count == newest {
				c.durable = (i + 1) % reachSlots
			}
		}
	}
	if _, err = c.file.WriteAt(text, int64(c.durable)*reachGap); err == nil {
		err = c.file.SyncData()
	}
	if err != nil {
		_ = c.file.Close() // the error of the write is told
		return reachCopy{}, false, err
	}
	return c, true, nil
}

// create replaces one copy atomically.
func (r *Keeper) create(path string, text []byte) (vfs.File, error) {
	file, err := layout.Private(r.fs.Create(path+".new", vfs.WriteCategoryUnspecified))
	if err != nil {
		return nil, err
	}
	_, err = file.Write(append(text, make([]byte, reachGap*reachSlots-len(text))...))
	if err == nil {
		err = file.Sync()
	}
	if e := file.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = r.fs.Rename(path+".new", path)
	}
	if err != nil {
		return nil, err
	}
	return r.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
}

// promised records the durable length of a file. It returns when the kernel has the record.
func (r *Keeper) promised(p promise) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.state.files, func(f promise) bool { return f.log == p.log && f.number == p.number })
	if i < 0 {
		r.state.files = append(r.state.files, p)
		slices.SortFunc(r.state.files, func(a, b promise) int { return cmp.Compare(a.number, b.number) })
	} else {
		r.state.files[i] = p
	}
	return r.write()
}

// Forget removes a log or a manifest from the witness, before the file is removed or reused for another log.
func (r *Keeper) Forget(log bool, number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.files = slices.DeleteFunc(r.state.files, func(f promise) bool { return f.log == log && f.number == number })
}

// Marker tells the Keeper that a marker file, which names a manifest, was created. The manifest that the marker file
// names counts as current after the next sync of the directory.
func (r *Keeper) Marker(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = number
}

// Named tells the Keeper that the file names in the metadata's directory are durable.
func (r *Keeper) Named() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.manifest = max(r.state.manifest, r.pending)
}

// write writes the state into the next slot of each copy. The caller holds the lock.
func (r *Keeper) write() error {
	if !r.started || r.closed {
		return nil
	}
	r.state.count++
	text := r.state.encode()
	for i := range r.copies {
		c := &r.copies[i]
		if c.file == nil {
			continue
		}
		slot := c.last
		for slot == c.last || slot == c.durable || slot == c.syncing {
			slot = (slot + 1) % reachSlots
		}
		if _, err := c.file.WriteAt(text, int64(slot)*reachGap); err != nil {
			if err := r.giveUp(i, err); err != nil {
				return err
			}
			continue
		}
		c.last = slot
	}
	if r.timer == nil {
		r.timer = time.AfterFunc(reachDelay, r.tick)
	}
	return nil
}

// giveUp continues without a copy that cannot be written, until the next Open. It returns the error if the copy was
// the last one, or if there is no space: the writer then waits for space.
func (r *Keeper) giveUp(i int, err error) error {
	if layout.IsNoSpace(err) || r.copies[1-i].file == nil {
		return err
	}
	_ = r.copies[i].file.Close()
	r.copies[i].file = nil
	go r.Tell(layout.WrapIO("write", layout.WitnessNames[i], err))
	return nil
}

// tick makes one copy durable in the background, and runs again while there is more to do.
func (r *Keeper) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = nil
	if r.closed {
		return
	}
	i := r.turn
	r.turn = 1 - i
	if err := r.settle(i); err != nil {
		r.mu.Unlock()
		r.fail(err)
		r.mu.Lock()
		return
	}
	// The other copy follows only with the next change: one durable copy is enough.
	if r.copies[i].last != r.copies[i].durable && r.timer == nil && !r.closed {
		r.timer = time.AfterFunc(reachDelay, r.tick)
	}
}

// settle makes the current contents of a copy durable. The caller holds the lock, which is released during the sync.
func (r *Keeper) settle(i int) error {
	c := &r.copies[i]
	for c.syncing >= 0 {
		r.idle.Wait()
	}
	if c.file == nil || c.last == c.durable {
		return nil
	}
	file := c.file
	c.syncing = c.last
	r.mu.Unlock()
	err := file.SyncData()
	r.mu.Lock()
	if err == nil {
		c.durable = c.syncing
	}
	c.syncing = -1
	r.idle.Broadcast()
	if err != nil && c.file != nil {
		return r.giveUp(i, err)
	}
	return nil
}

// Flush makes all copies of the witness durable. Flush is called when a log is complete and when the store is closed.
func (r *Keeper) Flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.started || r.closed {
		return nil
	}
	for i := range r.copies {
		if err := r.settle(i); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the files of the witness. If sync is set, Close first makes the files of the witness durable.
func (r *Keeper) Close(sync bool) error {
	var err error
	if sync {
		err = r.Flush()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return err
	}
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	for i := range r.copies {
		if r.copies[i].file == nil {
			continue
		}
		if e := r.copies[i].file.Close(); err == nil {
			err = e
		}
	}
	return err
}

// Tracked counts the writes of Pebble to one log or manifest.
type Tracked struct {
	reach  *Keeper
	Log    bool
	Number uint64
	Count  metafile.Counter
}

// Track returns a Tracked for a log or a manifest with this file name, or nil for any other file.
func (r *Keeper) Track(base string) *Tracked {
	number, kind, ok := metafile.ParseName(base)
	if !ok || kind != "log" && kind != "MANIFEST" {
		return nil
	}
	return &Tracked{reach: r, Log: kind == "log", Number: number}
}

// Synced tells the witness that all writes counted so far are durable.
func (t *Tracked) Synced() error {
	return t.reach.promised(promise{log: t.Log, number: t.Number, bytes: t.Count.Bytes, records: t.Count.Records})
}

// MarkedManifest returns the number of the manifest that a marker file names. MarkedManifest returns false if the
// file is no marker of a manifest.
func MarkedManifest(base string) (uint64, bool) {
	i := strings.LastIndex(base, ".MANIFEST-")
	if !strings.HasPrefix(base, "marker.manifest.") || i < 0 {
		return 0, false
	}
	n, kind, ok := metafile.ParseName(base[i+1:])
	return n, ok && kind == "MANIFEST"
}
