// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// inChunks puts an object as one signed chunk. change changes the body that is right.
func (w *world) inChunks(path, payload, data string, change func(string) string, headers ...string) *reply {
	w.t.Helper()
	headers = append(headers, "X-Amz-Decoded-Content-Length", fmt.Sprint(len(data)))
	h := crc32.NewIEEE()
	_, _ = io.WriteString(h, data) // never fails
	sum := base64.StdEncoding.EncodeToString(h.Sum(nil))
	if payload == signedTrailer {
		headers = append(headers, "X-Amz-Trailer", "x-amz-checksum-crc32")
	}
	signed := w.request("PUT", path, nil, headers...)
	sign(w.t, signed, rootKey, rootSecret, payload)
	_, previous, _ := strings.Cut(signed.Header.Get("Authorization"), "Signature=")
	date := signed.Header.Get("X-Amz-Date")
	scope := date[:8] + "/" + testRegion + "/s3/aws4_request"
	key := []byte("AWS4" + rootSecret)
	mac := func(text string) string {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(text))
		return string(m.Sum(nil))
	}
	for _, part := range []string{date[:8], testRegion, "s3", "aws4_request"} {
		key = []byte(mac(part))
	}
	hash := func(text string) string { s := sha256.Sum256([]byte(text)); return hex.EncodeToString(s[:]) }
	var body strings.Builder
	for _, chunk := range []string{data, ""} {
		previous = hex.EncodeToString([]byte(mac("AWS4-HMAC-SHA256-PAYLOAD\n" + date + "\n" + scope + "\n" + previous + "\n" +
			hash("") + "\n" + hash(chunk))))
		fmt.Fprintf(&body, "%x;chunk-signature=%s\r\n%s", len(chunk), previous, chunk)
		if chunk != "" {
			body.WriteString("\r\n")
		}
	}
	if payload == signedTrailer {
		line := "x-amz-checksum-crc32:" + sum
		signature := hex.EncodeToString([]byte(mac("AWS4-HMAC-SHA256-TRAILER\n" + date + "\n" + scope + "\n" + previous +
			"\n" + hash(line+"\n"))))
		body.WriteString(line + "\r\nx-amz-trailer-signature:" + signature + "\r\n")
	}
	body.WriteString("\r\n")
	sent := w.request("PUT", path, []byte(change(body.String())))
	sent.Header = signed.Header
	return w.sent(sent)
}

// TestSignedChunksAreProvenToTheLast changes signed chunks on their way. None may be stored: not without the last
// chunk, which proves the one before, and not without the trailer that was announced.
func TestSignedChunksAreProvenToTheLast(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	const data = "pay 10 to alice"
	same := func(s string) string { return s }
	evil := func(s string) string { return strings.Replace(s, "alice", "mallo", 1) }
	upTo := func(s, mark string) string { return s[:strings.LastIndex(s, mark)] }
	for _, payload := range []string{signedChunks, signedTrailer} {
		if r := w.inChunks("/bucket/good", payload, data, same); r.StatusCode != 200 {
			t.Fatalf("%s: %d %s", payload, r.StatusCode, r.body)
		}
		for name, change := range map[string]func(string) string{
			"other content":                         evil,
			"other content, without the last chunk": func(s string) string { return upTo(evil(s), "\r\n0;") },
			"without the last chunk":                func(s string) string { return upTo(s, "\r\n0;") },
			"other content, up to the last chunk":   func(s string) string { return upTo(evil(s), "0;") },
			"up to the last chunk's signature":      func(s string) string { return upTo(s, "chunk-signature=") },
			"without the end":                       func(s string) string { return s[:len(s)-2] },
			"without what follows the last chunk": func(s string) string {
				at := strings.Index(s,
					"\r\n0;")
				return s[:at+2+18+64+2] + "\r\n"
			},
			"something behind the end": func(s string) string { return s + "x" },
			"a negative size":          func(s string) string { return "-" + s },
			"a negative size of the last chunk": func(s string) string {
				return strings.Replace(s, "\r\n0;", "\r\n-5;",
					1)
			},
			"a size with a plus":                         func(s string) string { return "+" + s },
			"a size that never ends":                     func(s string) string { return strings.Repeat("0", 1<<16) + s },
			"a newline in the signature":                 func(s string) string { return s[:30] + "\r\n" + s[32:] },
			"a signature that is too short":              func(s string) string { return s[:30] + s[31:] },
			"nothing":                                    func(string) string { return "" },
			"a second body":                              func(s string) string { return s + s },
			"other content and nothing behind it at all": func(s string) string { return upTo(evil(s), "\r\n0;") + "\r\n" },
		} {
			if payload == signedChunks && name == "without what follows the last chunk" {
				continue // nothing follows
			}
			r := w.inChunks("/bucket/evil", payload, data, change)
			if r.StatusCode != 400 && r.StatusCode != 403 {
				t.Errorf("%s, %s: %d %s", payload, name, r.StatusCode, r.body)
			}
			if got := w.do("GET", "/bucket/evil", nil); got.StatusCode != 404 {
				t.Errorf("%s, %s: stored %q", payload, name, got.body)
				w.must(204, "DELETE", "/bucket/evil", nil)
			}
		}
	}
	if log := w.log.String(); strings.Contains(log, "panic") {
		t.Errorf("a panic: %s", log)
	}
}

// TestChunksThatNobodyTakesApartAreRefused: their frame would be stored with the content.
func TestChunksThatNobodyTakesApartAreRefused(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	for _, payload := range []string{"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD",
		"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER", "STREAMING-"} {
		for _, path := range []string{"/bucket/key", "/bucket/key?tagging"} {
			req := w.request("PUT", path, []byte("5\r\nhello\r\n0\r\n\r\n"))
			sign(t, req, rootKey, rootSecret, payload)
			if r := w.sent(req); r.StatusCode != 501 || r.code() != "NotImplemented" {
				t.Errorf("%s %s: %d %s", payload, path, r.StatusCode, r.body)
			}
		}
	}
	req := w.request("PUT", "/bucket/key?X-Amz-Signature=x", []byte("5\r\nhello\r\n0\r\n\r\n"), "X-Amz-Content-Sha256",
		unsignedChunks)
	if r := w.sent(req); r.StatusCode != 501 {
		t.Errorf("with a presigned URL: %d %s", r.StatusCode, r.body)
	}
}

// TestTrailersThatNameNoChecksum were answered with 500.
func TestTrailersThatNameNoChecksum(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	for _, path := range []string{"/other", "/bucket/key", "/bucket/key?tagging", "/bucket?versioning"} {
		for _, trailer := range []string{"x", "x-amz-checksum-foo", "x-amz-checksum-crc32,x-amz-checksum-sha1",
			"content-md5"} {
			if r := w.do("PUT", path, nil, "X-Amz-Trailer", trailer); r.StatusCode != 400 || r.code() != "InvalidRequest" {
				t.Errorf("PUT %s, %s: %d %s", path, trailer, r.StatusCode, r.body)
			}
		}
	}
}

// TestTrailersAreBounded sends a trailer that never ends. It is refused before it fills memory.
func TestTrailersAreBounded(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	endless := io.MultiReader(strings.NewReader("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:"), zeros{})
	n, err := io.Copy(io.Discard, &framedBody{r: endless})
	runtime.ReadMemStats(&after)
	if err == nil || n > 1<<20 || after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("%d bytes (%v), %d allocated", n, err, after.TotalAlloc-before.TotalAlloc)
	}
}

// TestFramedBody reads good frames in every way.
func TestFramedBody(t *testing.T) {
	sig := ";chunk-signature=" + strings.Repeat("a", 64)
	trailer := "x-amz-checksum-crc32:AAAA\r\nx-amz-trailer-signature:" + strings.Repeat("b", 64) + "\r\n"
	for text, b := range map[string]framedBody{
		"5\r\nhello\r\n0\r\n\r\n":                       {},
		"5\r\nhello\r\n3\r\n\r\n\n\r\n0\r\nx:y\r\n\r\n": {},
		"0\r\n\r\n": {},
		"5" + sig + "\r\nhello\r\n0" + sig + "\r\n\r\n":                {signed: true},
		"5" + sig + "\r\nhello\r\n0" + sig + "\r\n" + trailer + "\r\n": {signed: true, trailer: true},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r },
			"by bytes": iotest.OneByteReader, "with its end": iotest.DataErrReader} {
			b := b
			b.r = wrap(strings.NewReader(text))
			if got, err := io.ReadAll(&b); err != nil || string(got) != text {
				t.Errorf("%s, %q: %q (%v)", how, text, got, err)
			}
			for cut := range len(text) {
				b := framedBody{r: wrap(strings.NewReader(text[:cut])), signed: b.signed, trailer: b.trailer}
				if _, err := io.ReadAll(&b); err == nil {
					t.Errorf("%s, %q: no error", how, text[:cut])
				}
			}
		}
	}
}

// panicking is content whose reader panics.
type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("on purpose") }

// TestContentWhoseReaderPanics fails like any other: the store drops what it was writing.
func TestContentWhoseReaderPanics(t *testing.T) {
	b, err := newBody(panicking{}, sums{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(b); err == nil {
		t.Fatal("no error")
	}
	if err := b.failure(io.ErrUnexpectedEOF); !strings.Contains(err.Error(), "on purpose") ||
		!strings.Contains(err.Error(), "goroutine") {
		t.Errorf("the reason is lost: %v", err)
	}
}

func FuzzFramedBody(f *testing.F) {
	f.Add("5\r\nhello\r\n0\r\n\r\n", false, false)
	f.Add("-5;chunk-signature=\r\n", true, true)
	f.Fuzz(func(t *testing.T, text string, signed, trailer bool) {
		b := framedBody{r: strings.NewReader(text), signed: signed, trailer: trailer}
		if got, err := io.ReadAll(&b); err == nil && string(got) != text {
			t.Errorf("%q became %q", text, got)
		}
	})
}
