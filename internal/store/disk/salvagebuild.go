// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
)

// build makes the metadata of the new store out of the newest changes.
func (v *salvage) build() (err error) {
	v.names = namesOf(v.report.UUID)
	v.buckets = map[uint64]*savedBucket{}
	if v.out, err = openDB(v.fs.PathJoin(v.to, metaName), toolOptions(v.fs, maxMemTable, false), nil); err != nil {
		return err
	}
	v.batch = v.out.NewBatch()
	for _, step := range []func() error{v.bucketRecords, v.heads, v.olds, v.uploads, v.records, v.orphans, v.totals} {
		if err = step(); err != nil {
			break
		}
		v.tell()
	}
	if err == nil {
		err = v.out.Apply(v.batch, pebble.Sync)
	}
	_ = v.batch.Close()
	if e := v.out.Close(); err == nil {
		err = e
	}
	return err
}

func (v *salvage) set(key, value []byte) error {
	if err := v.batch.Set(key, value, nil); err != nil {
		return err
	}
	if v.batch.Len() < 4<<20 {
		return nil
	}
	err := v.out.Apply(v.batch, pebble.NoSync)
	_ = v.batch.Close()
	v.batch = v.out.NewBatch()
	return err
}

// flushOut makes what was set visible to reads of the new store.
func (v *salvage) flushOut() error {
	err := v.out.Apply(v.batch, pebble.NoSync)
	_ = v.batch.Close()
	v.batch = v.out.NewBatch()
	return err
}

func (v *salvage) lose(bucket uint64, key, version, why string) {
	v.report.Lost++
	if len(v.report.Losses) < MaxProblems {
		v.report.Losses = append(v.report.Losses, Loss{Bucket: v.bucketName(bucket), Key: key, Version: version, Why: why})
	}
}

func (v *salvage) bucketName(id uint64) string {
	if b := v.buckets[id]; b != nil {
		return b.name
	}
	return "#" + datafile.ID(id).String()
}

func (v *salvage) bucketRecords() error {
	return v.view.each(kindBucket, func(key, value []byte, state changeState) error {
		name := string(key[1:])
		switch state {
		case changeDeleted:
			return nil
		case changeLost:
			v.warn("the settings of bucket %q are lost", name)
			return nil
		}
		id, _, err := decodeBucket(name, value)
		if err != nil {
			v.warn("the settings of bucket %q cannot be read: %v", name, err)
			return nil
		}
		v.buckets[id] = &savedBucket{name: name}
		v.top.bucket = max(v.top.bucket, id)
		v.report.Buckets++
		return v.set(key, value)
	})
}

// bucket returns the bucket with a number. Where its record is lost, it is made under another name, for its objects' sake.
func (v *salvage) bucket(id uint64) (*savedBucket, error) {
	if b := v.buckets[id]; b != nil {
		return b, nil
	}
	b := &savedBucket{name: fmt.Sprintf("salvaged-%d", id)}
	v.buckets[id] = b
	v.top.bucket = max(v.top.bucket, id)
	v.report.Buckets++
	v.warn("the name and the settings of bucket number %d are lost: its objects are in bucket %q", id, b.name)
	record := &object.Bucket{Name: b.name, Created: fromMilli(0), Versioning: object.VersioningSuspended}
	return b, v.set(bucketKey(b.name), encodeBucket(id, record))
}

// heads saves the current versions.
func (v *salvage) heads() error {
	return v.view.each(kindObject, func(key, value []byte, state changeState) error {
		id, ok := numberOf(key)
		if !ok || state == changeDeleted {
			return nil
		}
		name := string(key[9:])
		if state == changeLost {
			v.lose(id, name, "", "its record cannot be read")
			return nil
		}
		x, err := decodeVersion(value, false)
		if err != nil || x.marker() {
			v.lose(id, name, "", "its record cannot be decoded")
			return nil
		}
		return v.version(id, name, x, key, true)
	})
}

// olds saves noncurrent versions and delete markers, key by key, newest first.
func (v *salvage) olds() error {
	if err := v.flushOut(); err != nil {
		return err
	}
	var last string // bucket and key of the version before
	var head *version
	var null bool
	return v.view.each(kindVersion, func(key, value []byte, state changeState) error {
		id, _ := numberOf(key)
		name, seq, ok := splitVersionKey(key)
		if !ok || state == changeDeleted {
			return nil
		}
		if state == changeLost {
			v.lose(id, name, "", "the record of a noncurrent version cannot be read")
			return nil
		}
		x, err := decodeVersion(value, false)
		if err != nil || x.seq != seq {
			v.lose(id, name, "", "the record of a noncurrent version cannot be decoded")
			return nil
		}
		if at := string(objectKey(id, name)); at != last {
			last, head, null = at, nil, false
			b, err := get(v.out, objectKey(id, name))
			if err != nil {
				return err
			}
			if b != nil {
				if head, err = decodeVersion(b, false); err != nil {
					return err
				}
				null = head.null()
			}
		}
		switch {
		case head != nil && head.seq <= x.seq, x.null() && null:
			v.lose(id, name, v.names.version(x), "it was replaced")
			return nil
		case head == nil && !x.marker():
			// The version above it is lost or deleted: then this one is current.
			before := v.report.Objects
			err := v.version(id, name, x, objectKey(id, name), true)
			if v.report.Objects > before {
				head = x
			}
			null = null || x.null() && head == x
			return err
		case head == nil:
			head = x // a delete marker above all others: the key has no current version
		}
		before := v.report.Objects
		if err := v.version(id, name, x, versionKey(id, name, x.seq), false); err != nil || v.report.Objects == before {
			return err
		}
		if !x.null() {
			return nil
		}
		null = true
		return v.set(nullKey(id, name), binary.BigEndian.AppendUint64(nil, x.seq))
	})
}

// version saves one version under a key of the new store, if its content is right.
func (v *salvage) version(id uint64, name string, x *version, at []byte, current bool) error {
	if err := v.ctx.Err(); err != nil {
		return err
	}
	b, err := v.bucket(id)
	if err != nil {
		return err
	}
	v.top.seq = max(v.top.seq, x.seq)
	why, err := v.content(id, name, x)
	if err != nil {
		return err
	}
	if why != "" {
		v.lose(id, name, v.names.version(x), why)
		return nil
	}
	b.counts.hold(x, current, 1)
	v.report.Objects++
	v.report.Bytes += x.size
	saved := SavedObject{Bucket: b.name, Key: name, Version: v.names.version(x), Size: x.size, Doubtful: v.doubt(at)}
	if saved.Doubtful {
		v.report.Doubtful++
	}
	if len(v.report.Saved) < MaxProblems {
		v.report.Saved = append(v.report.Saved, saved)
	}
	if v.report.Objects%256 == 0 {
		v.tell()
	}
	return v.set(at, x.encode())
}

// content saves what a version has beside its record; why says what is wrong with it.
func (v *salvage) content(id uint64, name string, x *version) (why string, err error) {
	if x.marker() || x.size == 0 && x.file == 0 {
		x.flags &^= flagParts
		return "", nil
	}
	if x.inline() {
		b, state := v.view.get(dataKey(x.seq))
		switch {
		case state == changeDeleted:
			return "it was deleted or overwritten: only its record was still there", nil
		case state == changeLost && len(b) > 0:
			return "its content cannot be read: " + string(b), nil
		case state != changeSet:
			return "its content cannot be read", nil
		case int64(len(b)) != x.size || checksum.Of(b) != x.crc:
			return "its content does not have its checksum", nil
		}
		if err := v.set(dataKey(x.seq), b); err != nil {
			return "", err
		}
	} else if why, err := v.fileContent(id, name, x); why != "" || err != nil {
		return why, err
	}
	if x.flags&flagParts == 0 {
		return "", nil
	}
	list, state := v.view.get(partsKey(x.seq))
	if _, err := decodeParts(list); state != changeSet || err != nil {
		x.flags &^= flagParts
		v.warn("the list of parts of %s/%q is lost; its content is whole", v.bucketName(id), name)
		return "", nil
	}
	return "", v.set(partsKey(x.seq), list)
}

// fileContent saves the file of a version, with its sums and its owner.
func (v *salvage) fileContent(id uint64, name string, x *version) (why string, err error) {
	mine := owner{bucket: id, key: name, seq: x.seq, part: -1}
	switch b, state := v.view.get(fileKey(x.file)); state {
	case changeDeleted:
		return "it was deleted or overwritten: only its record was still there", nil
	case changeSet:
		if o, err := decodeOwner(b); err == nil && *o != mine {
			return "its file belongs to another version", nil
		}
	}
	sums := x.sums
	chunks := chunksOf(x.size)
	if chunks > 0 {
		sums = nil
		for i := range chunks {
			b, state := v.view.get(sumsKey(x.file, uint32(i)))
			t := take{b: b}
			if state != changeSet || t.byte() != recordVersion || len(t.b)%8 != 0 {
				return "the checksums of its content are lost", nil
			}
			for len(t.b) > 0 {
				sums = append(sums, t.word())
			}
			if err := v.set(sumsKey(x.file, uint32(i)), b); err != nil {
				return "", err
			}
		}
	}
	if int64(len(sums)) != blocksOf(x.size) {
		return "the checksums of its content are lost", nil
	}
	if why, err := v.file(x.file, x.size, sumsOf(sums)); why != "" || err != nil {
		return why, err
	}
	v.top.file = max(v.top.file, x.file)
	return "", v.set(fileKey(x.file), mine.encode())
}

// file brings a data file over. Its content is read and checked in any case.
func (v *salvage) file(id uint64, size int64, check func(int64, []byte) error) (why string, err error) {
	settled, fresh := datafile.Names(v.fs, v.from, datafile.ID(id))
	to, _ := datafile.Names(v.fs, v.to, datafile.ID(id))
	from := settled
	info, err := v.fs.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		from = fresh
		info, err = v.fs.Stat(from)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "its file is missing", nil
	case err != nil:
		return "its file cannot be read: " + err.Error(), nil
	case info.Size() < size:
		return fmt.Sprintf("its file has %d of %d bytes", info.Size(), size), nil
	}
	if err := v.dirs.make(v.fs.PathDir(to)); err != nil {
		return "", err
	}
	if v.o.Link && info.Size() == size {
		linked, why, err := v.link(from, to, size, check)
		if linked || why != "" || err != nil {
			return why, err
		}
	}
	err = copyFile(v.ctx, v.fs, from, to, size, check)
	return v.judge(err)
}

// judge tells damage of the old store, which is a loss, from failures of the new one, which end the salvage.
func (v *salvage) judge(err error) (why string, fatal error) {
	switch {
	case err == nil:
		return "", nil
	case errors.Is(err, errSums):
		return "its content does not have its checksum", nil
	case v.ctx.Err() != nil, noSpace(err), errors.Is(err, fs.ErrPermission):
		return "", err
	}
	return "its file cannot be read: " + err.Error(), nil
}

// link gives a file a second name in the new store; linked is false where that cannot be done.
func (v *salvage) link(from, to string, size int64, check func(int64, []byte) error) (linked bool, why string, err error) {
	file, err := openRegular(v.fs, from)
	if err != nil {
		why, err = v.judge(err)
		return false, why, err
	}
	err = eachBlock(v.ctx, file, size, check)
	_ = file.Close()
	if why, err := v.judge(err); why != "" || err != nil {
		return false, why, err
	}
	return v.fs.Link(from, to) == nil, "", nil
}
