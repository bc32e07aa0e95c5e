// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// recordVersion is the first byte of every record.
const recordVersion = 1

// What a version is.
const (
	flagMarker = 1 << iota // a delete marker
	flagNull               // the null version of its key
	flagInline             // its content lies under dataKey(seq)
	flagParts              // its parts lie under partsKey(seq)
	// flagDeclared says that a client wrote the content through the door and declared its sums. The server has not read
	// the content then: if the two differ later, the sums may have been wrong from the beginning.
	flagDeclared
	flagsEnd // above all that are known
)

// blockSize is what one sum is of; sumsInRecord is how many sums a record holds
// before they get keys of their own, sumsPerChunk how many each of those holds.
const (
	blockSize    = 1 << 20
	sumsInRecord = 8
	sumsPerChunk = 8192
)

// version is one version of an object, or a delete marker. seq orders the
// versions of a key and names its content; it is never used twice.
type version struct {
	flags    byte
	seq      uint64
	nonce    uint64 // makes the identifier unguessable
	modified int64  // Unix milliseconds
	size     int64
	crc      uint64
	etag     string
	file     uint64   // 0: no file
	sums     []uint64 // of the file's blocks, where they are at most sumsInRecord
	attrs    map[string]string
}

func (v *version) marker() bool { return v.flags&flagMarker != 0 }
func (v *version) null() bool   { return v.flags&flagNull != 0 }
func (v *version) inline() bool { return v.flags&flagInline != 0 }

// wrong is the word for content of v that is not what its record says: what, or "declared" where a checksum that differs may
// be the mistake of the client that declared it.
func (v *version) wrong(what string) string {
	if what == "checksum" && v.flags&flagDeclared != 0 {
		return object.DamageDeclared
	}
	return what
}

func (v *version) encode() []byte {
	p := make(put, 0, 96+8*len(v.sums))
	p.byte(recordVersion)
	p.byte(v.flags)
	p.uint(v.seq)
	p.word(v.nonce)
	p.int(v.modified)
	if v.marker() {
		return p
	}
	p.uint(uint64(v.size))
	p.word(v.crc)
	p.text(v.etag)
	p.uint(v.file)
	p.words(v.sums)
	p.pairs(v.attrs)
	return p
}

// decodeVersion reads a version; brief leaves out the sums and the attributes.
func decodeVersion(b []byte, brief bool) (*version, error) {
	t := take{b: b}
	if err := t.version("version"); err != nil {
		return nil, err
	}
	v := &version{flags: t.byte(), seq: t.uint(), nonce: t.word(), modified: t.int()}
	if v.flags >= flagsEnd {
		t.bad = true
	}
	if !v.marker() {
		v.size = int64(t.uint())
		v.crc = t.word()
		v.etag = t.text()
		v.file = t.uint()
		if brief {
			if t.bad || v.size < 0 {
				return nil, badRecord("version", b)
			}
			return v, nil
		}
		v.sums = t.words()
		v.attrs = t.pairs()
	}
	if !t.done() || v.size < 0 {
		return nil, badRecord("version", b)
	}
	return v, nil
}

func (t *take) version(what string) error {
	if len(t.b) > 0 && t.b[0] > recordVersion {
		return errs.New(errs.Unsupported, "read metadata", what, fmt.Sprintf("the record has version %d, expected %d", t.b[0], recordVersion)).
			WithFix("use a newer nebulaio")
	}
	if t.byte() != recordVersion {
		t.bad = true
	}
	return nil
}

func badRecord(what string, b []byte) error {
	n := min(len(b), 16)
	return errs.New(errs.Corrupt, "read metadata", what, fmt.Sprintf("a record of %d bytes that begins with %x cannot be read", len(b), b[:n])).
		WithFix("stop the server and run nebulaio store check")
}

// owner says whose a data file is.
type owner struct {
	bucket uint64
	key    string
	seq    uint64 // of the version, or of the upload
	part   int    // -1: a version's; 0: the upload's own file; else a side file of this part
}

func (o *owner) encode() []byte {
	p := make(put, 0, 32+len(o.key))
	p.byte(recordVersion)
	p.uint(o.bucket)
	p.uint(o.seq)
	p.int(int64(o.part))
	p.text(o.key)
	return p
}

func decodeOwner(b []byte) (*owner, error) {
	t := take{b: b}
	if err := t.version("file"); err != nil {
		return nil, err
	}
	o := &owner{bucket: t.uint(), seq: t.uint(), part: int(t.int()), key: t.text()}
	if !t.done() || o.part < -1 || o.part > object.MaxParts {
		return nil, badRecord("file", b)
	}
	return o, nil
}

// upload is an upload in progress.
type upload struct {
	file     uint64 // where parts are written in place
	partSize int64  // 0: no part has decided it yet
	started  int64
	attrs    map[string]string
}

func (u *upload) encode() []byte {
	p := make(put, 0, 64)
	p.byte(recordVersion)
	p.uint(u.file)
	p.uint(uint64(u.partSize))
	p.int(u.started)
	p.pairs(u.attrs)
	return p
}

func decodeUpload(b []byte) (*upload, error) {
	t := take{b: b}
	if err := t.version("upload"); err != nil {
		return nil, err
	}
	u := &upload{file: t.uint(), partSize: int64(t.uint()), started: t.int(), attrs: t.pairs()}
	if !t.done() || u.partSize < 0 {
		return nil, badRecord("upload", b)
	}
	return u, nil
}

// part is one part of an upload: in place at off of the upload's file, or in a
// side file of its own.
type part struct {
	size     int64
	crc      uint64
	modified int64
	etag     string
	md5      []byte
	off      int64    // in place: where it begins; else 0
	file     uint64   // the upload's file or the side file; 0: no bytes
	sums     []uint64 // of the pieces that the grid of the file cuts it into
	attrs    map[string]string
}

func (r *part) encode() []byte {
	p := make(put, 0, 96+8*len(r.sums))
	p.byte(recordVersion)
	p.uint(uint64(r.size))
	p.word(r.crc)
	p.int(r.modified)
	p.text(r.etag)
	p.text(string(r.md5))
	p.uint(uint64(r.off))
	p.uint(r.file)
	p.pairs(r.attrs)
	p.words(r.sums)
	return p
}

// decodePart reads a part; brief leaves out the sums.
func decodePart(b []byte, brief bool) (*part, error) {
	t := take{b: b}
	if err := t.version("part"); err != nil {
		return nil, err
	}
	r := &part{size: int64(t.uint()), crc: t.word(), modified: t.int(), etag: t.text(), md5: []byte(t.text()),
		off: int64(t.uint()), file: t.uint(), attrs: t.pairs()}
	if brief {
		if t.bad || r.size < 0 || r.off < 0 {
			return nil, badRecord("part", b)
		}
		return r, nil
	}
	r.sums = t.words()
	if !t.done() || r.size < 0 || r.off < 0 {
		return nil, badRecord("part", b)
	}
	return r, nil
}

func (r *part) info(number int) object.PartInfo {
	return object.PartInfo{Number: number, Size: r.size, ETag: r.etag, CRC64: r.crc, Modified: fromMilli(r.modified), Attributes: r.attrs}
}

// encodeParts is the list of the parts that an object was completed of.
func encodeParts(ps []object.PartInfo) []byte {
	p := make(put, 0, 64*len(ps))
	p.byte(recordVersion)
	p.uint(uint64(len(ps)))
	for i := range ps {
		p.uint(uint64(ps[i].Number))
		p.uint(uint64(ps[i].Size))
		p.word(ps[i].CRC64)
		p.int(ps[i].Modified.UnixMilli())
		p.text(ps[i].ETag)
		p.pairs(ps[i].Attributes)
	}
	return p
}

func decodeParts(b []byte) ([]object.PartInfo, error) {
	t := take{b: b}
	if err := t.version("parts"); err != nil {
		return nil, err
	}
	ps := make([]object.PartInfo, t.size(13))
	for i := range ps {
		ps[i] = object.PartInfo{Number: int(t.uint()), Size: int64(t.uint()), CRC64: t.word(), Modified: fromMilli(t.int()), ETag: t.text(), Attributes: t.pairs()}
	}
	if !t.done() || len(ps) > object.MaxParts {
		return nil, badRecord("parts", b)
	}
	return ps, nil
}

func encodeBucket(id uint64, b *object.Bucket) []byte {
	p := make(put, 0, 128)
	p.byte(recordVersion)
	p.uint(id)
	p.int(b.Created.UnixMilli())
	p.text(b.Owner)
	p.text(string(b.Versioning))
	p.text(string(b.ETag))
	m := make(map[string]string, len(b.Settings))
	for k, v := range b.Settings {
		m[k] = string(v)
	}
	p.pairs(m)
	return p
}

func decodeBucket(name string, b []byte) (uint64, *object.Bucket, error) {
	t := take{b: b}
	if err := t.version("bucket"); err != nil {
		return 0, nil, err
	}
	id := t.uint()
	o := &object.Bucket{Name: name, Created: fromMilli(t.int()), Owner: t.text(), Versioning: object.Versioning(t.text()), ETag: object.ETagKind(t.text())}
	m := t.pairs()
	if !t.done() {
		return 0, nil, badRecord("bucket", b)
	}
	if len(m) > 0 {
		o.Settings = make(map[string][]byte, len(m))
		for k, v := range m {
			o.Settings[k] = []byte(v)
		}
	}
	return id, o, nil
}

func fromMilli(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// names turns sequences into identifiers for clients and back. An identifier
// is 16 bytes in 26 characters whose order is that of the bytes: a random word,
// then the sequence hidden by that word and a secret of the store.
type names struct{ secret uint64 }

var crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").WithPadding(base32.NoPadding)

func (n names) raw(nonce, seq uint64) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], nonce)
	binary.BigEndian.PutUint64(id[8:], seq^mix(nonce^n.secret))
	return id
}

func (n names) split(id [16]byte) (nonce, seq uint64) {
	nonce = binary.BigEndian.Uint64(id[:])
	return nonce, binary.BigEndian.Uint64(id[8:]) ^ mix(nonce^n.secret)
}

func (n names) text(nonce, seq uint64) string {
	id := n.raw(nonce, seq)
	return crockford.EncodeToString(id[:])
}

func parseName(s string) (id [16]byte, ok bool) {
	if len(s) != 26 {
		return id, false
	}
	var b [17]byte
	k, err := crockford.Decode(b[:], []byte(s))
	if err != nil || k != 16 || crockford.EncodeToString(b[:16]) != s {
		return id, false
	}
	copy(id[:], b[:])
	return id, true
}

// version is the identifier of v that clients see.
func (n names) version(v *version) string {
	if v.null() {
		return object.NullVersion
	}
	return n.text(v.nonce, v.seq)
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
