// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"context"
	"errors"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/fence"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
)

// memTable is the size in bytes of a memory table of the database. The log that is replayed at start is about as long
// as two of them.
const memTable = 8 << 20

// metadata is the database of a cache.
type metadata struct {
	opts  *Options
	fs    vfs.FS
	fence *fence.Fence
	db    *pebble.DB

	// life is held for reading while the database is used, and for writing while it is closed. Only index.mu may be
	// waited for while life is held.
	life sync.RWMutex
	over bool // guarded by life: the database is closed
}

// pair is a key and a value of the database.
type pair struct{ key, value []byte }

// dir returns the directory of the database.
func (m *metadata) dir() string { return m.fs.PathJoin(m.opts.Dir, layout.MetaName) }

// open opens the database. full is called when the disk is full, and reports whether it has freed space.
func (m *metadata) open(full func() bool) error {
	const op = "open cache"
	if err := metadb.CheckBlobs(m.fs, m.opts.Dir); err != nil {
		return err
	}
	if err := m.fs.MkdirAll(m.dir(), 0o700); err != nil {
		return fail(op, m.dir(), err)
	}
	m.fence = fence.New(m.fs, m.dir(), func(err error) {
		if !errors.Is(err, object.ErrClosed) { // which is how a closed database looks
			m.opts.Failed(err)
		}
	})
	m.fence.OnFull = full
	m.fence.Hush()
	settings := metadb.Settings{Memory: m.opts.Memory, MemTable: memTable, BlobAge: metadb.BlobAge}
	db, err := m.fence.OpenDB(m.dir(), metadb.Options(m.fence, settings, false, fence.Logger{Fence: m.fence},
		m.background))
	if err != nil {
		return &errs.Error{Kind: metadb.KindOf(err), Op: op, Name: m.dir(), Err: err}
	}
	m.db = db
	m.fence.Arm()
	return nil
}

// close ends the use of the database. Calls that need the database fail from now on.
func (m *metadata) close() error {
	m.life.Lock()
	defer m.life.Unlock()
	m.over = true
	return m.fence.CloseDB(m.db, m.opts.Dir)
}

// background tells of errors of the database's own work. Pebble tries again.
func (m *metadata) background(err error) {
	m.opts.Failed(&errs.Error{Kind: errs.KindOf(err), Op: "write cache metadata", Name: m.dir(), Err: err})
}

// use keeps the database open until the returned function is called.
func (m *metadata) use(op, name string) (func(), error) {
	m.life.RLock()
	if m.over {
		m.life.RUnlock()
		return nil, object.Fail(op, name, object.ErrClosed, "")
	}
	return m.life.RUnlock, nil
}

// each calls use with each key and value of one kind.
func (m *metadata) each(kind byte, use func(key, value []byte)) error {
	it, err := m.db.NewIter(&pebble.IterOptions{LowerBound: []byte{kind}, UpperBound: []byte{kind + 1}})
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

// commit writes records and removes those of evicted entries. If lazy is true, they need not be durable.
func (m *metadata) commit(op string, sets []pair, gone []doomed, lazy bool) error {
	if len(sets)+len(gone) == 0 {
		return nil
	}
	done, err := m.use(op, m.opts.Dir)
	if err != nil {
		return err
	}
	defer done()
	fill := func(b *pebble.Batch) error {
		for _, p := range sets {
			if err := b.Set(p.key, p.value, nil); err != nil {
				return err
			}
		}
		for _, d := range gone {
			if err := d.remove(b); err != nil {
				return err
			}
		}
		return nil
	}
	if lazy {
		m.fence.ApplyLazily(m.db, fill)
		return nil
	}
	b := m.db.NewBatch()
	if err := fill(b); err != nil {
		_ = b.Close()
		return fail(op, m.opts.Dir, err)
	}
	return m.fence.Apply(m.db, op, m.opts.Dir, b, nil)
}

// apply makes a change durable.
func (m *metadata) apply(ctx context.Context, op, name string, change func(*pebble.Batch) error) error {
	if err := context.Cause(ctx); err != nil {
		return fail(op, name, err)
	}
	done, err := m.use(op, name)
	if err != nil {
		return err
	}
	defer done()
	b := m.db.NewBatch()
	if err := change(b); err != nil {
		_ = b.Close()
		return fail(op, name, err)
	}
	return m.fence.Apply(m.db, op, name, b, nil)
}

// remove removes the records of an entry.
func (d doomed) remove(b *pebble.Batch) error {
	for _, kind := range []byte{kindEntry, kindRead, kindContent} {
		if err := b.Delete(numberKey(kind, d.file), nil); err != nil {
			return err
		}
	}
	chunks := (d.blocks + chunkBlocks - 1) / chunkBlocks
	if chunks > chunkBlocks {
		return b.DeleteRange(numberKey(kindSums, d.file), numberKey(kindSums, d.file+1), nil)
	}
	for c := range chunks {
		if err := b.Delete(chunkKey(d.file, c), nil); err != nil {
			return err
		}
	}
	return nil
}
