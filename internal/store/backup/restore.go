// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/fence"
	"github.com/nebulaio/nebulaio/internal/store/filecopy"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
)

func chmod(path string, mode os.FileMode) error { return os.Chmod(path, mode) }

// RestoreOptions are the source, the target and the settings of a restore.
type RestoreOptions struct {
	// FS is the file system; nil means that of the operating system.
	FS vfs.FS
	// From is the directory of the backup.
	From string
	// To is the directory of the new store, which must be missing or empty.
	To string
	// If Verify is true, the restore compares all content with its checksums before the directory becomes a store.
	Verify bool
	// Progress is called from time to time with the report so far; nil means no calls.
	Progress func(Report)
}

// Restore creates a store from a backup and leaves the backup unchanged. Restore compares the metadata with its
// checksums even if Verify is not set. An interrupted Restore leaves a directory that Open does not accept as a
// store. A Restore to the directory of an interrupted Restore starts from the beginning.
func Restore(ctx context.Context, o RestoreOptions) (Report, error) {
	const op = "restore store"
	if o.To == "" {
		return Report{}, errs.New(errs.Invalid, op, "", "no directory is named")
	}
	var err error
	if o.FS, o.To, err = layout.Resolve(o.FS, o.To); err != nil {
		return Report{}, err
	}
	from := o.From
	n, err := layout.ReadNote(o.FS, o.FS.PathJoin(from, layout.BackupName))
	if err != nil {
		return Report{}, err
	}
	switch {
	case n == nil && missing(o.FS, from):
		return Report{}, errs.New(errs.NotFound, op, from,
			"there is no such directory").WithFix("name a directory that nebulaio store backup made")
	case n == nil:
		return Report{}, errs.New(errs.NotFound, op, from, "is no backup: it has no "+
			layout.BackupName).WithFix("name a directory that nebulaio store backup made")
	case n["backup"] != "whole" || n["uuid"] == "":
		return Report{}, errs.New(errs.Corrupt, op, from,
			"the backup was interrupted and is not whole").WithFix("take it again, or restore another one")
	}
	if v, ok := n.Number("format"); !ok || v > layout.FormatVersion {
		return Report{}, errs.New(errs.Unsupported, op, from,
			fmt.Sprintf("the backup has format %q, this program knows up to %d", n["format"], layout.FormatVersion)).
			WithFix("use a newer nebulaio")
	}
	if err := layout.CheckApart(op, o.FS, o.To, from, "the backup"); err != nil {
		return Report{}, err
	}
	sums, err := readSums(o.FS, from, n)
	if err != nil {
		return Report{}, err
	}
	if err := layout.BeginPartial(op, o.FS, o.To, "restore"); err != nil {
		return Report{}, err
	}
	b := &backup{ctx: ctx, fs: o.FS, from: from, to: o.To, verified: o.Verify, progress: o.Progress,
		report: Report{UUID: n["uuid"]}}
	err = b.restore(sums)
	return b.report, layout.CopyFailed(op, o.To, err)
}

func (b *backup) restore(sums map[string]fileSum) error {
	b.dirs = filecopy.DirSet{FS: b.fs, Root: b.to}
	for _, name := range []string{layout.MetaName, layout.DataName, layout.TmpName} {
		if err := b.dirs.Make(b.fs.PathJoin(b.to, name)); err != nil {
			return err
		}
	}
	meta := b.fs.PathJoin(b.to, layout.MetaName)
	if err := b.copyMeta(meta, sums); err != nil {
		return err
	}
	if err := b.restoreFiles(meta); err != nil {
		return err
	}
	if err := b.dirs.Sync(); err != nil {
		return err
	}
	return fence.FinishPartial(b.fs, b.to, b.report.UUID)
}

// restoreFiles copies the files that the restored metadata names.
func (b *backup) restoreFiles(meta string) error {
	db, err := metadb.Open(meta, metadb.ToolOptions(b.fs, metadb.MaxMemTable, true))
	if err != nil {
		return &errs.Error{Kind: metadb.KindOf(err), Op: "restore store", Name: b.from,
			Msg: "the metadata of the backup cannot be read", Err: err,
			Fix: "restore another backup"}
	}
	defer func() { _ = db.Close() }() // it was read only
	if err := closeDir(b.fs, meta); err != nil {
		return err
	}
	if err := b.files(db, b.to); err != nil {
		return err
	}
	if b.verified {
		return b.verify(db, b.to)
	}
	return nil
}

// missing reports whether path does not exist.
func missing(f vfs.FS, path string) bool {
	_, err := f.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}
