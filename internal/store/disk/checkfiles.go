// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
)

// uploadRecords gathers the uploads.
func (k *checker) uploadRecords() error {
	return k.each(kindUpload, func(key, value []byte) error {
		bucket, _ := numberOf(key)
		name, raw, ok := splitUploadKey(key)
		if !ok {
			return k.unreadable(key, badRecord("upload key", key))
		}
		u, err := decodeUpload(value)
		if err != nil {
			return k.unreadable(key, err)
		}
		seq := k.s.uploadSeq(raw)
		k.top.seq = max(k.top.seq, seq)
		k.uploads[seq] = u
		if c := k.buckets[bucket]; c != nil {
			c.Uploads++
		} else if err := k.problem("I5", fmt.Sprintf("%q", key), "no bucket has this number", nil); err != nil {
			return err
		}
		return k.claim(u.file, claim{owner: owner{bucket: bucket, key: name, seq: seq}})
	})
}

// partRecords checks the parts against their uploads.
func (k *checker) partRecords() error {
	return k.each(kindPart, func(key, value []byte) error {
		p, number, err := splitPart(key, value, false)
		if err != nil {
			return k.unreadable(key, err)
		}
		seq, _ := numberOf(key)
		name := fmt.Sprintf("part %d of upload %d", number, seq)
		u := k.uploads[seq]
		if u == nil {
			return k.problem("I5", name, "there is no such upload", nil)
		}
		main := k.files[u.file]
		if c := k.buckets[main.owner.bucket]; c != nil {
			c.Parts += p.size
		}
		if _, ok := datafile.Cut(p.off, p.size, p.sums); !ok {
			return k.problem("I4", name, fmt.Sprintf("%d sums for %d bytes at %d", len(p.sums), p.size, p.off), nil)
		}
		switch {
		case p.file == 0 && p.size == 0:
			return nil
		case p.file == u.file:
			if u.partSize < 1 || p.off != int64(number-1)*u.partSize || p.size > u.partSize {
				return k.problem("I4", name, fmt.Sprintf("%d bytes at %d, parts have %d", p.size, p.off, u.partSize), nil)
			}
			main.size, main.must = max(main.size, p.off+p.size), true
			return nil
		}
		o := main.owner
		o.part = number
		return k.claim(p.file, claim{owner: o, size: p.size, must: true})
	})
}

// contents compares d with the versions that have content there.
func (k *checker) contents() error {
	err := k.each(kindData, func(key, value []byte) error {
		seq, _ := numberOf(key)
		size, ok := k.data[seq]
		delete(k.data, seq)
		if !ok {
			return k.problem("I5", fmt.Sprintf("content %d", seq), "no version has it", k.drop(key))
		}
		if int64(len(value)) != size {
			return k.problem("I4", fmt.Sprintf("content %d", seq), fmt.Sprintf("%d bytes, the version has %d", len(value), size), nil)
		}
		return nil
	})
	for seq, size := range k.data {
		if err == nil {
			err = k.problem("I4", fmt.Sprintf("content %d", seq), fmt.Sprintf("%d bytes are missing", size), nil)
		}
	}
	return err
}

// partLists compares q with the versions that were completed of parts.
func (k *checker) partLists() error {
	err := k.each(kindParts, func(key, value []byte) error {
		seq, _ := numberOf(key)
		ok := k.parts[seq]
		delete(k.parts, seq)
		if !ok {
			return k.problem("I5", fmt.Sprintf("parts %d", seq), "no version has them", k.drop(key))
		}
		if _, err := decodeParts(value); err != nil {
			return k.unreadable(key, err)
		}
		return nil
	})
	for seq := range k.parts {
		if err == nil {
			err = k.problem("I4", fmt.Sprintf("parts %d", seq), "they are missing", nil)
		}
	}
	return err
}

// sums compares c with the files that need it.
func (k *checker) sums() error {
	err := k.each(kindSums, func(key, value []byte) error {
		if len(key) != 13 {
			return k.unreadable(key, badRecord("sums key", key))
		}
		id, _ := numberOf(key)
		chunk := int64(binary.BigEndian.Uint32(key[9:]))
		c := k.files[id]
		if c == nil || chunk >= chunksOf(c.size) || c.owner.part >= 0 {
			return k.problem("I5", fmt.Sprintf("sums %d of file %s", chunk, datafile.ID(id)), "no version has them", k.drop(key))
		}
		c.sums--
		want := min(sumsPerChunk, blocksOf(c.size)-chunk*sumsPerChunk)
		if int64(len(value)) != 1+8*want || value[0] != recordVersion {
			return k.problem("I4", fmt.Sprintf("sums %d of file %s", chunk, datafile.ID(id)), fmt.Sprintf("%d bytes, expected %d sums", len(value), want), nil)
		}
		return nil
	})
	for id, c := range k.files {
		if err == nil && c.sums > 0 {
			err = k.problem("I4", "file "+datafile.ID(id).String(), fmt.Sprintf("%d records of sums are missing", c.sums), nil)
		}
	}
	return err
}

// fileIndex compares f with who has the files.
func (k *checker) fileIndex() error {
	err := k.each(kindFile, func(key, value []byte) error {
		id, _ := numberOf(key)
		k.top.file = max(k.top.file, id)
		name := "file " + datafile.ID(id).String()
		c := k.files[id]
		if c == nil {
			// Its content may be wanted by somebody: the file is found without an owner below.
			return k.problem("I5", name, "the index names an owner that does not have it", k.drop(key))
		}
		c.index = true
		o, err := decodeOwner(value)
		if err != nil {
			return k.problem("record", name, err.Error(), k.set(bytes.Clone(key), c.owner.encode()))
		}
		if *o != c.owner {
			return k.problem("I4", name, fmt.Sprintf("the index says %+v, it belongs to %+v", *o, c.owner), k.set(bytes.Clone(key), c.owner.encode()))
		}
		return nil
	})
	for id, c := range k.files {
		if err == nil && !c.index {
			err = k.problem("I4", "file "+datafile.ID(id).String(), "the index does not name it", k.set(fileKey(id), c.owner.encode()))
		}
	}
	return err
}

// removals checks that nothing that somebody has is to be removed.
func (k *checker) removals() error {
	return k.each(kindGone, func(key, _ []byte) error {
		id, _ := numberOf(key)
		k.top.file = max(k.top.file, id)
		if c := k.files[id]; c != nil {
			return k.problem("I6", "file "+datafile.ID(id).String(), fmt.Sprintf("it belongs to %+v and is to be removed", c.owner), k.drop(key))
		}
		k.report.Unfinished++
		return nil
	})
}

// disk compares the files that exist with those that should.
func (k *checker) disk() error {
	gone := func(id uint64) (bool, error) { return has(k.s.db, goneKey(id)) }
	err := k.s.files.Walk(k.ctx, func(f datafile.Found) error {
		k.report.Files++
		if k.o.Progress != nil && k.report.Files%4096 == 0 {
			k.o.Progress(k.report.Records, k.report.Files)
		}
		if f.Odd {
			return k.problem("I6", f.Path, "it is no data file", k.aside(f.Path))
		}
		id := uint64(f.ID)
		c := k.files[id]
		if c == nil {
			if out, err := gone(id); out || err != nil {
				return err
			}
			if f.InTmp {
				k.report.Unfinished++ // never acknowledged
				return nil
			}
			k.top.file = max(k.top.file, id)
			return k.problem("I6", f.Path, fmt.Sprintf("%d bytes that nothing has", f.Size), k.aside(f.Path))
		}
		if f.InTmp && !c.seen {
			k.report.Unfinished++
		}
		c.seen = true
		if f.Size < c.size || f.Size > c.size && c.owner.part != 0 {
			return k.problem("I4", f.Path, fmt.Sprintf("%d bytes, %+v has %d", f.Size, c.owner, c.size), nil)
		}
		return nil
	})
	for id, c := range k.files {
		if err == nil && c.must && !c.seen {
			err = k.problem("I4", k.s.files.Path(datafile.ID(id)), fmt.Sprintf("the file of %s/%q is missing", k.s.bucketName(c.owner.bucket), c.owner.key), nil)
		}
	}
	return err
}

// aside moves a file to quarantine, under its old path with other separators, so that it is clear where it was.
func (k *checker) aside(name string) func() error {
	return func() error {
		fs, dir := k.s.fs, k.s.fs.PathJoin(k.s.opts.Dir, asideName)
		if err := fs.MkdirAll(dir, 0o700); err != nil {
			return wrapIO("quarantine", dir, err)
		}
		to := fs.PathJoin(dir, path.Base(name))
		for n := 1; ; n++ {
			if _, err := fs.Stat(to); err != nil {
				break
			}
			to = fs.PathJoin(dir, fmt.Sprintf("%s.%d", path.Base(name), n))
		}
		if err := fs.Rename(name, to); err != nil {
			return wrapIO("quarantine", name, err)
		}
		return wrapIO("quarantine", dir, syncDir(fs, dir))
	}
}

// marks checks that no number in use could be given out again.
func (k *checker) marks() error {
	for _, m := range []struct {
		n   *numbers
		top uint64
	}{{&k.s.fileIDs, k.top.file}, {&k.s.seqs, k.top.seq}, {&k.s.bucketIDs, k.top.bucket}} {
		b, err := get(k.s.db, m.n.key)
		if err != nil {
			return err
		}
		var mark uint64
		if len(b) == 8 {
			mark = binary.BigEndian.Uint64(b)
		}
		if m.top != 0 && mark <= m.top {
			if err := k.problem("I7", string(m.n.key[1:]), fmt.Sprintf("the mark is %d, %d is in use", mark, m.top),
				k.set(m.n.key, binary.BigEndian.AppendUint64(nil, m.top+1))); err != nil {
				return err
			}
		}
	}
	return nil
}

// counted compares s with what was counted.
func (k *checker) counted() error {
	for id, want := range k.buckets {
		got, err := loadCounts(k.s.db, id)
		if err != nil {
			return errs.Wrap("check store", k.s.bucketName(id), err)
		}
		if got != *want {
			if err := k.problem("I8", k.s.bucketName(id), fmt.Sprintf("%+v, counted %+v", got, *want), k.set(countsKey(id), want.encode())); err != nil {
				return err
			}
		}
	}
	return k.each(kindCounts, func(key, _ []byte) error {
		id, _ := numberOf(key)
		if k.buckets[id] == nil {
			return k.problem("I5", fmt.Sprintf("counts %d", id), "no bucket has this number", k.drop(key))
		}
		return nil
	})
}

// others checks what is left: records of others, and keys of no kind.
func (k *checker) others() error {
	known := []byte{kindBucket, kindSums, kindData, kindFile, kindGone, kindMeta, kindNull, kindObject, kindPart, kindParts, kindRecord, kindCounts, kindUpload, kindVersion}
	var from []byte
	for c := range 256 {
		if bytes.IndexByte(known, byte(c)) >= 0 {
			continue
		}
		from = []byte{byte(c)}
		if err := eachIn(k.s.db, from, after(from), func(key, _ []byte) error {
			return k.problem("record", fmt.Sprintf("%q", key), "it is of no kind that this program knows", nil)
		}); err != nil {
			return err
		}
	}
	return k.each(kindRecord, func(key, value []byte) error {
		if _, name, ok := unescape(key[1:]); !ok || len(name) == 0 || len(name) > object.MaxKey || len(value) < 1 || value[0] != recordVersion {
			return k.unreadable(key, badRecord("record", value))
		}
		return nil
	})
}
