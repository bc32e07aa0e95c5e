// SPDX-License-Identifier: Apache-2.0

// Package metadb opens the metadata in Pebble, reads it, and tells damage from a failing disk.
package metadb

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// MinMemTable and MaxMemTable bound what is in memory only. That bounds the log that has to be read again after a
	// crash: it is about two of them.
	MinMemTable = 4 << 20
	MaxMemTable = 32 << 20
	// memTables is how many memory tables there may be: one that is filled, and others that wait to be written.
	memTables = 4
	// ToolMemory bounds the blocks of metadata that tools keep in memory, which have no setting for it.
	ToolMemory = 64 << 20
	// minCache bounds the blocks of metadata in memory from below.
	minCache = 8 << 20
	// separated is the length from which a value is kept apart from its key, in a blob file. Then listings do not read
	// it, and compactions do not rewrite it. Records without many attributes are shorter. Without blob files, 80,000
	// writes of 4 KiB to 50,000 keys rewrote 1.9 times the bytes, and took 1.2 to 1.6 times the CPU time.
	separated = 1 << 10
	// BlobGarbage is the share of deleted values from which files of values are rewritten, once they are BlobAge old.
	BlobGarbage = 0.3
	BlobAge     = 10 * time.Second
)

// Settings are what a store decides about Pebble.
type Settings struct {
	Memory   int64         // for caches and memory tables together
	MemTable int64         // one memory table
	BlobAge  time.Duration // the age from which files of values are rewritten
}

// Options are Pebble's.
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

// ToolOptions are Pebble's for check, backup and salvage, which open metadata without a store around it.
func ToolOptions(fs vfs.FS, memTable int64, readOnly bool) *pebble.Options {
	so := Settings{Memory: ToolMemory, MemTable: memTable, BlobAge: BlobAge}
	return Options(fs, so, readOnly, quiet{}, func(error) {})
}

// quiet is a Pebble logger that drops what it is told, and turns what Pebble holds for fatal into a panic.
type quiet struct{}

func (quiet) Infof(string, ...any) {}

func (quiet) Errorf(string, ...any) {}

func (quiet) Fatalf(format string, args ...any) { panic(FatalError(format, args)) }
