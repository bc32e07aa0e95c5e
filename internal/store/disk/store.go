// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"hash/maphash"
	"io"
	"io/fs"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/backup"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/fence"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// Options are the directory and the settings of a store. Dir is required.
type Options struct {
	Dir string
	// FS is the file system; nil means that of the operating system.
	FS vfs.FS
	// Verify decides when reads compare content with its checksums; empty means datafile.VerifyFirst.
	Verify datafile.Policy
	// Inline is the largest size, in bytes, of content that is stored with the metadata; 0 means 16 KiB, and a negative
	// value means 0 bytes.
	Inline int64
	// Reserve is the free space, in bytes, below which the store refuses new content; 0 means 64 MiB, negative means
	// no limit.
	Reserve int64
	// OpenFiles is the largest number of data files that stay open without a reader; 0 means a quarter of the
	// process's descriptor limit, at most 1024.
	OpenFiles int
	// ReadOnlyMount opens files for door clients through a read-only mount of Dir, if the process may create one.
	// Store.Reopenable returns the reason if there is no read-only mount.
	ReadOnlyMount bool
	// MemTable is the size of Pebble's memory table in bytes; 0 means a size that is derived from Memory. Tests set a
	// small MemTable.
	MemTable int64
	// Memory is the limit in bytes for the store's caches and memory tables together; 0 means DefaultMemory.
	Memory int64
	// Events receives asynchronous notifications from the store.
	Events Events
	// JournalLimit is the largest number of changes that wait for one consumer of the journal; 0 means
	// DefaultJournalLimit. If more changes wait, the store drops the oldest ones.
	JournalLimit int64
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	tend    time.Duration // see tendEvery; tests make it short
	blobAge time.Duration // see blobAge; tests make it short
}

// Events are callbacks for events in the store. The store calls a callback on the goroutine where the event occurs. A
// callback must not call the store and should return quickly. Each callback may be nil.
type Events struct {
	// Damage is called each time the store finds damaged content, even if that damage was found before.
	Damage func(object.Damage)
	// Failed is called once, with the cause, when the store stops accepting changes after a failure.
	Failed func(error)
	// Exposed is called for each file or directory of the store that other users could access; the parameter called was
	// is its mode before the change. The parameter err is nil if the store has removed the access of other users. If
	// this process may not change the mode, err explains what the operator has to do.
	Exposed func(path string, was fs.FileMode, err error)
	// JournalDropped is called after changes were dropped from the full queue of a consumer of the journal.
	JournalDropped func(consumer string, n int64)
	// Background is called with each error of background work that the store will try again.
	Background func(error)
}

// DefaultInline is the value of Options.Inline, in bytes, if none is set.
const DefaultInline = 16 << 10

// DefaultReserve is the value of Options.Reserve, in bytes, if none is set.
const DefaultReserve = 64 << 20

// DefaultMemory is the value of Options.Memory, in bytes, if none is set.
const DefaultMemory = 128 << 20

// Store is an object store in a directory on disk.
type Store struct {
	opts  Options
	fs    vfs.FS
	lock  io.Closer
	fence *fence.Fence
	db    *pebble.DB
	files *datafile.Files
	join  *checksum.Joiner
	uuid  string
	names record.Names

	life   sync.RWMutex // held for reading by every call in progress
	closed atomic.Bool

	fileIDs, seqs, bucketIDs numbers
	epoch                    uint64
	unproven                 bool // the caller has judged the witness of the metadata itself

	bucketMu sync.RWMutex // guards the map
	buckets  map[string]*bucket
	changing sync.Mutex // one creation, change or deletion of a bucket at a time

	directories
	noter
	quotas
	journal
	stripes stripes
	tails   tails
	tokens  tokens
	uploads uploads
	remover remover
	space   space

	ballast ballast
	tender  tender
	sweeper sweeper

	readOnly atomic.Pointer[error] // why the store was opened only for reading; nil if it is writable
	shared   io.Closer             // the lock of a reader, if the store could not be locked as its owner
	tries    int                   // failed tries to make the store writable again
	yield    atomic.Bool           // the store is becoming writable: long calls end, new ones wait

	damaged atomic.Int64
	steps   atomic.Int64 // of iterators, by listings

	recovered datafile.Recovered

	stopped   bool          // opened for a tool and not served: see openStopped
	proven    bool          // of a stopped store: the witness proves that no recent change of its metadata is lost
	epochLost bool          // of a stopped store: EPOCH is missing or damaged, and has to be written again
	faults    []check.Fault // of a stopped store: the reasons why Open refuses it
}

var _ object.Store = (*Store)(nil)

// ID returns the UUID of the store, which is created with the store and never changes.
func (s *Store) ID() string { return s.uuid }

// begin starts a call and returns the function that ends it, or an error if the call cannot succeed.
func (s *Store) begin(ctx context.Context, op, name string) (end func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, errs.Wrap(op, name, err)
	}
	if s.closed.Load() {
		return nil, object.Fail(op, name, object.ErrClosed, "")
	}
	// Close waits for the calls in progress. A call that comes meanwhile is refused and does not wait: it may come
	// from the hook of a call that Close waits for. Making the store writable begins only without calls, so a new
	// call waits for it.
	if !s.life.TryRLock() {
		if s.closed.Load() || !s.yield.Load() {
			return nil, object.Fail(op, name, object.ErrClosed, "")
		}
		s.life.RLock()
	}
	if s.closed.Load() {
		s.life.RUnlock()
		return nil, object.Fail(op, name, object.ErrClosed, "")
	}
	return s.life.RUnlock, nil
}

func (s *Store) now() int64 { return s.opts.Now().UnixMilli() }

// damage reports damaged content and counts it.
func (s *Store) damage(d object.Damage) {
	s.damaged.Add(1)
	if d.Time.IsZero() {
		d.Time = s.opts.Now()
	}
	if s.opts.Events.Damage != nil {
		s.opts.Events.Damage(d)
	}
}

func (s *Store) background(err error) {
	if err != nil && s.opts.Events.Background != nil {
		s.opts.Events.Background(err)
	}
}

func (o *Options) defaults() error {
	var err error
	if o.FS, o.Dir, err = layout.Resolve(o.FS, o.Dir); err != nil {
		return err
	}
	if o.Inline == 0 {
		o.Inline = DefaultInline
	}
	if o.Inline < 0 {
		o.Inline = 0
	}
	if o.Reserve == 0 {
		o.Reserve = DefaultReserve
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.MemTable == 0 {
		o.MemTable = min(max(o.Memory/4, metadb.MinMemTable), metadb.MaxMemTable)
	}
	if o.tend == 0 {
		o.tend = tendEvery
	}
	if o.blobAge == 0 {
		o.blobAge = metadb.BlobAge
	}
	if o.JournalLimit == 0 {
		o.JournalLimit = DefaultJournalLimit
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}

// db returns the settings of Pebble.
func (o *Options) db() metadb.Settings {
	return metadb.Settings{Memory: o.Memory, MemTable: o.MemTable, BlobAge: o.blobAge}
}

// Close implements object.Store. After a failure Close releases the store at once and returns the cause of the
// failure. Work that Pebble has not finished is left to the next Open.
func (s *Store) Close() error {
	const op = "close store"
	if s.closed.Swap(true) {
		return object.Fail(op, s.opts.Dir, object.ErrClosed, "")
	}
	s.journal.wake()
	s.tender.stop()
	s.life.Lock()
	defer s.life.Unlock()
	s.remover.stop()
	err := s.files.Close()
	if e := s.note(); err == nil {
		err = e
	}
	if e := s.closeDB(); err == nil {
		err = e
	}
	if e := s.fence.Witness.Close(err == nil); err == nil {
		err = layout.WrapIO(op, s.opts.Dir, e)
	}
	if e := s.unlock(); err == nil {
		err = layout.WrapIO(op, s.opts.Dir, e)
	}
	return err
}

func newStore(o Options) *Store {
	s := &Store{opts: o, fs: o.FS, join: checksum.NewJoiner(), buckets: map[string]*bucket{}}
	s.stripes.seed = maphash.MakeSeed()
	s.fileIDs = numbers{key: record.MetaKey("files"), reserve: fileReserve}
	s.seqs = numbers{key: record.MetaKey("sequences"), reserve: sequenceReserve}
	s.bucketIDs = numbers{key: record.MetaKey("buckets"), reserve: bucketReserve}
	s.ballast.s, s.tender.s, s.sweeper.s, s.directories.s, s.journal.s = s, s, s, s, s
	s.noter.s, s.quotas.s = s, s
	s.newFence()
	s.remover.init(s)
	s.uploads.init(s)
	s.space.init(s)
	return s
}

// newFence puts a new fence in front of the file system. Changes that still wait behind the old fence are forgotten.
func (s *Store) newFence() {
	o := &s.opts
	s.fence = fence.New(o.FS, o.FS.PathJoin(o.Dir, layout.MetaName), func(err error) {
		if o.Events.Failed != nil && err != object.ErrClosed {
			o.Events.Failed(err)
		}
	})
	s.fence.OnFull = s.ballast.giveUp
	s.fence.Witness.Tell = s.background
}

// nonce returns a random word.
func nonce() uint64 { return rand.Uint64() }

// Backup copies the store's state at one moment to another directory, while the store stays in use.
func (s *Store) Backup(ctx context.Context, o backup.Options) (report backup.Report, err error) {
	const op = "back up store"
	end, err := s.begin(ctx, op, s.opts.Dir)
	if err != nil {
		return report, err
	}
	defer end()
	from := &backup.Source{
		FS: s.fs, Dir: s.opts.Dir, UUID: s.uuid, DB: s.db, Hold: s.remover.hold, Closed: s.closed.Load,
		Usable: func() error { return s.writable(op, s.opts.Dir) },
	}
	return from.Copy(ctx, o)
}
