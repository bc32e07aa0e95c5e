// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// Restored is the result of PutBack.
type Restored struct {
	Path    string   // path of a restored file
	Records int      // number of records put back
	Kept    []string // records that were not put back, because they have changed since the repair
}

// Metadata gives PutBack access to the metadata of a stopped store.
type Metadata struct {
	DB *pebble.DB
	// Apply commits a batch of changes durably.
	Apply func(op, name string, b *pebble.Batch) error
}

// CheckName refuses a name that cannot be the name of an entry in quarantine/.
func CheckName(op, name string) error {
	if name != filepath.Base(name) || name == "." || name == ".." || name == "" {
		return errs.New(errs.Invalid, op, name, "expected a name that store quarantine list shows")
	}
	return nil
}

// PutBack moves an entry of quarantine/ back into the store. A quarantined file returns to its old path; PutBack fails
// if another file is there. Quarantined records are restored if nothing has changed them since the repair.
func (q Folder) PutBack(ctx context.Context, m Metadata, name string) (r Restored, err error) {
	const op = "restore"
	path := q.FS.PathJoin(q.Dir, layout.QuarantineName, name)
	if !layout.Exists(q.FS, path) {
		return r, errs.New(errs.NotFound, op, name, "there is no such thing in "+layout.QuarantineName+
			"/").WithFix("run nebulaio store quarantine list")
	}
	if strings.HasPrefix(name, recordsPrefix) && strings.HasSuffix(name, recordsSuffix) {
		err = q.putBackRecords(ctx, m, name, &r)
		return r, err
	}
	n, err := q.fileNote(name)
	if err != nil {
		return r, err
	}
	to := q.FS.PathJoin(q.Dir, n.Path)
	if layout.Exists(q.FS, to) {
		return r, errs.New(errs.Invalid, op, name, to+" exists").WithFix("move that file away first")
	}
	if err := q.wouldStay(op, m.DB, to); err != nil {
		return r, err
	}
	if err := q.FS.MkdirAll(q.FS.PathDir(to), 0o700); err != nil {
		return r, layout.WrapIO(op, to, err)
	}
	if err := q.FS.Rename(path, to); err != nil {
		return r, layout.WrapIO(op, path, err)
	}
	for _, d := range []string{q.FS.PathDir(to), q.FS.PathDir(path)} {
		if err := layout.SyncDir(q.FS, d); err != nil {
			return r, layout.WrapIO(op, d, err)
		}
	}
	r.Path = to
	return r, layout.WrapIO(op, name, q.FS.Remove(path+noteSuffix))
}

// wouldStay refuses to put a file into tmp/ that the next start would remove, because no record names it.
func (q Folder) wouldStay(op string, db *pebble.DB, path string) error {
	if q.FS.PathBase(q.FS.PathDir(path)) != layout.TmpName {
		return nil
	}
	id, err := datafile.ParseID(q.FS.PathBase(path))
	if err != nil {
		return nil // no data file: it is left alone there
	}
	known, err := metadb.Has(db, record.FileKey(uint64(id)))
	if err != nil || known {
		return err
	}
	return errs.New(errs.Invalid, op, path, "no record knows this file, so the next start would remove it").WithFix(
		"restore its records first")
}

// putBackRecords puts records back.
func (q Folder) putBackRecords(ctx context.Context, m Metadata, name string, r *Restored) error {
	const op = "restore"
	b := m.DB.NewBatch()
	err := q.savedRecords(name, func(e *SavedRecord) error {
		now, err := metadb.Get(m.DB, e.Key)
		if err != nil {
			return err
		}
		was := e.Value
		if !e.Absent && was == nil {
			was = []byte{} // JSON tells no empty value from none
		}
		switch {
		case bytes.Equal(now, was) && (now == nil) == e.Absent:
		case bytes.Equal(now, e.New) && (now == nil) == (e.New == nil):
			r.Records++
			if e.Absent {
				return b.Delete(e.Key, nil)
			}
			return b.Set(e.Key, was, nil)
		default:
			r.Kept = append(r.Kept, fmt.Sprintf("%q, of %s", e.Key, e.What))
		}
		return ctx.Err()
	})
	if err != nil {
		_ = b.Close()
		return err
	}
	if err := m.Apply(op, name, b); err != nil {
		return err
	}
	if len(r.Kept) > 0 {
		return nil
	}
	dir := q.FS.PathJoin(q.Dir, layout.QuarantineName)
	if err := q.FS.Rename(q.FS.PathJoin(dir, name), q.FS.PathJoin(dir, name+restoredMark)); err != nil {
		return layout.WrapIO(op, name, err)
	}
	return layout.WrapIO(op, name, layout.SyncDir(q.FS, dir))
}
