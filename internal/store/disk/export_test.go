// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"time"

	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/store/metadb"
)

// TableOptions are those with which the store's tables are read.
func TableOptions() sstable.ReaderOptions {
	o := metadb.ToolOptions(vfs.NewMem(), metadb.MaxMemTable, true)
	o.EnsureDefaults()
	return o.MakeReaderOptions()
}

// WithTending returns options of a store that does its periodic work in this interval.
func WithTending(o Options, every time.Duration) Options {
	o.tend = every
	return o
}
