// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/store/backup"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/salvage"
)

// restored makes a store at to of the backup in from.
func restored(ctx context.Context, from string, to disk.Options, o backup.RestoreOptions) (backup.Report, error) {
	o.FS, o.From, o.To = to.FS, from, to.Dir
	return backup.Restore(ctx, o)
}

// saved saves what is readable of the store at from.
func saved(ctx context.Context, from disk.Options, o salvage.Options) (salvage.Report, error) {
	o.FS, o.From = from.FS, from.Dir
	return salvage.Run(ctx, o)
}
