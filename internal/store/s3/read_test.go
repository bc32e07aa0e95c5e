// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

var bg = context.Background()

// readRange opens b/k and reads a range of it.
func readRange(c *Client, off, n int64) ([]byte, *Object, error) {
	o, err := c.Open(bg, "b", "k", "")
	if err != nil {
		return nil, nil, err
	}
	r, err := o.Fetch(bg, off, n)
	if err != nil {
		return nil, o, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return data, o, err
}

func TestReadRangesOfOneVersion(t *testing.T) {
	s := newServer(t)
	data := noise(3<<20+5, 1)
	s.put("b/k", data)
	c := s.client(nil)
	for _, x := range [][2]int64{{0, int64(len(data))}, {0, 1}, {7, 2 << 20}, {int64(len(data)) - 1, 1}, {5, 0}} {
		got, o, err := readRange(c, x[0], x[1])
		if err != nil || !bytes.Equal(got, data[x[0]:x[0]+x[1]]) {
			t.Errorf("%v: %d bytes, %v", x, len(got), err)
			continue
		}
		if u := o.Traffic(); u.Retries != 0 || x[1] > 0 && (u.Requests != 2 || u.Connections < 1) {
			t.Errorf("%v: %+v", x, u)
		}
		if sums := o.Sums(); sums == nil || sums.Size != int64(len(data)) || len(o.Notes()) != 0 {
			t.Errorf("sums %+v, notes %q", sums, o.Notes())
		}
	}
	o, _ := c.Open(bg, "b", "k", "")
	for _, x := range [][2]int64{{-1, 1}, {0, int64(len(data)) + 1}, {1 << 62, 1 << 62}} {
		if _, err := o.Fetch(bg, x[0], x[1]); !errs.Is(err, errs.Invalid) {
			t.Errorf("%v: %v", x, err)
		}
	}
	buf := make([]byte, 100)
	if _, err := o.File().ReadAt(buf, 17); err != nil || !bytes.Equal(buf, data[17:117]) {
		t.Errorf("as a file: %v", err)
	}
}

// Each way of failing now and then leaves the reader with the right bytes.
func TestReadsAreTakenUpAgain(t *testing.T) {
	data := noise(2<<20, 2)
	// cut answers a GET with the beginning of the right reply.
	cut := func(w http.ResponseWriter, r *http.Request, n int64,
		end func(w http.ResponseWriter, header string, body []byte)) {
		var lo, hi int64
		fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &lo, &hi)
		n = min(n, hi-lo)
		end(w, fmt.Sprintf("HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\nContent-Range: bytes %d-%d/%d\r\n\r\n",
			hi-lo+1, lo, hi, len(data)), data[lo:lo+n])
	}
	shut := func(w http.ResponseWriter, header string, body []byte) {
		c, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		buf.WriteString(header)
		buf.Write(body)
		buf.Flush()
		c.Close()
	}
	for name, odd := range map[string]func(w http.ResponseWriter, r *http.Request){
		"reset in the body": func(w http.ResponseWriter, r *http.Request) { cut(w, r, 700_000, reset) },
		"reset at once":     func(w http.ResponseWriter, r *http.Request) { reset(w, "", nil) },
		"short body":        func(w http.ResponseWriter, r *http.Request) { cut(w, r, 300_000, shut) },
		"half a header":     func(w http.ResponseWriter, r *http.Request) { reset(w, "HTTP/1.1 206 Par", nil) },
		"503":               func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) },
		"slow down":         func(w http.ResponseWriter, r *http.Request) { refuse(w, 503, "SlowDown", "") },
		"429": func(w http.ResponseWriter,
			r *http.Request) {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(429)
		},
		"500":             func(w http.ResponseWriter, r *http.Request) { refuse(w, 500, "InternalError", "") },
		"502 of a proxy":  func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(502); io.WriteString(w, "<html>") },
		"request timeout": func(w http.ResponseWriter, r *http.Request) { refuse(w, 400, "RequestTimeout", "") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.put("b/k", data)
			gets := 0
			s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet {
					return false
				}
				if gets++; gets%3 == 0 || gets > 9 {
					return false
				}
				odd(w, r)
				return true
			}
			got, o, err := readRange(s.client(nil), 11, int64(len(data))-22)
			if err != nil || !bytes.Equal(got, data[11:len(data)-11]) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			if u := o.Traffic(); u.Retries == 0 || u.Requests != u.Retries+2 {
				t.Errorf("traffic %+v", u)
			}
			for _, q := range s.requests() {
				if strings.HasPrefix(q, "GET") && !strings.Contains(q, "bytes=") {
					t.Errorf("a GET without a range: %s", q)
				}
			}
			if name == "short body" && (len(o.Notes()) != 2 ||
				!strings.HasSuffix(s.requests()[2], fmt.Sprintf("bytes=%d-%d", 300_011, len(data)-12))) {
				t.Errorf("notes %q, requests %q", o.Notes(), s.requests())
			}
		})
	}
}

func TestPausesGrowAndHonourTheServer(t *testing.T) {
	s := newServer(t)
	s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 3 {
			w.Header().Set("Retry-After", "7")
		}
		refuse(w, 503, "SlowDown", "")
		return true
	}
	c := s.client(nil)
	var waits []time.Duration
	c.wait = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
	_, err := c.Head(bg, "b", "k", "")
	if !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "given up after 6 tries") ||
		!strings.Contains(err.Error(), "SlowDown") || errs.FixOf(err) == "" {
		t.Errorf("got %v", err)
	}
	if len(waits) != 5 || waits[2] != 7*time.Second {
		t.Fatalf("waited %v", waits)
	}
	for i, d := range waits {
		if full := firstPause << i; i != 2 && (d < full/2 || d > full) {
			t.Errorf("wait %d was %v, expected %v to %v", i, d, full/2, full)
		}
	}
	waits = nil
	c.o.Retries = 0
	if _, err := c.Head(bg, "b", "k", ""); !errs.Is(err, errs.IO) || len(waits) != 0 {
		t.Errorf("without retries: %v after %v", err, waits)
	}
}

func TestAServerThatNeverGetsFurtherEndsWithOneError(t *testing.T) {
	s := newServer(t)
	data := noise(4<<20, 3)
	s.put("b/k", data)
	s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		var lo, hi int64
		fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &lo, &hi)
		c, buf, _ := w.(http.Hijacker).Hijack()
		fmt.Fprintf(buf, "HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\nContent-Range: bytes %d-%d/%d\r\n\r\n",
			hi-lo+1, lo, hi, len(data))
		buf.Write(data[lo : lo+1000])
		buf.Flush()
		c.Close()
		return true
	}
	got, _, err := readRange(s.client(nil), 0, int64(len(data)))
	if !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "s3://b/k") ||
		!strings.Contains(err.Error(), "given up after 51 tries") {
		t.Fatalf("got %v", err)
	}
	if !bytes.Equal(got, data[:len(got)]) {
		t.Error("what came before the error is wrong")
	}
}

func TestAChangedObjectIsOneClearError(t *testing.T) {
	for name, change := range map[string]func(s *server, w http.ResponseWriter, r *http.Request) bool{
		"replaced": func(s *server, w http.ResponseWriter, r *http.Request) bool {
			s.put("b/k", noise(1<<20, 9))
			return false
		},
		"deleted": func(s *server, w http.ResponseWriter, r *http.Request) bool {
			s.mu.Lock()
			delete(s.objects, "b/k")
			s.mu.Unlock()
			return false
		},
		"a server without conditions": func(s *server, w http.ResponseWriter, r *http.Request) bool {
			r.Header.Del("If-Match")
			s.put("b/k", noise(1<<20, 9))
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.put("b/k", noise(1<<20, 4))
			s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
				return r.Method == http.MethodGet && change(s, w, r)
			}
			_, _, err := readRange(s.client(nil), 100, 1000)
			if !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "changed while it was being read") ||
				errs.FixOf(err) == "" {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRepliesThatAreNotWhatWasAskedForAreRefused(t *testing.T) {
	data := noise(1<<20, 5)
	for name, c := range map[string]struct {
		odd  func(w http.ResponseWriter)
		want string
	}{
		"another range": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Range", "bytes 0-999/1048576")
			w.WriteHeader(206)
			w.Write(data[:1000])
		}, "bytes 0-999/1048576"},
		"another size": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Range", "bytes 100-1099/2000000")
			w.WriteHeader(206)
			w.Write(data[100:1100])
		}, "2000000"},
		"no range": {func(w http.ResponseWriter) { w.Write(data) }, "ignores that a range"},
		"nonsense": {func(w http.ResponseWriter) { w.Header().Set("Content-Range", "rubbish"); w.WriteHeader(206) },
			"rubbish"},
		"no content": {func(w http.ResponseWriter) { w.WriteHeader(204) }, "HTTP 204"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.put("b/k", data)
			s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodGet {
					c.odd(w)
					return true
				}
				return false
			}
			_, _, err := readRange(s.client(nil), 100, 1000)
			if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRefusalsKeepTheirKindAndSayWhatToDo(t *testing.T) {
	for code, c := range map[string]struct {
		status int
		kind   errs.Kind
	}{
		"NoSuchKey": {404, errs.NotFound}, "NoSuchBucket": {404, errs.NotFound}, "AccessDenied": {403, errs.Permission},
		"SignatureDoesNotMatch": {403, errs.Permission},
		"InvalidAccessKeyId":    {403, errs.Permission}, "NotImplemented": {501, errs.Unsupported},
		"InvalidRange": {416, errs.Invalid}, "ExpiredToken": {400, errs.Invalid},
	} {
		s := newServer(t)
		s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool { refuse(w, c.status, code, ""); return true }
		_, _, err := s.client(nil).ReadAll(bg, "b", "k", "", 10)
		if !errs.Is(err, c.kind) || CodeOf(err) != code || !strings.Contains(err.Error(), "req-7") ||
			!strings.Contains(err.Error(), "s3://b/k") {
			t.Errorf("%s: %v", code, err)
		}
		if code != "InvalidRange" && errs.FixOf(err) == "" {
			t.Errorf("%s: no fix", code)
		}
		if n := len(s.requests()); n != 1 {
			t.Errorf("%s: asked %d times", code, n)
		}
	}
	c, err := New(Options{Endpoint: "http://127.0.0.1:1", Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Head(bg, "b", "k", ""); !errs.Is(err, errs.IO) || !strings.Contains(errs.FixOf(err), "endpoint") {
		t.Errorf("nobody there: %v", err)
	}
}

func TestTheServerNamesTheRegionAndTheHost(t *testing.T) {
	s := newServer(t)
	s.put("b/k", []byte("hello"))
	other := newServer(t)
	other.put("b/k", []byte("hello"))
	s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.Header.Get("Authorization"), "/eu-west-9/s3/") {
			if r.Method == http.MethodHead {
				w.Header().Set("x-amz-bucket-region", "eu-west-9")
				w.WriteHeader(400)
			} else {
				refuse(w, 400, "AuthorizationHeaderMalformed", "<Region>eu-west-9</Region>")
			}
			return true
		}
		if r.Method == http.MethodGet {
			w.Header().Set("Location", other.URL+r.URL.Path)
			w.WriteHeader(307)
			return true
		}
		return false
	}
	c := s.client(nil)
	got, _, err := readRange(c, 1, 3)
	if err != nil || string(got) != "ell" {
		t.Fatalf("%q, %v", got, err)
	}
	if n, m := len(s.requests()), len(other.requests()); n != 3 || m != 1 {
		t.Errorf("asked %d and %d times", n, m)
	}
	// In circles, or to where it cannot follow: an error.
	s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Location", fmt.Sprintf("%s/%d", s.URL, n))
		w.WriteHeader(307)
		return true
	}
	if _, err := c.Head(bg, "b", "k", ""); err == nil {
		t.Error("a circle has no end")
	}
	s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Location", "ftp://elsewhere/")
		w.WriteHeader(307)
		return true
	}
	if _, err := c.Head(bg, "b", "k", ""); !errs.Is(err, errs.Unsupported) ||
		!strings.Contains(err.Error(), "ftp://elsewhere/") {
		t.Errorf("got %v", err)
	}
}

func TestAClockThatIsWrongIsCorrected(t *testing.T) {
	s := newServer(t)
	s.put("b/k", []byte("x"))
	s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
		at, _ := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if then := time.Now().Add(3 * time.Hour); then.Sub(at).Abs() > time.Hour {
			w.Header().Set("Date", then.UTC().Format(http.TimeFormat))
			refuse(w, 403, "RequestTimeTooSkewed", "")
			return true
		}
		return false
	}
	if data, _, err := s.client(nil).ReadAll(bg, "b", "k", "", 10); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestAServerThatHangsIsLeft(t *testing.T) {
	s := newServer(t)
	data := noise(1<<20, 6)
	s.put("b/k", data)
	gone := make(chan struct{})
	t.Cleanup(func() { close(gone) })
	var gets atomic.Int32
	s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		number := gets.Add(1)
		if number > 2 {
			return false
		}
		if number == 1 { // in the middle of the body
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(data)-1, len(data)))
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			w.WriteHeader(206)
			w.Write(data[:1000])
			w.(http.Flusher).Flush()
		}
		select {
		case <-gone:
		case <-r.Context().Done():
		}
		return true
	}
	got, o, err := readRange(s.client(func(o *Options) { o.Timeout = 250 * time.Millisecond }), 0, int64(len(data)))
	if err != nil || !bytes.Equal(got, data) || o.Traffic().Retries < 2 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestAReadIsCancelled(t *testing.T) {
	s := newServer(t)
	s.put("b/k", noise(1<<20, 7))
	c := s.client(nil)
	o, err := c.Open(bg, "b", "k", "")
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(bg)
	s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
		cancel(why)
		<-r.Context().Done()
		return true
	}
	_, err = o.Fetch(ctx, 0, 100)
	if !errors.Is(err, why) || len(s.requests()) != 2 {
		t.Errorf("%v after %q", err, s.requests())
	}
}

func TestReadAllComparesAndIsBounded(t *testing.T) {
	s := newServer(t)
	s.put("b/k", []byte("hello"))
	c := s.client(nil)
	if _, _, err := c.ReadAll(bg, "b", "k", "", 4); !errs.Is(err, errs.Invalid) {
		t.Errorf("too large: %v", err)
	}
	s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set(trailerName, sumText(1))
		w.Write([]byte("hello"))
		return true
	}
	if _, _, err := c.ReadAll(bg, "b", "k", "", 10); !errs.Is(err, errs.Corrupt) {
		t.Errorf("another checksum: %v", err)
	}
}

func TestListInPages(t *testing.T) {
	s := newServer(t)
	for _, k := range []string{"m/a b+c.json", "m/b", "m/ü&<", "m/sub/x", "n"} {
		s.put("b/"+k, []byte(k))
	}
	c := s.client(nil)
	all := func(l Listing) (keys, groups []string) {
		for {
			p, err := c.List(bg, l)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range p.Entries {
				if keys = append(keys, e.Key); e.Size != int64(len(e.Key)) || e.Modified.IsZero() {
					t.Errorf("%+v", e)
				}
			}
			groups = append(groups, p.Groups...)
			if l.Token = p.Next; p.Next == "" {
				return keys, groups
			}
		}
	}
	keys, groups := all(Listing{Bucket: "b", Prefix: "m/", Delimiter: "/"})
	if fmt.Sprint(keys) != "[m/a b+c.json m/b m/ü&<]" || fmt.Sprint(groups) != "[m/sub/]" {
		t.Errorf("%q, %q", keys, groups)
	}
	if keys, _ = all(Listing{Bucket: "b"}); len(keys) != 5 {
		t.Errorf("%q", keys)
	}
	for _, k := range keys {
		if got, _, err := c.ReadAll(bg, "b", k, "", 100); err != nil || string(got) != k {
			t.Errorf("%s: %q, %v", k, got, err)
		}
	}
	s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
		io.WriteString(w, "<html></html>")
		return true
	}
	if _, err := c.List(bg, Listing{Bucket: "b"}); !errs.Is(err, errs.Corrupt) || errs.FixOf(err) == "" {
		t.Errorf("got %v", err)
	}
}
