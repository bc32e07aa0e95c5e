// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"net/http"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
)

// FuzzListing parses listings that an upstream may send.
func FuzzListing(f *testing.F) {
	f.Add([]byte(`<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>` +
		`<NextContinuationToken>t</NextContinuationToken><Contents><Key>p/a%20b</Key><Size>3</Size><ETag>"x"</ETag>` +
		`<LastModified>2026-11-17T00:00:00.000Z</LastModified></Contents><CommonPrefixes><Prefix>p/c/</Prefix>` +
		`</CommonPrefixes></ListBucketResult>`))
	f.Add([]byte(`<ListVersionsResult><Version><Key>p/k</Key><VersionId>v</VersionId><IsLatest>true</IsLatest></Version>` +
		`<DeleteMarker><Key>p/k</Key><VersionId>w</VersionId></DeleteMarker></ListVersionsResult>`))
	f.Add([]byte(`<Error><Code>NoSuchBucket</Code></Error>`))
	b := &Bucket{o: Options{Prefix: "p/"}}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if len(doc) > 1<<10 { // the fuzzer grows its inputs, and longer ones only take time
			return
		}
		var x listDocument
		if decode(doc, "ListBucketResult", &x) != nil {
			return
		}
		entries, err := b.entriesOf(&x)
		if err != nil {
			return
		}
		if len(entries) > mostEntries {
			t.Fatalf("%d entries", len(entries))
		}
		last := ""
		for _, e := range entries {
			if e.key == "" || e.key < last || e.info.Size < 0 {
				t.Fatalf("entry %+v after %q", e, last)
			}
			last = e.key
		}
	})
}

// FuzzHeaders reads descriptions from the headers of replies.
func FuzzHeaders(f *testing.F) {
	f.Add(`"abc-2"`, "v", "x-amz-checksum-crc64nvme", "AAAAAAAAAAA=", "FULL_OBJECT", int64(5))
	f.Add(`"abc"`, "", "x-amz-checksum-crc32c", "AAAAAA==-2", "COMPOSITE", int64(5))
	f.Add(`W/"abc"`, "null", "x-amz-meta-a", "b", "", int64(0))
	f.Add(`"abc"`, "", "x-amz-object-lock-mode", "GOVERNANCE", "", int64(1))
	f.Fuzz(func(t *testing.T, etag, version, name, value, kind string, size int64) {
		if size < 0 {
			return
		}
		h := http.Header{}
		h.Set("ETag", etag)
		h.Set("X-Amz-Version-Id", version)
		h.Set("X-Amz-Checksum-Type", kind)
		h.Set(name, value)
		b := &Bucket{origin: "o"}
		a, err := b.aboutOf("k", "", h, size)
		if err != nil {
			return
		}
		if a.Identity.ETag == "" || a.Identity.Size != size || a.Parts < 0 || a.Parts > object.MaxParts {
			t.Fatalf("%+v", a)
		}
		if a.HasCRC64 && a.Parts > 0 && kind == "" {
			t.Fatalf("a checksum of unknown coverage counts as one of the whole: %+v", a)
		}
	})
}

// FuzzAbout reads descriptions that a cache has kept.
func FuzzAbout(f *testing.F) {
	f.Add(About{Identity: object.Identity{Origin: "o", Key: "k", ETag: "e", Size: 3},
		Attributes: map[string]string{"a": "b"}, CRC64: 1 << 63, HasCRC64: true}.Encode())
	f.Fuzz(func(t *testing.T, doc []byte) {
		a, err := DecodeAbout(doc)
		if err != nil {
			return
		}
		again, err := DecodeAbout(a.Encode())
		if err != nil || again.Identity != a.Identity || again.CRC64 != a.CRC64 || !again.Modified.Equal(a.Modified) {
			t.Fatalf("%+v became %+v, error %v", a, again, err)
		}
	})
}
