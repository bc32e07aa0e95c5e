// SPDX-License-Identifier: Apache-2.0

// Package salvage copies everything readable of a damaged store into a new store.
package salvage

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/backup"
	"github.com/nebulaio/nebulaio/internal/store/filecopy"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/metafile"
	"github.com/nebulaio/nebulaio/internal/store/metascan"
	"github.com/nebulaio/nebulaio/internal/store/record"
	"github.com/nebulaio/nebulaio/internal/store/witness"
)

// Options are the source, the target and the settings of a salvage.
type Options struct {
	// FS is the file system; nil means that of the operating system.
	FS vfs.FS
	// From is the directory of the damaged store.
	From string
	// To is the directory of the new store, which must be missing or empty.
	To string
	// Link creates hard links to the data files if they cannot be cloned, instead of copying them. With hard links
	// the old and the new store share data files, so damage to one store is damage to the other.
	Link bool
	// Progress is called from time to time with the report so far; nil means no calls.
	Progress func(Report)
}

// Loss is a version, a part or a record of the damaged store that could not be saved.
type Loss struct {
	Bucket  string
	Key     string
	Version string
	Why     string
}

// SavedObject is an object version that was saved.
type SavedObject struct {
	Bucket  string
	Key     string
	Version string
	Size    int64
	// Doubtful means that a later change of the key may be lost, so this version may have been overwritten or
	// deleted.
	Doubtful bool
}

// MaxNamed is the largest number of versions, and of losses, that a report lists.
const MaxNamed = 10000

// Report is the result of a salvage.
type Report struct {
	UUID     string
	Metadata []metascan.File // the metadata files that were read
	Changes  int64           // changes read from the metadata files
	Buckets  int64
	Objects  int64 // saved versions with content, and saved delete markers
	Bytes    int64 // size of the saved content in bytes
	Uploads  int64
	Records  int64 // saved records of other packages: accounts and settings
	Journal  int64 // saved events and replications that wait for their receivers
	Doubtful int64 // saved versions that may have been overwritten or deleted
	Lost     int64
	Saved    []SavedObject // the first saved versions, at most MaxNamed
	Losses   []Loss        // the first losses, at most MaxNamed
	Warnings []string
}

// lose counts a loss, and lists it among the first ones.
func (r *Report) lose(l Loss) {
	r.Lost++
	if len(r.Losses) < MaxNamed {
		r.Losses = append(r.Losses, l)
	}
}

// Run copies everything readable of a damaged store into a new store, and never changes the damaged store. Run reads
// each metadata file separately, as far as it is readable. For each key, only the newest readable change counts. A
// version is saved only if its record is readable and its content matches its checksum. Nobody may have the damaged
// store open during Run. An interrupted Run leaves a directory that Open does not accept as a store. A Run to the
// directory of an interrupted Run starts from the beginning.
func Run(ctx context.Context, o Options) (Report, error) {
	const op = "salvage store"
	v := &salvage{ctx: ctx, o: o}
	var err error
	if v.fs, v.from, err = layout.Resolve(o.FS, o.From); err != nil {
		return v.report, err
	}
	if _, v.to, err = layout.Resolve(o.FS, o.To); err != nil {
		return v.report, err
	}
	meta := v.fs.PathJoin(v.from, layout.MetaName)
	if _, err := v.fs.Stat(meta); err != nil {
		return v.report, errs.New(errs.NotFound, op, v.from, "has no "+layout.MetaName+"/, so there is nothing to read").
			WithFix("name the directory of the damaged store, or restore a backup")
	}
	unlock, err := layout.LockQuietly(v.fs, v.from)
	if err != nil {
		return v.report, err
	}
	defer unlock()
	if err := layout.CheckApart(op, v.fs, v.to, v.from, "the damaged store"); err != nil {
		return v.report, err
	}
	if err := layout.BeginPartial(op, v.fs, v.to, "salvage"); err != nil {
		return v.report, err
	}
	if err := v.run(meta); err != nil {
		return v.report, layout.CopyFailed(op, v.to, err)
	}
	return v.report, nil
}

type salvage struct {
	ctx    context.Context
	o      Options
	fs     vfs.FS
	from   string
	to     string
	report Report

	view  *changes
	gaps  []metascan.Gap
	small int64 // contents without a record
	blind bool  // changes of unknown keys were lost
	names record.Names
	out   output
	files carrier

	buckets map[uint64]*savedBucket
	top     struct{ seq, file, bucket uint64 }
}

type savedBucket struct {
	name   string
	counts record.Counts
}

func (v *salvage) run(meta string) error {
	v.files = carrier{ctx: v.ctx, fs: v.fs, from: v.from, to: v.to, dirs: filecopy.DirSet{FS: v.fs, Root: v.to}}
	for _, dir := range []string{"", layout.MetaName, layout.DataName, layout.TmpName} {
		if err := v.files.dirs.Make(v.fs.PathJoin(v.to, dir)); err != nil {
			return err
		}
	}
	scratch := v.fs.PathJoin(v.to, layout.ScratchName)
	db, err := metadb.Open(scratch, metadb.ToolOptions(v.fs, 16<<20, false))
	if err != nil {
		return err
	}
	v.view = &changes{db: db}
	err = v.gather(meta)
	if err == nil {
		err = v.build()
	}
	if e := db.Close(); err == nil {
		err = e
	}
	if e := v.fs.RemoveAll(scratch); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return v.finish()
}

func (v *salvage) warn(format string, args ...any) {
	v.report.Warnings = append(v.report.Warnings, fmt.Sprintf(format, args...))
}

func (v *salvage) tell() {
	if v.o.Progress != nil {
		v.o.Progress(v.report)
	}
}

// gather reads all files of the metadata.
func (v *salvage) gather(meta string) error {
	t := v.testimony(witness.Examiner{FS: v.fs, Dir: v.from, Tell: func(error) {}, Stopped: true})
	r, err := metascan.Open(v.fs, meta, !t.Known || t.ManifestIsShort())
	if err != nil {
		return err
	}
	r.Rescue = true
	if name := backup.DamagedIn(v.ctx, v.fs, v.from); name != "" {
		v.blind = true
		v.warn("this is a backup, and its metadata is damaged (%s): what the lost changes deleted or overwrote may be "+
			"there again", name)
	}
	if r.Damage != nil {
		v.blind = true
		v.warn("the manifest is damaged (%v): all tables in the directory were read, also such as may have been given up",
			r.Damage)
	}
	add := func(e metascan.Entry) error {
		v.report.Changes++
		if v.report.Changes%4096 == 0 {
			v.tell()
		}
		return v.view.add(e)
	}
	for _, short := range t.Short {
		if short.Lost > short.Behind {
			v.blind = true
		}
	}
	k := &metascan.Survey{Ctx: v.ctx, Each: add, Later: true}
	k.Gaps = func(gaps []metascan.Gap) { v.gaps = append(v.gaps, gaps...) }
	if err := k.Run(r, t.Short, t.Known); err != nil {
		return err
	}
	v.report.Metadata = k.Files
	for _, f := range v.report.Metadata {
		if _, kind, _ := metafile.ParseName(f.Name); kind == "log" && f.Damage != "" {
			v.blind = true
			v.warn("changes in %s are lost: what they deleted or overwrote may be there again, and is marked as doubtful",
				f.Name)
		}
	}
	for range v.gaps {
		v.warn("keys in a damaged table are lost: what they deleted or overwrote may be there again, and is marked as " +
			"doubtful")
		break
	}
	if err := v.view.flush(); err != nil {
		return err
	}
	if err := v.matchBlobs(r); err != nil {
		return err
	}
	v.report.UUID = v.uuid()
	return nil
}

// doubt reports whether a later change of a key may have been lost.
func (v *salvage) doubt(key []byte) bool {
	if v.blind {
		return true
	}
	for _, g := range v.gaps {
		if (g.From == nil || bytes.Compare(key, g.From) >= 0) && (g.To == nil || bytes.Compare(key, g.To) <= 0) {
			return true
		}
	}
	return false
}
