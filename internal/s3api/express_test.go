// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/express"
)

const testDirectory = "/dir--z1--x-s3"

// startExpress starts a front end with directory buckets.
func startExpress(t *testing.T) *world {
	key := express.NewKey()
	return start(t, nil, func(o *Options) { o.Express = &Express{Key: key, Session: time.Minute} })
}

// keyPair holds the keys of an account or of a session.
type keyPair struct{ access, secret, token string }

func rootPass() keyPair { return keyPair{access: rootKey, secret: rootSecret} }

// express sends a request that is signed for the service s3express.
func (w *world) express(p keyPair, method, path string, body []byte, headers ...string) *reply {
	w.t.Helper()
	sum := sha256.Sum256(body)
	return w.sent(w.expressRequest(p, hex.EncodeToString(sum[:]), method, path, body, headers...))
}

func (w *world) expressRequest(p keyPair, hash, method, path string, body []byte, headers ...string) *http.Request {
	w.t.Helper()
	r := w.request(method, path, body, headers...)
	if p.token != "" {
		r.Header.Set("X-Amz-S3session-Token", p.token)
	}
	signExpress(w.t, p, r, hash)
	return r
}

// signExpress signs a request for the service s3express.
func signExpress(t testing.TB, p keyPair, r *http.Request, hash string) {
	t.Helper()
	r.Header.Set("X-Amz-Content-Sha256", hash)
	err := v4.NewSigner().SignHTTP(context.Background(), aws.Credentials{AccessKeyID: p.access, SecretAccessKey: p.secret},
		r, hash, express.Service, testRegion, time.Now(), func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err != nil {
		t.Fatal(err)
	}
}

// expect fails the test if a reply has another status.
func (r *reply) expect(t testing.TB, status int, code string) *reply {
	t.Helper()
	if r.StatusCode != status || r.code() != code {
		t.Fatalf("status %d, code %q, expected %d and %q: %s", r.StatusCode, r.code(), status, code, r.body)
	}
	return r
}

// session begins a session.
func (w *world) session(p keyPair, bucket string, headers ...string) keyPair {
	w.t.Helper()
	r := w.express(p, http.MethodGet, bucket+"?session=", nil, headers...).expect(w.t, http.StatusOK, "")
	var reply struct {
		Credentials struct{ SessionToken, SecretAccessKey, AccessKeyId string }
	}
	if err := xml.Unmarshal(r.body, &reply); err != nil {
		w.t.Fatal(err)
	}
	c := reply.Credentials
	return keyPair{c.AccessKeyId, c.SecretAccessKey, c.SessionToken}
}

// someone makes an account.
func (w *world) someone(name string, role iam.Role) keyPair {
	w.t.Helper()
	p := keyPair{access: name, secret: name + "-secret-key"}
	if err := w.iam.Add(w.t.Context(), iam.Account{AccessKey: name, Secret: p.secret, Role: role}); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func TestSessionsOfAnOwner(t *testing.T) {
	w := startExpress(t)
	owner, stranger := w.someone("owner", iam.RoleUserPlus), w.someone("stranger", iam.RoleUser)
	w.express(stranger, http.MethodGet, testDirectory+"?session=", nil).expect(t, http.StatusNotFound, "NoSuchBucket")
	early := w.session(owner, testDirectory) // before the bucket exists
	w.express(early, http.MethodPut, testDirectory, nil).expect(t, http.StatusOK, "")
	w.express(early, http.MethodPut, testDirectory+"/a/b", []byte("hello")).expect(t, http.StatusOK, "")
	s := w.session(owner, testDirectory)
	if r := w.express(s, http.MethodGet, testDirectory+"/a/b", nil).expect(t, http.StatusOK,
		""); string(r.body) != "hello" {
		t.Errorf("read %q", r.body)
	}
	w.express(stranger, http.MethodGet, testDirectory+"?session=", nil).expect(t, http.StatusForbidden, "AccessDenied")
	w.express(stranger, http.MethodGet, testDirectory+"/a/b", nil).expect(t, http.StatusForbidden, "AccessDenied")
	w.nobody(http.MethodGet, testDirectory+"/a/b", "").expect(t, http.StatusForbidden, "AccessDenied")
	// A session is for one bucket, and for nothing else.
	w.must(http.StatusOK, http.MethodPut, "/plain", nil)
	w.express(s, http.MethodGet, "/other--z1--x-s3/k", nil).expect(t, http.StatusForbidden, "AccessDenied")
	w.express(s, http.MethodGet, testDirectory+"?session=", nil).expect(t, http.StatusForbidden, "AccessDenied")
	if r := w.express(s, http.MethodGet, "/plain/k", nil); r.StatusCode < 400 {
		t.Errorf("a session read another bucket: %d", r.StatusCode)
	}
	w.must(http.StatusOK, http.MethodPut, "/plain/secret", []byte("secret"))
	w.express(s, http.MethodPut, testDirectory+"/copy", nil, "X-Amz-Copy-Source", "plain/secret").
		expect(t, http.StatusForbidden, "AccessDenied")
	// A session ends with the bucket, and when the keys of its account change.
	w.express(s, http.MethodDelete, testDirectory+"/a/b", nil).expect(t, http.StatusNoContent, "")
	w.express(s, http.MethodDelete, testDirectory, nil).expect(t, http.StatusNoContent, "")
	w.express(rootPass(), http.MethodPut, testDirectory, nil).expect(t, http.StatusOK, "")
	w.express(s, http.MethodPut, testDirectory+"/a", nil).expect(t, http.StatusForbidden, "AccessDenied")
	w.express(early, http.MethodPut, testDirectory+"/a", nil).expect(t, http.StatusForbidden, "AccessDenied")
	another := "another-secret-key"
	if err := w.iam.Update(t.Context(), "owner", iam.Change{Secret: &another}); err != nil {
		t.Fatal(err)
	}
	w.express(s, http.MethodGet, testDirectory+"/a", nil).expect(t, http.StatusBadRequest, "InvalidToken")
	if err := w.iam.Remove(t.Context(), "owner"); err != nil {
		t.Fatal(err)
	}
	w.express(s, http.MethodGet, testDirectory+"/a", nil).expect(t, http.StatusForbidden, "InvalidAccessKeyId")
}

func readerPolicy(actions, resource string) []byte {
	return fmt.Appendf(nil, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["reader"]},`+
		`"Action":[%s],"Resource":[%s]}]}`, actions, resource)
}

func TestSessionsByPolicy(t *testing.T) {
	w := startExpress(t)
	reader := w.someone("reader", iam.RoleUser)
	w.express(rootPass(), http.MethodPut, testDirectory, nil).expect(t, http.StatusOK, "")
	w.express(rootPass(), http.MethodPut, testDirectory+"/a/b", []byte("hello")).expect(t, http.StatusOK, "")
	all := `"arn:aws:s3:::dir--z1--x-s3","arn:aws:s3:::dir--z1--x-s3/*"`
	w.express(rootPass(), http.MethodPut, testDirectory+"?policy=", readerPolicy(`"s3:GetObject","s3:ListBucket"`, all)).
		expect(t, http.StatusNoContent, "")
	s := w.session(reader, testDirectory) // the most that the reader may do
	w.express(s, http.MethodGet, testDirectory+"/a/b", nil).expect(t, http.StatusOK, "")
	w.express(s, http.MethodHead, testDirectory+"/a/b", nil).expect(t, http.StatusOK, "")
	w.express(s, http.MethodGet, testDirectory+"?list-type=2", nil).expect(t, http.StatusOK, "")
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		w.express(s, method, testDirectory+"/a/b", nil).expect(t, http.StatusForbidden, "AccessDenied")
	}
	w.express(s, http.MethodPut, testDirectory+"/c?renameObject=", nil, "X-Amz-Rename-Source", "a/b").
		expect(t, http.StatusForbidden, "AccessDenied")
	w.express(reader, http.MethodGet, testDirectory+"?session=", nil, "X-Amz-Create-Session-Mode", "ReadWrite").
		expect(t, http.StatusForbidden, "AccessDenied")
	// A policy for some keys has no sessions, and counts for each request.
	w.express(rootPass(), http.MethodPut, testDirectory+"?policy=", readerPolicy(`"s3:GetObject"`,
		`"arn:aws:s3:::dir--z1--x-s3/a/*"`)).expect(t, http.StatusNoContent, "")
	w.express(rootPass(), http.MethodPut, testDirectory+"/other", []byte("x")).expect(t, http.StatusOK, "")
	w.express(reader, http.MethodGet, testDirectory+"?session=", nil).expect(t, http.StatusForbidden, "AccessDenied")
	w.express(reader, http.MethodGet, testDirectory+"/a/b", nil).expect(t, http.StatusOK, "")
	w.express(reader, http.MethodGet, testDirectory+"/other", nil).expect(t, http.StatusForbidden, "AccessDenied")
	w.express(reader, http.MethodPut, testDirectory+"/a/b", nil).expect(t, http.StatusForbidden, "AccessDenied")
}

func TestAppendersOverHTTP(t *testing.T) {
	w := startExpress(t)
	w.express(rootPass(), http.MethodPut, testDirectory, nil).expect(t, http.StatusOK, "")
	s := w.session(rootPass(), testDirectory)
	const workers, each = 8, 10
	var mu sync.Mutex
	won, lost := map[int64][]byte{}, map[string]int{}
	var wg sync.WaitGroup
	for n := range workers {
		wg.Go(func() {
			for done := 0; done < each; {
				head := w.express(s, http.MethodHead, testDirectory+"/log", nil)
				size := max(head.ContentLength, 0)
				if head.StatusCode == http.StatusNotFound {
					size = 0
				}
				data := bytes.Repeat([]byte{byte('a' + n)}, 100+n)
				headers := []string{"X-Amz-Write-Offset-Bytes", fmt.Sprint(size)}
				if n%2 == 0 && head.StatusCode == http.StatusOK {
					headers = append(headers, "If-Match", head.Header.Get("ETag"))
				}
				r := w.express(s, http.MethodPut, testDirectory+"/log", data, headers...)
				mu.Lock()
				if r.StatusCode == http.StatusOK {
					won[size] = data
					done++
				} else {
					lost[fmt.Sprint(r.StatusCode, " ", r.code())]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for what := range lost {
		if what != "400 InvalidWriteOffset" && what != "412 PreconditionFailed" {
			t.Errorf("an appender that lost was told %s", what)
		}
	}
	r := w.express(s, http.MethodGet, testDirectory+"/log", nil).expect(t, http.StatusOK, "")
	var at int64
	for range workers * each {
		data := won[at]
		if len(data) == 0 || !bytes.HasPrefix(r.body[at:], data) {
			t.Fatalf("at %d of %d bytes, expected %d of %q", at, len(r.body), len(data), data[:min(1, len(data))])
		}
		at += int64(len(data))
	}
	if at != int64(len(r.body)) {
		t.Errorf("%d bytes, %d were acknowledged", len(r.body), at)
	}
}

// chunkSigner makes payloads in signed chunks.
type chunkSigner struct {
	key         []byte
	date, scope string
	last        string
}

func (c *chunkSigner) sign(kind, tail string) string {
	mac := hmac.New(sha256.New, c.key)
	mac.Write([]byte("AWS4-HMAC-SHA256-" + kind + "\n" + c.date + "\n" + c.scope + "\n" + c.last + "\n" + tail))
	c.last = hex.EncodeToString(mac.Sum(nil))
	return c.last
}

func hexSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// signedChunks sends content in signed chunks with a trailer. The function spoil changes the payload.
func (w *world) signedChunks(p keyPair, path, data, trailer string, spoil func(string) string) *reply {
	w.t.Helper()
	const chunk = 1000
	build := func(c *chunkSigner) string {
		var b strings.Builder
		for at := 0; ; at += chunk {
			piece := data[min(at, len(data)):min(at+chunk, len(data))]
			fmt.Fprintf(&b, "%x;chunk-signature=%s\r\n", len(piece), c.sign("PAYLOAD", hexSum("")+"\n"+hexSum(piece)))
			if piece == "" {
				break
			}
			b.WriteString(piece + "\r\n")
		}
		b.WriteString(trailer + "\r\nx-amz-trailer-signature:" + c.sign("TRAILER", hexSum(trailer+"\n")) + "\r\n\r\n")
		return b.String()
	}
	name, _, _ := strings.Cut(trailer, ":")
	headers := []string{"Content-Encoding", "aws-chunked", "X-Amz-Trailer", name, "X-Amz-Decoded-Content-Length",
		fmt.Sprint(len(data))}
	length := len(build(&chunkSigner{key: []byte("k")}))
	r := w.expressRequest(p, express.SignedTrailer, http.MethodPut, path, make([]byte, length), headers...)
	_, signature, _ := strings.Cut(r.Header.Get("Authorization"), "Signature=")
	date := r.Header.Get("X-Amz-Date")
	c := &chunkSigner{date: date, scope: date[:8] + "/" + testRegion + "/s3express/aws4_request", last: signature,
		key: express.DeriveKey(p.secret, date[:8], testRegion, express.Service)}
	body := spoil(build(c))
	r.Body, r.ContentLength = http.NoBody, int64(len(body))
	r.Body = readCloser{strings.NewReader(body)}
	return w.sent(r)
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

func TestSignedChunksOfASession(t *testing.T) {
	w := startExpress(t)
	w.express(rootPass(), http.MethodPut, testDirectory, nil).expect(t, http.StatusOK, "")
	s := w.session(rootPass(), testDirectory)
	data := strings.Repeat("0123456789", 550)
	// The CRC-64/NVME is the one that the store computes.
	w.express(s, http.MethodPut, testDirectory+"/plain", []byte(data)).expect(t, http.StatusOK, "")
	info, err := w.store.Stat(t.Context(), object.Ref{Bucket: testDirectory[1:], Key: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	trailer := "x-amz-checksum-crc64nvme:" + crc64Text(info.CRC64)
	same := func(s string) string { return s }
	w.signedChunks(s, testDirectory+"/k", data, trailer, same).expect(t, http.StatusOK, "")
	if r := w.express(s, http.MethodGet, testDirectory+"/k", nil); string(r.body) != data ||
		r.Header.Get("Content-Encoding") != "" {
		t.Errorf("%d bytes, encoding %q", len(r.body), r.Header.Get("Content-Encoding"))
	}
	w.signedChunks(s, testDirectory+"/bad", data, trailer, func(s string) string {
		return strings.Replace(s, "0123456789", "0123456780", 1)
	}).expect(t, http.StatusForbidden, "SignatureDoesNotMatch")
	w.signedChunks(s, testDirectory+"/bad", data, "x-amz-checksum-crc64nvme:AAAAAAAAAAA=", same).
		expect(t, http.StatusBadRequest, "BadDigest")
	w.signedChunks(s, testDirectory+"/bad", data, trailer, func(s string) string {
		return s[:len(s)-100] + strings.Repeat("x", 100)
	}).
		expect(t, http.StatusBadRequest, "IncompleteBody")
	w.express(s, http.MethodGet, testDirectory+"/bad", nil).expect(t, http.StatusNotFound, "NoSuchKey")
	// Parts go through versitygw, which cannot check these signatures.
	r := w.express(s, http.MethodPost, testDirectory+"/m?uploads=", nil).expect(t, http.StatusOK, "")
	var upload struct{ UploadId string }
	if err := xml.Unmarshal(r.body, &upload); err != nil {
		t.Fatal(err)
	}
	part := testDirectory + "/m?partNumber=1&uploadId=" + upload.UploadId
	w.signedChunks(s, part, data, trailer, same).expect(t, http.StatusOK, "")
	w.signedChunks(s, part, data, trailer, func(s string) string { return strings.Replace(s, "9", "8", 1) }).
		expect(t, http.StatusForbidden, "SignatureDoesNotMatch")
}

func TestSpoiltRequestsForDirectoryBuckets(t *testing.T) {
	w := startExpress(t)
	w.express(rootPass(), http.MethodPut, testDirectory, nil).expect(t, http.StatusOK, "")
	s := w.session(rootPass(), testDirectory)
	put := func(change func(*http.Request)) *reply {
		r := w.expressRequest(s, hexSum("hello"), http.MethodPut, testDirectory+"/k", []byte("hello"))
		change(r)
		return w.sent(r)
	}
	put(func(*http.Request) {}).expect(t, http.StatusOK, "")
	w.express(s, http.MethodGet, testDirectory+"/k", nil, "X-Amz-Expected-Bucket-Owner", rootKey).expect(t, http.StatusOK,
		"")
	w.express(s, http.MethodGet, testDirectory+"/k", nil, "X-Amz-Expected-Bucket-Owner", "someone").
		expect(t, http.StatusForbidden, "AccessDenied")
	if r := w.fileForm(rootKey, testDirectory[1:], "form", `filename="f"`); r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a form: status %d: %s", r.StatusCode, r.body)
	}
	head := w.express(s, http.MethodHead, testDirectory, nil).expect(t, http.StatusOK, "")
	if zone := head.Header.Get("X-Amz-Bucket-Location-Name"); zone != "z1" {
		t.Errorf("the zone of the bucket is %q", zone)
	}
	put(func(r *http.Request) { r.Body = readCloser{strings.NewReader("hellO")} }).
		expect(t, http.StatusBadRequest, "XAmzContentSHA256Mismatch")
	put(func(r *http.Request) { r.Header.Set("X-Amz-Write-Offset-Bytes", "5") }).expect(t, http.StatusForbidden,
		"AccessDenied")
	put(func(r *http.Request) { r.Header.Del("X-Amz-S3session-Token") }).expect(t, http.StatusForbidden,
		"InvalidAccessKeyId")
	put(func(r *http.Request) { r.Header.Set("X-Amz-S3session-Token", "x") }).expect(t, http.StatusBadRequest,
		"InvalidToken")
	put(func(r *http.Request) {
		r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "/s3express/", "/sts/", 1))
	}).expect(t, http.StatusBadRequest, "AuthorizationHeaderMalformed")
	put(func(r *http.Request) { r.Header.Set("X-Amz-Date", "20200101T000000Z") }).
		expect(t, http.StatusBadRequest, "AuthorizationHeaderMalformed")
	for _, c := range [][]string{{"X-Amz-Write-Offset-Bytes", "-1"}, {"X-Amz-Write-Offset-Bytes", "x"}} {
		w.express(s, http.MethodPut, testDirectory+"/k", []byte("x"), c...).expect(t, http.StatusBadRequest,
			"InvalidArgument")
	}
	for _, c := range [][]string{{}, {"X-Amz-Rename-Source", "other--z1--x-s3/k"}, {"X-Amz-Rename-Source", "%zz"},
		{"X-Amz-Rename-Source", "k/"}, {"X-Amz-Rename-Source", "k", "X-Amz-Client-Token", strings.Repeat("t", 65)},
		{"X-Amz-Rename-Source", "k", "If-Modified-Since", "yesterday"}} {
		w.express(s, http.MethodPut, testDirectory+"/new?renameObject=", nil, c...).
			expect(t, http.StatusBadRequest, "InvalidArgument")
	}
	w.express(rootPass(), http.MethodPut, "/x.y--z1--x-s3", nil).expect(t, http.StatusBadRequest, "InvalidBucketName")
	w.express(rootPass(), http.MethodPut, "/a--z2--x-s3", []byte("<x>")).expect(t, http.StatusBadRequest, "MalformedXML")
	w.express(rootPass(), http.MethodPut, "/a--z2--x-s3", []byte("<C><Location><Name>z3</Name></Location></C>")).
		expect(t, http.StatusBadRequest, "InvalidArgument")
}

func TestWithoutDirectoryBuckets(t *testing.T) {
	w := start(t, nil, nil)
	w.express(rootPass(), http.MethodPut, testDirectory, nil).expect(t, http.StatusBadRequest,
		"AuthorizationHeaderMalformed")
	w.do(http.MethodPut, testDirectory, nil).expect(t, http.StatusBadRequest, "InvalidBucketName")
	w.must(http.StatusOK, http.MethodPut, "/plain", nil)
	w.do(http.MethodPut, "/plain/k", nil, "X-Amz-Write-Offset-Bytes", "0").expect(t, http.StatusNotImplemented,
		"NotImplemented")
}

func TestOrdinaryBucketsBesideDirectoryBuckets(t *testing.T) {
	w := startExpress(t)
	w.must(http.StatusOK, http.MethodPut, "/plain", nil)
	w.do(http.MethodPut, "/plain/k", nil, "X-Amz-Write-Offset-Bytes", "0").expect(t, http.StatusNotImplemented,
		"NotImplemented")
	w.express(rootPass(), http.MethodGet, "/plain/k", nil).expect(t, http.StatusBadRequest, "AuthorizationHeaderMalformed")
	// A client that knows no sessions signs for the service s3.
	w.must(http.StatusOK, http.MethodPut, testDirectory, nil)
	w.must(http.StatusOK, http.MethodPut, testDirectory+"/log", []byte("a"), "X-Amz-Write-Offset-Bytes", "0")
	w.must(http.StatusOK, http.MethodPut, testDirectory+"/log", []byte("b"), "X-Amz-Write-Offset-Bytes", "1")
	if r := w.must(http.StatusOK, http.MethodGet, testDirectory+"/log", nil); string(r.body) != "ab" {
		t.Errorf("read %q", r.body)
	}
}
