// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// raw sends bytes on a connection of its own, and returns every reply until the server closes it or has nothing more to
// say.
func raw(t *testing.T, w *world, text string) []*reply {
	t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, text)    // the server may have closed it in the middle
	_ = c.(*net.TCPConn).CloseWrite() // so that it need not wait for more
	var all []*reply
	for r := bufio.NewReader(c); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return all
		}
		body, _ := io.ReadAll(resp.Body)
		all = append(all, &reply{resp, body})
	}
}

// smuggled is a request that a body hides. Whoever answers it took a body for a request.
const smuggled = "PUT /public/smuggled HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"

// TestRequestsWithTwoReadingsAreRefused sends headers and bodies that a proxy may read in another way.
// Each gets one reply, 400, and the connection ends: nothing behind it is ever taken for a request.
func TestRequestsWithTwoReadingsAreRefused(t *testing.T) {
	w := start(t, nil, nil)
	public(w)
	const put = "PUT /public/key HTTP/1.1\r\nHost: a\r\n"
	for name, text := range map[string]string{
		"length and chunks": put + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunks and length": put + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
		"chunks in HTTP/1.0": "PUT /public/key HTTP/1.0\r\nHost: a\r\nConnection: " +
			"keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunks twice":              put + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunks in a list":          put + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
		"identity":                  put + "Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx",
		"gzip and chunks":           put + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"two lengths":               put + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nx",
		"one length twice":          put + "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
		"lengths in a list":         put + "Content-Length: 1, 1\r\n\r\nx",
		"a length with a sign":      put + "Content-Length: +1\r\n\r\nx",
		"a negative length":         put + "Content-Length: -1\r\n\r\nx",
		"a hexadecimal length":      put + "Content-Length: 0x1\r\n\r\nx",
		"a length beyond 64 bits":   put + "Content-Length: 99999999999999999999\r\n\r\nx",
		"a bare newline":            "PUT /public/key HTTP/1.1\r\nHost: a\nContent-Length: 1\r\n\r\nx",
		"a bare newline at the end": "PUT /public/key HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\nx",
		"a bare return": "PUT /public/key HTTP/1.1\r\nHost: a\r\nX-A: b\rContent-Length: " +
			"9\r\nContent-Length: 1\r\n\r\nx",
		"a folded line": "PUT /public/key HTTP/1.1\r\nHost: a\r\nX-A: b\r\n Content-Length: " +
			"9\r\nContent-Length: 1\r\n\r\nx",
		"a folded line of a tab":       "PUT /public/key HTTP/1.1\r\nHost: a\r\nX-A: b\r\n\tc\r\nContent-Length: 1\r\n\r\nx",
		"a space before the colon":     put + "Content-Length : 1\r\n\r\nx",
		"a tab before the colon":       put + "Content-Length\t: 1\r\n\r\nx",
		"a space in a name":            put + "Content Length: 9\r\nContent-Length: 1\r\n\r\nx",
		"a line without a colon":       put + "Content-Length\r\nContent-Length: 1\r\n\r\nx",
		"a name of nothing":            put + ": 1\r\nContent-Length: 1\r\n\r\nx",
		"a zero byte in a value":       put + "X-A: a\x00b\r\nContent-Length: 1\r\n\r\nx",
		"a zero byte in a name":        put + "X\x00A: b\r\nContent-Length: 1\r\n\r\nx",
		"two hosts":                    "PUT /public/key HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 1\r\n\r\nx",
		"no host":                      "PUT /public/key HTTP/1.1\r\nContent-Length: 1\r\n\r\nx",
		"two hosts, one in the target": "PUT http://b/public/key HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
		"a user in the target":         "PUT http://x@a/public/key HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
		"another scheme":               "PUT ftp://a/public/key HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
		"a fragment":                   "PUT /public/key#x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
		"another protocol":             "PUT /public/key HTTP/2.0\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
		"a control byte in the target": "PUT /public/ke\x01y HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
	} {
		t.Run(name, func(t *testing.T) {
			all := raw(t, w, text+smuggled)
			if len(all) != 1 || all[0].StatusCode != 400 {
				t.Fatalf("%d replies, expected one of 400: %s", len(all), statuses(all))
			}
			notSmuggled(t, w)
		})
	}
}

// notSmuggled fails where the hidden request was served.
func notSmuggled(t *testing.T, w *world) {
	t.Helper()
	done, err := w.store.Delete(t.Context(), object.Deletion{Ref: object.Ref{Bucket: "public", Key: "smuggled"}})
	if err != nil {
		t.Fatal(err)
	}
	if done.Existed {
		t.Error("what stood behind it was served")
	}
}

func statuses(all []*reply) string {
	var b strings.Builder
	for _, r := range all {
		fmt.Fprintf(&b, "%d %s\n", r.StatusCode, r.body)
	}
	return b.String()
}

// TestNothingBehindABrokenChunkIsARequest breaks the framing of bodies that are being read. The reply may be
// any refusal; what matters is that it is the last one.
func TestNothingBehindABrokenChunkIsARequest(t *testing.T) {
	w := start(t, nil, nil)
	public(w)
	const put = "PUT /public/key HTTP/1.1\r\nHost: a\r\nX-Amz-Content-Sha256: " +
		"UNSIGNED-PAYLOAD\r\nX-Amz-Decoded-Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, body := range map[string]string{
		"a bare newline behind the size":  "5\nhello\r\n0\r\n\r\n",
		"a bare newline behind the chunk": "5\r\nhello\n0\r\n\r\n",
		"a bare newline in an extension":  "5;a\nb\r\nhello\r\n0\r\n\r\n",
		"a size that is none":             "x\r\nhello\r\n0\r\n\r\n",
		"a size with a sign":              "+5\r\nhello\r\n0\r\n\r\n",
		"a size with 0x":                  "0x5\r\nhello\r\n0\r\n\r\n",
		"a size beyond 64 bits":           "ffffffffffffffff5\r\nhello\r\n0\r\n\r\n",
		"a huge size":                     "7fffffffffffff\r\nhello\r\n0\r\n\r\n",
		"a chunk longer than its size":    "3\r\nhello\r\n0\r\n\r\n",
		"an endless extension":            "5;" + strings.Repeat("x", 1<<20) + "\r\nhello\r\n0\r\n\r\n",
		"endless trailers":                "5\r\nhello\r\n0\r\n" + strings.Repeat("X-A: b\r\n", 1<<16) + "\r\n",
		"a forbidden trailer":             "5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			all := raw(t, w, put+body+smuggled)
			if len(all) > 1 {
				t.Errorf("%d replies, expected one: %s", len(all), statuses(all))
			}
			if len(all) == 1 && !all[0].Close {
				t.Error("the connection was to stay open")
			}
			notSmuggled(t, w)
		})
	}
	t.Run("whole", func(t *testing.T) {
		all := raw(t, w, put+"5;name=value\r\nhello\r\n0\r\n\r\n"+smuggled)
		if len(all) != 1 || all[0].StatusCode != 200 {
			t.Errorf("%s", statuses(all))
		}
	})
}

// TestRequestsInOnePacketAreAllAnswered sends several good requests at once, as clients may.
func TestRequestsInOnePacketAreAllAnswered(t *testing.T) {
	w := start(t, nil, nil)
	public(w)
	all := raw(t, w, strings.Repeat("PUT /public/key HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 3)+
		"GET /public/key HTTP/1.1\r\nHost: a\r\n\r\n"+"HEAD /public/key HTTP/1.1\r\nHost: a\r\n\r\n")
	if len(all) < 4 || all[2].StatusCode != 200 || string(all[3].body) != "hello" {
		t.Errorf("%s", statuses(all))
	}
}

// TestHeadersAreBounded sends more header than a request may have, and one that never ends.
func TestHeadersAreBounded(t *testing.T) {
	w := start(t, nil, func(o *Options) { o.Limits.Header = 300 * time.Millisecond })
	many := "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("A: b\r\n", 100_000) + "\r\n"
	if all := raw(t, w, many); len(all) > 1 || len(all) == 1 && all[0].StatusCode/100 != 4 {
		t.Errorf("100,000 headers: %s", statuses(all))
	}
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// One byte at a time, each well within the time for a header, which is for all of it.
	begin := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 1200 {
		<-tick.C
		if _, err := c.Write([]byte("A")); err != nil {
			break
		}
	}
	if took := time.Since(begin); took > 40*time.Second { // the machine may be busy
		t.Errorf("a header that never ends was read for %v", took)
	}
}

// TestDocumentsHaveToComeIn trickles a document: each byte in time, the whole too late.
func TestDocumentsHaveToComeIn(t *testing.T) {
	w := start(t, nil, func(o *Options) { o.Limits.Header = 300 * time.Millisecond })
	publicInStore(w)
	req := w.request("PUT", "/public?tagging", nil)
	reader, writer := io.Pipe()
	req.Body, req.ContentLength = reader, 1200
	sign(t, req, rootKey, rootSecret, "UNSIGNED-PAYLOAD")
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for range 1200 {
			<-tick.C
			if _, err := writer.Write([]byte("x")); err != nil {
				return
			}
		}
	}()
	begin := time.Now()
	resp, err := w.http.Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	_ = reader.Close()
	if took := time.Since(begin); took > 40*time.Second { // the machine may be busy
		t.Errorf("a document that trickles was read for %v: %v", took, err)
	}
}

// TestRepliesHaveOneIdentifier: clients join two of them to one that is in no log.
func TestRepliesHaveOneIdentifier(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	<-w.events
	for path, status := range map[string]int{"/bucket/none": 404, "/bucket?list-type=2": 200, "/bucket/a?torrent": 501} {
		r := w.must(status, "GET", path, nil)
		ids, hosts := r.Header.Values("x-amz-request-id"), r.Header.Values("x-amz-id-2")
		if e := <-w.events; len(ids) != 1 || len(hosts) != 1 || e.RequestID != ids[0] {
			t.Errorf("%s: %q, %q; the event has %q", path, ids, hosts, e.RequestID)
		}
	}
}

// TestAHalfClosedBodyIsToldWhy: a client that closed its own side alone still reads the reply.
func TestAHalfClosedBodyIsToldWhy(t *testing.T) {
	w := start(t, nil, nil)
	public(w)
	for _, length := range []int{10, 100_000} {
		all := raw(t, w, fmt.Sprintf("PUT /public/key HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\nabc", length))
		if len(all) != 1 || all[0].StatusCode != 400 || all[0].code() != "IncompleteBody" {
			t.Errorf("%d: %s", length, statuses(all))
		}
	}
}

// TestABodyHasTheTimeOfABody: a small body that comes after the time for a header is taken. A busy machine may need
// longer than the time of a header for the header itself, so that longer times are tried too.
func TestABodyHasTheTimeOfABody(t *testing.T) {
	var early string
	for _, header := range []time.Duration{200 * time.Millisecond, 2 * time.Second, 10 * time.Second} {
		if early = lateBody(t, header); early == "" {
			return
		}
	}
	t.Error(early)
}

// lateBody gives a server the limit `header` for headers, and sends a body only after three times this limit. If the
// server answers or ends the connection before the body, lateBody returns what came; otherwise "".
func lateBody(t *testing.T, header time.Duration) (early string) {
	t.Helper()
	w := start(t, nil, func(o *Options) { o.Limits.Header, o.Limits.Stall = header, time.Minute })
	publicInStore(w)
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "PUT /public/key HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	// The server would speak first if the header's time held for the body.
	if err := c.SetReadDeadline(time.Now().Add(3 * header)); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 64)
	if n, err := c.Read(first); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Sprintf("%q (%v) before the body was sent, with %v for a header", first[:n], err, header)
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if e := <-w.events; e.Status != 200 {
		t.Errorf("%+v", e)
	}
	if _, err := w.store.Stat(t.Context(), object.Ref{Bucket: "public", Key: "key"}); err != nil {
		t.Error(err)
	}
	return ""
}

// TestWholeURLsAsTargets are served where they name the host of the header.
func TestWholeURLsAsTargets(t *testing.T) {
	w := start(t, nil, nil)
	public(w)
	w.must(200, "PUT", "/public/key", []byte("x"))
	for _, target := range []string{"http://a/public/key", "HTTP://A/public/key", "/public/key?x=http://b/"} {
		if all := raw(t, w, "GET "+target+" HTTP/1.1\r\nHost: a\r\n\r\n"); len(all) != 1 || all[0].StatusCode != 200 {
			t.Errorf("%s: %s", target, statuses(all))
		}
	}
}

func FuzzHeaderLines(f *testing.F) {
	for _, s := range []string{"A: b\r\n\r\n", "A: b\n\r\n", "A : b\r\n\r\n", " A: b\r\n\r\n",
		"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "\r\n", ":\r\n"} {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, lines []byte, http11 bool) {
		if misframedLines(lines, http11) != "" {
			return
		}
		head, _, _ := bytes.Cut(lines, []byte("\r\n\r\n"))
		lower := strings.ToLower("\r\n" + string(head) + "\r\n")
		if strings.Count(lower, "\n") != strings.Count(lower, "\r\n") && !bytes.HasPrefix(lines, []byte("\r\n")) {
			t.Fatalf("a bare newline passed: %q", lines)
		}
		if !bytes.HasPrefix(lines, []byte("\r\n")) && strings.Contains(lower, "\r\ncontent-length:") &&
			strings.Contains(lower, "\r\ntransfer-encoding:") {
			t.Fatalf("two lengths passed: %q", lines)
		}
	})
}
