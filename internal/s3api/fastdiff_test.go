// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/keyring"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/sealed"
)

// oddly is a world with an auditor, and with accounts and buckets whose rules the fast path has to leave to versitygw.
func oddly(t testing.TB) (*world, *auditor) {
	t.Helper()
	a := newAuditor()
	w := gets(t, func(below *disk.Store) object.Store {
		master, err := keyring.ParseMaster([]byte(strings.Repeat("5a", 32)), "test")
		if err != nil {
			t.Fatal(err)
		}
		ring, err := keyring.Open(t.Context(), below, master)
		if err != nil {
			t.Fatal(err)
		}
		return sealed.New(below, ring)
	}, a.options)
	w.must(200, "PUT", "/logs", nil)
	for _, bucket := range []string{"plain", "versioned"} {
		w.must(200, "PUT", "/"+bucket+"?logging", []byte("<BucketLoggingStatus><LoggingEnabled><TargetBucket>logs"+
			"</TargetBucket><TargetPrefix>p</TargetPrefix></LoggingEnabled></BucketLoggingStatus>"))
	}
	fillOddly(w)
	statement := func(bucket, text string) {
		w.must(200, "PUT", "/"+bucket, nil)
		w.must(200, "PUT", "/"+bucket+"/a", []byte("hello"), "x-amz-tagging", "colour=red")
		w.must(204, "PUT", "/"+bucket+"?policy", []byte(`{"Version":"2012-10-17","Statement":[`+
			strings.ReplaceAll(text, "BUCKET", "arn:aws:s3:::"+bucket)+`]}`))
	}
	const allow = `{"Effect":"Allow","Principal":{"AWS":["bob"]},"Action":"s3:*","Resource":["BUCKET","BUCKET/*"]`
	deny := func(condition string) string {
		return allow + `},{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"BUCKET/*","Condition":` + condition +
			"}"
	}
	statement("all", allow+"}")
	statement("none", allow+`},{"Effect":"Deny","Principal":{"AWS":["bob"]},"Action":"s3:*","Resource":"BUCKET/*"}`)
	statement("secure", deny(`{"Bool":{"aws:SecureTransport":"false"}}`))
	statement("agents", deny(`{"StringLike":{"aws:UserAgent":"evil*"}}`))
	statement("referers", deny(`{"StringLike":{"aws:Referer":"http://evil/*"}}`))
	statement("types", deny(`{"StringEquals":{"s3:authType":"REST-QUERY-STRING"}}`))
	statement("dates", deny(`{"DateLessThan":{"aws:CurrentTime":"2099-01-01T00:00:00Z"}}`))
	statement("tags", deny(`{"StringEquals":{"s3:ExistingObjectTag/colour":"red"}}`))
	statement("getonly", `{"Effect":"Allow","Principal":{"AWS":["bob"]},"Action":"s3:GetObject","Resource":"BUCKET/*"}`)
	statement("public", `{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"BUCKET/*"}`)
	w.must(200, "PUT", "/public?publicAccessBlock", []byte("<PublicAccessBlockConfiguration><RestrictPublicBuckets>true"+
		"</RestrictPublicBuckets></PublicAccessBlockConfiguration>"))
	w.mustAdd("ann", "ben", "carl", "dora")
	w.allows("ann", "Allow s3:* *")
	w.allows("ben", "Allow s3:* *", "Deny s3:GetObject plain/small")
	w.allows("carl", `Allow s3:* * {"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}`)
	w.allows("dora", "Allow s3:GetObject *", "Allow s3:PutObject *")
	w.key("annskey", "ann", time.Time{}, "")
	w.key("annslimited", "ann", time.Time{}, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow",`+
		`"Action":"s3:ListBucket","Resource":"*"}]}`)
	w.key("annsold", "ann", time.Now().Add(time.Hour), "")
	past := time.Now().Add(-time.Hour)
	w.expire("annsold", past)
	w.key("rootskey", rootKey, time.Time{}, "")
	return w, a
}

// fillOddly makes objects that only some clients and other front ends make.
func fillOddly(w *world) {
	w.t.Helper()
	w.must(200, "PUT", "/plain/sse", []byte("hello"), withS3...)
	w.must(200, "PUT", "/plain/ssec", []byte("hello"), customerHeaders("", 7)...)
	w.must(200, "PUT", "/sealed", nil)
	w.must(200, "PUT", "/sealed?encryption", []byte("<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryption"+
		"ByDefault><SSEAlgorithm>AES256</SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule>"+
		"</ServerSideEncryptionConfiguration>"))
	w.must(200, "PUT", "/sealed/a", []byte(strings.Repeat("hello", 100_000)))
	w.must(200, "PUT", "/plain?lifecycle", []byte("<LifecycleConfiguration><Rule><ID>old</ID><Status>Enabled</Status>"+
		"<Filter><Prefix>aging</Prefix></Filter><Expiration><Days>3</Days></Expiration></Rule></LifecycleConfiguration>"))
	w.must(200, "PUT", "/plain/aging", []byte("hello"))
	for name, attrs := range map[string]map[string]string{
		"untyped": nil,
		"broken": {object.AttrType: "text\r\nX-Injected: 1", object.AttrMeta + "a": "1\r\nX-Injected: 2",
			object.AttrCache: "\x7f", object.AttrMeta + "ü": "ü"},
	} {
		_, err := w.store.Put(w.t.Context(), object.Put{Bucket: "plain", Key: name, Size: 5, Body: strings.NewReader("hello"),
			Attributes: attrs})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	up := w.must(200, "POST", "/plain/parts?uploads", nil, "x-amz-checksum-algorithm", "SHA256")
	id := between(string(up.body), "<UploadId>", "</UploadId>")
	doc := ""
	for i, part := range []string{strings.Repeat("x", 5<<20), "end"} {
		sum := sha256.Sum256([]byte(part))
		text := base64.StdEncoding.EncodeToString(sum[:])
		r := w.must(200, "PUT", fmt.Sprintf("/plain/parts?partNumber=%d&uploadId=%s", i+1, id), []byte(part),
			"x-amz-checksum-sha256", text)
		doc += fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag><ChecksumSHA256>%s</ChecksumSHA256></Part>", i+1,
			r.Header.Get("ETag"), text)
	}
	w.must(200, "POST", "/plain/parts?uploadId="+id, []byte("<CompleteMultipartUpload>"+doc+"</CompleteMultipartUpload>"))
}

// A request on the fast path has the same reply and the same line in the audit log as one through versitygw, and leaves
// the connection in the same state.
func TestFastRepliesAreVersitygws(t *testing.T) {
	w, a := oddly(t)
	etag := w.must(200, "GET", "/plain/small", nil).Header.Get("ETag")
	get := func(target string, header ...string) rawRequest { return rawRequest{target: target, header: header} }
	by := func(user, target string) rawRequest {
		r := rawRequest{target: target, user: user}
		if strings.HasPrefix(user, "anns") || user == "rootskey" {
			r.secret = user + "-secret"
		}
		return r
	}
	now := time.Now().UTC()
	stamp := func(layout string) string { return now.Format(layout) }
	small := "/plain/small"
	// heads are the expected results of HEAD, where they are not those of GET.
	heads := map[string]string{"x-id of HEAD": "200 fast"}
	for _, c := range []struct {
		want string // status, then fast or slow unless the guard refuses the request before
		name string
		rawRequest
	}{
		{"200 fast", "plain", get(small)},
		{"200 fast", "presigned", rawRequest{target: small, query: "60"}},
		// accounts
		{"200 fast", "policy of a user", by("ann", small)},
		{"404 fast", "policy of a user, no key", by("ann", "/plain/nothing")},
		{"404 slow", "policy of a user, no bucket", by("ann", "/nowhere/nothing")},
		{"403 slow", "a key is denied", by("ben", small)},
		{"403 slow", "another address", by("carl", small)},
		{"200 fast", "may read only", by("dora", small)},
		{"404 fast", "may read only, no key", by("dora", "/plain/nothing")},
		{"404 fast", "may read only, delete marker", by("dora", "/versioned/gone")},
		{"200 fast", "may read only, tags", by("dora", "/plain/tagged")},
		{"200 fast", "may read only, held", by("dora", "/locked/held")},
		{"200 fast", "service account", by("annskey", small)},
		{"200 fast", "service account of root", by("rootskey", small)},
		{"200 fast", "service account of root, held", by("rootskey", "/locked/held")},
		{"403 slow", "session policy", by("annslimited", small)},
		{"403 slow", "expired key", by("annsold", small)},
		{"403 slow", "no such account", rawRequest{target: small, user: "nobody"}},
		{"403 slow", "wrong secret", rawRequest{target: small, secret: "guessed"}},
		// objects
		{"200 fast", "SSE-S3", get("/plain/sse")},
		{"206 fast", "range of SSE-S3", get("/plain/sse", "Range", "bytes=1-2")},
		{"400 fast", "SSE-C without a key", get("/plain/ssec")},
		{"200 slow", "SSE-C", get("/plain/ssec", customerHeaders("", 7)...)},
		{"403 slow", "SSE-C with another key", get("/plain/ssec", customerHeaders("", 8)...)},
		{"200 fast", "encrypted by default", get("/sealed/a")},
		{"206 fast", "encrypted blocks", get("/sealed/a", "Range", "bytes=65530-65550", "x-amz-checksum-mode", "ENABLED")},
		{"200 fast", "lifecycle", get("/plain/aging")},
		{"200 fast", "no type", get("/plain/untyped")},
		{"200 fast", "broken attributes", get("/plain/broken")},
		{"200 fast", "multipart", get("/plain/parts", "x-amz-checksum-mode", "ENABLED")},
		{"206 fast", "range of multipart", get("/plain/parts", "x-amz-checksum-mode", "ENABLED", "Range", "bytes=5242870-")},
		{"206 fast", "all of multipart as a range", get("/plain/parts", "x-amz-checksum-mode", "ENABLED", "Range",
			"bytes=0-")},
		// policies of buckets
		{"200 fast", "bucket policy", by("bob", "/all/a")},
		{"404 fast", "bucket policy, no key", by("bob", "/all/b")},
		{"403 slow", "bucket policy denies", by("bob", "/none/a")},
		{"200 fast", "root is not denied", get("/none/a")},
		{"403 slow", "no TLS", by("bob", "/secure/a")},
		{"200 slow", "agent", rawRequest{target: "/agents/a", user: "bob", header: []string{"User-Agent", "good"}}},
		{"403 slow", "bad agent", rawRequest{target: "/agents/a", user: "bob", header: []string{"User-Agent", "evil/1"}}},
		{"403 slow", "referer", rawRequest{target: "/referers/a", user: "bob", header: []string{"Referer", "http://evil/x"}}},
		{"403 slow", "type of signature", rawRequest{target: "/types/a", user: "bob", query: "600"}},
		{"200 slow", "other type of signature", by("bob", "/types/a")},
		{"403 slow", "time", by("bob", "/dates/a")},
		{"403 slow", "tag", by("bob", "/tags/a")},
		{"200 fast", "only reads", by("bob", "/getonly/a")},
		{"404 fast", "only reads, no key", by("bob", "/getonly/b")},
		{"403 slow", "public bucket with a block", by("eve", "/public/a")},
		{"403 slow", "public bucket without a signature", rawRequest{target: "/public/a", spoil: func(s string) string {
			return s[:strings.Index(s, "Authorization")] + "\r\n"
		}}},
		// headers
		{"403 slow", "wrong owner", get(small, "X-Amz-Expected-Bucket-Owner", "eve")},
		{"200 slow", "owner", get(small, "X-Amz-Expected-Bucket-Owner", rootKey)},
		{"200 slow", "payer", get(small, "X-Amz-Request-Payer", "requester")},
		{"400 slow", "token", get(small, "X-Amz-Security-Token", "x")},
		{"501 slow", "session token", get(small, "X-Amz-S3session-Token", "x")},
		{"501 slow", "RDMA", get(small, "X-Amz-Rdma-Token", "x")},
		{"403 slow", "unsigned x-amz-meta", rawRequest{target: small, more: []string{"X-Amz-Meta-A", "1"}}},
		{"403 slow", "unsigned mode", rawRequest{target: small, more: []string{"x-amz-checksum-mode", "ENABLED"}}},
		{"403 slow", "unsigned agent of Amazon", rawRequest{target: small, more: []string{"x-amz-user-agent", "a"}}},
		{"200 fast", "agent of Amazon", get(small, "x-amz-user-agent", "a")},
		{"206 fast", "odd case", get(small, "X-AMZ-CHECKSUM-MODE", "ENABLED", "rAnGe", "bytes=0-1")},
		{"200 slow", "mode in small letters", get(small, "x-amz-checksum-mode", "enabled")},
		{"200 slow", "empty mode", get(small, "x-amz-checksum-mode", "")},
		{"200 fast", "trailing spaces", get(small, "x-amz-checksum-mode", "  ENABLED  ")},
		{"200 slow", "spaces inside", get(small, "x-amz-user-agent", "a   b")},
		{"403 slow", "tab inside", get(small, "x-amz-user-agent", "a\tb")},
		{"200 slow", "mode twice", get(small, "x-amz-checksum-mode", "ENABLED", "x-amz-checksum-mode", "ENABLED")},
		{"206 slow", "range twice", get(small, "Range", "bytes=0-1", "Range", "bytes=2-3")},
		{"400 slow", "host twice", rawRequest{target: small, more: []string{"Host", "a"}}},
		{"400 slow", "folded", rawRequest{target: small, more: []string{"Accept", "a\r\n b"}}},
		{"206 fast", "signed range", rawRequest{target: small, header: []string{"Range", "bytes=0-1"},
			signed: "host;range;x-amz-content-sha256;x-amz-date"}},
		{"403 slow", "host is not signed", rawRequest{target: small, signed: "x-amz-content-sha256;x-amz-date"}},
		{"403 slow", "date is not signed", rawRequest{target: small, signed: "host;x-amz-content-sha256"}},
		{"403 slow", "hash is not signed", rawRequest{target: small, signed: "host;x-amz-date"}},
		{"403 slow", "unsorted", rawRequest{target: small, signed: "x-amz-content-sha256;x-amz-date;host"}},
		{"200 slow", "signed but absent", rawRequest{target: small, signed: "accept;host;x-amz-content-sha256;x-amz-date"}},
		{"200 slow", "cookie", get(small, "Cookie", "a=b")},
		{"200 slow", "date of HTTP", get(small, "Date", now.Format(time.RFC1123))},
		{"100 slow", "expects", get(small, "Expect", "100-continue")},
		{"400 slow", "copy source", get(small, "X-Amz-Copy-Source", "plain/small")},
		{"400 slow", "SSE-C without SSE-C", get(small, customerHeaders("", 7)...)},
		{"200 slow", "forwarded", get(small, "X-Forwarded-Host", "evil", "X-Forwarded-For", "10.0.0.1")},
		{"200 fast", "another host", rawRequest{target: small, host: "elsewhere.example"}},
		{"400 slow", "no host", rawRequest{target: small, spoil: func(s string) string {
			return strings.Replace(s, "Host: ", "Ghost: ", 1)
		}}},
		// signatures
		{"400 slow", "another region", rawRequest{target: small, scope: stamp("20060102/") + "mars-1/s3/aws4_request"}},
		{"400 slow", "another service", rawRequest{target: small, scope: stamp("20060102/") + testRegion +
			"/ec2/aws4_request"}},
		{"400 slow", "another day", rawRequest{target: small, scope: "20200101/" + testRegion + "/s3/aws4_request"}},
		{"400 slow", "another end", rawRequest{target: small, scope: stamp("20060102/") + testRegion + "/s3/aws5_request"}},
		{"403 slow", "15 minutes late", rawRequest{target: small, ago: 15*time.Minute + 5*time.Second}},
		{"403 slow", "15 minutes early", rawRequest{target: small, ago: -15*time.Minute - 5*time.Second}},
		{"200 fast", "14 minutes late", rawRequest{target: small, ago: 14 * time.Minute}},
		{"200 fast", "14 minutes early", rawRequest{target: small, ago: -14 * time.Minute}},
		{"403 slow", "fraction of a second", rawRequest{target: small, stamp: stamp("20060102T150405.5Z")}},
		{"403 slow", "fraction with a comma", rawRequest{target: small, stamp: stamp("20060102T150405,25Z")}},
		{"403 slow", "no Z", rawRequest{target: small, stamp: stamp("20060102T150405")}},
		{"403 slow", "fraction, presigned", rawRequest{target: small, stamp: stamp("20060102T150405.5Z"), query: "60"}},
		{"403 slow", "expires at once", rawRequest{target: small, query: "0", ago: time.Second}},
		{"200 fast", "expires at once in the future", rawRequest{target: small, query: "0", ago: -time.Minute}},
		{"400 slow", "expires before", rawRequest{target: small, query: "-1"}},
		{"400 slow", "expires late", rawRequest{target: small, query: "604801"}},
		{"200 fast", "expires in a week", rawRequest{target: small, query: "604800"}},
		{"400 slow", "expires never", rawRequest{target: small, query: "none"}},
		{"400 slow", "expires in words", rawRequest{target: small, query: "soon"}},
		{"200 slow", "expires with a sign", rawRequest{target: small, query: "+60"}},
		{"200 slow", "expires with a zero", rawRequest{target: small, query: "060"}},
		{"403 slow", "expired", rawRequest{target: small, query: "60", ago: 2 * time.Minute}},
		{"403", "presigned too early", rawRequest{target: small, query: "60", ago: -16 * time.Minute}},
		{"200 fast", "presigned a day ago", rawRequest{target: small, query: "604800", ago: 24 * time.Hour}},
		{"200 slow", "presigned with a hash", rawRequest{target: small, query: "60", header: []string{
			"X-Amz-Content-Sha256", emptySHA256}}},
		{"200 slow", "presigned with a date", rawRequest{target: small, query: "60", header: []string{
			"X-Amz-Date", "20200101T000000Z"}}},
		{"403 slow", "presigned with an argument more", rawRequest{target: small, query: "60", tail: "x-id=GetObject"}},
		{"200 slow", "presigned with x-id", rawRequest{target: small + "?x-id=GetObject", query: "60"}},
		{"400 slow", "presigned with a token", rawRequest{target: small, query: "60", tail: "X-Amz-Security-Token=x"}},
		{"403 slow", "presigned twice", rawRequest{target: small, query: "60", tail: "X-Amz-Expires=600"}},
		{"206 fast", "presigned, signed range", rawRequest{target: small, query: "60", header: []string{"Range", "bytes=0-1"},
			signed: "host;range"}},
		{"206 fast", "presigned, range", rawRequest{target: small, query: "60", header: []string{"Range", "bytes=0-1"}}},
		{"206 fast", "presigned, mode", rawRequest{target: small, query: "60", header: []string{"Range", "bytes=0-1",
			"X-Amz-Checksum-Mode", "ENABLED"}}},
		{"400", "presigned and signed", rawRequest{target: small, query: "60", more: []string{"Authorization",
			algorithmV4 + " Credential=a/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"}}},
		{"400", "presigned and basic", rawRequest{target: small, query: "60", more: []string{"Authorization",
			"Basic x"}}},
		{"400", "presigned and signed with version 2", rawRequest{target: small, query: "60", more: []string{"Authorization",
			"AWS a:b"}}},
		{"200 slow", "presigned and an empty header", rawRequest{target: small, query: "60", more: []string{"Authorization",
			""}}},
		{"400", "signed twice, the first one empty", rawRequest{target: small, query: "60", more: []string{"Authorization",
			"", "Authorization", "Basic x"}}},
		{"400", "signed and an algorithm", get(small + "?X-Amz-Algorithm=" + algorithmV4)},
		{"400", "signed and a signature", get(small + "?X-Amz-Signature=0")},
		{"400", "signed and a key of version 2", get(small + "?AWSAccessKeyId=a")},
		{"400", "signed and a signature of version 2", get(small + "?Signature=a")},
		{"400", "public and signed twice", rawRequest{target: "/public/a", query: "60", more: []string{"Authorization",
			"Basic x"}}},
		// arguments
		{"200 slow", "x-id twice", get(small + "?x-id=GetObject&x-id=GetObject")},
		{"200 slow", "x-id of HEAD", get(small + "?x-id=HeadObject")},
		{"501 slow", "x-id of a rename", get(small + "?x-id=RenameObject")},
		{"200 fast", "question mark", rawRequest{target: small, spoil: func(s string) string {
			return strings.Replace(s, small, small+"?", 1)
		}}},
		{"200 fast", "ampersand", rawRequest{target: small, spoil: func(s string) string {
			return strings.Replace(s, small, small+"?&", 1)
		}}},
		{"200 slow", "version null", get(small + "?versionId=null")},
		{"200 slow", "no version", get(small + "?versionId=")},
		{"206 slow", "part", get(small + "?partNumber=1")},
		{"416 slow", "part 2", get(small + "?partNumber=2")},
		{"200 slow", "override", get(small + "?response-expires=x")},
		{"501 slow", "torrent", get(small + "?torrent")},
		// paths
		{"404 slow", "escaped slash", get("/plain/a%2Fb")},
		{"404 slow", "two slashes", get("/plain//small")},
		{"405 slow", "two slashes before", get("//plain/small")},
		{"404 slow", "dot", get("/plain/./small")},
		{"404 slow", "dots", get("/plain/../plain/small")},
		{"200 slow", "escaped letter", get("/plain/%73mall")},
		{"404 slow", "plus", get("/plain/a+b")},
		{"404 slow", "UTF-8", get("/plain/%C3%BC")},
		{"404 slow", "NUL", get("/plain/a%00")},
		{"400 slow", "overlong", get("/plain/%C0%AFa")},
		{"400 slow", "half an escape", get("/plain/%4")},
		{"404 slow", "slash at the end", get("/plain/small/")},
		{"404 fast", "long key", get("/plain/" + strings.Repeat("k", 1025))},
		{"400 slow", "bucket in capitals", get("/PLAIN/small")},
		{"400 slow", "whole URL", rawRequest{target: small, spoil: func(s string) string {
			return strings.Replace(s, " /", " http://other/", 1)
		}}},
		// bodies and methods
		{"400 slow", "GET with a body", rawRequest{target: small, body: "x", hash: emptySHA256}},
		{"200 slow", "GET with a signed body", rawRequest{target: small, body: "x"}},
		{"200 slow", "GET with length 0", rawRequest{target: small, length: "0"}},
		{"200 fast", "closes", get(small, "Connection", "close")},
		{"200 fast", "keeps alive", get(small, "Connection", "keep-alive")},
		{"400 slow", "streaming GET", rawRequest{target: small, hash: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}},
		{"400 slow", "capital hash", rawRequest{target: small, hash: strings.ToUpper(emptySHA256)}},
		// ranges and conditions
		{"206 fast", "range of all", get(small, "Range", "bytes=0-")},
		{"206 fast", "last byte", get(small, "Range", "bytes=-1")},
		{"416 fast", "no last bytes", get(small, "Range", "bytes=-0")},
		{"206 fast", "more than all", get(small, "Range", "bytes=-100")},
		{"200 fast", "beyond", get(small, "Range", "bytes=5-100000000000000000000")},
		{"200 fast", "backwards", get(small, "Range", "bytes=5-2")},
		{"200 fast", "unit", get(small, "Range", "BYTES=1-2")},
		{"200 fast", "space", get(small, "Range", "bytes= 1-2")},
		{"200 fast", "sign", get(small, "Range", "bytes=+1-2")},
		{"200 fast", "empty range", get(small, "Range", "")},
		{"206 slow", "if range", get(small, "Range", "bytes=1-2", "If-Range", etag)},
		{"200 fast", "range of nothing", get("/plain/empty", "Range", "bytes=-1")},
		{"304 fast", "any", get(small, "If-None-Match", "*")},
		{"200 fast", "matches any", get(small, "If-Match", "*")},
		{"404 fast", "matches any, no key", get("/plain/nothing", "If-Match", "*")},
		{"412 fast", "list", get(small, "If-Match", etag+`, "x"`)},
		{"200 fast", "list of none", get(small, "If-None-Match", etag+`, "x"`)},
		{"412 fast", "weak", get(small, "If-Match", "W/"+etag)},
		{"412", "only quotes", get(small, "If-Match", `""`)},
		{"200 fast", "empty match", get(small, "If-Match", "")},
		{"200 fast", "empty none match", get(small, "If-None-Match", "")},
		{"304 fast", "both", get(small, "If-Match", etag, "If-None-Match", etag)},
		{"304 slow", "none match and since", get(small, "If-None-Match", etag, "If-Modified-Since",
			now.Add(-time.Hour).Format(time.RFC1123))},
		{"412 slow", "unmodified", get(small, "If-Unmodified-Since", now.Add(-time.Hour).Format(time.RFC1123))},
	} {
		methods := []string{c.method}
		if c.method == "" {
			methods = []string{"GET", "HEAD"}
		}
		for _, method := range methods {
			c.method = method
			if want := heads[c.name]; method == "HEAD" && want != "" {
				c.want = want
			}
			fast, status := w.same(t, a, c.name, c.rawRequest)
			got := status + " slow"
			if fast {
				got = status + " fast"
			}
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("%s %s: %s, expected %s", method, c.name, got, c.want)
			}
		}
	}
}
