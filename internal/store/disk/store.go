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

// Options says where a store is and how it behaves. Dir is required.
type Options struct {
	Dir string
	// FS is the file system; nil means the real one.
	FS vfs.FS
	// Verify says when reads compare content with its checksums; empty means "first".
	Verify datafile.Policy
	// Inline is the size up to which content is kept with the metadata; 0 means 16 KiB, negative means none.
	Inline int64
	// Reserve is the free space below which the store refuses what needs space; 0 means 64 MiB, negative means none.
	Reserve int64
	// OpenFiles bounds how many data files stay open without a reader; 0 means what the process can afford.
	OpenFiles int
	// ReadOnlyMount hands files out through a read-only mount of the directory, where the process may make one; see
	// Reopenable.
	ReadOnlyMount bool
	// MemTable bounds what of the metadata is in memory only; 0 means a share of Memory. Tests make it small.
	MemTable int64
	// Memory is what the store's caches and memory tables may take together; 0 means DefaultMemory.
	Memory int64
	// Events hears what nobody asked for.
	Events Events
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	tend    time.Duration // see tendEvery; tests make it short
	blobAge time.Duration // see blobAge; tests make it short
}

// Events are told as they happen, on the goroutine that met them; they must not
// call the store and should not take long. Each may be nil.
type Events struct {
	// Damage hears of content that is not what was written, each time it is met.
	Damage func(object.Damage)
	// Failed hears, once, that the store takes no more changes, and why.
	Failed func(error)
	// Exposed receives each entry of the store that other users could reach, with the mode that it had. err is nil where
	// the entry was closed to them, and says what to do where this process may not change it.
	Exposed func(path string, was fs.FileMode, err error)
	// Background hears of work behind the scenes that went wrong and is tried again.
	Background func(error)
}

// DefaultInline is the size up to which content lies with the metadata where Options does not say.
const DefaultInline = 16 << 10

// DefaultReserve is the free space that is left alone where Options does not say.
const DefaultReserve = 64 << 20

// DefaultMemory is what caches and memory tables may take where Options does not say.
const DefaultMemory = 128 << 20

// Store is a store on disk.
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

	life   sync.RWMutex // held for reading by every call under way
	closed atomic.Bool

	fileIDs, seqs, bucketIDs numbers
	epoch                    uint64
	unproven                 bool // the witness of the metadata was judged by others

	bucketMu sync.RWMutex // guards the map
	buckets  map[string]*bucket
	changing sync.Mutex // one creation, change or deletion of a bucket at a time

	stripes stripes
	uploads uploads
	remover remover
	space   space

	ballast ballast
	tender  tender
	sweeper sweeper

	readOnly atomic.Pointer[error] // why the store was opened for reading alone; nil where it was not
	shared   io.Closer             // the lock of a reader, where the store could not be locked as its owner
	tries    int                   // to make the store writable again, in vain
	yield    atomic.Bool           // the store is being made writable: long calls end, new ones wait

	damaged atomic.Int64
	steps   atomic.Int64 // of iterators, by listings

	recovered datafile.Recovered

	stopped   bool          // looked at and not served: see openStopped
	proven    bool          // of a stopped store: the witness says that its metadata is as new as it was
	epochLost bool          // of a stopped store: EPOCH is missing or damaged, and is to be written anew
	faults    []check.Fault // of a stopped store: what makes Open refuse it
}

var _ object.Store = (*Store)(nil)

// ID is the store's identity: made with it, and the same for as long as it exists.
func (s *Store) ID() string { return s.uuid }

// begin starts a call: it returns how to end it, unless the call is pointless.
func (s *Store) begin(ctx context.Context, op, name string) (end func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, errs.Wrap(op, name, err)
	}
	if s.closed.Load() {
		return nil, object.Fail(op, name, object.ErrClosed, "")
	}
	// Who closes waits for the calls under way. A call that comes meanwhile is refused and does not wait in turn: it may
	// be made by the hook of one that is waited for. Who makes the store writable again begins when there are no calls: it
	// is waited for.
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

// damage tells of damaged content and counts it.
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
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}

// db are the settings of Pebble among the options.
func (o *Options) db() metadb.Settings {
	return metadb.Settings{Memory: o.Memory, MemTable: o.MemTable, BlobAge: o.blobAge}
}

// Close is object.Store's. After a failure it lets go of the store at once,
// leaves what Pebble had in hand to the next Open, and returns why.
func (s *Store) Close() error {
	const op = "close store"
	if s.closed.Swap(true) {
		return object.Fail(op, s.opts.Dir, object.ErrClosed, "")
	}
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
	s.ballast.s, s.tender.s, s.sweeper.s = s, s, s
	s.newFence()
	s.remover.init(s)
	s.uploads.init(s)
	s.space.init(s)
	return s
}

// newFence puts a new fence before the file system. What is still owed behind the old one is owed no more.
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

// nonce is a random word.
func nonce() uint64 { return rand.Uint64() }

// Backup copies the store as it is at one moment to another directory, while it goes on.
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
