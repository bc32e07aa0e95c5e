// SPDX-License-Identifier: Apache-2.0

package salvage

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/fence"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// uploads saves the uploads in progress, with all parts whose content is intact.
func (v *salvage) uploads() error {
	return v.view.each(record.KindUpload, func(key, value []byte, state changeState) error {
		id, _ := record.NumberOf(key)
		name, raw, ok := record.SplitUploadKey(key)
		if !ok || state == changeDeleted {
			return nil
		}
		u, err := record.DecodeUpload(value)
		if state == changeLost || err != nil {
			v.lose(id, name, "", "the record of an upload cannot be read")
			return nil
		}
		b, err := v.bucket(id)
		if err != nil {
			return err
		}
		_, seq := v.names.Split(raw)
		v.top.seq, v.top.file = max(v.top.seq, seq), max(v.top.file, u.File)
		b.counts.Uploads++
		v.report.Uploads++
		o := record.Owner{Bucket: id, Key: name, Seq: seq}
		if err := v.parts(o, u, b); err != nil {
			return err
		}
		if err := v.out.set(record.FileKey(u.File), o.Encode()); err != nil {
			return err
		}
		return v.out.set(key, value)
	})
}

// parts saves the parts of one upload.
func (v *salvage) parts(o record.Owner, u *record.Upload, b *savedBucket) error {
	copied := false // the file of parts in place
	from := changePrefixOf(record.Numbered(record.KindPart, o.Seq, 0))
	return v.view.newest(from, record.After(from), func(key, value []byte, state changeState) error {
		if err := v.ctx.Err(); err != nil || state == changeDeleted {
			return err
		}
		p, number, err := record.SplitPart(key, value, false)
		if state == changeLost || err != nil {
			v.lose(o.Bucket, o.Key, "", "the record of a part cannot be read")
			return nil
		}
		why := ""
		pieces, ok := datafile.Cut(p.Off, p.Size, p.Sums)
		switch {
		case !ok:
			why = "its checksums are not right"
		case p.File == 0 && p.Size == 0:
		case p.File == u.File && u.PartSize > 0 && p.Off == int64(number-1)*u.PartSize && p.Size <= u.PartSize:
			why, err = v.files.partFile(p.File, pieces, !copied)
			copied = copied || why == "" && err == nil
		default:
			why, err = v.files.partFile(p.File, pieces, true)
			if why == "" && err == nil {
				side := o
				side.Part = number
				v.top.file = max(v.top.file, p.File)
				err = v.out.set(record.FileKey(p.File), side.Encode())
			}
		}
		if err != nil {
			return err
		}
		if why != "" {
			v.lose(o.Bucket, o.Key, "", fmt.Sprintf("part %d of an upload: %s", number, why))
			return nil
		}
		b.counts.Parts += p.Size
		return v.out.set(key, value)
	})
}

// changePrefixOf returns the beginning of the changes of keys that begin with key.
func changePrefixOf(key []byte) []byte { return record.Escape(nil, string(key)) }

// records saves the records of other packages: accounts and settings.
func (v *salvage) records() error {
	return v.view.each(record.KindRecord, func(key, value []byte, state changeState) error {
		if state == changeDeleted {
			return nil
		}
		kind, name, ok := record.Unescape(key[1:])
		if state == changeLost || !ok || len(value) < 1 || value[0] != record.Format {
			v.report.lose(Loss{Key: kind + "/" + string(name), Why: "the record cannot be read"})
			return nil
		}
		v.report.Records++
		return v.out.set(key, value)
	})
}

// journal saves the events and replications that wait for their receivers. If the removal of an entry is lost, the
// entry is there again: its receiver gets it twice.
func (v *salvage) journal() error {
	return v.view.each(record.KindJournal, func(key, value []byte, state changeState) error {
		if state == changeDeleted {
			return nil
		}
		consumer, seq, ok := record.SplitJournalKey(key)
		if state != changeLost && ok {
			_, err := record.DecodeJournal(seq, value)
			ok = err == nil
		}
		if state == changeLost || !ok {
			v.report.lose(Loss{Key: fmt.Sprintf("journal/%s/%d", consumer, seq), Why: "the entry cannot be read"})
			return nil
		}
		v.report.Journal++
		return v.out.set(key, value)
	})
}

// orphans reports what is lost with unreadable records: the index of files still contains the owners.
func (v *salvage) orphans() error {
	if err := v.out.flush(); err != nil {
		return err
	}
	named := map[Loss]bool{}
	for _, l := range v.report.Losses {
		named[Loss{Bucket: l.Bucket, Key: l.Key}] = true
	}
	if err := v.view.each(record.KindData, func(key, value []byte, state changeState) error {
		if saved, err := metadb.Get(v.out.db, key); saved != nil || err != nil || state != changeSet {
			return err
		}
		v.small++
		return nil
	}); err != nil {
		return err
	}
	if n := v.small - v.report.Lost; n > 0 {
		v.warn("the contents of about %d small objects are there without their records: the names of these objects are lost",
			n)
		v.report.Lost += n
	}
	return v.view.each(record.KindFile, func(key, value []byte, state changeState) error {
		if state != changeSet {
			return nil
		}
		o, err := record.DecodeOwner(value)
		if err != nil || o.Part >= 0 {
			return nil
		}
		if saved, err := metadb.Get(v.out.db, key); saved != nil || err != nil {
			return err
		}
		id, _ := record.NumberOf(key)
		if named[Loss{Bucket: v.bucketName(o.Bucket), Key: o.Key}] {
			return nil
		}
		path, _ := datafile.Names(v.fs, v.from, datafile.ID(id))
		v.lose(o.Bucket, o.Key, "", "its record is lost; its content may be in "+strings.TrimPrefix(path, v.from+"/")+
			" of the old store")
		return nil
	})
}

// totals writes the records that are derived from the others: counts, marks, the identity.
func (v *salvage) totals() error {
	for id, b := range v.buckets {
		if err := v.out.set(record.CountsKey(id), b.counts.Encode()); err != nil {
			return err
		}
	}
	epoch := uint64(1)
	if b, state := v.view.get(record.MetaKey("epoch")); state == changeSet && len(b) == 8 {
		epoch = max(epoch, binary.BigEndian.Uint64(b))
	}
	number := func(name string, n uint64) error {
		return v.out.set(record.MetaKey(name), binary.BigEndian.AppendUint64(nil, n))
	}
	for _, m := range []struct {
		name string
		top  uint64
	}{{"files", v.top.file}, {"sequences", v.top.seq}, {"buckets", v.top.bucket}} {
		mark := m.top + 1
		if b, state := v.view.get(record.MetaKey(m.name)); state == changeSet && len(b) == 8 {
			mark = max(mark, binary.BigEndian.Uint64(b)) // no number of the old store is given out again
		}
		if err := number(m.name, mark); err != nil {
			return err
		}
	}
	if err := number("epoch", epoch); err != nil {
		return err
	}
	return v.out.set(record.MetaKey("uuid"), []byte(v.report.UUID))
}

// finish turns the new directory into a store, as the last step.
func (v *salvage) finish() error {
	if err := v.files.dirs.Sync(); err != nil {
		return err
	}
	v.tell()
	return fence.FinishPartial(v.fs, v.to, v.report.UUID)
}
