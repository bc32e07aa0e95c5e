// SPDX-License-Identifier: Apache-2.0

// Package cache is an object store in which some buckets are kept by other S3 servers (upstream buckets).
//
// The other buckets belong to the local store, and calls for them go to the local store unchanged. The settings of an
// upstream bucket are in the local store too. Objects of an upstream bucket are read through a cache on a local disk,
// and every change goes to the upstream at once.
//
// A read is pinned to one content, an object.Identity. Blocks that are on the disk are read from there. Missing blocks
// are fetched from a neighbour or the upstream, given to the client as they arrive and written to the disk at the same
// time. Readers of the same missing blocks share one fetch. If the object changes in the middle of a read, the read
// fails; it never mixes two contents.
package cache

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/cluster"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// Local is the store of all buckets that no other server keeps. Local also keeps the settings of upstream buckets.
type Local interface {
	object.Store
	object.Handles
	object.Directories
}

// Upstream is one bucket of another S3 server. *upstream.Bucket implements Upstream.
type Upstream interface {
	Origin() string
	// Stat describes an object; see upstream.Bucket.
	Stat(ctx context.Context, key, version, ifNoneMatch string) (upstream.About, error)
	// Fetch reads n bytes of one content from off on; see upstream.Bucket.
	Fetch(ctx context.Context, id object.Identity, off, n int64) (io.ReadCloser, error)
	State() upstream.State
}

// Opener is an Upstream that can describe an object and read n bytes of it from off on in one request. An n of -1
// reaches to the end of the content.
type Opener interface {
	Open(ctx context.Context, key, version string, off, n int64) (upstream.About, io.ReadCloser, error)
}

// Passing passes changes and listings to another S3 server. *upstream.Through implements Passing.
type Passing interface {
	object.Objects
	object.Lister
	object.Uploads
}

// Neighbours asks other nodes of a cluster for blocks. *cluster.Node implements Neighbours by way of package node.
type Neighbours interface {
	// Fetch returns blocks of one extent, or cluster.ErrOwner or cluster.ErrUnreachable; see cluster.Node.
	Fetch(ctx context.Context, id object.Identity, span cluster.Span) (cluster.Blocks, error)
	// Mine reports whether this node reads the extent from the upstream itself.
	Mine(id object.Identity, extent int64) bool
}

// Rules are the settings of an upstream bucket.
type Rules struct {
	// Validate is the time for which the last answer of the upstream about an object counts. 0 means that each open asks
	// the upstream.
	Validate time.Duration
	// NeverChanges reports whether the object with the given key never changes; nil means that every object may change.
	NeverChanges func(key string) bool
	// Pinned reports whether the object with the given key is pinned when it is cached; nil means that none is.
	Pinned func(key string) bool
	// StaleIfError is the age of the last answer up to which cached content is served while the upstream does not
	// answer.
	StaleIfError time.Duration
	// StaleAfter is the time without an answer of the upstream after which content on the disk is served as stale, if
	// StaleIfError allows it. While a question of the bucket is open for longer, other reads do not wait at all. 0 means
	// that a read waits until the question fails.
	StaleAfter time.Duration
	ReadOnly   bool // refuse changes
}

// Bucket is an upstream bucket of a Store.
type Bucket struct {
	Name  string // name of the bucket in the local store
	From  Upstream
	Pass  Passing
	Rules Rules
	// Settings are the versioning state and the object lock on the upstream; nil means that they cannot be reached.
	Settings object.Upstream
}

// Options are the parts of a Store.
type Options struct {
	Local   Local
	Files   *cachefile.Store
	Buckets []Bucket
	// Detached holds, by name, the origins of buckets that were upstream buckets earlier and are none now. The
	// objects of a detached bucket cannot be reached.
	Detached map[string]string
	// Memory is the number of bytes that fetches may hold in memory while the disk is slower than the upstream. Each fetch
	// may hold 8 MiB besides. 0 means 64 MiB.
	Memory int64
	Log    *slog.Logger     // nil means no log
	Now    func() time.Time // nil means time.Now
}

// Store is an object store with upstream buckets. Calls for other buckets go to the local store.
type Store struct {
	object.Buckets
	object.Records
	uploads
	local     Local
	files     *cachefile.Store
	buckets   map[string]*bucket // never changed
	byOrigin  map[string]*bucket
	detached  map[string]string
	shelf     *shelf
	log       *slog.Logger
	now       func() time.Time
	near      atomic.Pointer[Neighbours] // nil while this node is alone
	counts    counts
	warming   *warming
	refills   *refills
	alone     alone
	join      *checksum.Joiner
	budget    budget
	lent      atomic.Int64  // writers that use the memory of flights
	comparing chan struct{} // one for each large content on the disk that is being compared

	fetches context.Context // ended by Close
	stop    context.CancelFunc
	running sync.WaitGroup // flights in progress
}

var _ interface {
	object.Store
	object.Handles
	cluster.Extents
} = (*Store)(nil)

// New returns a Store. The Store closes Local and Files when it is closed.
func New(o Options) *Store {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Memory == 0 {
		o.Memory = 64 << 20
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Store{Buckets: o.Local, Records: o.Local, local: o.Local, files: o.Files, buckets: map[string]*bucket{},
		byOrigin: map[string]*bucket{},
		detached: o.Detached, log: o.Log, now: o.Now, join: checksum.NewJoiner(), fetches: ctx, stop: stop}
	s.budget.most, s.comparing = o.Memory/blockSize, make(chan struct{}, mostComparing)
	s.shelf, s.warming, s.refills, s.uploads = newShelf(s), newWarming(), newRefills(s), uploads{s}
	for _, b := range o.Buckets {
		if b.Rules.NeverChanges == nil {
			b.Rules.NeverChanges = func(string) bool { return false }
		}
		if b.Rules.Pinned == nil {
			b.Rules.Pinned = func(string) bool { return false }
		}
		at := &bucket{Bucket: b, s: s, origin: b.From.Origin(), asks: map[askKey]*ask{}}
		at.opener, _ = b.From.(Opener)
		at.records.b = at
		at.firstByte.init()
		s.buckets[b.Name], s.byOrigin[at.origin] = at, at
	}
	return s
}

// Join sets the neighbours that are asked before an upstream. Join is called before requests of clients are served.
func (s *Store) Join(n Neighbours) { s.near.Store(&n) }

// neighbours returns the neighbours, or nil if this node is alone.
func (s *Store) neighbours() Neighbours {
	if n := s.near.Load(); n != nil {
		return *n
	}
	return nil
}

// Close ends all fetches, closes the cache and then the local store.
func (s *Store) Close() error {
	s.stop()
	s.running.Wait()
	err := s.files.Close()
	if e := s.local.Close(); err == nil {
		err = e
	}
	return err
}

// bucket is an upstream bucket with what is known about it in memory.
type bucket struct {
	Bucket
	s      *Store
	origin string
	opener Opener // nil if an open needs two requests

	records records

	mu      sync.Mutex
	asks    map[askKey]*ask
	overdue int         // questions without an answer for longer than Rules.StaleAfter
	changes [256]uint64 // number of changes by this node, by hash of the key
	md5     bool        // an ETag of this upstream has been the MD5 of its content
	noMD5   bool        // ETags of this upstream are no MD5s
	// suspects are contents whose MD5 was not their ETag, while no ETag of this upstream was known to be an MD5.
	suspects map[object.Identity]suspect

	firstByte histogram
	served    bucketCounts
}

// upstreamOf returns the upstream bucket of a name, or nil if the local store has the bucket. upstreamOf fails if the
// bucket was an upstream bucket and is not in the configuration any more.
func (s *Store) upstreamOf(op, name string) (*bucket, error) {
	if b, ok := s.buckets[name]; ok {
		return b, nil
	}
	if len(s.detached) == 0 {
		return nil, nil
	}
	if origin, ok := s.detached[name]; ok {
		return nil, errs.New(errs.IO, op, name, "the bucket is kept by "+origin+", and the configuration of this server "+
			"does not name it").WithFix("add upstream." + name + " to the configuration again, or delete the bucket here")
	}
	return nil, nil
}

// name returns an object of the bucket as messages name it.
func (b *bucket) name(key string) string { return "s3://" + b.Name + "/" + key }
