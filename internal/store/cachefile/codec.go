// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/codec"
)

// The first byte of a key in the database says what its value is.
const (
	kindEntry   = 'e' // file number: record
	kindRead    = 't' // file number: when the entry was read last
	kindSums    = 's' // file number, chunk: present blocks and their sums
	kindContent = 'c' // file number: inline content
	kindKnown   = 'k' // generation, hash of origin and key: Known
	kindPin     = 'p' // hash: Pin
	kindMeta    = 'm' // name: numbers of the cache itself
)

// chunkBlocks is the number of blocks whose sums share one value of the database.
const chunkBlocks = 64

// recordVersion is the first byte of each value, so that a later release can change the encoding.
const recordVersion = 1

// The largest lengths of texts in a record. S3 limits keys to 1024 bytes.
const (
	maxKey   = 4 << 10
	maxText  = 4 << 10
	maxProof = 64
)

// numberKey returns the key of one kind for a file.
func numberKey(kind byte, file uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, file)
}

// chunkKey returns the key of a chunk of sums.
func chunkKey(file uint64, chunk int64) []byte {
	return binary.BigEndian.AppendUint64(numberKey(kindSums, file), uint64(chunk))
}

// chunkOf returns the chunk of a key that chunkKey made.
func chunkOf(key []byte) (int64, bool) {
	if len(key) != 17 {
		return 0, false
	}
	n := int64(binary.BigEndian.Uint64(key[9:]))
	return n, n >= 0
}

// metaKey returns the key of a number of the cache itself.
func metaKey(name string) []byte { return append([]byte{kindMeta}, name...) }

// entryRecord is what the database says about an entry, apart from its blocks.
type entryRecord struct {
	id         object.Identity
	inline     bool
	superseded bool
	foreign    bool
	proof      string
	admitted   time.Time
	read       Moment
	blocks     int64 // present blocks
	bytes      int64 // content bytes in them
	allocated  int64
}

func (r *entryRecord) encode() []byte {
	var e codec.Encoder
	e.Byte(recordVersion)
	var flags byte
	for i, f := range []bool{r.inline, r.superseded, r.foreign} {
		if f {
			flags |= 1 << i
		}
	}
	e.Byte(flags)
	encodeIdentity(&e, r.id)
	e.Text(r.proof)
	encodeTime(&e, r.admitted)
	e.Int(r.read.Bytes)
	encodeTime(&e, r.read.Time)
	e.Uint(uint64(r.blocks))
	e.Uint(uint64(r.bytes))
	e.Uint(uint64(r.allocated))
	return e
}

// decodeEntry decodes a record, and refuses one that no cache writes.
func decodeEntry(b []byte) (r entryRecord, err error) {
	d := codec.Decoder{Rest: b}
	version, flags := d.Byte(), d.Byte()
	r.inline, r.superseded, r.foreign = flags&1 != 0, flags&2 != 0, flags&4 != 0
	r.id = decodeIdentity(&d)
	r.proof = d.Text()
	r.admitted = decodeTime(&d)
	r.read.Bytes = d.Int()
	r.read.Time = decodeTime(&d)
	blocks, bytes, allocated := d.Uint(), d.Uint(), d.Uint()
	all := blocksOf(r.id.Size)
	if !d.Done() || version != recordVersion || flags > 7 || checkIdentity("", r.id) != nil || len(r.proof) > maxProof ||
		blocks > uint64(all) || bytes > uint64(r.id.Size) || allocated > uint64(allocatedOf(r.id.Size)) ||
		r.read.Bytes < 0 || r.inline && r.id.Size > maxInline {
		return entryRecord{}, unreadable("entry", b)
	}
	r.blocks, r.bytes, r.allocated = int64(blocks), int64(bytes), int64(allocated)
	return r, nil
}

// encodeRead encodes when an entry was read last.
func encodeRead(m Moment) []byte {
	var e codec.Encoder
	e.Int(m.Bytes)
	encodeTime(&e, m.Time)
	return e
}

func decodeRead(b []byte) (Moment, bool) {
	d := codec.Decoder{Rest: b}
	m := Moment{Bytes: d.Int(), Time: decodeTime(&d)}
	return m, d.Done() && m.Bytes >= 0
}

// encodeChunk encodes which blocks of a chunk are present, and their sums.
func encodeChunk(mask uint64, sums []uint64) []byte {
	var e codec.Encoder
	e.Word(mask)
	for i, s := range sums {
		if mask>>i&1 != 0 {
			e.Word(s)
		}
	}
	return e
}

// decodeChunk decodes a chunk of at most len(sums) blocks into sums, and returns which blocks are present.
func decodeChunk(b []byte, sums []uint64) (mask uint64, err error) {
	d := codec.Decoder{Rest: b}
	mask = d.Word()
	if d.Bad || len(d.Rest) != 8*bits.OnesCount64(mask) || bits.Len64(mask) > len(sums) {
		return 0, unreadable("sums", b)
	}
	for m := mask; m != 0; m &= m - 1 {
		sums[bits.TrailingZeros64(m)] = d.Word()
	}
	return mask, nil
}

// encodeKnown encodes a Known record. The key is part of it, because the key of the database is only a hash.
func encodeKnown(origin, key string, k Known) []byte {
	var e codec.Encoder
	e.Byte(recordVersion)
	e.Text(origin)
	e.Text(key)
	encodeTime(&e, k.Checked)
	if k.Absent {
		e.Byte(1)
	} else {
		e.Byte(0)
		encodeIdentity(&e, k.Identity)
	}
	e.Text(string(k.About))
	return e
}

func decodeKnown(b []byte) (origin, key string, k Known, err error) {
	d := codec.Decoder{Rest: b}
	version := d.Byte()
	origin, key = d.Text(), d.Text()
	k.Checked = decodeTime(&d)
	gone := d.Byte()
	if k.Absent = gone == 1; gone == 0 {
		k.Identity = decodeIdentity(&d)
	}
	if about := d.Text(); about != "" {
		k.About = []byte(about)
	}
	if !d.Done() || version != recordVersion || gone > 1 || len(k.About) > MaxAbout ||
		!k.Absent && checkIdentity("", k.Identity) != nil {
		return "", "", Known{}, unreadable("known record", b)
	}
	return origin, key, k, nil
}

func encodePin(p Pin) []byte {
	var e codec.Encoder
	e.Byte(recordVersion)
	e.Text(p.Origin)
	e.Text(p.Key)
	if p.Prefix {
		e.Byte(1)
	} else {
		e.Byte(0)
	}
	encodeTime(&e, p.Expires)
	return e
}

func decodePin(b []byte) (Pin, error) {
	d := codec.Decoder{Rest: b}
	version := d.Byte()
	p := Pin{Origin: d.Text(), Key: d.Text()}
	prefix := d.Byte()
	p.Prefix = prefix == 1
	p.Expires = decodeTime(&d)
	if !d.Done() || version != recordVersion || prefix > 1 {
		return Pin{}, unreadable("pin", b)
	}
	return p, nil
}

func encodeIdentity(e *codec.Encoder, id object.Identity) {
	for _, s := range []string{id.Origin, id.Key, id.Version, id.ETag} {
		e.Text(s)
	}
	e.Int(id.Size)
}

func decodeIdentity(d *codec.Decoder) object.Identity {
	return object.Identity{Origin: d.Text(), Key: d.Text(), Version: d.Text(), ETag: d.Text(), Size: d.Int()}
}

// encodeTime encodes a time to the nanosecond; the zero time is 0.
func encodeTime(e *codec.Encoder, t time.Time) {
	if t.IsZero() {
		e.Int(0)
		return
	}
	e.Int(t.UnixNano())
}

func decodeTime(d *codec.Decoder) time.Time {
	if n := d.Int(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// unreadable returns the error for a value that no cache writes.
func unreadable(what string, b []byte) error {
	return errs.New(errs.Corrupt, "read cache", what, fmt.Sprintf("a record is not readable: %.40x", b))
}

// checkIdentity refuses an identity that cannot be stored.
func checkIdentity(op string, id object.Identity) error {
	switch {
	case id.Size < 0 || id.Size > maxSize:
		return errs.New(errs.Invalid, op, id.Key, fmt.Sprintf("the size is %d bytes, expected 0 to %d", id.Size,
			int64(maxSize)))
	case id.Key == "" || len(id.Key) > maxKey:
		return errs.New(errs.Invalid, op, id.Key, fmt.Sprintf("the key has %d bytes, expected 1 to %d", len(id.Key), maxKey))
	case len(id.Origin) > maxText || len(id.Version) > maxText || len(id.ETag) > maxText:
		return errs.New(errs.Invalid, op, id.Key, fmt.Sprintf(
			"origin, version and ETag have %d, %d and %d bytes, expected at "+
				"most %d each", len(id.Origin), len(id.Version), len(id.ETag), maxText))
	}
	return nil
}

// blocksOf returns the number of blocks of content.
func blocksOf(size int64) int64 { return (size + object.SumBlock - 1) / object.SumBlock }

// page is the unit in which file systems allocate space.
const page = 4 << 10

// allocatedOf returns the bytes on the disk that content or one of its blocks occupies.
func allocatedOf(n int64) int64 { return (n + page - 1) / page * page }
