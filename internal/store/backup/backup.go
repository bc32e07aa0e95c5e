// SPDX-License-Identifier: Apache-2.0

// Package backup copies a store to a backup while the store is in use, and restores a store from a backup.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/filecopy"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// partialSuffix is the end of the name of an unfinished backup.
const partialSuffix = ".partial"

// backupTries limits how often a backup starts again because an upload changed a file during the copy.
const backupTries = 3

// Options are the target directory and the settings of a backup.
type Options struct {
	// To is the directory of the backup, which must not exist yet. Until the backup is complete, the directory's name
	// has the suffix ".partial".
	To string
	// If Verify is true, the backup reads all copied content again and compares it with its checksums.
	Verify bool
	// Progress is called from time to time with the report so far; nil means no calls.
	Progress func(Report)
}

// Report counts the files and bytes that a backup or a restore has copied.
type Report struct {
	UUID     string
	Files    int64 // data files copied
	Bytes    int64 // size of the copied data files in bytes
	Verified int64 // size of the content, in bytes, that was compared with its checksums
}

// Source is the running store that a backup copies.
type Source struct {
	FS   vfs.FS
	Dir  string
	UUID string
	DB   *pebble.DB
	// Hold prevents the removal of data files until the caller calls the returned function release.
	Hold func() (release func())
	// Usable returns nil, or the reason why the store cannot be backed up now.
	Usable func() error
	// Closed reports whether the store is being closed.
	Closed func() bool
}

// Copy copies the store's state at one moment to another directory. The backup contains everything that the store
// acknowledged before the call of Copy. Copy syncs each file, and renames the backup to its final name when the
// backup is complete. Data files of versions that are deleted during the backup are removed after the backup ends.
// Accounts and settings are records of the store, so the backup contains them too.
func (s *Source) Copy(ctx context.Context, o Options) (report Report, err error) {
	const op = "back up store"
	b := &backup{ctx: ctx, src: s, fs: s.FS, from: s.Dir, verified: o.Verify, progress: o.Progress}
	if b.to, err = s.outside(op, o.To); err != nil {
		return report, err
	}
	if _, err := b.fs.Stat(b.to); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			return report, errs.New(errs.Invalid, op, b.to, "exists already").WithFix("name a directory that does not exist")
		}
		return report, layout.WrapIO(op, b.to, err)
	}
	parent := b.fs.PathDir(b.to)
	if _, err := b.fs.Stat(parent); errors.Is(err, fs.ErrNotExist) && parent != "." {
		return report, errs.New(errs.NotFound, op, b.to, fmt.Sprintf("the directory %s does not exist", parent)).
			WithFix("correct the name, or make that directory first")
	}
	b.report.UUID = s.UUID
	err = b.run()
	if err != nil {
		return b.report, layout.CopyFailed(op, b.to, err)
	}
	return b.report, nil
}

// outside returns the full name of a directory, and an error if the directory lies in the store.
func (s *Source) outside(op, dir string) (string, error) {
	if dir == "" {
		return "", errs.New(errs.Invalid, op, "", "no directory is named")
	}
	dir = layout.RealName(s.FS, dir)
	return dir, layout.CheckApart(op, s.FS, dir, s.Dir, "the store")
}

// backup is one backup or restore under way.
type backup struct {
	ctx      context.Context
	src      *Source // of a backup; nil for a restore
	fs       vfs.FS
	from     string
	to       string
	verified bool // content is compared with its checksums
	progress func(Report)
	dirs     filecopy.DirSet
	report   Report
	told     time.Time
	sums     string // the checksum of the list of the metadata
}

// movedPart is the error of an upload's part that differs from its record: the upload went on during the copy, or the
// part is damaged.
type movedPart struct {
	path string // of the file in the store
	err  error
}

func (m movedPart) Error() string { return m.path + ": " + m.err.Error() }

// asError returns the error of a backup that met a changed part in each of its tries.
func (m movedPart) asError() error {
	return &errs.Error{Kind: errs.Corrupt, Op: "back up store", Name: m.path, Err: m.err,
		Msg: fmt.Sprintf("a part of an upload is damaged, or was uploaded anew each of the %d times that it was copied",
			backupTries),
		Fix: "run nebulaio store scrub; if it names the part, abort that upload with an S3 client; then back up again"}
}

func (b *backup) run() error {
	partial := b.to + partialSuffix
	if err := b.clear(partial); err != nil {
		return err
	}
	release := b.src.Hold()
	defer release()
	b.dirs = filecopy.DirSet{FS: b.fs, Root: partial}
	if err := b.dirs.Make(partial); err != nil {
		return err
	}
	if err := b.note(partial, "partial"); err != nil {
		return err
	}
	var err error
	var moved movedPart
	for range backupTries {
		if err = b.once(partial); !errors.As(err, &moved) {
			break
		}
	}
	switch {
	case errors.As(err, &moved):
		return moved.asError()
	case err != nil:
		return err
	}
	if b.sums, err = sumMeta(b.ctx, b.fs, partial); err != nil {
		return err
	}
	if err := b.note(partial, "whole"); err != nil {
		return err
	}
	if err := b.dirs.Sync(); err != nil {
		return err
	}
	if err := b.fs.Rename(partial, b.to); err != nil {
		return err
	}
	return layout.SyncDir(b.fs, b.fs.PathDir(b.to))
}

// clear removes the rest of an interrupted backup; anything else under that name is refused.
func (b *backup) clear(partial string) error {
	names, err := b.fs.List(partial)
	if errors.Is(err, fs.ErrNotExist) || err == nil &&
		(len(names) == 0 || len(names) == 1 && names[0] == layout.BackupName+".new") {
		return nil
	}
	if err != nil {
		return err
	}
	if n, err := layout.ReadNote(b.fs, b.fs.PathJoin(partial, layout.BackupName)); err != nil || n["backup"] != "partial" {
		return errs.New(errs.Invalid, "back up store", partial,
			"exists and is no interrupted backup").WithFix("move it away, or name another directory")
	}
	return b.fs.RemoveAll(partial)
}

func (b *backup) note(dir, state string) error {
	text := fmt.Sprintf("backup %s\nformat %d\nuuid %s\ntime %s\nfiles %d\nbytes %d\n",
		state, layout.FormatVersion, b.report.UUID, time.Now().UTC().Format(time.RFC3339), b.report.Files, b.report.Bytes)
	if b.sums != "" {
		text += "sums " + b.sums + "\n"
	}
	return layout.WriteNote(b.fs, dir, layout.BackupName, text)
}

// once makes a checkpoint of the metadata and copies the files that the checkpoint names.
func (b *backup) once(dir string) error {
	b.report.Files, b.report.Bytes, b.report.Verified = 0, 0, 0
	meta := b.fs.PathJoin(dir, layout.MetaName)
	if err := b.fs.RemoveAll(meta); err != nil {
		return err
	}
	if err := b.src.Usable(); err != nil {
		return err
	}
	if err := b.src.DB.Checkpoint(meta, pebble.WithFlushedWAL()); err != nil {
		return err
	}
	if err := b.dirs.Make(meta); err != nil {
		return err
	}
	db, err := metadb.Open(meta, metadb.ToolOptions(b.fs, metadb.MaxMemTable, true))
	if err != nil {
		return err
	}
	if err := closeDir(b.fs, meta); err != nil {
		_ = db.Close()
		return err
	}
	defer func() { _ = db.Close() }()
	if err := b.files(db, dir); err != nil {
		return err
	}
	if err := b.parts(db, dir); err != nil {
		return err
	}
	if b.verified {
		return b.verify(db, dir)
	}
	return nil
}

// closeDir removes all permissions on a directory and its files from everybody but the owner.
func closeDir(f vfs.FS, dir string) error {
	if f != vfs.Default {
		return nil
	}
	names, err := f.List(dir)
	for _, n := range names {
		if err == nil {
			err = chmod(f.PathJoin(dir, n), 0o600)
		}
	}
	if err == nil {
		err = chmod(dir, 0o700)
	}
	return err
}

func (b *backup) step(n int64) error {
	b.report.Files++
	b.report.Bytes += n
	if now := time.Now(); b.progress != nil && now.Sub(b.told) > 200*time.Millisecond {
		b.told = now
		b.progress(b.report)
	}
	if b.src != nil && b.src.Closed() {
		return object.Fail("back up store", b.from, object.ErrClosed, "")
	}
	return b.ctx.Err()
}

// parts compares the copied parts of uploads with their checksums, because an upload can change its file during the
// copy.
func (b *backup) parts(db *pebble.DB, dir string) error {
	return metadb.Each(db, []byte{record.KindPart}, []byte{record.KindPart + 1}, func(k, v []byte) error {
		p, _, err := record.SplitPart(k, v, false)
		if err != nil || p.File == 0 {
			return err
		}
		pieces, ok := datafile.Cut(p.Off, p.Size, p.Sums)
		if !ok {
			return record.Unreadable("part", v)
		}
		path, _ := datafile.Names(b.fs, dir, datafile.ID(p.File))
		file, err := layout.OpenRegular(b.fs, path)
		if err == nil {
			err = filecopy.PiecesOf(b.ctx, file, pieces)
			_ = file.Close()
		}
		if b.ctx.Err() != nil {
			return b.ctx.Err()
		}
		if err != nil {
			return movedPart{path: b.sourceOf(p.File), err: err}
		}
		b.report.Verified += p.Size
		return nil
	})
}

// verify reads all content of versions again and compares it with its checksums.
func (b *backup) verify(db *pebble.DB, dir string) error {
	damaged := func(name string, what error) error {
		return &errs.Error{Kind: errs.Corrupt, Op: "verify backup", Name: name, Msg: "its content is damaged", Err: what,
			Fix: "run nebulaio store scrub to see all damage of the store"}
	}
	for _, kind := range []byte{record.KindObject, record.KindVersion} {
		if err := metadb.Each(db, []byte{kind}, []byte{kind + 1}, func(k, value []byte) error {
			v, err := record.DecodeVersion(value, false)
			if err != nil || v.Marker() {
				return err
			}
			name := fmt.Sprintf("%q", k[min(9, len(k)):])
			b.report.Verified += v.Size
			if v.File == 0 {
				_, what, err := metadb.LoadInline(db, v)
				if err == nil && what != "" {
					err = damaged(name, errors.New(what))
				}
				return err
			}
			sums, err := metadb.LoadSums(db, v)
			if err != nil {
				return err
			}
			path, _ := datafile.Names(b.fs, dir, datafile.ID(v.File))
			file, err := b.fs.Open(path)
			if err != nil {
				return damaged(name, err)
			}
			defer func() { _ = file.Close() }()
			if err := filecopy.EachBlock(b.ctx, file, v.Size, filecopy.SumsOf(sums)); err != nil {
				if b.ctx.Err() != nil {
					return err
				}
				return damaged(name, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
