// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// hostile starts a server with a handler of the test, and returns a bucket on it.
func hostile(t *testing.T, h http.HandlerFunc, change func(*upstream.Options)) *upstream.Bucket {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	o := upstream.Options{Endpoint: server.URL, Bucket: "b", Prefix: "p/",
		Credentials: s3.Static(s3.Credentials{AccessKey: "key", SecretKey: "the-secret", SessionToken: "the-token"})}
	if change != nil {
		change(&o)
	}
	b, err := upstream.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var something = storetest.Bytes(7, 300_000)

func identity(b *upstream.Bucket) object.Identity {
	return object.Identity{Origin: b.Origin(), Key: "k", ETag: "right", Size: int64(len(something))}
}

// part answers a ranged GET as an honest server does; the functions of the tests change it.
type part struct {
	status   int
	etag     string
	content  string // Content-Range
	body     []byte
	chunked  bool
	announce int // Content-Length; -1: that of body
}

func honest(r *http.Request) part {
	p := part{status: http.StatusOK, etag: `"right"`, body: something, announce: -1}
	var lo, hi int
	if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &lo, &hi); n == 2 {
		p.status, p.body = http.StatusPartialContent, something[lo:hi+1]
		p.content = fmt.Sprintf("bytes %d-%d/%d", lo, hi, len(something))
	}
	return p
}

func (p part) write(w http.ResponseWriter) {
	w.Header().Set("ETag", p.etag)
	if p.content != "" {
		w.Header().Set("Content-Range", p.content)
	}
	n := len(p.body)
	if p.announce >= 0 {
		n = p.announce
	}
	if !p.chunked {
		w.Header().Set("Content-Length", strconv.Itoa(n))
	}
	w.WriteHeader(p.status)
	if p.chunked {
		w.(http.Flusher).Flush()
	}
	_, _ = w.Write(p.body)
}

// TestFetchRefusesWrongReplies sends replies that differ from the expected content in one way each.
func TestFetchRefusesWrongReplies(t *testing.T) {
	for name, test := range map[string]struct {
		lie  func(*part)
		want error // nil: the bytes are right
	}{
		"honest":       {func(*part) {}, nil},
		"another ETag": {func(p *part) { p.etag = `"wrong"` }, upstream.ErrChanged},
		"no ETag":      {func(p *part) { p.etag = "" }, upstream.ErrChanged},
		"a range somewhere else": {func(p *part) { p.content = fmt.Sprintf("bytes 0-999/%d", len(something)) },
			upstream.ErrUnavailable},
		"a shorter range": {func(p *part) { p.content = fmt.Sprintf("bytes 1000-1001/%d", len(something)) },
			upstream.ErrUnavailable},
		"another size":     {func(p *part) { p.content = "bytes 1000-1999/2000" }, upstream.ErrChanged},
		"no Content-Range": {func(p *part) { p.content = "" }, upstream.ErrUnavailable},
		"a nonsense Content-Range": {func(p *part) { p.content = "bytes 99999999999999999999-1/*" },
			upstream.ErrUnavailable},
		"another Content-Length": {func(p *part) { p.body = p.body[:999] }, upstream.ErrUnavailable},
		"more bytes than the range": {func(p *part) { p.chunked, p.body = true, append(bytes.Clone(p.body), 'x') },
			upstream.ErrUnavailable},
		"no length, right bytes":  {func(p *part) { p.chunked = true }, nil},
		"the whole for the range": {func(p *part) { p.status, p.content, p.body = 200, "", something }, nil},
		"another whole": {func(p *part) { p.status, p.content, p.body = 200, "", something[1:] },
			upstream.ErrChanged},
		"an odd status": {func(p *part) { p.status, p.body = 203, something[1000:2000] },
			upstream.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			b := hostile(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("If-Match") != `"right"` {
					t.Errorf("If-Match is %q", r.Header.Get("If-Match"))
				}
				p := honest(r)
				test.lie(&p)
				p.write(w)
			}, nil)
			r, err := b.Fetch(t.Context(), identity(b), 1000, 1000)
			var got []byte
			if err == nil {
				got, err = io.ReadAll(r)
				r.Close()
			}
			if test.want != nil {
				if !errors.Is(err, test.want) {
					t.Errorf("error %v, expected %v", err, test.want)
				}
				if len(got) > 0 && !bytes.Equal(got, something[1000:1000+len(got)]) {
					t.Errorf("%d wrong bytes were returned", len(got))
				}
				return
			}
			if err != nil || !bytes.Equal(got, something[1000:2000]) {
				t.Errorf("%d bytes, error %v", len(got), err)
			}
		})
	}
}

// TestBrokenBodiesAreResumed breaks each reply in the middle. The reader goes on at the byte reached.
func TestBrokenBodiesAreResumed(t *testing.T) {
	var requests atomic.Int32
	b := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		p := honest(r)
		if requests.Add(1) < 5 {
			p.announce, p.body = len(p.body), p.body[:len(p.body)/2]
		}
		p.write(w)
	}, nil)
	r, err := b.Fetch(t.Context(), identity(b), 0, int64(len(something)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, something) || requests.Load() != 5 {
		t.Errorf("%d bytes after %d requests, error %v", len(got), requests.Load(), err)
	}
}

// TestBodiesThatEndAtOnceAreNotAskedForForever counts the requests of a read that gets no byte.
func TestBodiesThatEndAtOnceAreNotAskedForForever(t *testing.T) {
	var requests atomic.Int32
	b := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		p := honest(r)
		p.announce, p.body = len(p.body), nil
		p.write(w)
	}, nil)
	r, err := b.Fetch(t.Context(), identity(b), 0, 1000)
	if err == nil {
		_, err = io.ReadAll(r)
		r.Close()
	}
	if !errors.Is(err, upstream.ErrUnavailable) || requests.Load() > 4 {
		t.Errorf("%d requests, error %v", requests.Load(), err)
	}
}

// TestReplacedInTheMiddle replaces the object while it is read: no byte of the new content is returned.
func TestReplacedInTheMiddle(t *testing.T) {
	var requests atomic.Int32
	b := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		p := honest(r)
		if requests.Add(1) == 1 {
			p.announce, p.body = len(p.body), p.body[:5000]
		} else {
			p.etag, p.body = `"new"`, bytes.Repeat([]byte("x"), len(p.body))
		}
		p.write(w)
	}, nil)
	r, err := b.Fetch(t.Context(), identity(b), 0, int64(len(something)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if !errors.Is(err, upstream.ErrChanged) || !bytes.Equal(got, something[:5000]) {
		t.Errorf("%d bytes, error %v", len(got), err)
	}
}

// TestListingsThatLie sends listings that no server should send.
func TestListingsThatLie(t *testing.T) {
	page := func(inner string) string {
		return `<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` + inner + `</ListBucketResult>`
	}
	entry := func(key string) string {
		return "<Contents><Key>" + key + "</Key><Size>1</Size><ETag>x</ETag></Contents>"
	}
	var n atomic.Int64
	for name, body := range map[string]func() string{
		"garbage":          func() string { return "<<<" },
		"nothing":          func() string { return "" },
		"another document": func() string { return "<html></html>" },
		"half a document":  func() string { return page("")[:40] },
		"nested":           func() string { return strings.Repeat("<ListBucketResult>", 100) },
		"too large":        func() string { return page("<a>" + strings.Repeat("x", 9<<20) + "</a>") },
		"too many":         func() string { return page(strings.Repeat(entry("p/k"), 2000)) },
		"out of order":     func() string { return page(entry("p/b") + entry("p/c") + entry("p/b")) },
		"outside":          func() string { return page(entry("q/b")) },
		"negative size":    func() string { return page("<Contents><Key>p/k</Key><Size>-1</Size></Contents>") },
		"endless and empty": func() string {
			return page("<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>")
		},
		"endless, new tokens": func() string {
			return page(fmt.Sprintf("<IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken>",
				n.Add(1)))
		},
		"endless repetition": func() string {
			return page(fmt.Sprintf("<IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken>%s",
				n.Add(1), entry("p/k")))
		},
		"an error inside": func() string { return "<Error><Code>InternalError</Code></Error>" },
	} {
		t.Run(name, func(t *testing.T) {
			b := hostile(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body()) }, nil)
			p, err := b.Through("local", nil).List(t.Context(), object.List{Bucket: "local"})
			if err == nil {
				t.Errorf("the listing was believed: %+v", p)
			}
			if k := errs.KindOf(err); k != errs.IO {
				t.Errorf("error of kind %v: %v", k, err)
			}
		})
	}
}

// TestSilenceEndsAtTheDeadline connects to servers that never answer, or stop in the middle.
func TestSilenceEndsAtTheDeadline(t *testing.T) {
	short := func(o *upstream.Options) {
		o.Capabilities.Probed = time.Unix(1, 0)
		o.FirstByte, o.Stall, o.Commit = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	}
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	t.Run("before the first byte", func(t *testing.T) {
		b := hostile(t, silent, short)
		_, err := b.Stat(t.Context(), "k", "", "")
		if !errors.Is(err, upstream.ErrUnavailable) || !strings.Contains(err.Error(), "deadline") {
			t.Error(err)
		}
	})
	t.Run("in the middle", func(t *testing.T) {
		b := hostile(t, func(w http.ResponseWriter, r *http.Request) {
			p := honest(r)
			p.announce, p.body = len(p.body), p.body[:100]
			p.write(w)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, short)
		r, err := b.Fetch(t.Context(), identity(b), 0, 1000)
		var got []byte
		if err == nil {
			got, err = io.ReadAll(r)
			r.Close()
		}
		if !errors.Is(err, upstream.ErrUnavailable) || !strings.Contains(err.Error(), "deadline") ||
			!bytes.Equal(got, something[:len(got)]) {
			t.Errorf("%d bytes, error %v", len(got), err)
		}
	})
	t.Run("a write without reply", func(t *testing.T) {
		b := hostile(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, func(o *upstream.Options) {
			short(o)
			o.FirstByte, o.Stall = time.Minute, time.Minute // a busy machine may send the content late
		})
		_, err := b.Through("local", nil).Put(t.Context(), object.Put{Bucket: "local", Key: "k", Size: 3,
			Body: strings.NewReader("abc")})
		if !errors.Is(err, upstream.ErrUnavailable) || !strings.Contains(err.Error(), "may have been made") {
			t.Error(err)
		}
	})
	t.Run("a cancelled caller does not wait", func(t *testing.T) {
		b := hostile(t, silent, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		_, err := b.Stat(ctx, "k", "", "")
		if errs.KindOf(err) != errs.Cancelled {
			t.Error(err)
		}
		if s := b.State(); s.Failures != 0 {
			t.Errorf("the breaker counts a cancelled call: %+v", s)
		}
	})
}

// TestBrokenConnections names what happened to the connection.
func TestBrokenConnections(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		b := hostile(t, nil, func(o *upstream.Options) { o.Endpoint = "http://" + l.Addr().String() })
		_, err = b.Stat(t.Context(), "k", "", "")
		if !errors.Is(err, upstream.ErrUnavailable) || !strings.Contains(err.Error(), "refused") {
			t.Error(err)
		}
		if r := (*object.Refusal)(nil); !errors.As(err, &r) || r.Status != 503 {
			t.Errorf("the client gets %+v", r)
		}
	})
	t.Run("reset", func(t *testing.T) {
		b := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}, nil)
		_, err := b.Stat(t.Context(), "k", "", "")
		if !errors.Is(err, upstream.ErrUnavailable) {
			t.Error(err)
		}
	})
	t.Run("503 storm", func(t *testing.T) {
		var requests atomic.Int32
		b := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "<Error><Code>ServiceUnavailable</Code></Error>")
		}, func(o *upstream.Options) { o.Clock = func() time.Time { return time.Unix(1e9, 0) } })
		var err error
		for range 100 {
			_, err = b.Through("local", nil).List(t.Context(), object.List{Bucket: "local"})
			if !errors.Is(err, upstream.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if requests.Load() != upstream.DefaultBreaker || b.State().Phase != upstream.Open ||
			!strings.Contains(err.Error(), "not asked") {
			t.Errorf("%d requests, %+v, last error %v", requests.Load(), b.State(), err)
		}
	})
}

// TestSecretsAreNotShown prints everything that could hold a secret.
func TestSecretsAreNotShown(t *testing.T) {
	keys := s3.Credentials{AccessKey: "key", SecretKey: "the-secret", SessionToken: "the-token"}
	o := upstream.Options{Endpoint: "http://127.0.0.1:1", Bucket: "b", Credentials: s3.Static(keys)}
	b, err := upstream.New(o)
	if err != nil {
		t.Fatal(err)
	}
	_, failure := b.Stat(t.Context(), "k", "", "")
	doc, err := keys.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s %q %x", keys, keys, keys, keys, keys, keys),
		keys.LogValue().String(),
		string(doc), fmt.Sprintf("%v %+v %#v", o, o, o), fmt.Sprintf("%v %+v", b, b), failure.Error(),
		fmt.Sprintf("%+v", failure)} {
		if strings.Contains(text, "the-secret") || strings.Contains(text, "the-token") {
			t.Errorf("a secret is shown: %s", text)
		}
	}
}
