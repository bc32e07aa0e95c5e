// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

var hostileNames = []string{
	"", "a", "a/", "a//b", "../x", "\x00", "\x00\x00", "a\x00", "a\x00b", "a\x01", "a\xff", "\xff", "\xff\xff", "\x00\xff",
	"\x00\x01", "ab", "b", "😀", strings.Repeat("\x00", 1024), strings.Repeat("\xff", 1024),
}

func TestOrderOfKeysIsOrderOfNames(t *testing.T) {
	for _, a := range hostileNames {
		for _, b := range hostileNames {
			want := strings.Compare(a, b)
			if got := bytes.Compare(VersionPrefix(7, a), VersionPrefix(7, b)); got != want {
				t.Errorf("%q and %q: %d, expected %d", a, b, got, want)
			}
			if got := bytes.Compare(ObjectKey(7, a), ObjectKey(7, b)); got != want {
				t.Errorf("%q and %q among objects: %d, expected %d", a, b, got, want)
			}
		}
		name, seq, ok := SplitVersionKey(VersionKey(7, a, 42))
		if !ok || name != a || seq != 42 {
			t.Errorf("%q came back as %q, %d, %v", a, name, seq, ok)
		}
		if k := VersionKey(7, a, 43); bytes.Compare(k, VersionKey(7, a, 42)) >= 0 {
			t.Errorf("%q: newer versions do not come first", a)
		}
		id := [16]byte{1, 2, 255}
		if name, got, ok := SplitUploadKey(UploadKey(7, a, id)); !ok || name != a || got != id {
			t.Errorf("upload of %q came back as %q, %x, %v", a, name, got, ok)
		}
	}
}

func TestAfterIsBehindAllWithThePrefix(t *testing.T) {
	for _, p := range hostileNames[1:] {
		end := After([]byte(p))
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
	n := Names{secret: 99}
	for _, seq := range []uint64{1, 2, 1 << 40, math.MaxUint64} {
		text := n.Text(12345, seq)
		raw, ok := ParseName(text)
		if !ok || len(text) != 26 {
			t.Fatalf("%q cannot be read", text)
		}
		if nonce, got := n.Split(raw); nonce != 12345 || got != seq {
			t.Errorf("%d came back as %d", seq, got)
		}
		if _, got := (Names{secret: 98}).Split(raw); got == seq {
			t.Error("another store reads the sequence")
		}
	}
	for _, bad := range []string{"", "null", strings.Repeat("0", 25), strings.Repeat("0", 27), strings.Repeat("U", 26),
		strings.Repeat("Z", 26), strings.ToLower(n.Text(^uint64(0)/3, 7))} {
		if _, ok := ParseName(bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
}

var sampleVersion = Version{
	Flags: FlagParts, Seq: 9, Nonce: 77, Modified: 1234567, Size: 5 << 20, CRC: 1 << 63, ETag: "abc-2", File: 12,
	Sums: []uint64{1, 2, 3, 4, 5}, Attrs: map[string]string{"a": "b", "": "x", "c": ""},
}

func TestRecordsComeBack(t *testing.T) {
	for _, v := range []Version{sampleVersion, {Flags: FlagMarker | FlagNull, Seq: 1, Modified: -5},
		{Flags: FlagInline, Size: 1, ETag: "e"}} {
		got, err := DecodeVersion(v.Encode(), false)
		if err != nil || !reflect.DeepEqual(*got, v) {
			t.Errorf("%+v came back as %+v, %v", v, got, err)
		}
		brief, err := DecodeVersion(v.Encode(), true)
		if err != nil || brief.ETag != v.ETag || brief.Size != v.Size || brief.Attrs != nil {
			t.Errorf("%+v came back briefly as %+v, %v", v, brief, err)
		}
	}
	p := Part{Size: 7, CRC: 8, Modified: 9, ETag: "e", MD5: []byte("0123456789abcdef"), Off: 14, File: 3,
		Sums: []uint64{1}, Attrs: map[string]string{"k": "v"}}
	if got, err := DecodePart(p.Encode(), false); err != nil || !reflect.DeepEqual(*got, p) {
		t.Errorf("%+v came back as %+v, %v", p, got, err)
	}
	u := Upload{File: 1, PartSize: 5 << 20, Started: 3, Attrs: map[string]string{"k": "v"}}
	if got, err := DecodeUpload(u.Encode()); err != nil || !reflect.DeepEqual(*got, u) {
		t.Errorf("%+v came back as %+v, %v", u, got, err)
	}
	o := Owner{Bucket: 1, Key: "a\x00", Seq: 2, Part: -1}
	if got, err := DecodeOwner(o.Encode()); err != nil || *got != o {
		t.Errorf("%+v came back as %+v, %v", o, got, err)
	}
	c := Counts{1, -2, 3, 4, 5, 6, 7, -8}
	if got, err := DecodeCounts(c.Encode()); err != nil || got != c {
		t.Errorf("%+v came back as %+v, %v", c, got, err)
	}
	b := object.Bucket{Name: "n", Created: time.UnixMilli(5).UTC(), Owner: "o", Versioning: object.VersioningEnabled,
		ETag: object.ETagMD5, Settings: map[string][]byte{"x": {0, 1}}}
	if id, got, err := DecodeBucket("n", EncodeBucket(4, &b)); err != nil || id != 4 || !reflect.DeepEqual(*got, b) {
		t.Errorf("%+v came back as %+v, %v", b, got, err)
	}
	ps := []object.PartInfo{{Number: 2, Size: 3, ETag: "e", CRC64: 4, Modified: time.UnixMilli(5).UTC(),
		Attributes: map[string]string{"k": "v"}}}
	if got, err := DecodeParts(EncodeParts(ps)); err != nil || !reflect.DeepEqual(got, ps) {
		t.Errorf("%+v came back as %+v, %v", ps, got, err)
	}
}

func TestRecordsCutShortOrOfALaterVersionAreRefused(t *testing.T) {
	b := sampleVersion.Encode()
	for n := range b {
		if _, err := DecodeVersion(b[:n], false); err == nil {
			t.Fatalf("%d of %d bytes were read", n, len(b))
		}
	}
	if _, err := DecodeVersion(append(bytes.Clone(b), 0), false); err == nil {
		t.Error("a record that goes on was read")
	}
	b[0] = 2
	if _, err := DecodeVersion(b, false); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("a later version: %v", err)
	}
}

// FuzzRecord holds every decoder against any bytes: what is read is written as something that reads the same.
func FuzzRecord(f *testing.F) {
	f.Add(sampleVersion.Encode())
	f.Add((&Owner{Key: "k", Part: -1}).Encode())
	f.Add((&Upload{PartSize: 1}).Encode())
	f.Add((&Part{Size: 1, Sums: []uint64{1}}).Encode())
	f.Add(Counts{Objects: 1}.Encode())
	f.Add(EncodeParts([]object.PartInfo{{Number: 1, ETag: "e"}}))
	f.Add(EncodeBucket(1, &object.Bucket{Name: "b"}))
	f.Add(VersionKey(1, "a\x00b", 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := DecodeVersion(b, false); err == nil {
			w, err := DecodeVersion(v.Encode(), false)
			if err != nil || !reflect.DeepEqual(v, w) {
				t.Fatalf("%+v, then %+v, %v", v, w, err)
			}
		}
		_, _ = DecodeVersion(b, true)
		if v, err := DecodeOwner(b); err == nil {
			if w, err := DecodeOwner(v.Encode()); err != nil || *v != *w {
				t.Fatalf("%+v, then %+v, %v", v, w, err)
			}
		}
		if v, err := DecodeUpload(b); err == nil {
			if w, err := DecodeUpload(v.Encode()); err != nil || !reflect.DeepEqual(v, w) {
				t.Fatalf("%+v, then %+v, %v", v, w, err)
			}
		}
		if v, err := DecodePart(b, false); err == nil {
			if w, err := DecodePart(v.Encode(), false); err != nil || !reflect.DeepEqual(v, w) {
				t.Fatalf("%+v, then %+v, %v", v, w, err)
			}
		}
		if v, err := DecodeCounts(b); err == nil {
			if w, err := DecodeCounts(v.Encode()); err != nil || v != w {
				t.Fatalf("%+v, then %+v, %v", v, w, err)
			}
		}
		_, _ = DecodeParts(b)
		_, _, _ = DecodeBucket("b", b)
		_, _, _ = SplitUploadKey(b)
		if name, seq, ok := SplitVersionKey(b); ok {
			if n, s, ok := SplitVersionKey(VersionKey(1, name, seq)); !ok || n != name || s != seq {
				t.Fatalf("%q %d, then %q %d", name, seq, n, s)
			}
		}
	})
}
