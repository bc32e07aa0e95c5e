// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"strings"
	"testing"
	"time"
)

// A PUT on the fast path has the same reply, makes the same object and leaves the connection as one through versitygw.
func TestFastWritesAreVersitygws(t *testing.T) {
	w, a := oddly(t)
	w.must(204, "PUT", "/writers?policy", []byte(`{"Statement":[{"Effect":"Allow","Principal":{"AWS":["bob"]},`+
		`"Action":"s3:*","Resource":["arn:aws:s3:::writers","arn:aws:s3:::writers/*"]}]}`))
	put := func(target, body string, header ...string) rawRequest {
		return rawRequest{method: "PUT", target: target, body: body, header: header}
	}
	as := func(user string, r rawRequest) rawRequest {
		if r.user = user; strings.HasPrefix(user, "anns") || user == "rootskey" {
			r.secret = user + "-secret"
		}
		return r
	}
	with := func(r rawRequest, change func(*rawRequest)) rawRequest {
		change(&r)
		return r
	}
	for _, c := range []struct {
		want, name string
		rawRequest
	}{
		{"200 fast", "plain", put("/plain/new", "hello")},
		{"200 fast", "empty", put("/plain/new", "")},
		{"200 fast", "presigned", with(put("/plain/new", "hello"), func(r *rawRequest) { r.query = "60" })},
		{"200 fast", "presigned and empty", with(put("/plain/new", ""), func(r *rawRequest) { r.query = "60" })},
		{"200 fast", "a mebibyte", put("/plain/new", strings.Repeat("x", 1<<20))},
		{"200 slow", "more", put("/plain/new", strings.Repeat("x", 1<<20+1))},
		{"200 fast", "typed", put("/plain/new", "hello", "Content-Type", "text/html; charset=utf-8")},
		{"200 fast", "typed twice", put("/plain/new", "hello", "Content-Type", "text/html", "Content-Type", "text/plain")},
		{"200 fast", "empty type", put("/plain/new", "hello", "Content-Type", "")},
		{"100 fast", "expects", put("/plain/new", "hello", "Expect", "100-continue")},
		{"200 fast", "expects too much", put("/plain/new", "hello", "Expect", "cake")},
		{"200 fast", "versioned", put("/versioned/new", "hello")},
		{"200 slow", "locked", put("/locked/new", "hello")},
		{"200 fast", "objects of writers", put("/writers/new", "hello")},
		{"200 fast", "object of a writer", as("bob", put("/writers/new", "hello"))},
		{"200 fast", "by a policy", as("ann", put("/plain/new", "hello"))},
		{"200 fast", "may not list", as("dora", put("/plain/new", "hello"))},
		{"200 fast", "service account", as("annskey", put("/plain/new", "hello"))},
		{"200 fast", "service account of root", as("rootskey", put("/writers/new", "hello"))},
		{"403 slow", "session policy", as("annslimited", put("/plain/new", "hello"))},
		{"403 slow", "expired", as("annsold", put("/plain/new", "hello"))},
		{"403 slow", "may only read", as("bob", put("/getonly/new", "hello"))},
		{"403 slow", "denied", as("bob", put("/none/new", "hello"))},
		{"403 slow", "no TLS", as("bob", put("/secure/new", "hello"))},
		{"403 slow", "another address", as("carl", put("/plain/new", "hello"))},
		{"200 fast", "encrypted by default", put("/sealed/new", "hello")},
		{"200 fast", "lifecycle", put("/plain/aging", "hello")},
		{"404 slow", "no bucket", put("/nowhere/new", "hello")},
		{"400 fast", "long key", put("/plain/"+strings.Repeat("k", 1025), "hello")},
		{"403 slow", "fraction of a second", with(put("/plain/new", "hello"), func(r *rawRequest) {
			r.stamp = time.Now().UTC().Format("20060102T150405.5Z")
		})},
		{"200 fast", "signed length", with(put("/plain/new", "hello"), func(r *rawRequest) {
			r.signed = "content-length;host;x-amz-content-sha256;x-amz-date"
		})},
		{"200 fast", "length with a zero", with(put("/plain/new", "hello"), func(r *rawRequest) { r.length = "005" })},
		{"411", "no length", with(put("/plain/new", ""), func(r *rawRequest) { r.length = "-" })},
		{"400 fast", "wrong hash", with(put("/plain/new", "hello"), func(r *rawRequest) { r.hash = emptySHA256 })},
		{"200 fast", "unsigned payload", with(put("/plain/new", "hello"), func(r *rawRequest) { r.hash = unsignedPayload })},
		{"400 slow", "empty hash", with(put("/plain/new", "hello"), func(r *rawRequest) { r.hash = " " })},
		{"200 fast", "checksum", put("/plain/new", "hello", "x-amz-checksum-crc32", "NhCmhg==")},
		{"200 fast", "checksum with its name", put("/plain/new", "hello", "x-amz-checksum-crc32", "NhCmhg==",
			"x-amz-sdk-checksum-algorithm", "CRC32")},
		{"200 fast", "name in small letters", put("/plain/new", "hello", "x-amz-checksum-crc32", "NhCmhg==",
			"x-amz-sdk-checksum-algorithm", "crc32")},
		{"400 slow", "another name", put("/plain/new", "hello", "x-amz-checksum-crc32", "NhCmhg==",
			"x-amz-sdk-checksum-algorithm", "SHA1")},
		{"400 slow", "name alone", put("/plain/new", "hello", "x-amz-sdk-checksum-algorithm", "SHA256")},
		{"400 slow", "unknown name", put("/plain/new", "hello", "x-amz-sdk-checksum-algorithm", "CAKE")},
		{"400 slow", "two checksums", put("/plain/new", "hello", "x-amz-checksum-crc32", "NhCmhg==",
			"x-amz-checksum-sha1", "qvTGHdzF6KLavt4PO0gs2a6pQ00=")},
		{"400 fast", "wrong checksum", put("/plain/new", "hallo", "x-amz-checksum-crc32", "NhCmhg==")},
		{"400 slow", "empty checksum", put("/plain/new", "hello", "x-amz-checksum-crc32", "")},
		{"403 slow", "unsigned checksum", with(put("/plain/new", "hello"), func(r *rawRequest) {
			r.more = []string{"x-amz-checksum-crc32", "NhCmhg=="}
		})},
		{"200 slow", "MD5", put("/plain/new", "hello", "Content-Md5", md5Base64("hello"))},
		{"400 slow", "wrong MD5", put("/plain/new", "hello", "Content-Md5", md5Base64("hallo"))},
		{"200 slow", "metadata", put("/plain/new", "hello", "x-amz-meta-a", "1")},
		{"200 slow", "tags", put("/plain/new", "hello", "x-amz-tagging", "a=1")},
		{"412 slow", "only if absent", put("/plain/small", "hello", "If-None-Match", "*")},
		{"412 slow", "only if other", put("/plain/small", "hello", "If-Match", `"x"`)},
		{"400 slow", "lock", put("/plain/new", "hello", "x-amz-object-lock-legal-hold", "ON")},
		{"403 slow", "wrong owner", put("/plain/new", "hello", "x-amz-expected-bucket-owner", "eve")},
		{"200 slow", "slash at the end", put("/plain/new/", "")},
		{"200 fast", "x-id", put("/plain/new?x-id=PutObject", "hello")},
		{"200 slow", "x-id of GET", put("/plain/new?x-id=GetObject", "hello")},
		{"200 slow", "encrypted", put("/plain/new", "hello", "x-amz-server-side-encryption", "AES256")},
	} {
		path, _, _ := strings.Cut(c.target, "?")
		text := c.text(w.addr)
		send := func(text string) string {
			a.taken()
			out := w.exchange(text) + "\n" + a.taken()
			made := w.do("GET", path, nil, "x-amz-checksum-mode", "ENABLED")
			said := about(made) + string(made.body[:min(len(made.body), 64)])
			if version := made.Header.Get("X-Amz-Version-Id"); version != "" {
				out, said = strings.ReplaceAll(out, version, "V"), strings.ReplaceAll(said, version, "V")
			}
			acl := w.do("GET", path+"?acl", nil)
			return out + "\n" + identifiers.ReplaceAllString(said+string(acl.body), "<$1><")
		}
		ours, theirs, fast := send(text), send(slowly(text)), w.fast(text)
		if ours != theirs {
			t.Errorf("%s: for\n%.1500s\nthe fast path (%v) replies\n%.3000s\nand versitygw\n%.3000s", c.name, text, fast, ours,
				theirs)
		}
		_, rest, _ := strings.Cut(ours, "HTTP/1.1 ")
		got := rest[:min(3, len(rest))] + " slow"
		if fast {
			got = got[:4] + "fast"
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, expected %s", c.name, got, c.want)
		}
	}
}
