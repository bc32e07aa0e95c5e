// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// SalvageOptions says where to and how Salvage saves.
type SalvageOptions struct {
	// To is the directory of the new store. It must be missing or empty.
	To string
	// Link gives files of content a second name, where they cannot be cloned, in place of a copy. Then the old and the new
	// store share them, and what damages one damages the other.
	Link bool
	// Progress hears from time to time what was read and saved; nil is allowed.
	Progress func(SalvageReport)
}

// Loss is something that was in a store and could not be saved.
type Loss struct {
	Bucket  string
	Key     string
	Version string
	Why     string
}

// SavedObject is a version that was saved.
type SavedObject struct {
	Bucket  string
	Key     string
	Version string
	Size    int64
	// Doubtful says that a later change of the key may have been lost: the version may have been overwritten or deleted.
	Doubtful bool
}

// SalvageReport is what was read, saved and lost.
type SalvageReport struct {
	UUID     string
	Metadata []MetaFile // the files that were read
	Changes  int64      // read out of them
	Buckets  int64
	Objects  int64 // versions with content, and delete markers
	Bytes    int64 // of content
	Uploads  int64
	Records  int64 // of others: accounts and settings
	Doubtful int64 // of the objects
	Lost     int64
	Saved    []SavedObject // at most MaxProblems
	Losses   []Loss        // at most MaxProblems
	Warnings []string
}

// Salvage saves what is readable of a damaged store into a new one, and never changes the old one. It reads each file of the
// metadata by itself as far as it goes; of each key the newest change counts. A version is saved only if its record can be
// read and its content has the right checksum. Nobody may have the old store open. An interrupted Salvage leaves a
// directory that is not taken for a store, and that the next Salvage begins anew.
func Salvage(ctx context.Context, src Options, o SalvageOptions) (SalvageReport, error) {
	const op = "salvage store"
	v := &salvage{ctx: ctx, o: o}
	if err := src.defaults(); err != nil {
		return v.report, err
	}
	v.fs, v.from = src.FS, src.Dir
	to := Options{Dir: o.To, FS: src.FS, Reserve: -1}
	if src.FS == vfs.Default {
		to.FS = nil
	}
	if err := to.defaults(); err != nil {
		return v.report, err
	}
	v.to = to.Dir
	meta := v.fs.PathJoin(v.from, metaName)
	if _, err := v.fs.Stat(meta); err != nil {
		return v.report, errs.New(errs.NotFound, op, v.from, "has no "+metaName+"/, so there is nothing to read").
			WithFix("name the directory of the damaged store, or restore a backup")
	}
	unlock, err := lockQuietly(v.fs, v.from)
	if err != nil {
		return v.report, err
	}
	defer unlock()
	if err := apart(op, v.fs, v.to, v.from, "the damaged store"); err != nil {
		return v.report, err
	}
	if err := beginPartial(op, v.fs, v.to, "salvage"); err != nil {
		return v.report, err
	}
	if err := v.run(meta); err != nil {
		return v.report, copyFailed(op, v.to, err)
	}
	return v.report, nil
}

// lockQuietly keeps others from changing a store without writing to it: not even LOCK is touched, so it works on a
// read-only file system too. Where LOCK is missing nobody has the store open.
func lockQuietly(f vfs.FS, dir string) (func(), error) {
	file, err := openRegular(f, f.PathJoin(dir, lockName))
	if err != nil {
		return func() {}, nil
	}
	if fd := file.Fd(); fd != vfs.InvalidFd {
		// A lock of this open file, and not of the process: it also meets a store that this process has open.
		err = unix.FcntlFlock(fd, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart})
	}
	if err != nil && lockTaken(err) {
		_ = file.Close()
		return nil, &errs.Error{Kind: errs.Invalid, Op: "open store", Name: dir, Msg: "another process has this store open", Err: err, Fix: "stop it first"}
	}
	return func() { _ = file.Close() }, nil
}

// scratchName is where a salvage gathers what it read.
const scratchName = "salvage.tmp"

type salvage struct {
	ctx    context.Context
	o      SalvageOptions
	fs     vfs.FS
	from   string
	to     string
	report SalvageReport

	view  *changes
	gaps  []metaGap
	small int64 // contents without a record
	blind bool  // changes of unknown keys were lost
	names names
	out   *pebble.DB
	batch *pebble.Batch

	dirs    dirSet
	buckets map[uint64]*savedBucket
	top     struct{ seq, file, bucket uint64 }
}

type savedBucket struct {
	name   string
	counts counts
}

func (v *salvage) run(meta string) error {
	v.dirs = dirSet{fs: v.fs, root: v.to}
	for _, dir := range []string{"", metaName, dataName, tmpName} {
		if err := v.dirs.make(v.fs.PathJoin(v.to, dir)); err != nil {
			return err
		}
	}
	scratch := v.fs.PathJoin(v.to, scratchName)
	db, err := openDB(scratch, toolOptions(v.fs, 16<<20, false), nil)
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
	s := &Store{opts: Options{Dir: v.from}, fs: v.fs, stopped: true}
	t := v.testimony(s)
	r, err := openMetaReader(v.fs, meta, !t.known || t.manifestIsShort())
	if err != nil {
		return err
	}
	r.rescue = true
	if name := damagedInBackup(v.ctx, v.fs, v.from); name != "" {
		v.blind = true
		v.warn("this is a backup, and its metadata is damaged (%s): what the lost changes deleted or overwrote may be there again", name)
	}
	if r.damage != nil {
		v.blind = true
		v.warn("the manifest is damaged (%v): all tables in the directory were read, also such as may have been given up", r.damage)
	}
	k := &metaChecker{s: s, ctx: v.ctx, report: &CheckReport{}, later: true}
	k.manifest(r, t.short)
	add := func(e metaEntry) error {
		v.report.Changes++
		if v.report.Changes%4096 == 0 {
			v.tell()
		}
		return v.view.add(e)
	}
	for _, short := range t.short {
		if short.lost > short.behind {
			v.blind = true
		}
	}
	k.each = add
	if err := k.logs(r, t); err != nil {
		return err
	}
	k.gaps = func(gaps []metaGap) { v.gaps = append(v.gaps, gaps...) }
	if err := k.tables(r); err != nil {
		return err
	}
	v.report.Metadata = k.report.Metadata
	for _, f := range v.report.Metadata {
		if _, kind, _ := metaFileNumber(f.Name); kind == "log" && f.Damage != "" {
			v.blind = true
			v.warn("changes in %s are lost: what they deleted or overwrote may be there again, and is marked as doubtful", f.Name)
		}
	}
	for range v.gaps {
		v.warn("keys in a damaged table are lost: what they deleted or overwrote may be there again, and is marked as doubtful")
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

// doubt says whether a later change of a key may have been lost.
func (v *salvage) doubt(key []byte) bool {
	if v.blind {
		return true
	}
	for _, g := range v.gaps {
		if (g.from == nil || bytes.Compare(key, g.from) >= 0) && (g.to == nil || bytes.Compare(key, g.to) <= 0) {
			return true
		}
	}
	return false
}
