// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/store/metadb"
)

func openFenced(t *testing.T, fs vfs.FS, readOnly bool) (*Fence, *pebble.DB) {
	t.Helper()
	f := New(fs, "meta", nil)
	settings := metadb.Settings{Memory: metadb.ToolMemory, MemTable: metadb.MinMemTable, BlobAge: metadb.BlobAge}
	db, err := f.OpenDB("meta", metadb.Options(f, settings, readOnly, Logger{f}, func(error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, db
}

func setting(t *testing.T, db *pebble.DB, key string, size int) *pebble.Batch {
	t.Helper()
	b := db.NewBatch()
	if err := b.Set([]byte(key), make([]byte, size), nil); err != nil {
		t.Fatal(err)
	}
	return b
}

// Batches that wait together are committed with one sync, and each gets its own result.
func TestAGroupSharesOneSync(t *testing.T) {
	f, db := openFenced(t, vfs.NewMem(), false)
	f.group.running = true // so that the batches gather
	const n = 50
	var called atomic.Int32
	done := make([]chan error, n)
	for i := range done {
		done[i] = make(chan error, 1)
		f.group.add(db, pending{b: setting(t, db, fmt.Sprintf("key %d", i), 4096), done: done[i],
			then: func() { called.Add(1) }})
	}
	before := f.Syncs.Load()
	f.group.run(db)
	if got := f.Syncs.Load() - before; got != 1 {
		t.Errorf("%d syncs, expected 1", got)
	}
	for i := range done {
		if err := <-done[i]; err != nil {
			t.Errorf("batch %d: %v", i, err)
		}
		if _, closer, err := db.Get([]byte(fmt.Sprintf("key %d", i))); err != nil {
			t.Errorf("batch %d was not made: %v", i, err)
		} else {
			_ = closer.Close()
		}
	}
	if called.Load() != n {
		t.Errorf("then was called %d times, expected %d", called.Load(), n)
	}
	if f.group.running || f.group.waiting != nil {
		t.Error("the group goes on without batches")
	}
}

// A large batch does not join a group, and what waits behind it is committed too.
func TestLargeBatchesAreAlone(t *testing.T) {
	f, db := openFenced(t, vfs.NewMem(), false)
	f.group.running = true
	done := make(chan error, 4)
	for i, size := range []int{10, mostGrouped, 10, 10} {
		f.group.add(db, pending{b: setting(t, db, fmt.Sprint(i), size), done: done})
	}
	for _, want := range []int{1, 1, 2, 0} {
		some := f.group.take()
		if len(some) != want {
			t.Fatalf("a group of %d, expected %d", len(some), want)
		}
		if want > 0 {
			f.group.commit(db, some)
		}
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// If Pebble refuses a group, each batch gets the error and nothing is called.
func TestARefusedGroup(t *testing.T) {
	mem := vfs.NewMem()
	if f, db := openFenced(t, mem, false); f.Apply(db, "set", "a", setting(t, db, "a", 1), nil) != nil {
		t.Fatal("the first batch was refused")
	}
	f, db := openFenced(t, mem, true)
	done := make(chan error, 2)
	f.group.commit(db, []pending{
		{b: setting(t, db, "a", 1), done: done, then: func() { t.Error("then was called") }},
		{b: setting(t, db, "b", 1), done: done},
	})
	for range 2 {
		if err := <-done; !errors.Is(err, pebble.ErrReadOnly) {
			t.Errorf("%v, expected %v", err, pebble.ErrReadOnly)
		}
	}
}
