// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/store/record"
)

// Stats describes the contents and the state of a store. The counts in Stats are kept in memory and updated with
// every change. The values of Pebble and of the file system are read when Stats is called.
type Stats struct {
	UUID    string
	Epoch   uint64 // how often the store was opened
	Buckets int64
	Objects int64 // keys with a current version that is not a delete marker
	// Versions counts noncurrent versions without delete markers; Markers counts delete markers.
	Versions, Markers int64
	Bytes             int64 // size of the content of all versions, current and noncurrent, in bytes
	InlineBytes       int64 // bytes of content that is stored with the metadata; Bytes includes them
	Files             int64 // versions with their content in a data file
	Uploads           int64
	PartBytes         int64 // size of the parts of uploads in progress, in bytes
	Removing          int64 // data files that wait to be removed
	Unsettled         int64 // committed data files that wait in tmp/ to be moved to data/
	OpenFiles         int64 // data files that are open for reading or cached
	// HeldFiles counts files that exist only because a client has them open: files of removed versions, and files with
	// a copy of inline content. HeldBytes is the size in bytes of the content of the files in HeldFiles.
	HeldFiles, HeldBytes int64
	// DraftFiles counts the drafts that clients are writing; DraftBytes is their space on disk.
	DraftFiles, DraftBytes int64
	Damage                 int64 // number of damages found since the store was opened; damage found twice counts twice
	FreeBytes              int64 // free space of the file system in bytes; -1 if it is unknown
	Failure                string
	// Refusing is the reason why the store accepts no new content now; empty if it accepts content. Store.Writable
	// returns the text of Refusing as an error.
	Refusing string
	Metadata MetadataStats
}

// MetadataStats are Pebble's own statistics.
type MetadataStats struct {
	DiskBytes    uint64 // size of all files of Pebble on disk in bytes
	LogBytes     uint64 // size of the log that Pebble would replay after a crash, in bytes
	LogFiles     int64
	MemTables    uint64 // size of Pebble's memory tables in bytes
	Compactions  int64
	Flushes      int64
	WrittenBytes uint64 // bytes written to the log since the store was opened
	SyncCount    uint64 // number of syncs of Pebble's log since the store was opened
	CacheHits    int64
	CacheMisses  int64
}

// BucketStats counts the contents of one bucket. The fields of BucketStats mean the same as in Stats, for one bucket.
type BucketStats struct {
	Objects, Versions, Markers, Bytes, Uploads, PartBytes int64
}

// BucketStats returns the counts of one bucket without I/O. BucketStats returns an error that wraps
// object.ErrNoSuchBucket if the bucket does not exist.
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

// Stats returns the statistics of the store. Stats fails only if the store is closed.
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
