// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"strings"
	"testing"
)

// TestListingsRepeatWhatWasGiven gives empty parameters, which clients look for in the reply.
func TestListingsRepeatWhatWasGiven(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	for query, want := range map[string][]string{
		"prefix=&marker=": {"<Prefix></Prefix>", "<Marker></Marker>"},
		"list-type=2&prefix=&continuation-token=": {"<Prefix></Prefix>",
			"<ContinuationToken></ContinuationToken>"},
		"list-type=2&prefix=a&continuation-token=" + tokenOfKey("b"): {"<Prefix>a</Prefix>", "<ContinuationToken>" +
			tokenOfKey("b") + "</ContinuationToken>"},
	} {
		r := w.must(200, "GET", "/bucket?"+query, nil)
		for _, text := range want {
			if !strings.Contains(string(r.body), text) {
				t.Errorf("%s: no %s in %s", query, text, r.body)
			}
		}
	}
}

// TestRepliesWithoutABodySayWhatTheyAreAbout asks for what has not changed, and for what was deleted.
func TestRepliesWithoutABodySayWhatTheyAreAbout(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	etag := w.must(200, "PUT", "/bucket/key", []byte("x")).Header.Get("ETag")
	for _, method := range []string{"GET", "HEAD"} {
		r := w.must(304, method, "/bucket/key", nil, "If-None-Match", etag)
		if r.Header.Get("ETag") != etag || r.Header.Get("Last-Modified") == "" {
			t.Errorf("%s: %v", method, r.Header)
		}
	}
	w.must(200, "PUT", "/bucket?versioning", []byte(
		`<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>`))
	version := w.must(204, "DELETE", "/bucket/key", nil).Header.Get("x-amz-version-id")
	for _, method := range []string{"GET", "HEAD"} {
		if r := w.must(404, method, "/bucket/key", nil); r.Header.Get("x-amz-delete-marker") != "true" {
			t.Errorf("%s: %v", method, r.Header)
		}
		if r := w.must(405, method, "/bucket/key?versionId="+version, nil); r.Header.Get("x-amz-delete-marker") != "true" {
			t.Errorf("%s of the marker: %v", method, r.Header)
		}
		if r := w.must(404, method, "/bucket/other", nil); r.Header.Get("x-amz-delete-marker") != "" {
			t.Errorf("%s of what never was: %v", method, r.Header)
		}
	}
}

func TestWhatS3RefusesIsRefused(t *testing.T) {
	w := start(t, nil, nil)
	for _, name := range []string{"foo..bar", "foo.-bar", "foo-.bar"} {
		if r := w.do("PUT", "/"+name, nil); r.StatusCode != 400 || r.code() != "InvalidBucketName" {
			t.Errorf("%s: %d %s", name, r.StatusCode, r.body)
		}
	}
	w.must(200, "PUT", "/foo.bar-1", nil)
	w.must(200, "PUT", "/locked", nil, "x-amz-bucket-object-lock-enabled", "true")
	r := w.do("PUT", "/locked?versioning", []byte(
		`<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>`))
	if r.StatusCode != 409 || r.code() != "InvalidBucketState" {
		t.Errorf("suspended: %d %s", r.StatusCode, r.body)
	}
	w.must(200, "PUT", "/locked/key", []byte("x"))
	if r := w.do("GET", "/locked/key?torrent", nil); r.StatusCode != 501 {
		t.Errorf("a torrent: %d %s", r.StatusCode, r.body)
	}
	for n, status := range map[int]int{maxDeletions: 200, maxDeletions + 1: 400} {
		doc := "<Delete>" + strings.Repeat("<Object><Key>none</Key></Object>", n) + "</Delete>"
		if r := w.do("POST", "/locked?delete", []byte(doc), "Content-MD5", md5Base64(doc)); r.StatusCode != status ||
			status == 400 && r.code() != "MalformedXML" {
			t.Errorf("%d keys: %d %s", n, r.StatusCode, r.code())
		}
	}
}

// TestPartsOfObjectsAreDescribed completes an upload whose checksum is one of its parts' checksums.
func TestPartsOfObjectsAreDescribed(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	var up struct{ UploadId string }
	r := w.must(200, "POST", "/bucket/key?uploads", nil, "x-amz-checksum-algorithm", "SHA256", "x-amz-checksum-type",
		"COMPOSITE")
	if err := xml.Unmarshal(r.body, &up); err != nil {
		t.Fatal(err)
	}
	raw := sha256.Sum256([]byte("part"))
	sum := base64.StdEncoding.EncodeToString(raw[:])
	etag := w.must(200, "PUT", "/bucket/key?partNumber=1&uploadId="+up.UploadId, []byte("part"), "x-amz-checksum-sha256",
		sum).Header.Get("ETag")
	w.must(200, "POST", "/bucket/key?uploadId="+up.UploadId,
		[]byte(`<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>`+etag+
			`</ETag><ChecksumSHA256>`+sum+`</ChecksumSHA256></Part></CompleteMultipartUpload>`))
	for _, method := range []string{"GET", "HEAD"} {
		h := w.must(206, method, "/bucket/key?partNumber=1", nil, "x-amz-checksum-mode", "ENABLED").Header
		if h.Get("x-amz-checksum-sha256") != sum || h.Get("x-amz-checksum-type") != "COMPOSITE" {
			t.Errorf("%s of the part: %v", method, h)
		}
		h = w.must(200, method, "/bucket/key", nil, "x-amz-checksum-mode", "ENABLED").Header
		if got := h.Get("x-amz-checksum-sha256"); !strings.HasSuffix(got, "-1") {
			t.Errorf("%s of the object: %s", method, got)
		}
	}
	r = w.must(200, "GET", "/bucket/key?attributes", nil, "x-amz-object-attributes", "ObjectParts")
	if strings.Count(string(r.body), "<PartsCount>1</PartsCount>") != 1 {
		t.Errorf("%s", r.body)
	}
	r = w.must(200, "GET", "/bucket/key?attributes", nil, "x-amz-object-attributes", "ETag")
	if strings.Contains(string(r.body), "PartsCount") {
		t.Errorf("%s", r.body)
	}
}
