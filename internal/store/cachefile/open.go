// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/codec"
	"github.com/nebulaio/nebulaio/internal/store/fence"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
)

// memTable is the size in bytes of a memory table of the database. The log that is replayed at start is about as long
// as two of them.
const memTable = 8 << 20

// Open opens the cache in o.Dir, and creates the directory if it is missing. Open reads the index of the entries, and
// does not look at the files. If the database is damaged, Open tells Options.Failed, removes all content and begins
// anew. Open fails with kind Invalid if another process has the cache open.
func Open(ctx context.Context, o Options) (*Store, error) {
	const op = "open cache"
	if err := o.defaults(); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fail(op, o.Dir, err)
	}
	var err error
	if o.FS, o.Dir, err = layout.Resolve(o.FS, o.Dir); err != nil {
		return nil, err
	}
	s := newStore(o)
	if err := s.makeDirs(); err != nil {
		return nil, err
	}
	if s.lock, err = layout.Lock(s.fs, o.Dir); err != nil {
		return nil, err
	}
	if err = s.openMeta(); err != nil {
		_ = s.lock.Close() // nothing was written
		return nil, err
	}
	s.tasks.Go(s.flusher)
	s.tasks.Go(s.sweep)
	return s, nil
}

func newStore(o Options) *Store {
	s := &Store{opts: o, fs: o.FS, data: o.FS.PathJoin(o.Dir, layout.DataName), folders: map[string]bool{},
		unsynced: map[string]bool{}, wake: make(chan struct{}, 1), evicts: make(chan struct{}, 1), stop: make(chan struct{}), swept: make(chan struct{}),
		join: checksum.NewJoiner()}
	s.reset()
	return s
}

// reset empties the index.
func (s *Store) reset() {
	s.entries, s.byKey, s.byFile = map[object.Identity]*version{}, map[keyName][]*version{}, map[uint64]*version{}
	s.dirty, s.touched = map[*version]struct{}{}, map[*version]struct{}{}
	s.pins, s.origins, s.pinEpoch = map[Pin]Pin{}, map[string]string{}, 1
	for i := range s.queues {
		s.queues[i].Init()
	}
	s.idle.Init()
	s.idleSums, s.whole, s.unsaved, s.doomed = 0, 0, 0, nil
	s.used, s.clock, s.known = 0, 0, generations{}
	s.guard = Guard{Capacity: s.opts.Capacity, ColdTime: s.opts.ColdTime}
}

// makeDirs creates the directory of the cache and makes its name durable.
func (s *Store) makeDirs() error {
	const op = "open cache"
	_, err := s.fs.Stat(s.opts.Dir)
	for _, dir := range []string{s.opts.Dir, s.data} {
		if err := s.fs.MkdirAll(dir, 0o700); err != nil {
			return fail(op, dir, err)
		}
	}
	if missing(err) {
		// If the parent belongs to another owner, its sync may fail. Then a loss of power may lose the empty cache.
		_ = layout.SyncDir(s.fs, s.fs.PathDir(s.opts.Dir))
	}
	return fail(op, s.opts.Dir, layout.SyncDir(s.fs, s.opts.Dir))
}

// openMeta opens the database and reads the index. A damaged database is replaced by an empty one.
func (s *Store) openMeta() error {
	err := s.tryMeta()
	if !errs.Is(err, errs.Corrupt) {
		return err
	}
	s.opts.Failed(&errs.Error{Kind: errs.Corrupt, Op: "open cache", Name: s.opts.Dir, Err: err,
		Msg: "the database is damaged, so the cache begins anew and its content is fetched again"})
	for _, dir := range []string{s.meta(), s.data} {
		if err := s.fs.RemoveAll(dir); err != nil {
			return fail("open cache", dir, err)
		}
	}
	s.reset()
	if err := s.makeDirs(); err != nil {
		return err
	}
	return s.tryMeta()
}

func (s *Store) meta() string { return s.fs.PathJoin(s.opts.Dir, layout.MetaName) }

func (s *Store) tryMeta() error {
	const op = "open cache"
	if err := metadb.CheckBlobs(s.fs, s.opts.Dir); err != nil {
		return err
	}
	if err := s.fs.MkdirAll(s.meta(), 0o700); err != nil {
		return fail(op, s.meta(), err)
	}
	s.fence = fence.New(s.fs, s.meta(), func(err error) {
		if !errors.Is(err, object.ErrClosed) { // which is how a closed database looks
			s.opts.Failed(err)
		}
	})
	s.fence.OnFull = s.giveWay
	s.fence.Hush()
	settings := metadb.Settings{Memory: s.opts.Memory, MemTable: memTable, BlobAge: metadb.BlobAge}
	db, err := s.fence.OpenDB(s.meta(), metadb.Options(s.fence, settings, false, fence.Logger{Fence: s.fence},
		s.background))
	if err != nil {
		return &errs.Error{Kind: metadb.KindOf(err), Op: op, Name: s.meta(), Err: err}
	}
	s.db = db
	s.fence.Arm()
	err = s.ids.begin(db)
	if err == nil {
		err = s.loadIndex()
	}
	if err == nil {
		err = fail(op, s.opts.Dir, layout.SyncDir(s.fs, s.opts.Dir))
	}
	if err != nil {
		_ = s.fence.CloseDB(db, s.opts.Dir) // the error that is returned says what is wrong
		return err
	}
	s.fence.Speak()
	return nil
}

// background tells of errors of the database's own work. Pebble tries again.
func (s *Store) background(err error) {
	s.opts.Failed(&errs.Error{Kind: errs.KindOf(err), Op: "write cache metadata", Name: s.meta(), Err: err})
}

// loadIndex reads the records of all entries, the pins and the state of the Guard, but neither sums nor content.
func (s *Store) loadIndex() error {
	reads, err := s.loadReads()
	if err != nil {
		return err
	}
	var all []*version
	err = s.each(kindEntry, func(key, value []byte) {
		r, err := decodeEntry(value)
		file, ok := numberOf(key)
		if err != nil || !ok || s.entries[r.id] != nil {
			s.opts.Failed(errs.Wrap("open cache", fmt.Sprintf("record %x", key), errors.Join(err, unreadable("entry", key))))
			s.doomed = append(s.doomed, doomed{file, chunkBlocks*chunkBlocks + 1, nil})
			s.lost.Add(1)
			return
		}
		v := newVersion(s, r.id)
		v.file, v.inline, v.named = file, r.inline, true
		v.superseded, v.foreign, v.proof, v.admitted, v.read = r.superseded, r.foreign, r.proof, r.admitted, r.read
		if m, ok := reads[file]; ok {
			v.read = m
		}
		v.count, v.bytes, v.allocated = r.blocks, r.bytes, r.allocated
		all = append(all, v)
		s.entries[r.id] = v // so that a second record of it is noticed
	})
	if err != nil {
		return err
	}
	if err := s.loadPolicy(); err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b *version) int { return cmp.Compare(a.read.Bytes, b.read.Bytes) })
	for _, v := range all {
		s.enter(v) // in front of those that were read before
		s.byFile[v.file] = v
		s.used += v.allocated
		s.clock = max(s.clock, v.read.Bytes)
		s.ids.raise(v.file)
	}
	return s.loadPins()
}

// loadReads reads when entries were read last.
func (s *Store) loadReads() (map[uint64]Moment, error) {
	reads := map[uint64]Moment{}
	err := s.each(kindRead, func(key, value []byte) {
		if m, ok := decodeRead(value); ok {
			if file, ok := numberOf(key); ok {
				reads[file] = m
			}
		}
	})
	return reads, err
}

// loadPolicy reads the access clock and the state of the Guard. What is not readable begins anew.
func (s *Store) loadPolicy() error {
	b, err := metadb.Get(s.db, metaKey("policy"))
	if err != nil || b == nil {
		return err
	}
	d := codec.Decoder{Rest: b}
	version, clock, usual := d.Byte(), d.Int(), math.Float64frombits(d.Word())
	var g generations
	g.decode(&d)
	if d.Done() && version == recordVersion && clock >= 0 && usual >= 0 && !math.IsInf(usual, 0) {
		s.clock, s.guard.Usual, s.known = clock, usual, g
	}
	return nil
}

func (s *Store) loadPins() error {
	now := s.opts.Now()
	return s.each(kindPin, func(key, value []byte) {
		p, err := decodePin(value)
		if err != nil {
			s.opts.Failed(errs.Wrap("open cache", fmt.Sprintf("pin %x", key), err))
			return
		}
		if p.Expires.IsZero() || now.Before(p.Expires) {
			s.pins[p.name()] = p
		}
	})
}

// each calls use with each key and value of one kind.
func (s *Store) each(kind byte, use func(key, value []byte)) error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{kind}, UpperBound: []byte{kind + 1}})
	if err != nil {
		return metadb.WrapRead("", err)
	}
	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			_ = it.Close() // the first error is told
			return metadb.WrapRead("", err)
		}
		use(it.Key(), value)
	}
	return metadb.WrapRead("", it.Close())
}

// numberOf returns the file number in a key that numberKey made.
func numberOf(key []byte) (uint64, bool) {
	if len(key) != 9 {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), true
}

// raise keeps the number of an existing file from being assigned again, should the mark be too low.
func (n *numbers) raise(file uint64) {
	if file >= n.next && file < math.MaxUint64-2*numberReserve {
		n.next, n.mark, n.first = file+1, file+1, file+1
	}
}

// sweep removes files without an entry and entries without a file, which a crash has left.
func (s *Store) sweep() {
	defer close(s.swept)
	names, err := s.fs.List(s.data)
	if err != nil {
		s.opts.Failed(fail("sweep cache", s.data, err))
		return
	}
	seen := map[uint64]struct{}{}
	for _, name := range names {
		if !s.sweepFolder(s.fs.PathJoin(s.data, name), seen) {
			return
		}
	}
	s.mu.Lock()
	var lost []*version
	for _, v := range s.entries {
		if _, ok := seen[v.file]; !ok && !v.inline && v.file != 0 && v.file < s.ids.first {
			lost = append(lost, v)
		}
	}
	s.mu.Unlock()
	for _, v := range lost {
		if s.drop(v) {
			s.lost.Add(1)
		}
	}
}

// sweepFolder removes the files of one folder that have no entry, and adds the others to seen. It returns false if the
// sweep cannot go on.
func (s *Store) sweepFolder(dir string, seen map[uint64]struct{}) bool {
	names, err := s.fs.List(dir)
	if err != nil {
		s.opts.Failed(fail("sweep cache", dir, err))
		return false
	}
	for _, name := range names {
		select {
		case <-s.stop:
			return false
		default:
		}
		n, ok := parseFile(name)
		if ok && n >= s.ids.first {
			continue // this process made it
		}
		s.mu.Lock()
		_, used := s.byFile[n]
		s.mu.Unlock()
		if ok && used {
			seen[n] = struct{}{}
			continue
		}
		s.remove(s.fs.PathJoin(dir, name))
	}
	return true
}

// Close makes all present blocks durable and closes the cache. Entries that are still held stay readable. Close can be
// called more than once.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	close(s.stop)
	s.tasks.Wait()
	err := s.flush(context.Background(), nil, true)
	s.life.Lock()
	s.over = true
	if e := s.fence.CloseDB(s.db, s.opts.Dir); err == nil {
		err = e
	}
	s.life.Unlock()
	s.mu.Lock()
	var idle []*version
	for s.idle.Len() > 0 {
		v := s.idle.Front().Value.(*version)
		s.unrest(v)
		idle = append(idle, v)
	}
	clear(s.dirty)
	s.mu.Unlock()
	for _, v := range idle {
		s.unload(v)
	}
	if e := s.lock.Close(); err == nil {
		err = fail("close cache", s.opts.Dir, e)
	}
	return err
}
