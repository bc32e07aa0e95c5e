// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/test/effort"
)

// choices are the parts from which chosen builds requests.
var choices = struct {
	targets, users, hashes, expires, stamps, bodies, signed []string
	headers, more                                           [][]string
}{
	targets: []string{"/plain/small", "/plain/empty", "/plain/described", "/plain/tagged", "/plain/checked", "/plain/sse",
		"/plain/ssec", "/plain/aging", "/plain/untyped", "/plain/broken", "/versioned/kept", "/versioned/gone",
		"/locked/held", "/sealed/a", "/writers/a", "/bobs/a", "/bobssome/a", "/bobshere/a", "/all/a", "/all/b", "/none/a",
		"/secure/a", "/agents/a", "/types/a", "/tags/a", "/getonly/a",
		"/getonly/b", "/public/a", "/plain/nothing", "/nowhere/a",
		"/plain/a..b", "/plain/.a", "/plain/a.", "/plain/a/b/c", "/plain/%73mall", "/plain//small", "/plain/small/", "/plain",
		"/plain/small?x-id=GetObject", "/plain/small?x-id=PutObject", "/plain/small?versionId=null",
		"/plain/small?partNumber=1", "/plain/small?acl", "/plain/small?a=b", "/plain/small?a", "/plain/small?uploads",
		"/plain/small?response-content-type=a", "/plain/small?X-Amz-Meta-A=1", "/plain/small?list-type=2"},
	users: []string{rootKey, "bob", "eve", "ann", "ben", "carl", "dora", "annskey", "annslimited", "annsold", "rootskey",
		"nobody"},
	hashes: []string{"", unsignedPayload, emptySHA256, strings.ToUpper(emptySHA256),
		"STREAMING-UNSIGNED-PAYLOAD-TRAILER"},
	expires: []string{"", "60", "0", "604800", "604801", "-1", "060", "none"},
	stamps:  []string{"20060102T150405Z", "20060102T150405Z", "20060102T150405.5Z", "20060102T150405", "20060102"},
	bodies:  []string{"", "", "", "hello"},
	signed: []string{"", "", "", "", "host", "host;x-amz-content-sha256;x-amz-date",
		"host;range;x-amz-content-sha256;x-amz-date"},
	headers: [][]string{nil, {"Range", "bytes=0-2"}, {"Range", "bytes=-2"}, {"Range", "bytes=9-1"},
		{"Range", "bytes=0-0,2-2"}, {"Range", ""}, {"If-Match", "*"}, {"If-Match", `"a"`}, {"If-Match", ""},
		{"If-None-Match", "*"}, {"If-None-Match", `"a"`}, {"If-None-Match", "W/*"},
		{"If-Modified-Since", "Tue, 01 Jan 2030 00:00:00 GMT"}, {"X-Amz-Checksum-Mode", "ENABLED"},
		{"X-Amz-Checksum-Mode", "enabled"}, {"x-amz-user-agent", "a  b"}, {"User-Agent", "evil"}, {"Content-Type", "a/b"},
		{"Accept-Encoding", "gzip"}, {"Origin", "http://a"}, {"Expect", "100-continue"}, {"X-Amz-Expected-Bucket-Owner", "x"},
		{"X-Amz-Checksum-Crc32", "NhCmhg=="}, {"X-Amz-Sdk-Checksum-Algorithm", "CRC32"}, {"Content-Md5", "x"},
		{"X-Amz-Meta-A", "1"}, {"X-Amz-Security-Token", "x"}, {"X-Amz-Storage-Class", "STANDARD"}, {"Amz-Sdk-Request", "1"},
		{"Range", "bytes=+1-2"}, {"Range", "bytes=-0"}},
	more: [][]string{nil, nil, nil, nil, {"X-Amz-Acl", "private"}, {"Connection", "close"}, {"Connection", "keep-alive"},
		{"X-Amz-Checksum-Mode", "ENABLED"}, {"Range", "bytes=1-1"}, {"Cookie", "a"}, {"Date", "x"}, {"Authorization", "x"},
		{"Transfer-Encoding", "identity"}, {"Content-Length", "0"}, {"Content-Length", "1"}, {"Host", "b"}, {"accept", ""}},
}

// versions finds the versions that a server makes.
var versions = regexp.MustCompile(`\b[0-9A-Z]{26}\b`)

// chosen returns the request that bytes choose. Missing bytes choose the first of each kind.
func chosen(data []byte) rawRequest {
	next := func(n int) int {
		if len(data) == 0 {
			return 0
		}
		at := int(data[0]) % n
		data = data[1:]
		return at
	}
	of := func(list []string) string { return list[next(len(list))] }
	r := rawRequest{method: of([]string{"GET", "GET", "HEAD", "PUT"}), target: of(choices.targets)}
	for range next(4) {
		r.header = append(r.header, choices.headers[next(len(choices.headers))]...)
	}
	if r.user = of(choices.users); strings.HasPrefix(r.user, "anns") || r.user == "rootskey" {
		r.secret = r.user + "-secret"
	}
	r.query, r.hash, r.body = of(choices.expires), of(choices.hashes), of(choices.bodies)
	r.more, r.signed = choices.more[next(len(choices.more))], of(choices.signed)
	r.stamp = time.Now().UTC().Add(-time.Duration(next(3)-1) * 14 * time.Minute).Format(of(choices.stamps))
	if r.method == "PUT" {
		r.target = strings.Replace(r.target, "/plain/", "/plain/new-", 1)
	}
	// The rest of the bytes changes the signed text.
	rest := data
	r.spoil = func(text string) string {
		for ; len(rest) > 3; rest = rest[4:] {
			at := (int(rest[0])<<8 | int(rest[1])) % len(text)
			if rest[2]%2 == 0 {
				text = text[:at] + text[min(at+1, len(text)):]
			} else {
				text = text[:at] + string(rune(rest[3]&0x7f)) + text[at:]
			}
		}
		return text
	}
	return r
}

// compareChosen compares the two ways of a request that bytes choose.
func compareChosen(t *testing.T, w *world, a *auditor, data []byte) (fast bool) {
	t.Helper()
	r := chosen(data)
	text := r.text(w.addr)
	if r.method == "PUT" {
		w.exchange(slowly(text)) // both requests below then find the same object
	}
	ours, theirs, fast := w.differs(a, text)
	ours, theirs = versions.ReplaceAllString(ours, "V"), versions.ReplaceAllString(theirs, "V")
	if ours != theirs {
		t.Errorf("%x: for\n%.1500s\nthe fast path (%v) replies\n%.3000s\nand versitygw\n%.3000s", data, text, fast, ours,
			theirs)
	}
	return fast
}

// Requests of any parts have the same reply on the fast path as through versitygw.
func TestFastRepliesToAnything(t *testing.T) {
	w, a := oddly(t)
	r := rand.New(rand.NewPCG(5, 6))
	taken, n := 0, effort.Rounds{Test: 400, CI: 1500}.Of(t)
	for range n {
		data := make([]byte, 12+r.IntN(8))
		for i := range data {
			if i < 3 || r.IntN(3) == 0 { // else the usual choice, so that many requests are correct
				data[i] = byte(r.IntN(256))
			}
		}
		if compareChosen(t, w, a, data) {
			taken++
		}
		if t.Failed() {
			return
		}
	}
	if taken < n/20 {
		t.Errorf("the fast path took %d of %d requests, which compares too little", taken, n)
	}
}

// FuzzFastReplies compares the two ways of requests that the fuzzer builds from parts and then changes.
func FuzzFastReplies(f *testing.F) {
	w, a := oddly(f)
	for i := range choices.targets {
		f.Add([]byte{0, byte(i)})
		f.Add([]byte{0, byte(i), 0, 1, 1})
		f.Add([]byte{2, byte(i), 0, 1, 1})
		f.Add([]byte{3, byte(i), 1, 22})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		here := *w
		here.t = t
		compareChosen(t, &here, a, data[:min(len(data), 64)])
	})
}
