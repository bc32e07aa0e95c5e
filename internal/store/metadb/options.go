// SPDX-License-Identifier: Apache-2.0

// Package metadb opens and reads the metadata in Pebble, and distinguishes damage from a failing disk.
package metadb

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// MinMemTable and MaxMemTable limit the size of a memory table in bytes. The log that is replayed after a crash
	// is about as long as two memory tables.
	MinMemTable = 4 << 20
	MaxMemTable = 32 << 20
	// memTables is the largest number of memory tables: one that is being filled, and others that wait to be written.
	memTables = 4
	// ToolMemory is the size in bytes of Pebble's caches in tools such as check, which have no setting for the size.
	ToolMemory = 64 << 20
	// minCache is the smallest size of the block cache in bytes.
	minCache = 8 << 20
	// separated is the length from which a value is stored apart from its key, in a blob file. Listings then do not
	// read the value, and compactions do not rewrite it. Records without many attributes are shorter. Without blob
	// files, 80,000 writes of 4 KiB to 50,000 keys rewrote 1.9 times the bytes, and took 1.2 to 1.6 times the CPU
	// time.
	separated = 1 << 10
	// BlobGarbage is the share of deleted values at which Pebble rewrites a blob file; 0.3 means 30 %. Pebble rewrites
	// only blob files that are at least BlobAge old.
	BlobGarbage = 0.3
	BlobAge     = 10 * time.Second
)

// Settings are the options of Pebble that differ between stores and tools.
type Settings struct {
	Memory   int64         // limit in bytes for caches and memory tables together
	MemTable int64         // size of one memory table in bytes
	BlobAge  time.Duration // the smallest age at which Pebble may rewrite a blob file
}

// Options returns Pebble's options for the metadata of a store. Pebble calls the function background with errors of
// background work.
func Options(fs vfs.FS, so Settings, readOnly bool, l pebble.Logger, background func(error)) *pebble.Options {
	o := &pebble.Options{
		FS:                          blobFS{fs},
		ReadOnly:                    readOnly,
		Logger:                      l,
		Merger:                      counting,
		CacheSize:                   max(so.Memory, minCache+memTables*so.MemTable), // memory tables come out of it
		MemTableSize:                uint64(so.MemTable),
		MemTableStopWritesThreshold: memTables,
		MaxOpenFiles:                512,
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       64,
		LBaseMaxBytes:               64 << 20,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		EventListener: &pebble.EventListener{
			BackgroundError: background,
			DataCorruption:  func(i pebble.DataCorruptionInfo) { background(fmt.Errorf("%s: %w", i.Path, i.Details)) },
		},
		WALBytesPerSync: 0,
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].BlockSize = 4 << 10
		o.Levels[i].IndexBlockSize = 32 << 10
	}
	o.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{
			Enabled: true, MinimumSize: separated, MaxBlobReferenceDepth: 10,
			RewriteMinimumAge: so.BlobAge, TargetGarbageRatio: BlobGarbage,
		}
	}
	return o
}

// ToolOptions returns Pebble's options for check, backup and salvage, which open metadata without a running store.
func ToolOptions(fs vfs.FS, memTable int64, readOnly bool) *pebble.Options {
	so := Settings{Memory: ToolMemory, MemTable: memTable, BlobAge: BlobAge}
	return Options(fs, so, readOnly, quiet{}, func(error) {})
}

// quiet is a Pebble logger that discards messages, and turns a fatal error of Pebble into a panic.
type quiet struct{}

func (quiet) Infof(string, ...any) {}

func (quiet) Errorf(string, ...any) {}

func (quiet) Fatalf(format string, args ...any) { panic(FatalError(format, args)) }
