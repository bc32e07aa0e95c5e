// SPDX-License-Identifier: Apache-2.0

package place

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// fake is a small S3 server with one bucket, which can be told to misbehave.
type fake struct {
	*httptest.Server
	t testing.TB

	mu      sync.Mutex
	objects map[string][]byte
	sums    bool // send checksums of the whole content
	gets    int
	// odd, if not nil, may answer instead: it returns true then.
	odd func(w http.ResponseWriter, r *http.Request) bool
}

func newFake(t testing.TB) *fake {
	f := &fake{t: t, objects: map[string][]byte{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) client() *s3.Client {
	f.t.Helper()
	c, err := s3.New(s3.Options{Endpoint: f.URL, Retries: -1, Connections: 2})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	return c
}

func (f *fake) tree(key string) Tree {
	f.t.Helper()
	return Tree{Place: Place{Bucket: "b", Key: key}, Client: f.client()}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.odd != nil && f.odd(w, r) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && q.Has("list-type"):
		f.list(w, q.Get("prefix"), q.Get("continuation-token"))
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		f.give(w, r, key)
	case r.Method == http.MethodPost && q.Has("delete"):
		var x struct{ Object []struct{ Key string } }
		body, _ := io.ReadAll(r.Body)
		if err := xml.Unmarshal(body, &x); err != nil {
			f.t.Error(err)
		}
		for _, o := range x.Object {
			delete(f.objects, o.Key)
		}
		fmt.Fprint(w, "<DeleteResult></DeleteResult>")
	}
}

func (f *fake) list(w http.ResponseWriter, prefix, token string) {
	var keys []string
	for k := range f.objects {
		if strings.HasPrefix(k, prefix) && k > token {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	more := len(keys) > 3
	keys = keys[:min(len(keys), 3)]
	fmt.Fprintf(w, "<ListBucketResult><IsTruncated>%v</IsTruncated>", more)
	for _, k := range keys {
		fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size><ETag>e</ETag></Contents>", k, len(f.objects[k]))
	}
	if more {
		fmt.Fprintf(w, "<NextContinuationToken>%s</NextContinuationToken>", keys[2])
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

func (f *fake) give(w http.ResponseWriter, r *http.Request, key string) {
	data, ok := f.objects[key]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("ETag", `"e"`)
	if f.sums {
		sum := binary.BigEndian.AppendUint64(nil, checksum.Of(data))
		w.Header().Set("x-amz-checksum-crc64nvme", base64.StdEncoding.EncodeToString(sum))
		w.Header().Set("x-amz-checksum-type", "FULL_OBJECT")
	}
	lo, hi := 0, len(data)-1
	if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &lo, &hi); n == 2 {
		f.gets++
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", lo, hi, len(data)))
		w.Header().Set("Content-Length", strconv.Itoa(hi-lo+1))
		w.WriteHeader(http.StatusPartialContent)
	} else {
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	}
	if r.Method == http.MethodGet {
		w.Write(data[lo : hi+1])
	}
}

func TestWalkPages(t *testing.T) {
	f := newFake(t)
	var want []string
	for i := range 10 {
		f.objects[fmt.Sprintf("run/%d", i)] = nil
		want = append(want, strconv.Itoa(i))
	}
	f.objects["run2/x"], f.objects["run/"] = nil, nil
	got := keysOf(t, f.tree("run"))
	if !slices.Equal(got, append([]string{""}, want...)) {
		t.Errorf("%q", got)
	}
	for key, want := range map[string]Kind{"run": Many, "run/": Many, "run/1": One, "ru": Missing, "": Many} {
		if kind, _, err := f.tree(key).Look(t.Context()); err != nil || kind != want {
			t.Errorf("%q: %v, %v", key, kind, err)
		}
	}
}

// A listing that does not end, leads back or is out of order is one clear error.
func TestListingsThatCannotBeTrusted(t *testing.T) {
	page := func(next string, keys ...string) string {
		var text strings.Builder
		fmt.Fprintf(&text,
			"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", next)
		for _, k := range keys {
			text.WriteString("<Contents><Key>" + k + "</Key></Contents>")
		}
		return text.String() + "</ListBucketResult>"
	}
	for name, c := range map[string]struct {
		reply func(n int) string
		want  string
		most  int // requests
	}{
		"the same page again": {func(int) string { return page("t", "p/a") }, "order of keys", 2},
		"pages in a circle": {func(n int) string { return page(fmt.Sprint(n), fmt.Sprintf("p/%d", n%3)) }, "order of keys",
			5},
		"keys out of order":  {func(int) string { return page("t", "p/b", "p/a") }, "order of keys", 1},
		"one token, no keys": {func(int) string { return page("t") }, "without any key", 3},
		"no keys for ever":   {func(n int) string { return page(fmt.Sprint(n)) }, "without any key", mostEmpty + 2},
		"another prefix":     {func(int) string { return page("t", "q/a") }, "does not begin with the prefix", 1},
		"groups": {func(int) string {
			return "<ListBucketResult><CommonPrefixes><Prefix>p/x/</Prefix></CommonPrefixes></ListBucketResult>"
		}, "not asked for", 1},
		"more without a token": {func(int) string {
			return "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"
		}, "not how to ask", 1},
		"too many entries": {func(int) string { return page("t", strings.Split(strings.Repeat("p/a ", 11_000), " ")...) },
			"entries", 1},
		"a bomb": {func(int) string {
			return `<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;">]><ListBucketResult><Contents><Key>&b;</Key></Contents></ListBucketResult>`
		}, "no listing", 1},
		"a flood": {func(int) string { return "<ListBucketResult>" + strings.Repeat("<Contents>", 1_700_000) }, "more than",
			1},
		"HTML": {func(int) string { return "<html>hello</html>" }, "no listing", 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			n := 0
			f.odd = func(w http.ResponseWriter, _ *http.Request) bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				n++
				io.WriteString(w, c.reply(n))
				return true
			}
			err := f.tree("p").Walk(t.Context(), func(Entry) error { return nil })
			if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), c.want) || n > c.most {
				t.Errorf("%d requests, %v", n, err)
			}
			if len(fmt.Sprint(err)) > 2000 {
				t.Errorf("an error of %d bytes", len(fmt.Sprint(err)))
			}
		})
	}
}

func TestVersionsThatLeadBack(t *testing.T) {
	for name, reply := range map[string]func(n int) string{
		"the same version": func(int) string {
			return "<NextKeyMarker>k</NextKeyMarker><NextVersionIdMarker>%d</NextVersionIdMarker>" +
				"<Version><Key>k</Key><VersionId>v</VersionId></Version>"
		},
		"two pages in turn": func(n int) string {
			return fmt.Sprintf("<NextKeyMarker>k</NextKeyMarker><NextVersionIdMarker>m%d</NextVersionIdMarker>"+
				"<Version><Key>k</Key><VersionId>v%d</VersionId></Version>", n%2, n%2)
		},
		"no versions": func(int) string { return "<NextKeyMarker>k</NextKeyMarker>" },
		"back":        func(n int) string { return fmt.Sprintf("<NextKeyMarker>%d</NextKeyMarker>", 9-n) },
	} {
		f := newFake(t)
		n := 0
		f.odd = func(w http.ResponseWriter, _ *http.Request) bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			n++
			fmt.Fprintf(w, "<ListVersionsResult><IsTruncated>true</IsTruncated>%s</ListVersionsResult>", reply(n))
			return true
		}
		if err := f.tree("").WalkVersions(t.Context(), true, func(Version) error { return nil }); !errs.Is(err,
			errs.Corrupt) ||
			n > 5 {
			t.Errorf("%s: %d requests, %v", name, n, err)
		}
	}
}

func TestRemoval(t *testing.T) {
	f := newFake(t)
	for i := range 2500 {
		f.objects[fmt.Sprintf("k%04d", i)] = nil
	}
	n := 0
	r := NewRemoval(t.Context(), f.client(), "b", func(_ Doomed, err error) {
		if n++; err != nil {
			t.Error(err)
		}
	})
	for i := range 2400 {
		if err := r.Add(Doomed{Doomed: s3.Doomed{Key: fmt.Sprintf("k%04d", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(false); err != nil || n != 2400 || len(f.objects) != 100 {
		t.Errorf("%d deleted, %d left, %v", n, len(f.objects), err)
	}
	f.odd = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusForbidden); return true }
	r = NewRemoval(t.Context(), f.client(), "b", func(Doomed, error) { t.Error("deleted") })
	if err := r.Add(Doomed{Doomed: s3.Doomed{Key: "k"}}); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(false); !errs.Is(err, errs.Permission) {
		t.Errorf("%v", err)
	}
}
