// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/store/record"
)

// Stats is what a store holds and does. Counts are kept with every change and
// cost nothing to ask for; what Pebble and the file system say is asked for anew.
type Stats struct {
	UUID    string
	Epoch   uint64 // how often the store was opened
	Buckets int64
	Objects int64 // keys with a current version that is no delete marker
	// Versions are the noncurrent ones that are no delete markers.
	Versions, Markers int64
	Bytes             int64 // of content, of current and noncurrent versions
	InlineBytes       int64 // of these, kept with the metadata
	Files             int64 // versions whose content is a file
	Uploads           int64
	PartBytes         int64 // of the parts of uploads
	Removing          int64 // files that wait for being removed
	Unsettled         int64 // files that wait for their place in data/
	OpenFiles         int64 // data files kept open
	// HeldFiles exist only because somebody was handed them: files that were removed meanwhile, and small content in a
	// file of its own.
	HeldFiles, HeldBytes int64
	// DraftFiles are being written by clients; DraftBytes is what they take of the disk.
	DraftFiles, DraftBytes int64
	Damage                 int64 // damage met since the store was opened, each time it was met
	FreeBytes              int64 // of the file system; -1 where it does not tell
	Failure                string
	// Refusing says why the store takes no new content now; empty while it does. See Store.Writable.
	Refusing string
	Metadata MetadataStats
}

// MetadataStats is what Pebble says.
type MetadataStats struct {
	DiskBytes    uint64 // of all its files
	LogBytes     uint64 // of the log that would be read again after a crash
	LogFiles     int64
	MemTables    uint64 // bytes
	Compactions  int64
	Flushes      int64
	WrittenBytes uint64 // to the log, since the store was opened
	SyncCount    uint64 // syncs of the log
	CacheHits    int64
	CacheMisses  int64
}

// BucketStats is what a bucket holds; the fields mean what they mean in Stats.
type BucketStats struct {
	Objects, Versions, Markers, Bytes, Uploads, PartBytes int64
}

// BucketStats describes one bucket, without I/O. object.ErrNoSuchBucket.
func (s *Store) BucketStats(ctx context.Context, name string) (BucketStats, error) {
	const op = "bucket stats"
	end, err := s.begin(ctx, op, name)
	if err != nil {
		return BucketStats{}, err
	}
	defer end()
	b, err := s.find(op, name)
	if err != nil {
		return BucketStats{}, err
	}
	c := b.counted()
	return BucketStats{Objects: c.Objects, Versions: c.Versions, Markers: c.Markers, Bytes: c.Bytes, Uploads: c.Uploads,
		PartBytes: c.Parts}, nil
}

// Stats describes the store. It fails only when the store is closed.
func (s *Store) Stats() (Stats, error) {
	end, err := s.begin(context.Background(), "stats", s.opts.Dir)
	if err != nil {
		return Stats{}, err
	}
	defer end()
	var sum record.Counts
	s.bucketMu.RLock()
	st := Stats{UUID: s.uuid, Epoch: s.epoch, Buckets: int64(len(s.buckets))}
	for _, b := range s.buckets {
		sum.Add(b.counted())
	}
	s.bucketMu.RUnlock()
	st.Objects, st.Versions, st.Markers, st.Bytes, st.InlineBytes = sum.Objects, sum.Versions, sum.Markers, sum.Bytes,
		sum.Inline
	st.Files, st.Uploads, st.PartBytes = sum.Files, sum.Uploads, sum.Parts
	st.Removing, st.Damage, st.FreeBytes = int64(s.remover.pending()), s.damaged.Load(), s.space.left()
	f := s.files.Stats()
	st.Unsettled, st.OpenFiles = int64(f.Settling), int64(f.Open)
	st.HeldFiles, st.HeldBytes = int64(f.Held), f.HeldBytes
	st.DraftFiles, st.DraftBytes = int64(f.Drafts), f.DraftBytes
	if err := s.fence.Failure(); err != nil {
		st.Failure = err.Error()
	}
	if err := s.space.check("write to store", s.opts.Dir, 0); err != nil {
		st.Refusing = err.Error()
	}
	st.Metadata = metadataStats(s.db.Metrics())
	st.Metadata.SyncCount = s.fence.Syncs.Load()
	return st, nil
}

func metadataStats(m *pebble.Metrics) MetadataStats {
	return MetadataStats{
		DiskBytes: m.DiskSpaceUsage(), LogBytes: m.WAL.Size, LogFiles: m.WAL.Files, MemTables: m.MemTable.Size,
		Compactions: m.Compact.Count, Flushes: m.Flush.Count, WrittenBytes: m.WAL.BytesWritten,
		CacheHits: m.BlockCache.Hits, CacheMisses: m.BlockCache.Misses,
	}
}
