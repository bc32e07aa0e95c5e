// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/store/datafile"
)

// uploads saves the uploads in progress, with those of their parts whose content is right.
func (v *salvage) uploads() error {
	return v.view.each(kindUpload, func(key, value []byte, state changeState) error {
		id, _ := numberOf(key)
		name, raw, ok := splitUploadKey(key)
		if !ok || state == changeDeleted {
			return nil
		}
		u, err := decodeUpload(value)
		if state == changeLost || err != nil {
			v.lose(id, name, "", "the record of an upload cannot be read")
			return nil
		}
		b, err := v.bucket(id)
		if err != nil {
			return err
		}
		_, seq := v.names.split(raw)
		v.top.seq, v.top.file = max(v.top.seq, seq), max(v.top.file, u.file)
		b.counts.Uploads++
		v.report.Uploads++
		o := owner{bucket: id, key: name, seq: seq}
		if err := v.parts(o, u, b); err != nil {
			return err
		}
		if err := v.set(fileKey(u.file), o.encode()); err != nil {
			return err
		}
		return v.set(key, value)
	})
}

// parts saves the parts of one upload.
func (v *salvage) parts(o owner, u *upload, b *savedBucket) error {
	copied := false // the file of parts in place
	from := changePrefixOf(numbered(kindPart, o.seq, 0))
	return v.view.newest(from, after(from), func(key, value []byte, state changeState) error {
		if err := v.ctx.Err(); err != nil || state == changeDeleted {
			return err
		}
		p, number, err := splitPart(key, value, false)
		if state == changeLost || err != nil {
			v.lose(o.bucket, o.key, "", "the record of a part cannot be read")
			return nil
		}
		why := ""
		pieces, ok := datafile.Cut(p.off, p.size, p.sums)
		switch {
		case !ok:
			why = "its checksums are not right"
		case p.file == 0 && p.size == 0:
		case p.file == u.file && u.partSize > 0 && p.off == int64(number-1)*u.partSize && p.size <= u.partSize:
			why, err = v.partFile(p.file, pieces, !copied)
			copied = copied || why == "" && err == nil
		default:
			why, err = v.partFile(p.file, pieces, true)
			if why == "" && err == nil {
				side := o
				side.part = number
				v.top.file = max(v.top.file, p.file)
				err = v.set(fileKey(p.file), side.encode())
			}
		}
		if err != nil {
			return err
		}
		if why != "" {
			v.lose(o.bucket, o.key, "", fmt.Sprintf("part %d of an upload: %s", number, why))
			return nil
		}
		b.counts.Parts += p.size
		return v.set(key, value)
	})
}

// changePrefixOf is where the changes of keys that begin with key begin.
func changePrefixOf(key []byte) []byte { return escape(nil, string(key)) }

// partFile checks the pieces of a part, and brings its file over where that is not done yet.
func (v *salvage) partFile(id uint64, pieces []datafile.Piece, bring bool) (why string, err error) {
	settled, fresh := datafile.Names(v.fs, v.from, datafile.ID(id))
	from := settled
	file, err := openRegular(v.fs, from)
	if err != nil {
		from = fresh
		if file, err = openRegular(v.fs, from); err != nil {
			return v.judge(err)
		}
	}
	info, err := file.Stat()
	if err == nil {
		err = piecesOf(v.ctx, file, pieces)
	}
	_ = file.Close()
	if why, err := v.judge(err); why != "" || err != nil || !bring {
		return why, err
	}
	// An upload goes on in its file, so that the two stores never share it.
	link := v.o.Link
	v.o.Link = false
	why, err = v.file(id, info.Size(), nil)
	v.o.Link = link
	return why, err
}

// records saves the records of others: accounts and settings.
func (v *salvage) records() error {
	return v.view.each(kindRecord, func(key, value []byte, state changeState) error {
		if state == changeDeleted {
			return nil
		}
		kind, name, ok := unescape(key[1:])
		if state == changeLost || !ok || len(value) < 1 || value[0] != recordVersion {
			v.report.Lost++
			v.report.Losses = append(v.report.Losses, Loss{Key: kind + "/" + string(name), Why: "the record cannot be read"})
			return nil
		}
		v.report.Records++
		return v.set(key, value)
	})
}

// orphans names what is lost with records that cannot be read: the index of files still knows whose they were.
func (v *salvage) orphans() error {
	if err := v.flushOut(); err != nil {
		return err
	}
	named := map[Loss]bool{}
	for _, l := range v.report.Losses {
		named[Loss{Bucket: l.Bucket, Key: l.Key}] = true
	}
	if err := v.view.each(kindData, func(key, value []byte, state changeState) error {
		if saved, err := get(v.out, key); saved != nil || err != nil || state != changeSet {
			return err
		}
		v.small++
		return nil
	}); err != nil {
		return err
	}
	if n := v.small - v.report.Lost; n > 0 {
		v.warn("the contents of about %d small objects are there without their records: the names of these objects are lost", n)
		v.report.Lost += n
	}
	return v.view.each(kindFile, func(key, value []byte, state changeState) error {
		if state != changeSet {
			return nil
		}
		o, err := decodeOwner(value)
		if err != nil || o.part >= 0 {
			return nil
		}
		if saved, err := get(v.out, key); saved != nil || err != nil {
			return err
		}
		id, _ := numberOf(key)
		if named[Loss{Bucket: v.bucketName(o.bucket), Key: o.key}] {
			return nil
		}
		path, _ := datafile.Names(v.fs, v.from, datafile.ID(id))
		v.lose(o.bucket, o.key, "", "its record is lost; its content may be in "+strings.TrimPrefix(path, v.from+"/")+" of the old store")
		return nil
	})
}

// totals writes what follows from the rest: counts, marks, the identity.
func (v *salvage) totals() error {
	for id, b := range v.buckets {
		if err := v.set(countsKey(id), b.counts.encode()); err != nil {
			return err
		}
	}
	epoch := uint64(1)
	if b, state := v.view.get(metaKey("epoch")); state == changeSet && len(b) == 8 {
		epoch = max(epoch, binary.BigEndian.Uint64(b))
	}
	number := func(name string, n uint64) error { return v.set(metaKey(name), binary.BigEndian.AppendUint64(nil, n)) }
	for _, m := range []struct {
		name string
		top  uint64
	}{{"files", v.top.file}, {"sequences", v.top.seq}, {"buckets", v.top.bucket}} {
		mark := m.top + 1
		if b, state := v.view.get(metaKey(m.name)); state == changeSet && len(b) == 8 {
			mark = max(mark, binary.BigEndian.Uint64(b)) // no number of the old store is given out again
		}
		if err := number(m.name, mark); err != nil {
			return err
		}
	}
	if err := number("epoch", epoch); err != nil {
		return err
	}
	return v.set(metaKey("uuid"), []byte(v.report.UUID))
}

// finish makes the new directory a store, as the last step.
func (v *salvage) finish() error {
	if err := v.dirs.sync(); err != nil {
		return err
	}
	v.tell()
	return endPartial(v.fs, v.to, v.report.UUID)
}
