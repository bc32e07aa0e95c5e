// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/express"
	"github.com/nebulaio/nebulaio/internal/store/model"
)

// wasQuick reports whether quickPath made a reply: its identifiers are shorter than versitygw's.
func (r *reply) wasQuick() bool { return len(r.Header.Get("X-Amz-Id-2")) == 32 }

// A PUT on the quick path has the same reply and makes the same object as one on the general path.
func TestQuickPutsAreGeneralPuts(t *testing.T) {
	w := startExpress(t)
	w.express(rootPass(), http.MethodPut, testDirectory, nil).expect(t, http.StatusOK, "")
	s := w.session(rootPass(), testDirectory)
	large := []byte(strings.Repeat("large", 30_000))
	for name, c := range map[string]struct {
		body    []byte
		payload string // another X-Amz-Content-Sha256
		header  []string
		refused bool
		general bool // serve has to answer
	}{
		"small":    {body: []byte("hello")},
		"empty":    {},
		"large":    {body: large},
		"typed":    {body: []byte("x"), header: []string{"Content-Type", "text/plain"}},
		"checksum": {body: []byte("hello"), header: []string{"x-amz-checksum-crc32", "NhCmhg=="}},
		"checksum and name": {body: []byte("hello"),
			header: []string{"x-amz-checksum-crc32", "NhCmhg==", "x-amz-sdk-checksum-algorithm", "crc32"}},
		"wrong checksum": {body: []byte("hallo"), header: []string{"x-amz-checksum-crc32", "NhCmhg=="}, refused: true},
		"malformed checksum": {body: []byte("hello"), header: []string{"x-amz-checksum-crc32", "N"}, refused: true,
			general: true},
		"another name": {body: []byte("hello"),
			header: []string{"x-amz-checksum-crc32", "NhCmhg==", "x-amz-sdk-checksum-algorithm", "sha1"}, refused: true,
			general: true},
		"two checksums": {body: []byte("hello"),
			header: []string{"x-amz-checksum-crc32", "NhCmhg==", "x-amz-checksum-crc32c", "mnG7TA=="}, refused: true,
			general: true},
		"name alone": {body: []byte("hello"), header: []string{"x-amz-sdk-checksum-algorithm", "crc32"},
			refused: true, general: true},
		"unsigned payload": {body: []byte("hello"), payload: express.Unsigned},
		"wrong payload":    {body: []byte("hello"), payload: strings.Repeat("0", 64), refused: true},
		"metadata":         {body: []byte("hello"), header: []string{"x-amz-meta-a", "b"}, general: true},
		"condition":        {body: []byte("hello"), header: []string{"If-None-Match", "*"}, general: true},
		"storage class": {body: []byte("hello"), header: []string{"x-amz-storage-class", "STANDARD"}, refused: true,
			general: true},
		"tags": {body: []byte("hello"), header: []string{"x-amz-tagging", "a=b"}, refused: true, general: true},
	} {
		if c.payload == "" {
			sum := sha256.Sum256(c.body)
			c.payload = hex.EncodeToString(sum[:])
		}
		put := func(key string, quick bool, header ...string) (said, head string) {
			path := testDirectory + "/" + strings.ReplaceAll(name, " ", "-") + "/" + key
			r := w.sent(w.expressRequest(s, c.payload, http.MethodPut, path, c.body, append(header, c.header...)...))
			if c.refused != (r.StatusCode >= 400) {
				t.Errorf("%s: status %d: %s", name, r.StatusCode, r.body)
			}
			if r.wasQuick() != quick {
				t.Errorf("%s: quick is %v", name, r.wasQuick())
			}
			if got := w.express(s, http.MethodGet, path, nil); !c.refused && string(got.body) != string(c.body) {
				t.Errorf("%s: %d bytes came back, expected %d", name, len(got.body), len(c.body))
			}
			return about(r), about(w.express(s, http.MethodHead, path, nil))
		}
		quick, quickHead := put("quick", !c.general)
		general, generalHead := put("general", false, "X-Not-Plain", "1")
		if quick != general || quickHead != generalHead {
			t.Errorf("%s: the quick path replies\n%s%sand the general path\n%s%s", name, quick, quickHead, general, generalHead)
		}
	}
}

// The quick path takes no request that the general path would refuse.
func TestTheQuickPathRefusesNothingItself(t *testing.T) {
	w := startExpress(t)
	w.express(rootPass(), http.MethodPut, testDirectory, nil).expect(t, http.StatusOK, "")
	w.express(rootPass(), http.MethodPut, "/other--z1--x-s3", nil).expect(t, http.StatusOK, "")
	owner := w.someone("owner", iam.RoleAdmin)
	s := w.session(owner, testDirectory)
	reads := w.session(owner, testDirectory, "X-Amz-Create-Session-Mode", "ReadOnly")
	put := func(p keyPair, path string, change func(*http.Request)) *reply {
		t.Helper()
		req := w.expressRequest(p, express.Unsigned, http.MethodPut, path, []byte("hello"))
		if change != nil {
			change(req)
		}
		return w.sent(req)
	}
	if r := put(s, testDirectory+"/key", nil).expect(t, http.StatusOK, ""); !r.wasQuick() {
		t.Error("a plain PUT was not quick")
	}
	for name, c := range map[string]struct {
		by     keyPair
		path   string
		change func(*http.Request)
		status int
		code   string
	}{
		"changed path": {s, "/key", func(r *http.Request) { r.URL.Opaque += "2" }, 403, "SignatureDoesNotMatch"},
		"changed payload": {s, "/key", func(r *http.Request) {
			r.Header.Set("X-Amz-Content-Sha256", strings.Repeat("0", 64))
		}, 403, "SignatureDoesNotMatch"},
		"added header": {s, "/key", func(r *http.Request) { r.Header.Set("X-Amz-Checksum-Crc32", "NhCmhg==") }, 403,
			"AccessDenied"},
		"another token": {s, "/key", func(r *http.Request) { r.Header.Set("X-Amz-S3session-Token", reads.token) }, 403,
			"InvalidAccessKeyId"},
		"no token": {s, "/key", func(r *http.Request) { r.Header.Del("X-Amz-S3session-Token") }, 403,
			"InvalidAccessKeyId"},
		"made-up token": {s, "/key", func(r *http.Request) { r.Header.Set("X-Amz-S3session-Token", "x") }, 400,
			"InvalidToken"},
		"read-only session": {reads, "/key", nil, 403, "AccessDenied"},
		"another secret":    {keyPair{s.access, "x", s.token}, "/key", nil, 403, "SignatureDoesNotMatch"},
		"unknown argument":  {s, "/key?x-id=Other", nil, 200, ""},
		"acl":               {s, "/key?acl=", nil, 405, "MethodNotAllowed"},
	} {
		r := put(c.by, testDirectory+c.path, c.change)
		if r.StatusCode != c.status || r.code() != c.code || r.wasQuick() {
			t.Errorf("%s: status %d %s, quick %v; expected %d %s: %s", name, r.StatusCode, r.code(), r.wasQuick(), c.status,
				c.code, r.body)
		}
	}
	if r := put(s, "/other--z1--x-s3/key", nil).expect(t, http.StatusForbidden, "AccessDenied"); r.wasQuick() {
		t.Error("a session of another bucket was quick")
	}
	another := "another-secret-key"
	if err := w.iam.Update(t.Context(), "owner", iam.Change{Secret: &another}); err != nil {
		t.Fatal(err)
	}
	put(s, testDirectory+"/key", nil).expect(t, http.StatusBadRequest, "InvalidToken")
}

// The host of a request can name the bucket on the quick path too.
func TestQuickPutsByName(t *testing.T) {
	w := startExpress(t)
	w.express(rootPass(), http.MethodPut, testDirectory, nil).expect(t, http.StatusOK, "")
	s := w.session(rootPass(), testDirectory)
	req := w.request(http.MethodPut, "/a/b", []byte("hello"))
	req.Host = strings.TrimPrefix(testDirectory, "/") + ".storage.example"
	req.URL.Opaque, req.URL.Path = "", "/a/b" // the first line has no host
	req.Header.Set("X-Amz-S3session-Token", s.token)
	signExpress(t, s, req, express.Unsigned)
	if r := w.sent(req).expect(t, http.StatusOK, ""); !r.wasQuick() {
		t.Error("the request was not quick")
	}
	if r := w.express(s, http.MethodGet, testDirectory+"/a/b", nil).expect(t, http.StatusOK,
		""); string(r.body) != "hello" {
		t.Errorf("read %q", r.body)
	}
}

// Above the limit of requests, both paths refuse.
func TestQuickPutsCountAsRequests(t *testing.T) {
	w := startExpress(t)
	w.express(rootPass(), http.MethodPut, testDirectory, nil).expect(t, http.StatusOK, "")
	s := w.session(rootPass(), testDirectory)
	w.server.crowd.n.Add(w.server.crowd.most)
	w.express(s, http.MethodPut, testDirectory+"/key", nil).expect(t, http.StatusServiceUnavailable, "SlowDown")
	w.must(http.StatusServiceUnavailable, http.MethodGet, "/", nil)
	w.server.crowd.n.Add(-w.server.crowd.most)
	w.express(s, http.MethodPut, testDirectory+"/key", nil).expect(t, http.StatusOK, "")
}

func TestAReadOnlyServerTakesNoQuickPut(t *testing.T) {
	st := model.New()
	name := strings.TrimPrefix(testDirectory, "/")
	if err := st.CreateBucket(t.Context(), object.Bucket{Name: name, Owner: rootKey, ETag: object.ETagCRC64}); err != nil {
		t.Fatal(err)
	}
	w := start(t, st, func(o *Options) {
		o.Express, o.ReadOnly = &Express{Key: express.NewKey(), Session: time.Minute}, true
	})
	s := w.session(rootPass(), testDirectory)
	w.express(s, http.MethodPut, testDirectory+"/key", nil).expect(t, http.StatusForbidden, "AccessDenied")
}

// faulty is a store whose Put panics before it has read the content.
type faulty struct{ *model.Store }

func (faulty) Put(context.Context, object.Put) (object.Info, error) { panic("made-up fault") }

func TestAPanicOfAQuickPut(t *testing.T) {
	w := start(t, faulty{model.New()}, func(o *Options) {
		o.Express = &Express{Key: express.NewKey(), Session: time.Minute}
	})
	w.express(rootPass(), http.MethodPut, testDirectory, nil).expect(t, http.StatusOK, "")
	s := w.session(rootPass(), testDirectory)
	for range 2 { // the connection is used again
		r := w.express(s, http.MethodPut, testDirectory+"/key", []byte(strings.Repeat("x", 100_000)))
		if r.expect(t, http.StatusInternalServerError, "InternalError"); !r.wasQuick() {
			t.Error("the PUT was not quick")
		}
	}
	if text := w.log.String(); !strings.Contains(text, "made-up fault") {
		t.Errorf("the log has no panic: %s", text)
	}
}

// judgeSession reports whether the quick path and the general path take the signature of a request.
func judgeSession(d *directories, text []byte) (quick, general bool) {
	read := func() *fasthttp.RequestCtx {
		rctx := &fasthttp.RequestCtx{}
		if rctx.Request.Read(bufio.NewReader(bytes.NewReader(text))) != nil || !rctx.IsPut() {
			return nil
		}
		return rctx
	}
	a, b := read(), read()
	if a == nil || b == nil {
		return false, false
	}
	var h plainHeader
	c := claim{service: express.Service, method: "PUT", operation: "PutObject"}
	bucket, _, ok := plainPath(a.URI().PathOriginal())
	quick = ok && h.read(&a.Request.Header) && h.has(1<<headerToken) && h.has(1<<headerAuthorization) &&
		c.read(a.QueryArgs(), &h) && quickPath{d}.signed(a, &c, &h, bucket)
	r := &asked{rctx: b, at: onObject, plain: plainArgs(b)}
	r.bucket, r.key = splitPath(b)
	return quick, d.admit(r) == nil
}

// The quick path takes no signature that the general path refuses, whatever is changed in a request.
func TestQuickSignaturesAreNoLooser(t *testing.T) {
	w := startExpress(t)
	w.express(rootPass(), http.MethodPut, testDirectory, nil).expect(t, http.StatusOK, "")
	req := w.expressRequest(w.session(rootPass(), testDirectory), express.Unsigned, http.MethodPut, testDirectory+"/key",
		[]byte("hello"))
	req.URL.Opaque, req.URL.Path = "", testDirectory+"/key"
	var base bytes.Buffer
	if err := req.Write(&base); err != nil {
		t.Fatal(err)
	}
	d := w.server.directories
	if quick, general := judgeSession(d, base.Bytes()); !quick || !general {
		t.Fatalf("unchanged: the quick path says %v, the general path %v\n%s", quick, general, base.Bytes())
	}
	r := rand.New(rand.NewPCG(5, 6))
	pieces := []string{" ", "  ", ";", "&", "=", "/", "%20", "+", "0", "a", "A", "host;", "x-amz-date", "\r\n", ",",
		"X-Amz-Date: 20200101T000000Z\r\n", "X-Amz-Checksum-Crc32: NhCmhg==\r\n", "Accept: a\r\n", "Host: a\r\n"}
	head, taken := bytes.Index(base.Bytes(), []byte("\r\n\r\n")), 0
	for range 5000 {
		text := bytes.Clone(base.Bytes())
		switch at := r.IntN(head); r.IntN(4) {
		case 0:
			text[at] ^= 1 << r.IntN(7)
		case 1:
			text = append(text[:at], text[at+1+r.IntN(3):]...)
		case 2:
			text = slices.Insert(text, at, []byte(pieces[r.IntN(len(pieces))])...)
		default: // a line more
			text = slices.Insert(text, bytes.Index(text, []byte("\r\n"))+2, []byte(pieces[15+r.IntN(4)])...)
		}
		quick, general := judgeSession(d, text)
		if quick && !general {
			t.Fatalf("only the quick path takes\n%s", text)
		}
		if quick {
			taken++
		}
	}
	if taken == 0 {
		t.Error("no changed request was taken, so nothing was compared")
	}
}
