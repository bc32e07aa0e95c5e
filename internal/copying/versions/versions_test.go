// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// serve returns a Server of a handler.
func serve(t *testing.T, h http.HandlerFunc) *Server {
	t.Helper()
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	s, err := NewServer(s3.Options{Endpoint: web.URL, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

const listing = `<ListVersionsResult><IsTruncated>%v</IsTruncated><NextKeyMarker>%s</NextKeyMarker>` +
	`<NextVersionIdMarker>%s</NextVersionIdMarker>%s</ListVersionsResult>`

func entry(name, key, version string, latest bool, second int) string {
	return fmt.Sprintf("<%s><Key>%s</Key><VersionId>%s</VersionId><IsLatest>%v</IsLatest>"+
		"<LastModified>2026-01-01T00:00:%02d.5Z</LastModified><ETag>e</ETag></%s>", name, key, version, latest, second, name)
}

func TestKeysSpanPages(t *testing.T) {
	pages := map[string]string{
		"": fmt.Sprintf(listing, true, "b", "v2", entry("Version", "a", "v1", true, 1)+entry("DeleteMarker", "b", "m3", true,
			3)+entry("Version", "b", "v2", false, 2)),
		"b v2": fmt.Sprintf(listing, false, "", "",
			entry("Version", "b", "v1", false, 1)+entry("Version", "c", "null", true, 9)),
	}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		_, _ = io.WriteString(w, pages[strings.TrimSpace(q.Get("key-marker")+" "+q.Get("version-id-marker"))])
	})
	keys := s.Keys("bucket", "", "")
	var got []string
	for {
		k, err := keys.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if k.Name == "" {
			break
		}
		text := k.Name + ":"
		for _, e := range k.Entries {
			text += " " + e.Version
		}
		got = append(got, text+" newest "+k.Newest())
	}
	const want = "a: v1 newest v1|b: v1 v2 m3 newest m3|c: null newest null"
	if strings.Join(got, "|") != want {
		t.Errorf("keys %q, expected %q", got, want)
	}
}

func TestAListingThatLeadsBackIsRefused(t *testing.T) {
	for name, page := range map[string]string{
		"order": fmt.Sprintf(listing, false, "", "", entry("Version", "b", "1", true, 1)+entry("Version", "a", "1", true, 1)),
		"page":  fmt.Sprintf(listing, true, "a", "1", entry("Version", "a", "1", true, 1)),
	} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) })
		keys := s.Keys("bucket", "", "")
		var err error
		for range 5 {
			if _, err = keys.Next(t.Context()); err != nil {
				break
			}
		}
		if errs.KindOf(err) != errs.Corrupt {
			t.Errorf("%s: %v, expected an error of kind corrupt", name, err)
		}
	}
}

// text is a source of a text, which may be cut off or change from read to read.
type text struct {
	reads []string
	n     int
	short int
}

func (s *text) Open(_ context.Context, off, n int64) (io.ReadCloser, error) {
	now := s.reads[min(s.n, len(s.reads)-1)]
	s.n++
	return io.NopCloser(strings.NewReader(now[off : off+n-int64(s.short)])), nil
}

// checking is a server that compares content with Content-MD5.
func checking(t *testing.T, puts *[]string) *Server {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has broken off
		}
		sum := md5.Sum(body)
		if want := r.Header.Get("Content-Md5"); want != base64.StdEncoding.EncodeToString(sum[:]) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "<Error><Code>BadDigest</Code></Error>")
			return
		}
		*puts = append(*puts, string(body))
		w.Header().Set("ETag", hex.EncodeToString(sum[:]))
		w.Header().Set("X-Amz-Version-Id", "v9")
	})
}

func TestAddComparesContent(t *testing.T) {
	etag := func(s string) string { sum := md5.Sum([]byte(s)); return hex.EncodeToString(sum[:]) }
	for _, c := range []struct {
		name   string
		etag   string
		src    text
		puts   int
		again  bool
		failed bool
	}{
		{name: "the ETag is the MD5", etag: etag("hello"), src: text{reads: []string{"hello"}}, puts: 1},
		{name: "the ETag is no MD5", etag: "0123456789abcdef0123456789abcdef", src: text{reads: []string{"hello"}}, puts: 1,
			again: true},
		{name: "the ETag is another digest", etag: "abc-x", src: text{reads: []string{"hello"}}, puts: 1, again: true},
		{name: "one read is wrong", etag: etag("hello"), src: text{reads: []string{"hellx", "hello"}}, failed: true},
		{name: "two reads differ", etag: "0123456789abcdef0123456789abcdef", src: text{reads: []string{"hellx", "hello"}},
			failed: true},
		{name: "the source breaks off", etag: etag("hello"), src: text{reads: []string{"hello"}, short: 1}, failed: true},
	} {
		var puts []string
		s := checking(t, &puts)
		v := &Version{Entry: Entry{Key: "k", Size: 5, ETag: c.etag}, Header: http.Header{}, Summed: true}
		a, err := s.Add(t.Context(), "bucket", v, &c.src, nil, nil)
		if (err != nil) != c.failed || len(puts) != c.puts || a.Again != c.again || err == nil && a.Version != "v9" {
			t.Errorf("%s: %+v, %v, %d puts", c.name, a, err, len(puts))
		}
	}
}

func TestDescribeKeepsWhatACopyCanHave(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.URL.Query()["tagging"]; ok {
			_, _ = io.WriteString(w, "<Tagging><TagSet><Tag><Key>a b</Key><Value>=&amp;</Value></Tag></TagSet></Tagging>")
			return
		}
		h := w.Header()
		h.Set("ETag", `"e"`)
		h.Set("Content-Type", "text/x")
		h.Set("X-Amz-Meta-Color", "blue")
		h.Set("X-Amz-Tagging-Count", "1")
		h.Set("X-Amz-Storage-Class", "GLACIER")
		h.Set("X-Amz-Object-Lock-Mode", "COMPLIANCE")
		h.Set("X-Amz-Object-Lock-Retain-Until-Date", r.URL.Query().Get("versionId"))
	})
	for until, kept := range map[string]bool{"2026-05-02T00:00:00Z": true, "2026-04-02T00:00:00Z": false} {
		v, err := s.Describe(t.Context(), "b", Entry{Key: "k", Version: until, ETag: "e"}, now)
		if err != nil {
			t.Fatal(err)
		}
		if v.Header.Get("Content-Type") != "text/x" || v.Header.Get("X-Amz-Meta-Color") != "blue" ||
			v.Header.Get("X-Amz-Tagging") != "a+b=%3D%26" || v.Header.Get("Etag") != "" {
			t.Errorf("headers %v", v.Header)
		}
		if got := v.Header.Get("X-Amz-Object-Lock-Mode") != ""; got != kept {
			t.Errorf("a retention until %s is kept: %v", until, got)
		}
		if !strings.Contains(strings.Join(v.Left, ";"), "GLACIER") {
			t.Errorf("left out: %v", v.Left)
		}
	}
}

func FuzzParseTags(f *testing.F) {
	f.Add([]byte("<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if text, err := ParseTags(doc); err != nil && (text != "" || errs.KindOf(err) != errs.Corrupt) {
			t.Errorf("%q and %v", text, err)
		}
	})
}
