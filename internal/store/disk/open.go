// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/fence"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/metafile"
	"github.com/nebulaio/nebulaio/internal/store/record"
	"github.com/nebulaio/nebulaio/internal/store/witness"
)

// Open opens the store in a directory. If the directory is missing, or has neither data nor metadata, Open creates a
// new store in it. Open takes the store's lock. Open refuses a directory that is damaged or is not a store, and leaves
// it unchanged. Open replays the log of the metadata and finishes the work that a crash interrupted. Open does not walk
// over the data files.
func Open(ctx context.Context, o Options) (*Store, error) {
	const op = "open store"
	if o.Dir == "" {
		return nil, errs.New(errs.Invalid, op, "", "no directory is named")
	}
	if err := ctx.Err(); err != nil {
		return nil, errs.Wrap(op, o.Dir, err)
	}
	if err := o.defaults(); err != nil {
		return nil, err
	}
	s := newStore(o)
	if err := s.open(ctx); err != nil {
		s.abandon()
		return nil, err
	}
	return s, nil
}

// abandon releases everything that open has acquired.
func (s *Store) abandon() {
	s.tender.stop()
	if s.remover.running {
		s.remover.stop()
	}
	if s.files != nil {
		_ = s.files.Close()
	}
	if s.db != nil {
		_ = s.closeDB()
	}
	_ = s.fence.Witness.Close(s.db != nil)
	_ = s.unlock() // nobody holds anything of it any more
}

func (s *Store) open(ctx context.Context) error {
	const op = "open store"
	dir := s.opts.Dir
	if err := layout.CheckMade(s.fs, dir); err != nil {
		return err
	}
	if err := makeDirs(s.fs, dir); err != nil {
		return layout.WrapIO(op, dir, err)
	}
	why, err := s.takeLock()
	if err != nil {
		return err
	}
	s.closeUp()
	if err := s.look(); err != nil {
		return err
	}
	if why == nil {
		why = s.room(false)
	}
	if why == nil {
		if why = s.openWritable(ctx); !hindered(why) {
			return why
		}
		s.letGo()
	}
	return s.openReadOnly(why)
}

// openWritable opens the metadata and the files for changes, and finishes the work that a crash interrupted.
func (s *Store) openWritable(ctx context.Context) error {
	s.fence.Hush()
	if err := s.openMeta(false); err != nil {
		return err
	}
	if err := s.fence.Witness.Start(s.opts.Dir, s.uuid); err != nil {
		return err
	}
	if s.files == nil {
		files, err := datafile.Open(s.fileOptions(true))
		if err != nil {
			return err
		}
		s.files = files
	}
	if err := s.files.BeginWrites(); err != nil {
		return err
	}
	if err := s.loadBuckets(); err != nil {
		return err
	}
	if err := s.journal.load(); err != nil {
		return err
	}
	s.fence.Arm()
	if err := s.beginEpoch(); err != nil {
		return err
	}
	if err := s.declareWitness(); err != nil {
		return err
	}
	if err := s.recover(ctx); err != nil {
		return err
	}
	s.fence.Speak()
	s.ballast.take()
	s.tender.start()
	return nil
}

// makeDirs creates a directory and its missing parents. Before a store is created in it, the names of all parents are
// made durable, because a file is lost if the name of its directory is lost. A parent that existed before may belong
// to another owner or a file system without sync; its sync may fail. It is tried, since a killed Open may have
// created it.
func makeDirs(f vfs.FS, dir string) error {
	if _, err := f.Stat(f.PathJoin(dir, layout.FormatName)); err == nil {
		return nil
	}
	there := map[string]bool{}
	var parents []string
	for at := dir; f.PathDir(at) != at; {
		at = f.PathDir(at)
		_, err := f.Stat(at)
		there[at] = err == nil
		parents = append(parents, at)
	}
	if err := f.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, p := range parents {
		if err := layout.SyncDir(f, p); err != nil && !there[p] {
			return err
		}
	}
	return nil
}

// look refuses a directory that is damaged or no store. Pebble changes its files when it is opened for writing, so
// look opens it for reading: a refused directory stays unchanged.
func (s *Store) look() error {
	exists, err := s.metaExists(s.fs.PathJoin(s.opts.Dir, layout.MetaName))
	if err != nil {
		return err
	}
	if !exists {
		format, err := layout.ReadNote(s.fs, s.fs.PathJoin(s.opts.Dir, layout.FormatName))
		if err != nil {
			return err
		}
		if format != nil {
			if _, err := layout.CheckFormat(s.opts.Dir, format); err != nil {
				return err
			}
		}
		return s.refuseWithoutMeta(format != nil)
	}
	if !s.unproven {
		if err := s.examiner().Check(); err != nil {
			return err
		}
	}
	if err := metadb.CheckBlobs(s.fs, s.opts.Dir); err != nil {
		return err
	}
	if err := s.openMeta(true); err != nil {
		return err
	}
	used, err := s.wasOpened()
	if err != nil {
		return err
	}
	if used {
		if err := s.checkData(); err != nil {
			return err
		}
		if s.files, err = datafile.Open(s.fileOptions(true)); err != nil {
			return err
		}
		if err := s.checkAge(); err != nil {
			return err
		}
	}
	err = s.db.Close()
	s.db = nil
	return layout.WrapIO("open store", s.opts.Dir, err)
}

// examiner compares the metadata with its witness.
func (s *Store) examiner() witness.Examiner {
	return witness.Examiner{FS: s.fs, Dir: s.opts.Dir, Tell: s.background, Stopped: s.stopped}
}

// checkData refuses a store without data/, for example because its disk is not mounted.
func (s *Store) checkData() error {
	_, err := s.fs.Stat(s.fs.PathJoin(s.opts.Dir, layout.DataName))
	if errors.Is(err, fs.ErrNotExist) {
		return errs.New(errs.Corrupt, "open store", s.opts.Dir,
			fmt.Sprintf("the data is gone: %s/ exists, %s/ does not", layout.MetaName, layout.DataName)).
			WithFix("mount or restore " + layout.DataName + "/; nothing was changed")
	}
	return layout.WrapIO("open store", s.opts.Dir, err)
}

func (s *Store) fileOptions(readOnly bool) datafile.Options {
	return datafile.Options{
		ReadOnly: readOnly, FS: s.fs, Dir: s.opts.Dir, Verify: s.opts.Verify, OpenFiles: s.opts.OpenFiles,
		ReadOnlyMount: s.opts.ReadOnlyMount,
		Released:      func(id datafile.ID) { s.remover.add(id) },
		Failed: func(id datafile.ID, err error) {
			s.background(errs.Wrap("settle data file", s.files.Path(id), err))
		},
	}
}

// openMeta checks the directory and opens its metadata.
func (s *Store) openMeta(readOnly bool) error {
	const op = "open store"
	dir := s.opts.Dir
	format, err := layout.ReadNote(s.fs, s.fs.PathJoin(dir, layout.FormatName))
	if err != nil {
		return err
	}
	if format != nil {
		if s.uuid, err = layout.CheckFormat(dir, format); err != nil {
			return err
		}
	}
	meta := s.fs.PathJoin(dir, layout.MetaName)
	exists, err := s.metaExists(meta)
	if err != nil {
		return err
	}
	if !exists && !readOnly {
		if err := s.fs.MkdirAll(meta, 0o700); err != nil { // Pebble would make it 0755
			return layout.WrapIO(op, meta, err)
		}
	}
	po := metadb.Options(s.fence, s.opts.db(), readOnly, fence.Logger{Fence: s.fence}, s.background)
	po.ErrorIfNotExists = exists || readOnly
	if s.db, err = s.fence.OpenDB(meta, po); err != nil {
		msg := "the metadata cannot be opened"
		if names, e := s.fs.List(meta); e == nil && !slices.ContainsFunc(names, isVersionMarker) {
			msg += ": " + versionMarker + "* is missing"
		}
		return &errs.Error{Kind: metadb.KindOf(err), Op: op, Name: meta, Msg: msg, Err: layout.WrapIO("", "", err),
			Fix: metadb.OpenFix(err, s.stopped)}
	}
	return s.checkOwner(format != nil, readOnly)
}

func (s *Store) metaExists(meta string) (bool, error) {
	name, err := metafile.CurrentManifest(s.fs, meta)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, layout.WrapIO("open store", meta, err)
	}
	return name != "", nil
}

// versionMarker begins the name of the file that tells Pebble the format of its metadata.
const versionMarker = "marker.format-version."

func isVersionMarker(name string) bool { return strings.HasPrefix(name, versionMarker) }

// isMetaFile reports whether a name is that of a manifest, a log, a table or a blob file of the metadata.
func isMetaFile(name string) bool { _, _, ok := metafile.ParseName(name); return ok }

// refuseWithoutMeta refuses a directory that has held a store.
func (s *Store) refuseWithoutMeta(format bool) error {
	found := layout.FormatName
	if !format {
		found = ""
		for _, name := range []string{layout.DataName, layout.TmpName} {
			names, err := s.fs.List(s.fs.PathJoin(s.opts.Dir, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return layout.WrapIO("open store", s.opts.Dir, err)
			}
			if len(names) > 0 {
				found = name + "/" + names[0]
			}
		}
	}
	if found == "" {
		return nil
	}
	if names, err := s.fs.List(s.fs.PathJoin(s.opts.Dir, layout.MetaName)); err == nil &&
		slices.ContainsFunc(names, isMetaFile) {
		return errs.New(errs.Corrupt, "open store", s.opts.Dir,
			fmt.Sprintf("the metadata is damaged: %s/ holds some, and no marker.manifest.* names its manifest",
				layout.MetaName)).
			WithFix(layout.SaveFix + "; nothing was changed")
	}
	return errs.New(errs.Corrupt, "open store", s.opts.Dir,
		fmt.Sprintf("the metadata is gone: %s exists, %s/ holds none", found, layout.MetaName)).
		WithFix("restore " + layout.MetaName + "/ from the same backup as " + layout.DataName + "/; nothing was changed")
}

// recover finishes the work that a crash interrupted. It settles files in tmp/ that the metadata knows, and removes
// unknown ones and the files on the removal list.
func (s *Store) recover(ctx context.Context) error {
	const op = "recover store"
	var failed error
	var err error
	s.recovered, err = s.files.Recover(func(id datafile.ID) bool {
		// A file on the removal list is known too: it is removed below, under both its names.
		known, err := metadb.Has(s.db, record.FileKey(uint64(id)), record.GoneKey(uint64(id)))
		if err != nil && failed == nil {
			failed = err
		}
		return known || err != nil // in doubt it is kept
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return errs.Wrap(op, s.opts.Dir, err)
	}
	for _, p := range s.recovered.Left {
		s.background(errs.New(errs.Corrupt, op, p,
			"this file should not exist, it was left alone").WithFix("stop the server and run nebulaio store check"))
	}
	s.remover.start()
	return s.each(record.KindGone, func(k, _ []byte) error {
		id, ok := record.ExactNumber(k)
		if !ok {
			s.background(record.Unreadable("removal", k))
			return nil
		}
		// A file with an owner is never removed, whatever the list contains: one of the two records is damaged.
		owned, err := metadb.Has(s.db, record.FileKey(id))
		if err != nil {
			return err
		}
		if owned {
			s.background(errs.New(errs.Corrupt, op, s.files.Path(datafile.ID(id)),
				"the file is on the removal list and has an owner; it was kept").
				WithFix("stop the server and run nebulaio store check --repair"))
			return nil
		}
		s.remover.add(datafile.ID(id))
		return ctx.Err()
	})
}

// each calls f with every key of a kind and its value; both belong to Pebble.
func (s *Store) each(kind byte, f func(k, v []byte) error) error {
	return metadb.EachKind(s.db, kind, f)
}
