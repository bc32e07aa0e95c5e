// SPDX-License-Identifier: Apache-2.0

package wds

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	magic      = "NIOWDSIX"
	version    = 1
	indexFixed = 40      // bytes before the first uvarint
	indexSum   = 8       // bytes of the checksum at the end
	maxShared  = 63      // longest prefix that a key takes from the key before
	maxIndex   = 1 << 36 // bytes; no index of an archive is as large

	opRead  = "read index"
	opWrite = "write index"
)

// WriteIndex writes the index of a shard in the format of the package comment. Equal shards have equal indexes. An
// extent that does not begin at a multiple of 512 bytes is an error of kind Invalid.
func WriteIndex(w io.Writer, s *Shard) error {
	t := s.Table
	b := make([]byte, 0, indexFixed+indexSum+t.Len()*(8+4*len(t.Columns())))
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Columns())))
	b = binary.LittleEndian.AppendUint64(b, uint64(t.Len()))
	b = binary.LittleEndian.AppendUint64(b, uint64(t.Size()))
	b = binary.LittleEndian.AppendUint64(b, s.Fingerprint)
	for _, n := range s.Skipped.list() {
		b = binary.AppendUvarint(b, *n)
	}
	for _, name := range t.Columns() {
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
	}
	key, end := "", int64(0)
	for i := range t.Len() {
		before := key
		key = t.Key(i)
		if key == "" {
			return errs.New(errs.Invalid, opWrite, t.File(), fmt.Sprintf("sample %d has no key", i))
		}
		shared := sharedPrefix(before, key)
		b = append(b, byte(shared))
		b = binary.AppendUvarint(b, uint64(len(key)-shared))
		b = append(b, key[shared:]...)
		for c := range t.Columns() {
			e, ok := t.Part(i, c)
			if !ok {
				b = append(b, 0)
				continue
			}
			if e.Offset%block != 0 {
				return errs.New(errs.Invalid, opWrite, t.File(),
					fmt.Sprintf("sample %d begins at offset %d, which is no multiple of %d", i, e.Offset, block))
			}
			distance := e.Offset/block - end
			b = binary.AppendUvarint(b, 1+uint64(distance<<1^distance>>63))
			b = binary.AppendUvarint(b, uint64(e.Size))
			end = (e.Offset + padded(e.Size)) / block
		}
	}
	b = binary.LittleEndian.AppendUint64(b, checksum.Of(b))
	if _, err := w.Write(b); err != nil {
		return errs.Wrap(opWrite, t.File()+Suffix, err)
	}
	return nil
}

// list returns the counts in the order of the index.
func (s *Skipped) list() []*uint64 {
	return []*uint64{&s.NotRegular, &s.NoExtension, &s.Metadata, &s.Bad}
}

// sharedPrefix returns the number of bytes that an index takes from the key before.
func sharedPrefix(before, key string) int {
	n := 0
	for n < min(len(before), len(key), maxShared) && before[n] == key[n] {
		n++
	}
	return n
}

// ReadIndex reads an index that WriteIndex wrote. The parameters size and `name` are the size of the index in bytes and
// its path. The table of the shard shows the path without Suffix as its file. ReadIndex does not see the archive: call
// Check to find out whether the index belongs to it. A damaged index is an error of kind Corrupt, and a newer version
// of the format is an error of kind Unsupported.
func ReadIndex(r io.ReaderAt, size int64, name string) (*Shard, error) {
	if size < indexFixed+indexSum || size > maxIndex {
		return nil, badIndex(name, fmt.Sprintf("it has %d bytes, expected at least %d", size, indexFixed+indexSum))
	}
	b := make([]byte, size)
	if err := sample.ReadFull(r, b, 0, opRead, name); err != nil {
		return nil, err
	}
	body := b[:size-indexSum]
	switch {
	case string(body[:8]) != magic:
		return nil, badIndex(name, fmt.Sprintf("it begins with %q, expected %q", body[:8], magic))
	case binary.LittleEndian.Uint32(body[8:]) != version:
		e := errs.New(errs.Unsupported, opRead, name,
			fmt.Sprintf("the index has version %d, expected %d", binary.LittleEndian.Uint32(body[8:]), version))
		e.Fix = "remove the index, and make it again with this version of NebulaIO"
		return nil, e
	case checksum.Of(body) != binary.LittleEndian.Uint64(b[len(body):]):
		return nil, badIndex(name, fmt.Sprintf("its checksum is %016x, expected %016x", checksum.Of(body),
			binary.LittleEndian.Uint64(b[len(body):])))
	}
	d := decoder{rest: body[indexFixed:]}
	s, err := d.shard(body, strings.TrimSuffix(name, Suffix))
	if err != nil {
		return nil, errs.Wrap(opRead, name, err)
	}
	if d.why != "" {
		return nil, badIndex(name, d.why)
	}
	return s, nil
}

// badIndex returns the error for a damaged index.
func badIndex(name, why string) error {
	e := errs.New(errs.Corrupt, opRead, name, "the index is damaged: "+why)
	e.Fix = "remove the index, and make it again from the archive"
	return e
}

// decoder reads the fields of an index. After the first mistake all reads return zero, and why says what it was.
type decoder struct {
	rest []byte
	why  string
}

// fail records a mistake, unless there was one before.
func (d *decoder) fail(format string, args ...any) {
	if d.why == "" {
		d.why = fmt.Sprintf(format, args...)
		d.rest = nil
	}
}

// uvarint returns the next number.
func (d *decoder) uvarint() uint64 {
	n, used := binary.Uvarint(d.rest)
	if used <= 0 {
		d.fail("a number ends after the index or has more than 64 bits")
		return 0
	}
	d.rest = d.rest[used:]
	return n
}

// bytes returns the next n bytes.
func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.fail("a name of %d bytes ends after the index", n)
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

// shard decodes what follows the checked start of an index. The caller checks why afterwards.
func (d *decoder) shard(body []byte, tar string) (*Shard, error) {
	columns, samples := uint64(binary.LittleEndian.Uint32(body[12:])), binary.LittleEndian.Uint64(body[16:])
	size := binary.LittleEndian.Uint64(body[24:])
	s := &Shard{Fingerprint: binary.LittleEndian.Uint64(body[32:])}
	for _, n := range s.Skipped.list() {
		*n = d.uvarint()
	}
	// Each sample needs two bytes for its key and one for each column, so all counts are bounded by the index.
	if left := uint64(len(d.rest)); columns > left || samples > left/(2+columns) || size > 1<<63-1 {
		d.fail("%d samples with %d columns, or an archive of %d bytes, cannot be", samples, columns, size)
		return nil, nil
	}
	var names []string
	seen := map[string]bool{}
	for range columns {
		name := string(d.bytes(d.uvarint()))
		if seen[name] {
			d.fail("there are two columns %.200q", name)
			break
		}
		seen[name] = true
		names = append(names, name)
	}
	if d.why != "" {
		return nil, nil
	}
	s.Table = sample.NewTable(tar, int64(size), names, int(samples))
	return s, d.samples(s.Table, samples)
}

// samples decodes the samples and adds them to the table.
func (d *decoder) samples(t *sample.Table, count uint64) error {
	var key []byte
	parts, end := make([]sample.Extent, len(t.Columns())), int64(0)
	for range count {
		shared := uint64(0)
		if b := d.bytes(1); b != nil {
			shared = uint64(b[0])
		}
		if shared > maxShared || shared > uint64(len(key)) {
			d.fail("a key takes %d bytes from the key before, which has %d", shared, len(key))
			return nil
		}
		key = append(key[:shared], d.bytes(d.uvarint())...)
		if len(key) == 0 {
			d.fail("sample %d has no key", t.Len())
		}
		present := false
		for c := range parts {
			parts[c] = d.part(&end)
			present = present || parts[c] != sample.Absent()
		}
		if !present {
			d.fail("sample %d has no parts", t.Len())
		}
		if d.why != "" {
			return nil
		}
		if err := t.Add(string(key), parts...); err != nil {
			return err
		}
	}
	if len(d.rest) > 0 {
		d.fail("%d bytes follow the last sample", len(d.rest))
	}
	return nil
}

// part decodes one part. The parameter end is the end of the part before, in blocks, and is moved on.
func (d *decoder) part(end *int64) sample.Extent {
	code := d.uvarint()
	if code == 0 {
		return sample.Absent()
	}
	code--
	at := *end + int64(code>>1^-(code&1))
	size := d.uvarint()
	if at < 0 || at > (1<<63-1)/block || size > sample.MaxPart {
		d.fail("a part of %d bytes begins at block %d, expected at most %d bytes after the start of the archive", size, at,
			int64(sample.MaxPart))
		return sample.Absent()
	}
	e := sample.Extent{Offset: at * block, Size: int64(size)}
	*end = at + padded(e.Size)/block
	return e
}
