// SPDX-License-Identifier: Apache-2.0

package salvage

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/filecopy"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// build creates the metadata of the new store from the newest changes.
func (v *salvage) build() (err error) {
	v.names = record.NamesOf(v.report.UUID)
	v.buckets = map[uint64]*savedBucket{}
	if v.out.db, err = metadb.Open(v.fs.PathJoin(v.to, layout.MetaName),
		metadb.ToolOptions(v.fs, metadb.MaxMemTable, false)); err != nil {
		return err
	}
	v.out.batch = v.out.db.NewBatch()
	for _, step := range []func() error{v.bucketRecords, v.heads, v.olds, v.uploads, v.records, v.orphans, v.journal,
		v.totals} {
		if err = step(); err != nil {
			break
		}
		v.tell()
	}
	if err == nil {
		err = v.out.db.Apply(v.out.batch, pebble.Sync)
	}
	_ = v.out.batch.Close()
	if e := v.out.db.Close(); err == nil {
		err = e
	}
	return err
}

func (v *salvage) lose(bucket uint64, key, version, why string) {
	v.report.lose(Loss{Bucket: v.bucketName(bucket), Key: key, Version: version, Why: why})
}

func (v *salvage) bucketName(id uint64) string {
	if b := v.buckets[id]; b != nil {
		return b.name
	}
	return "#" + datafile.ID(id).String()
}

func (v *salvage) bucketRecords() error {
	return v.view.each(record.KindBucket, func(key, value []byte, state changeState) error {
		name := string(key[1:])
		switch state {
		case changeDeleted:
			return nil
		case changeLost:
			v.warn("the settings of bucket %q are lost", name)
			return nil
		}
		id, _, err := record.DecodeBucket(name, value)
		if err != nil {
			v.warn("the settings of bucket %q cannot be read: %v", name, err)
			return nil
		}
		v.buckets[id] = &savedBucket{name: name}
		v.top.bucket = max(v.top.bucket, id)
		v.report.Buckets++
		return v.out.set(key, value)
	})
}

// bucket returns the bucket with a number. If its record is lost, the bucket is created under another name, to keep
// its objects.
func (v *salvage) bucket(id uint64) (*savedBucket, error) {
	if b := v.buckets[id]; b != nil {
		return b, nil
	}
	b := &savedBucket{name: fmt.Sprintf("salvaged-%d", id)}
	v.buckets[id] = b
	v.top.bucket = max(v.top.bucket, id)
	v.report.Buckets++
	v.warn("the name and the settings of bucket number %d are lost: its objects are in bucket %q", id, b.name)
	made := &object.Bucket{Name: b.name, Created: record.Time(0), Versioning: object.VersioningSuspended}
	return b, v.out.set(record.BucketKey(b.name), record.EncodeBucket(id, made))
}

// heads saves the current versions.
func (v *salvage) heads() error {
	return v.view.each(record.KindObject, func(key, value []byte, state changeState) error {
		id, ok := record.NumberOf(key)
		if !ok || state == changeDeleted {
			return nil
		}
		name := string(key[9:])
		if state == changeLost {
			v.lose(id, name, "", "its record cannot be read")
			return nil
		}
		x, err := record.DecodeVersion(value, false)
		if err != nil || x.Marker() {
			v.lose(id, name, "", "its record cannot be decoded")
			return nil
		}
		return v.version(id, name, x, key, true)
	})
}

// olds saves noncurrent versions and delete markers, key by key, newest first.
func (v *salvage) olds() error {
	if err := v.out.flush(); err != nil {
		return err
	}
	var last string // bucket and key of the version before
	var head *record.Version
	var null bool
	return v.view.each(record.KindVersion, func(key, value []byte, state changeState) error {
		id, _ := record.NumberOf(key)
		name, seq, ok := record.SplitVersionKey(key)
		if !ok || state == changeDeleted {
			return nil
		}
		if state == changeLost {
			v.lose(id, name, "", "the record of a noncurrent version cannot be read")
			return nil
		}
		x, err := record.DecodeVersion(value, false)
		if err != nil || x.Seq != seq {
			v.lose(id, name, "", "the record of a noncurrent version cannot be decoded")
			return nil
		}
		if at := string(record.ObjectKey(id, name)); at != last {
			last, head, null = at, nil, false
			b, err := metadb.Get(v.out.db, record.ObjectKey(id, name))
			if err != nil {
				return err
			}
			if b != nil {
				if head, err = record.DecodeVersion(b, false); err != nil {
					return err
				}
				null = head.Null()
			}
		}
		switch {
		case head != nil && head.Seq <= x.Seq, x.Null() && null:
			v.lose(id, name, v.names.Version(x), "it was replaced")
			return nil
		case head == nil && !x.Marker():
			// The version above it is lost or deleted: then this one is current.
			before := v.report.Objects
			err := v.version(id, name, x, record.ObjectKey(id, name), true)
			if v.report.Objects > before {
				head = x
			}
			null = null || x.Null() && head == x
			return err
		case head == nil:
			head = x // a delete marker above all others: the key has no current version
		}
		before := v.report.Objects
		if err := v.version(id, name, x, record.VersionKey(id, name, x.Seq), false); err != nil ||
			v.report.Objects == before {
			return err
		}
		if !x.Null() {
			return nil
		}
		null = true
		return v.out.set(record.NullKey(id, name), binary.BigEndian.AppendUint64(nil, x.Seq))
	})
}

// version saves one version under a key of the new store, if its content is intact.
func (v *salvage) version(id uint64, name string, x *record.Version, at []byte, current bool) error {
	if err := v.ctx.Err(); err != nil {
		return err
	}
	b, err := v.bucket(id)
	if err != nil {
		return err
	}
	v.top.seq = max(v.top.seq, x.Seq)
	why, err := v.content(id, name, x)
	if err != nil {
		return err
	}
	if why != "" {
		v.lose(id, name, v.names.Version(x), why)
		return nil
	}
	b.counts.Hold(x, current, 1)
	v.report.Objects++
	v.report.Bytes += x.Size
	saved := SavedObject{Bucket: b.name, Key: name, Version: v.names.Version(x), Size: x.Size, Doubtful: v.doubt(at)}
	if saved.Doubtful {
		v.report.Doubtful++
	}
	if len(v.report.Saved) < MaxNamed {
		v.report.Saved = append(v.report.Saved, saved)
	}
	if v.report.Objects%256 == 0 {
		v.tell()
	}
	return v.out.set(at, x.Encode())
}

// content saves the content of a version; why describes its damage, if any.
func (v *salvage) content(id uint64, name string, x *record.Version) (why string, err error) {
	if x.Marker() || x.Size == 0 && x.File == 0 {
		x.Flags &^= record.FlagParts
		return "", nil
	}
	if x.Inline() {
		b, state := v.view.get(record.DataKey(x.Seq))
		switch {
		case state == changeDeleted:
			return "it was deleted or overwritten: only its record was still there", nil
		case state == changeLost && len(b) > 0:
			return "its content cannot be read: " + string(b), nil
		case state != changeSet:
			return "its content cannot be read", nil
		case int64(len(b)) != x.Size || checksum.Of(b) != x.CRC:
			return "its content does not have its checksum", nil
		}
		if err := v.out.set(record.DataKey(x.Seq), b); err != nil {
			return "", err
		}
	} else if why, err := v.fileContent(id, name, x); why != "" || err != nil {
		return why, err
	}
	if x.Flags&record.FlagParts == 0 {
		return "", nil
	}
	list, state := v.view.get(record.PartsKey(x.Seq))
	if _, err := record.DecodeParts(list); state != changeSet || err != nil {
		x.Flags &^= record.FlagParts
		v.warn("the list of parts of %s/%q is lost; its content is whole", v.bucketName(id), name)
		return "", nil
	}
	return "", v.out.set(record.PartsKey(x.Seq), list)
}

// fileContent saves the file of a version, with its sums and its owner.
func (v *salvage) fileContent(id uint64, name string, x *record.Version) (why string, err error) {
	mine := record.Owner{Bucket: id, Key: name, Seq: x.Seq, Part: -1}
	switch b, state := v.view.get(record.FileKey(x.File)); state {
	case changeDeleted:
		return "it was deleted or overwritten: only its record was still there", nil
	case changeSet:
		if o, err := record.DecodeOwner(b); err == nil && *o != mine {
			return "its file belongs to another version", nil
		}
	}
	sums := x.Sums
	chunks := record.ChunksOf(x.Size)
	if chunks > 0 {
		sums = nil
		for i := range chunks {
			b, state := v.view.get(record.SumsKey(x.File, uint32(i)))
			var ok bool
			if sums, ok = record.DecodeSums(b, sums); state != changeSet || !ok {
				return "the checksums of its content are lost", nil
			}
			if err := v.out.set(record.SumsKey(x.File, uint32(i)), b); err != nil {
				return "", err
			}
		}
	}
	if int64(len(sums)) != record.BlocksOf(x.Size) {
		return "the checksums of its content are lost", nil
	}
	if why, err := v.files.file(x.File, x.Size, v.o.Link, filecopy.SumsOf(sums)); why != "" || err != nil {
		return why, err
	}
	v.top.file = max(v.top.file, x.File)
	return "", v.out.set(record.FileKey(x.File), mine.Encode())
}
