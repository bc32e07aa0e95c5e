// SPDX-License-Identifier: Apache-2.0

package liar

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// object is what the real server has at /bucket/key.
func object() []byte {
	b := make([]byte, 300_001)
	for i := range b {
		b[i] = byte(i * 7 >> 3)
	}
	return b
}

const tag = `"0123456789abcdef0123456789abcdef"`

// origin is the real server of these tests: http.ServeContent, which is right about ranges and conditions.
func origin(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			b, _ := io.ReadAll(r.Body)
			w.Header().Set("X-Got", string(b))
			return
		}
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(object()))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func proxy(t *testing.T, o Options) *Proxy {
	t.Helper()
	o.Upstream = origin(t)
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

type reply struct {
	status int
	header http.Header
	body   []byte
	err    error // of the request or of its body
}

func get(t *testing.T, p *Proxy, method, ranges string) reply {
	t.Helper()
	return getIn(t.Context(), t, p, method, ranges)
}

func getIn(ctx context.Context, t *testing.T, p *Proxy, method, ranges string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, p.Endpoint+"/bucket/key", nil)
	if err != nil {
		t.Fatal(err)
	}
	if ranges != "" {
		req.Header.Set("Range", ranges)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	resp, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, body, err}
}

func TestHonestRepliesPassUnchanged(t *testing.T) {
	p := proxy(t, Options{})
	for _, ranges := range []string{"", "bytes=5-9", "bytes=-1"} {
		r := get(t, p, http.MethodGet, ranges)
		want := object()
		switch ranges {
		case "bytes=5-9":
			want = want[5:10]
		case "bytes=-1":
			want = want[len(want)-1:]
		}
		if r.err != nil || !bytes.Equal(r.body, want) || r.header.Get("ETag") != tag {
			t.Errorf("%q: %d, %d bytes, %v", ranges, r.status, len(r.body), r.err)
		}
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, p.Endpoint+"/bucket/key", strings.NewReader("abc"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := resp.Header.Get("X-Got"); got != "abc" {
		t.Errorf("the server got %q", got)
	}
	c := p.Counts()
	if c.Requests != 4 || c.Bodies != int64(len(object()))+5+1 || c.Faults["honest"] != 4 || c.Methods["PUT"] != 1 {
		t.Errorf("counted %+v", c)
	}
}

// TestEachFaultIsSeen checks each fault on a range of the object as a client sees it.
func TestEachFaultIsSeen(t *testing.T) {
	want := object()[1000:201000]
	const ranges = "bytes=1000-200999"
	for _, fault := range All() {
		t.Run(fault.String(), func(t *testing.T) {
			p := proxy(t, Options{Plan: Always(fault), Delay: time.Millisecond,
				Content: func(path string) ([]byte, bool) { return object(), path == "/bucket/key" }})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if fault == HangHeader || fault == HangBody {
				ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
			}
			r := getIn(ctx, t, p, http.MethodGet, ranges)
			seen := false
			switch fault {
			case Delay:
				seen = r.err == nil && bytes.Equal(r.body, want)
			case HangHeader:
				seen = errors.Is(r.err, context.DeadlineExceeded) && r.status == 0
			case HangBody:
				seen = errors.Is(r.err, context.DeadlineExceeded)
			case Cut:
				seen = r.status == 206 && errors.Is(r.err, io.ErrUnexpectedEOF) && len(r.body) == len(want)/2
			case Reset:
				seen = r.err != nil && len(r.body) <= len(want)/2
			case Refuse:
				seen = r.status == 0 && (errors.Is(r.err, syscall.ECONNRESET) || errors.Is(r.err, io.EOF))
			case Whole:
				seen = r.status == 200 && r.err == nil && bytes.Equal(r.body, object()) && r.header.Get("Content-Range") == ""
			case WrongRange:
				seen = r.status == 206 && bytes.Equal(r.body, want) && r.header.Get("Content-Range") == "bytes 1001-201000/300001"
			case WrongLength:
				seen = r.status == 206 && r.err == nil && bytes.Equal(r.body, want[:len(want)-1])
			case Short:
				seen = r.status == 206 && r.err == nil && bytes.Equal(r.body, want[:len(want)/2])
			case Flip:
				seen = r.err == nil && len(r.body) == len(want) && !bytes.Equal(r.body, want) && r.header.Get("ETag") == tag
			case WrongETag:
				seen = r.err == nil && bytes.Equal(r.body, want) && r.header.Get("ETag") != tag
			case NotModified:
				seen = r.status == 304 && len(r.body) == 0
			case Unavailable:
				seen = r.status == 503 && bytes.Contains(r.body, []byte("SlowDown"))
			}
			if !seen {
				t.Errorf("status %d, %d bytes, %v, %v", r.status, len(r.body), r.header, r.err)
			}
			p.Close()
			if c := p.Counts(); fault != HangBody && c.Faults[fault.String()] != 1 && fault != HangHeader {
				t.Errorf("counted %+v", c)
			}
		})
	}
}

func TestRandomPlansRepeat(t *testing.T) {
	draw := func(seed uint64) (out []Fault) {
		plan := Random(seed, 0.5, All()...)
		for range 200 {
			out = append(out, plan(httptest.NewRequest(http.MethodGet, "/b/k", nil)))
		}
		return out
	}
	one, same, other := draw(1), draw(1), draw(2)
	equal, seen := true, map[Fault]bool{}
	for i := range one {
		if one[i] != same[i] {
			t.Fatalf("draw %d: %v and %v from one seed", i, one[i], same[i])
		}
		equal = equal && one[i] == other[i]
		seen[one[i]] = true
	}
	if equal || len(seen) != int(faults) {
		t.Errorf("two seeds draw the same: %v; %d kinds: %v", equal, len(seen), seen)
	}
	plan := Random(1, 1, Cut)
	for _, r := range []*http.Request{httptest.NewRequest(http.MethodPut, "/b/k", nil),
		httptest.NewRequest(http.MethodGet, "/b?list-type=2", nil), httptest.NewRequest(http.MethodGet, "/", nil)} {
		if f := plan(r); f != Honest {
			t.Errorf("%s %s: %v", r.Method, r.URL, f)
		}
	}
}

func TestScriptsEndHonest(t *testing.T) {
	p := proxy(t, Options{Plan: Script(Unavailable, WrongETag)})
	var got []int
	for range 3 {
		got = append(got, get(t, p, http.MethodHead, "").status)
	}
	if got[0] != 503 || got[1] != 200 || got[2] != 200 {
		t.Errorf("statuses %v", got)
	}
	if c := p.Counts().Faults; !maps.Equal(c, map[string]int64{"unavailable": 1, "wrong-etag": 1, "honest": 1}) {
		t.Errorf("counted %v", c)
	}
}

// TestPassedSeesEachPiece: a test can replace an object at a chosen byte of a reply.
func TestPassedSeesEachPiece(t *testing.T) {
	var calls atomic.Int64
	whole := make(chan struct{})
	p := proxy(t, Options{Passed: func(_ *http.Request, sent int64) {
		calls.Add(1)
		if sent == int64(len(object())) {
			close(whole)
		}
	}})
	if r := get(t, p, http.MethodGet, ""); r.err != nil {
		t.Fatal(r.err)
	}
	<-whole // the client may have the last piece before the proxy tells of it
	if calls.Load() < 3 {
		t.Errorf("the object came in %d calls", calls.Load())
	}
}
