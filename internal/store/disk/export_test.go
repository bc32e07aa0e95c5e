// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// TableOptions are those with which the store's tables are read.
func TableOptions() sstable.ReaderOptions {
	o := toolOptions(vfs.NewMem(), maxMemTable, true)
	o.EnsureDefaults()
	return o.MakeReaderOptions()
}
