// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// FuzzReplies: what servers say is read without a panic, and what is made of it is within bounds.
func FuzzReplies(f *testing.F) {
	for _, s := range []string{
		"<Error><Code>NoSuchKey</Code><Message>m</Message><Region>r</Region></Error>",
		"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken><Contents><Key>a%20b</Key><Size>3</Size></Contents><CommonPrefixes><Prefix>x/</Prefix></CommonPrefixes></ListBucketResult>",
		"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>",
		"<CompleteMultipartUploadResult><ETag>&quot;e&quot;</ETag></CompleteMultipartUploadResult>",
		"bytes 0-9/100", "bytes 5-9/*", "rosvKmvRf6E=",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if x, ok := parseFault(b); ok && (x.Code == "" || len(x.Code) > mostText+10 || len(x.Message) > mostText+10) {
			t.Fatalf("%+v", x)
		}
		p, err := parseList(b)
		if err != nil && !errs.Is(err, errs.Corrupt) {
			t.Fatal(err)
		}
		if len(p.Entries)+len(p.Groups) > mostEntries {
			t.Fatal("too many entries")
		}
		for _, e := range p.Entries {
			if e.Key == "" || e.Size < 0 {
				t.Fatalf("%+v", e)
			}
		}
		if id, err := parseInitiate(b); err == nil && id == "" {
			t.Fatal("an upload without a name")
		}
		if tag, err := parseComplete(b); err == nil && len(tag) > 4096 {
			t.Fatal("an ETag without bounds")
		}
		if off, n, size, ok := parseContentRange(string(b)); ok && (off < 0 || n <= 0 || size >= 0 && off+n > size) {
			t.Fatalf("%q is %d+%d of %d", b, off, n, size)
		}
		parseSum(string(b))
	})
}

func TestNamesAreEscapedAsSignaturesWantThem(t *testing.T) {
	if got := escape("a b+c/ü~%", true); got != "a%20b%2Bc/%C3%BC~%25" {
		t.Error(got)
	}
	if got := escape("a/b", false); got != "a%2Fb" {
		t.Error(got)
	}
	for endpoint, want := range map[string]string{
		"http://localhost:9000":              "http://localhost:9000/b/k%20k?versionId=1",
		"https://s3.eu-west-1.amazonaws.com": "https://b.s3.eu-west-1.amazonaws.com/k%20k?versionId=1",
		"http://h/prefix/":                   "http://h/prefix/b/k%20k?versionId=1",
	} {
		c, err := New(Options{Endpoint: endpoint})
		if err != nil {
			t.Fatal(err)
		}
		u, err := c.address(&call{bucket: "b", key: "k k", query: versioned("1")})
		if err != nil || u.String() != want {
			t.Errorf("%s: %v, %v", endpoint, u, err)
		}
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	for name, o := range map[string]Options{
		"no endpoint": {}, "no scheme": {Endpoint: "localhost:9000"}, "a path": {Endpoint: "/x"},
		"ftp": {Endpoint: "ftp://x"}, "half a key": {Endpoint: "http://x", AccessKey: "a"},
		"connections": {Endpoint: "http://x", Connections: 1000}, "timeout": {Endpoint: "http://x", Timeout: -1},
	} {
		if _, err := New(o); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Options{Endpoint: "https://x", CAFile: "no such file"}); !errs.Is(err, errs.NotFound) {
		t.Errorf("CA file: %v", err)
	}
}
