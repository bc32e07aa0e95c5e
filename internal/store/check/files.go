// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/binary"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// uploadRecords collects the uploads.
func (k *checker) uploadRecords() error {
	return k.each(record.KindUpload, func(key, value []byte) error {
		bucket, _ := record.NumberOf(key)
		name, raw, ok := record.SplitUploadKey(key)
		if !ok {
			return k.unreadable(key, record.Unreadable("upload key", key))
		}
		u, err := record.DecodeUpload(value)
		if err != nil {
			return k.unreadable(key, err)
		}
		_, seq := k.s.Names.Split(raw)
		k.top.seq = max(k.top.seq, seq)
		k.uploads[seq] = u
		if c := k.buckets[bucket]; c != nil {
			c.Uploads++
		} else if err := k.problem("I5", k.describe(key), "no bucket has this number", nil); err != nil {
			return err
		}
		return k.claim(u.File, claim{owner: record.Owner{Bucket: bucket, Key: name, Seq: seq}})
	})
}

// partRecords checks the parts against their uploads.
func (k *checker) partRecords() error {
	return k.each(record.KindPart, func(key, value []byte) error {
		p, number, err := record.SplitPart(key, value, false)
		if err != nil {
			return k.unreadable(key, err)
		}
		seq, _ := record.NumberOf(key)
		name := fmt.Sprintf("part %d of upload %d", number, seq)
		u := k.uploads[seq]
		if u == nil {
			return k.problem("I5", name, "there is no such upload", aside(key))
		}
		main := k.files[u.File]
		name = fmt.Sprintf("part %d of %s", number, k.named(main.owner))
		if c := k.buckets[main.owner.Bucket]; c != nil {
			c.Parts += p.Size
		}
		if number < 1 || number > object.MaxParts {
			return k.problem("I4", name, fmt.Sprintf("the number is not of 1 to %d", object.MaxParts), nil)
		}
		pieces, ok := datafile.Cut(p.Off, p.Size, p.Sums)
		if !ok {
			return k.problem("I4", name, fmt.Sprintf("%d sums for %d bytes at %d", len(p.Sums), p.Size, p.Off), nil)
		}
		var whole uint64
		for _, x := range pieces {
			whole = k.s.Join.After(whole, x.N) ^ x.CRC64
		}
		if whole != p.CRC {
			if err := k.problem("I4", name, fmt.Sprintf("the sums of its blocks do not make its checksum %016x", p.CRC),
				nil); err != nil {
				return err
			}
		}
		switch {
		case p.File == 0 && p.Size == 0:
			return nil
		case p.File == u.File:
			if u.PartSize < 1 || p.Off != int64(number-1)*u.PartSize || p.Size > u.PartSize {
				return k.problem("I4", name, fmt.Sprintf("%d bytes at %d, parts have %d", p.Size, p.Off, u.PartSize), nil)
			}
			main.size, main.must = max(main.size, p.Off+p.Size), true
			return nil
		}
		o := main.owner
		o.Part = number
		return k.claim(p.File, claim{owner: o, size: p.Size, must: true})
	})
}

// contents compares the d records with the versions that have inline content.
func (k *checker) contents() error {
	wrong := map[uint64]string{}
	err := k.each(record.KindData, func(key, value []byte) error {
		seq, ok := record.ExactNumber(key)
		if !ok {
			return k.unreadable(key, record.Unreadable("content key", key))
		}
		want, ok := k.data[seq]
		delete(k.data, seq)
		switch {
		case !ok:
			return k.problem("I5", fmt.Sprintf("content %d", seq), fmt.Sprintf("no version has its %d bytes", len(value)),
				aside(key))
		case int64(len(value)) != want.size:
			wrong[seq] = fmt.Sprintf("its content, kept with the metadata, has %d bytes, the version has %d", len(value),
				want.size)
		case checksum.Of(value) != want.crc:
			wrong[seq] = "its content, kept with the metadata, differs from its checksum"
		}
		return nil
	})
	for seq, want := range k.data {
		wrong[seq] = fmt.Sprintf("its content of %d bytes, kept with the metadata, is missing", want.size)
	}
	if err != nil {
		return err
	}
	return k.ofVersions(wrong)
}

// ofVersions reports problems by the sequences of their versions. It reads the records of the versions again for
// their names, because keeping all names would take too much memory.
func (k *checker) ofVersions(wrong map[uint64]string) error {
	for _, kind := range []byte{record.KindObject, record.KindVersion} {
		if len(wrong) == 0 {
			break
		}
		if err := metadb.EachKind(k.s.DB, kind, func(key, value []byte) error {
			v, err := record.DecodeVersion(value, true)
			if err != nil {
				return nil // named before
			}
			msg, ok := wrong[v.Seq]
			if !ok {
				return nil
			}
			delete(wrong, v.Seq)
			return k.problem("I4", k.describe(key), msg, nil)
		}); err != nil {
			return err
		}
	}
	return nil
}

// partLists compares the q records with the versions that were completed from parts.
func (k *checker) partLists() error {
	err := k.each(record.KindParts, func(key, value []byte) error {
		seq, ok := record.ExactNumber(key)
		if !ok {
			return k.unreadable(key, record.Unreadable("parts key", key))
		}
		ok = k.parts[seq]
		delete(k.parts, seq)
		if !ok {
			return k.problem("I5", fmt.Sprintf("parts %d", seq), "no version has them", aside(key))
		}
		if _, err := record.DecodeParts(value); err != nil {
			return k.unreadable(key, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	missing := map[uint64]string{}
	for seq := range k.parts {
		missing[seq] = "the list of its parts is missing"
	}
	return k.ofVersions(missing)
}

// sums compares the c records with the files that need them.
func (k *checker) sums() error {
	err := k.each(record.KindSums, func(key, value []byte) error {
		if len(key) != 13 {
			return k.unreadable(key, record.Unreadable("sums key", key))
		}
		id, _ := record.NumberOf(key)
		chunk := int64(binary.BigEndian.Uint32(key[9:]))
		c := k.files[id]
		if c == nil || chunk >= record.ChunksOf(c.size) || c.owner.Part >= 0 {
			return k.problem("I5", fmt.Sprintf("sums %d of file %s", chunk, datafile.ID(id)), "no version has them", aside(key))
		}
		c.sums--
		name := fmt.Sprintf("sums %d of file %s of %s", chunk, datafile.ID(id), k.named(c.owner))
		want := min(record.SumsPerChunk, record.BlocksOf(c.size)-chunk*record.SumsPerChunk)
		if int64(len(value)) != 1+8*want || value[0] != record.Format {
			c.sums = -1
			return k.problem("I4", name, fmt.Sprintf("%d bytes, expected %d sums", len(value), want), nil)
		}
		for i := range want {
			n := min(record.BlockSize, c.size-(chunk*record.SumsPerChunk+i)*record.BlockSize)
			c.joined = k.s.Join.After(c.joined, n) ^ binary.BigEndian.Uint64(value[1+8*i:])
		}
		return nil
	})
	for id, c := range k.files {
		switch {
		case err != nil:
		case c.sums > 0:
			err = k.problem("I4", fmt.Sprintf("file %s of %s", datafile.ID(id), k.named(c.owner)),
				fmt.Sprintf("%d records of its sums are missing", c.sums), nil)
		case c.sums == 0 && c.owner.Part < 0 && record.ChunksOf(c.size) > 0 && c.joined != c.crc:
			err = k.problem("I4", fmt.Sprintf("file %s of %s", datafile.ID(id), k.named(c.owner)),
				fmt.Sprintf("the sums of its blocks do not make its checksum %016x", c.crc), nil)
		}
	}
	return err
}

// fileIndex compares the f records with the owners of the files.
func (k *checker) fileIndex() error {
	err := k.each(record.KindFile, func(key, value []byte) error {
		id, ok := record.ExactNumber(key)
		if !ok {
			return k.unreadable(key, record.Unreadable("file key", key))
		}
		k.top.file = max(k.top.file, id)
		name := "file " + datafile.ID(id).String()
		o, err := record.DecodeOwner(value)
		c := k.files[id]
		if c == nil {
			// Somebody may need its content: the file is found without an owner below.
			msg := "the index names an owner that cannot be read"
			if err == nil {
				msg = fmt.Sprintf("the index names %s, which does not have it", k.named(*o))
			}
			return k.problem("I5", name, msg, aside(key))
		}
		c.index = true
		if err != nil {
			return k.problem("record", name, err.Error(), change(key, c.owner.Encode()))
		}
		if *o != c.owner {
			return k.problem("I4", name, fmt.Sprintf("the index names %s, it belongs to %s", k.named(*o), k.named(c.owner)),
				replace(key, c.owner.Encode()))
		}
		return nil
	})
	for id, c := range k.files {
		if err == nil && !c.index {
			err = k.problem("I4", "file "+datafile.ID(id).String(), "the index does not name its owner, "+k.named(c.owner),
				change(record.FileKey(id), c.owner.Encode()))
		}
	}
	return err
}

// removals checks that no file with an owner is on the removal list.
func (k *checker) removals() error {
	return k.each(record.KindGone, func(key, _ []byte) error {
		id, ok := record.ExactNumber(key)
		if !ok {
			return k.problem("record", k.describe(key), "it is no key of the removal list", aside(key))
		}
		k.top.file = max(k.top.file, id)
		if c := k.files[id]; c != nil {
			return k.problem("I6", "file "+datafile.ID(id).String(),
				fmt.Sprintf("it belongs to %s and is to be removed", k.named(c.owner)), change(key, nil))
		}
		indexed, err := metadb.Has(k.s.DB, record.FileKey(id))
		if err != nil {
			return err
		}
		if indexed {
			return k.problem("I6", "file "+datafile.ID(id).String(), "the index names an owner, and it is to be removed",
				change(key, nil))
		}
		k.report.Unfinished++
		return nil
	})
}

// disk compares the existing files with the expected ones.
func (k *checker) disk() error {
	err := k.s.Files.Walk(k.ctx, func(f datafile.Found) error {
		k.report.Files++
		if k.o.Progress != nil && k.report.Files%4096 == 0 {
			k.o.Progress(k.report.Records, k.report.Files)
		}
		if f.Odd {
			return k.problem("I6", f.Path, "it is no data file", move(f.Path, true))
		}
		id := uint64(f.ID)
		c := k.files[id]
		if c == nil {
			return k.unowned(f)
		}
		fits := f.Size == c.size || f.Size > c.size && k.mayBeLonger(c)
		if f.InTmp {
			k.report.Unfinished++
			k.pending[id] = f.Size
			if layout.Exists(k.s.FS, k.s.Files.Path(f.ID)) {
				return nil // judged together with that one
			}
		} else if size, both := k.pending[id]; both {
			if same, err := k.s.Files.SameFile(f.ID); err != nil || !same {
				return k.twin(f, c, size, fits, err)
			}
		}
		c.seen = true
		if !fits {
			return k.problem("I4", f.Path, fmt.Sprintf("the file has %d bytes, %s has %d", f.Size, k.named(c.owner), c.size),
				nil)
		}
		return nil
	})
	for id, c := range k.files {
		if err == nil && c.must && !c.seen {
			err = k.problem("I4", k.s.Files.Path(datafile.ID(id)), fmt.Sprintf("the file of %s is missing", k.named(c.owner)),
				nil)
		}
	}
	return err
}

// mayBeLonger reports whether the file of a claim may have more bytes than its record says: the file of an upload, or
// that of an object to which an append was not finished.
func (k *checker) mayBeLonger(c *claim) bool {
	return c.owner.Part == 0 || c.owner.Part < 0 && object.IsDirectory(k.called[c.owner.Bucket])
}

// unowned judges a file without an owner.
func (k *checker) unowned(f datafile.Found) error {
	if out, err := metadb.Has(k.s.DB, record.GoneKey(uint64(f.ID))); out || err != nil {
		return err
	}
	if f.InTmp {
		if k.doubt != "" {
			// The next Open removes files that the index does not name. While records are damaged, that may be wrong.
			if indexed, err := metadb.Has(k.s.DB, record.FileKey(uint64(f.ID))); indexed || err != nil {
				return err
			}
			return k.problem("I6", f.Path, fmt.Sprintf("%d bytes that nothing has, while other records are damaged", f.Size),
				move(f.Path, false))
		}
		if k.s.Unproven {
			// The next Open would remove the file. Without a witness, the record that acknowledged it may be lost.
			return k.problem("I6", f.Path, fmt.Sprintf("%d bytes that nothing has, while nothing proves that the log is whole",
				f.Size), move(f.Path, true))
		}
		k.report.Unfinished++ // never acknowledged
		return nil
	}
	k.top.file = max(k.top.file, uint64(f.ID))
	return k.problem("I6", f.Path, fmt.Sprintf("%d bytes that nothing has", f.Size), move(f.Path, true))
}

// twin judges a file that is in data/ and in tmp/ as two different files, as in a copy of a store without hard links.
// The file of the right size stays.
func (k *checker) twin(f datafile.Found, c *claim, inTmp int64, fits bool, err error) error {
	if err != nil {
		return err
	}
	tmp := k.s.FS.PathJoin(k.s.Dir, layout.TmpName, f.ID.String())
	c.seen = true
	switch {
	case fits:
		return k.problem("I6", tmp, fmt.Sprintf("it is another file than %s, both are of %s", f.Path, k.named(c.owner)),
			move(tmp, false))
	case inTmp == c.size || inTmp > c.size && k.mayBeLonger(c):
		return k.problem("I6", f.Path, fmt.Sprintf(
			"it has %d bytes and is another file than %s, which has the %d bytes of %s", f.Size, tmp, inTmp, k.named(c.owner)),
			move(f.Path, false))
	}
	return k.problem("I4", f.Path, fmt.Sprintf("it has %d bytes and %s has %d, %s has %d", f.Size, tmp, inTmp,
		k.named(c.owner), c.size), nil)
}
