// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/filecopy"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// files copies the files that the metadata names. Only files of uploads can change during the copy.
func (b *backup) files(db *pebble.DB, dir string) error {
	return metadb.Each(db, []byte{record.KindFile}, []byte{record.KindFile + 1}, func(k, v []byte) error {
		id, ok := record.NumberOf(k)
		o, err := record.DecodeOwner(v)
		if !ok || err != nil {
			return record.Unreadable("file", v)
		}
		to, _ := datafile.Names(b.fs, dir, datafile.ID(id))
		if err := b.dirs.Make(b.fs.PathDir(to)); err != nil {
			return err
		}
		size, err := recordedSize(db, id, o)
		if err != nil {
			return err
		}
		n, err := b.file(id, to, size)
		if errors.Is(err, fs.ErrNotExist) && o.Part == 0 {
			return nil // an upload without parts in place
		}
		if errors.Is(err, fs.ErrNotExist) || errs.Is(err, errs.Corrupt) {
			return b.damaged(fmt.Sprintf("%q", o.Key), err)
		}
		if err != nil {
			return err
		}
		return b.step(n)
	})
}

// unknownSize means that no readable record contains the length of a file.
const unknownSize = -1

// recordedSize returns the length of a file as its owner's record has it, or unknownSize. The file of an upload grows
// with its parts, so the checksums of the parts are compared afterwards.
func recordedSize(db *pebble.DB, id uint64, o *record.Owner) (int64, error) {
	if o.Part == 0 {
		return unknownSize, nil
	}
	if o.Part > 0 {
		v, err := metadb.Get(db, record.PartKey(o.Seq, o.Part))
		if err != nil || v == nil {
			return unknownSize, err
		}
		if p, err := record.DecodePart(v, true); err == nil && p.File == id {
			return p.Size, nil
		}
		return unknownSize, nil
	}
	for _, key := range [][]byte{record.ObjectKey(o.Bucket, o.Key), record.VersionKey(o.Bucket, o.Key, o.Seq)} {
		b, err := metadb.Get(db, key)
		if err != nil {
			return unknownSize, err
		}
		if b == nil {
			continue
		}
		if v, err := record.DecodeVersion(b, true); err == nil && v.Seq == o.Seq && v.File == id {
			return v.Size, nil
		}
	}
	return unknownSize, nil
}

// damaged returns the error for a file of the source that is missing or differs from its record.
func (b *backup) damaged(name string, cause error) error {
	if b.src == nil {
		return damagedBackup(b.from, fmt.Errorf("the file of %s: %w", name, cause))
	}
	return &errs.Error{Kind: errs.Corrupt, Op: "back up store", Name: b.from, Err: cause, Msg: "the file of the object " +
		name + " is damaged",
		Fix: "run nebulaio store scrub to see all damage; delete the damaged objects with an S3 client, then back up again"}
}

// sourceOf returns the path of a data file in the source: the one in tmp/ if it exists, else the settled one.
func (b *backup) sourceOf(id uint64) string {
	settled, fresh := datafile.Names(b.fs, b.from, datafile.ID(id))
	if _, err := b.fs.Stat(fresh); err == nil {
		return fresh
	}
	return settled
}

// file copies a data file from tmp/ or data/. It copies as many bytes as the record has, or all bytes if size is
// unknownSize. A file shorter than its record is damaged.
func (b *backup) file(id uint64, to string, size int64) (n int64, err error) {
	settled, fresh := datafile.Names(b.fs, b.from, datafile.ID(id))
	for _, from := range []string{settled, fresh, settled} {
		info, e := b.fs.Stat(from)
		if e == nil {
			n = info.Size()
			if size != unknownSize && info.Mode().IsRegular() {
				if n < size {
					return 0, errs.New(errs.Corrupt, "copy", from, fmt.Sprintf("the file has %d bytes, its record says %d", n, size))
				}
				n = size
			}
			e = filecopy.CopyFile(b.ctx, b.fs, from, to, n, nil)
		}
		if err = e; !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return n, err
}
