// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

var hostileNames = []string{
	"", "a", "a/", "a//b", "../x", "\x00", "\x00\x00", "a\x00", "a\x00b", "a\x01", "a\xff", "\xff", "\xff\xff", "\x00\xff", "\x00\x01", "ab", "b", "😀", strings.Repeat("\x00", 1024), strings.Repeat("\xff", 1024),
}

func TestOrderOfKeysIsOrderOfNames(t *testing.T) {
	for _, a := range hostileNames {
		for _, b := range hostileNames {
			want := strings.Compare(a, b)
			if got := bytes.Compare(versionPrefix(7, a), versionPrefix(7, b)); got != want {
				t.Errorf("%q and %q: %d, expected %d", a, b, got, want)
			}
			if got := bytes.Compare(objectKey(7, a), objectKey(7, b)); got != want {
				t.Errorf("%q and %q among objects: %d, expected %d", a, b, got, want)
			}
		}
		name, seq, ok := splitVersionKey(versionKey(7, a, 42))
		if !ok || name != a || seq != 42 {
			t.Errorf("%q came back as %q, %d, %v", a, name, seq, ok)
		}
		if k := versionKey(7, a, 43); bytes.Compare(k, versionKey(7, a, 42)) >= 0 {
			t.Errorf("%q: newer versions do not come first", a)
		}
		id := [16]byte{1, 2, 255}
		if name, got, ok := splitUploadKey(uploadKey(7, a, id)); !ok || name != a || got != id {
			t.Errorf("upload of %q came back as %q, %x, %v", a, name, got, ok)
		}
	}
}

func TestAfterIsBehindAllWithThePrefix(t *testing.T) {
	for _, p := range hostileNames[1:] {
		end := after([]byte(p))
		for _, n := range hostileNames {
			if strings.HasPrefix(n, p) {
				if end != nil && bytes.Compare([]byte(n), end) >= 0 {
					t.Errorf("%q begins with %q and is not before %x", n, p, end)
				}
			} else if n > p && (end == nil || bytes.Compare([]byte(n), end) < 0) {
				t.Errorf("%q does not begin with %q and is before %x", n, p, end)
			}
		}
	}
}

func TestNamesHideSequencesAndFindThem(t *testing.T) {
	n := names{secret: 99}
	for _, seq := range []uint64{1, 2, 1 << 40, math.MaxUint64} {
		text := n.text(12345, seq)
		raw, ok := parseName(text)
		if !ok || len(text) != 26 {
			t.Fatalf("%q cannot be read", text)
		}
		if nonce, got := n.split(raw); nonce != 12345 || got != seq {
			t.Errorf("%d came back as %d", seq, got)
		}
		if _, got := (names{secret: 98}).split(raw); got == seq {
			t.Error("another store reads the sequence")
		}
	}
	for _, bad := range []string{"", "null", strings.Repeat("0", 25), strings.Repeat("0", 27), strings.Repeat("U", 26), strings.Repeat("Z", 26), strings.ToLower(n.text(^uint64(0)/3, 7))} {
		if _, ok := parseName(bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestAfterIDSkipsWhatIsNotBehind(t *testing.T) {
	ids := []string{"00000000000000000000000000", names{}.text(1<<60, 5), names{}.text(1<<63, 5), names{}.text(math.MaxUint64, 9)}
	probes := append(slices.Clone(ids), "", "0", "A", "5", "ZZZZ", "zzz", ids[1][:10], ids[1]+"0", ids[2][:25]+"!")
	for _, p := range probes {
		from := afterID(p)
		for _, id := range ids {
			raw, _ := parseName(id)
			if got, want := bytes.Compare(raw[:], from) >= 0, id > p; got != want {
				t.Errorf("after %q: %q listed is %v, expected %v", p, id, got, want)
			}
		}
	}
}

var sampleVersion = version{
	flags: flagParts, seq: 9, nonce: 77, modified: 1234567, size: 5 << 20, crc: 1 << 63, etag: "abc-2", file: 12,
	sums: []uint64{1, 2, 3, 4, 5}, attrs: map[string]string{"a": "b", "": "x", "c": ""},
}

func TestRecordsComeBack(t *testing.T) {
	for _, v := range []version{sampleVersion, {flags: flagMarker | flagNull, seq: 1, modified: -5}, {flags: flagInline, size: 1, etag: "e"}} {
		got, err := decodeVersion(v.encode(), false)
		if err != nil || !reflect.DeepEqual(*got, v) {
			t.Errorf("%+v came back as %+v, %v", v, got, err)
		}
		brief, err := decodeVersion(v.encode(), true)
		if err != nil || brief.etag != v.etag || brief.size != v.size || brief.attrs != nil {
			t.Errorf("%+v came back briefly as %+v, %v", v, brief, err)
		}
	}
	p := part{size: 7, crc: 8, modified: 9, etag: "e", md5: []byte("0123456789abcdef"), off: 14, file: 3, sums: []uint64{1}, attrs: map[string]string{"k": "v"}}
	if got, err := decodePart(p.encode(), false); err != nil || !reflect.DeepEqual(*got, p) {
		t.Errorf("%+v came back as %+v, %v", p, got, err)
	}
	u := upload{file: 1, partSize: 5 << 20, started: 3, attrs: map[string]string{"k": "v"}}
	if got, err := decodeUpload(u.encode()); err != nil || !reflect.DeepEqual(*got, u) {
		t.Errorf("%+v came back as %+v, %v", u, got, err)
	}
	o := owner{bucket: 1, key: "a\x00", seq: 2, part: -1}
	if got, err := decodeOwner(o.encode()); err != nil || *got != o {
		t.Errorf("%+v came back as %+v, %v", o, got, err)
	}
	c := counts{1, -2, 3, 4, 5, 6, 7, -8}
	if got, err := decodeCounts(c.encode()); err != nil || got != c {
		t.Errorf("%+v came back as %+v, %v", c, got, err)
	}
	b := object.Bucket{Name: "n", Created: time.UnixMilli(5).UTC(), Owner: "o", Versioning: object.VersioningEnabled, ETag: object.ETagMD5, Settings: map[string][]byte{"x": {0, 1}}}
	if id, got, err := decodeBucket("n", encodeBucket(4, &b)); err != nil || id != 4 || !reflect.DeepEqual(*got, b) {
		t.Errorf("%+v came back as %+v, %v", b, got, err)
	}
	ps := []object.PartInfo{{Number: 2, Size: 3, ETag: "e", CRC64: 4, Modified: time.UnixMilli(5).UTC(), Attributes: map[string]string{"k": "v"}}}
	if got, err := decodeParts(encodeParts(ps)); err != nil || !reflect.DeepEqual(got, ps) {
		t.Errorf("%+v came back as %+v, %v", ps, got, err)
	}
}

func TestRecordsCutShortOrOfALaterVersionAreRefused(t *testing.T) {
	b := sampleVersion.encode()
	for n := range b {
		if _, err := decodeVersion(b[:n], false); err == nil {
			t.Fatalf("%d of %d bytes were read", n, len(b))
		}
	}
	if _, err := decodeVersion(append(bytes.Clone(b), 0), false); err == nil {
		t.Error("a record that goes on was read")
	}
	b[0] = 2
	if _, err := decodeVersion(b, false); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("a later version: %v", err)
	}
}

// FuzzRecord holds every decoder against any bytes: what is read is written as something that reads the same.
func FuzzRecord(f *testing.F) {
	f.Add(sampleVersion.encode())
	f.Add((&owner{key: "k", part: -1}).encode())
	f.Add((&upload{partSize: 1}).encode())
	f.Add((&part{size: 1, sums: []uint64{1}}).encode())
	f.Add(counts{Objects: 1}.encode())
	f.Add(encodeParts([]object.PartInfo{{Number: 1, ETag: "e"}}))
	f.Add(encodeBucket(1, &object.Bucket{Name: "b"}))
	f.Add(versionKey(1, "a\x00b", 7))
	f.Add([]byte(formatNote("u", true)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := decodeVersion(b, false); err == nil {
			w, err := decodeVersion(v.encode(), false)
			if err != nil || !reflect.DeepEqual(v, w) {
				t.Fatalf("%+v, then %+v, %v", v, w, err)
			}
		}
		_, _ = decodeVersion(b, true)
		if v, err := decodeOwner(b); err == nil {
			if w, err := decodeOwner(v.encode()); err != nil || *v != *w {
				t.Fatalf("%+v, then %+v, %v", v, w, err)
			}
		}
		if v, err := decodeUpload(b); err == nil {
			if w, err := decodeUpload(v.encode()); err != nil || !reflect.DeepEqual(v, w) {
				t.Fatalf("%+v, then %+v, %v", v, w, err)
			}
		}
		if v, err := decodePart(b, false); err == nil {
			if w, err := decodePart(v.encode(), false); err != nil || !reflect.DeepEqual(v, w) {
				t.Fatalf("%+v, then %+v, %v", v, w, err)
			}
		}
		if v, err := decodeCounts(b); err == nil {
			if w, err := decodeCounts(v.encode()); err != nil || v != w {
				t.Fatalf("%+v, then %+v, %v", v, w, err)
			}
		}
		_, _ = decodeParts(b)
		_, _, _ = decodeBucket("b", b)
		_, _ = parseNote(b)
		_, _, _ = splitUploadKey(b)
		if name, seq, ok := splitVersionKey(b); ok {
			if n, s, ok := splitVersionKey(versionKey(1, name, seq)); !ok || n != name || s != seq {
				t.Fatalf("%q %d, then %q %d", name, seq, n, s)
			}
		}
	})
}
