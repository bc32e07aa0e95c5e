// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func chmod(path string, mode os.FileMode) error { return os.Chmod(path, mode) }

// Restore makes a store of a backup in a directory that is missing or empty. The backup stays as it is. Verify compares all
// content with its checksums before the directory becomes a store; metadata is compared in any case. An interrupted Restore
// leaves a directory that is not taken for a store, and that the next Restore begins anew.
func Restore(ctx context.Context, from string, o Options, c BackupOptions) (BackupReport, error) {
	const op = "restore store"
	if o.Dir == "" {
		return BackupReport{}, errs.New(errs.Invalid, op, "", "no directory is named")
	}
	if err := o.defaults(); err != nil {
		return BackupReport{}, err
	}
	n, err := readNote(o.FS, o.FS.PathJoin(from, backupName))
	if err != nil {
		return BackupReport{}, err
	}
	switch {
	case n == nil && missing(o.FS, from):
		return BackupReport{}, errs.New(errs.NotFound, op, from, "there is no such directory").WithFix("name a directory that nebulaio store backup made")
	case n == nil:
		return BackupReport{}, errs.New(errs.NotFound, op, from, "is no backup: it has no "+backupName).WithFix("name a directory that nebulaio store backup made")
	case n["backup"] != "whole" || n["uuid"] == "":
		return BackupReport{}, errs.New(errs.Corrupt, op, from, "the backup was interrupted and is not whole").WithFix("take it again, or restore another one")
	}
	if v, ok := n.number("format"); !ok || v > formatVersion {
		return BackupReport{}, errs.New(errs.Unsupported, op, from, fmt.Sprintf("the backup has format %q, this program knows up to %d", n["format"], formatVersion)).
			WithFix("use a newer nebulaio")
	}
	if err := apart(op, o.FS, o.Dir, from, "the backup"); err != nil {
		return BackupReport{}, err
	}
	sums, err := readSums(o.FS, from, n)
	if err != nil {
		return BackupReport{}, err
	}
	if err := beginPartial(op, o.FS, o.Dir, "restore"); err != nil {
		return BackupReport{}, err
	}
	b := &backup{ctx: ctx, fs: o.FS, from: from, to: o.Dir, o: c, report: BackupReport{UUID: n["uuid"]}}
	err = b.restore(sums)
	return b.report, copyFailed(op, o.Dir, err)
}

func (b *backup) restore(sums map[string]fileSum) error {
	b.dirs = dirSet{fs: b.fs, root: b.to}
	for _, name := range []string{metaName, dataName, tmpName} {
		if err := b.dirs.make(b.fs.PathJoin(b.to, name)); err != nil {
			return err
		}
	}
	meta := b.fs.PathJoin(b.to, metaName)
	if err := b.copyMeta(meta, sums); err != nil {
		return err
	}
	if err := b.restoreFiles(meta); err != nil {
		return err
	}
	if err := b.dirs.sync(); err != nil {
		return err
	}
	return endPartial(b.fs, b.to, b.report.UUID)
}

// restoreFiles copies the files that the restored metadata names.
func (b *backup) restoreFiles(meta string) error {
	db, err := openDB(meta, toolOptions(b.fs, maxMemTable, true), nil)
	if err != nil {
		return &errs.Error{Kind: metaKind(err), Op: "restore store", Name: b.from, Msg: "the metadata of the backup cannot be read", Err: err,
			Fix: "restore another backup"}
	}
	defer func() { _ = db.Close() }() // it was read only
	if err := closeDir(b.fs, meta); err != nil {
		return err
	}
	if err := b.files(db, b.to); err != nil {
		return err
	}
	if b.o.Verify {
		return b.verify(db, b.to)
	}
	return nil
}

// missing says whether nothing has that name.
func missing(f vfs.FS, path string) bool {
	_, err := f.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}
