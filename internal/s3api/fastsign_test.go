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
	"net/http/httputil"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3api/middlewares"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/store/model"
	"github.com/nebulaio/nebulaio/test/effort"
)

// signers judge the signature of a request: ours of the fast path, and versitygw's.
type signers struct {
	fast     *verifier
	put, get []fiber.Handler // of versitygw
	app      *fiber.App
	accounts *iam.Service
}

func newSigners(t testing.TB) *signers {
	t.Helper()
	accounts, err := iam.Open(context.Background(), model.New(), iam.Account{AccessKey: rootKey, Secret: rootSecret})
	if err != nil {
		t.Fatal(err)
	}
	root := middlewares.RootUserConfig{Access: rootKey, Secret: rootSecret}
	handlers := func(streamed bool) []fiber.Handler {
		return []fiber.Handler{
			middlewares.VerifyPresignedV4Signature(root, iamOf(accounts), testRegion, streamed),
			middlewares.VerifyV4Signature(root, iamOf(accounts), testRegion, streamed, true, false),
		}
	}
	return &signers{
		fast: &verifier{accounts: accounts, region: testRegion}, app: fiber.New(), accounts: accounts,
		put: handlers(true), get: handlers(false),
	}
}

func iamOf(s *iam.Service) accounts { return accounts{svc: s} }

// judge returns whether the fast path takes the signature of a request, and whether versitygw does. It returns false
// twice for text that is no request.
func (s *signers) judge(text []byte) (fast, library bool) {
	var rctx fasthttp.RequestCtx
	if err := rctx.Request.Read(bufio.NewReader(bytes.NewReader(text))); err != nil {
		return false, false
	}
	path := rctx.URI().PathOriginal()
	_, _, plain := plainPath(path)
	var h plainHeader
	c, read := claim{service: "s3", method: "PUT", operation: "PutObject"}, h.read
	if rctx.IsGet() {
		c.method, c.operation, read = "GET", "GetObject", h.readGet
	}
	if plain && (rctx.IsPut() || rctx.IsGet()) && read(&rctx.Request.Header) && c.read(rctx.QueryArgs(), &h) &&
		(rctx.IsPut() || c.payload == unsignedPayload || c.payload == emptySHA256) {
		_, fast = s.fast.account(&c, &h, path)
	}
	ctx := s.app.AcquireCtx(&rctx)
	defer s.app.ReleaseCtx(ctx)
	library = true
	handlers := s.put
	if rctx.IsGet() {
		handlers = s.get
	}
	for _, judge := range handlers {
		library = library && judge(ctx) == nil
	}
	return fast, library
}

// signedRequests returns requests of the kinds that clients send, as they are on the wire.
func signedRequests(t testing.TB, now time.Time) map[string][]byte {
	t.Helper()
	body := []byte("hello")
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	keys := aws.Credentials{AccessKeyID: rootKey, SecretAccessKey: rootSecret}
	out := map[string][]byte{}
	send := func(method, name, target, payload string, presign bool, header ...string) {
		body := body
		if method == http.MethodGet {
			body = nil
		}
		r, err := http.NewRequest(method, "http://127.0.0.1:9000"+target, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
		if presign {
			q := r.URL.Query()
			q.Set("X-Amz-Expires", "600")
			r.URL.RawQuery = q.Encode()
			uri, signed, err := signer.PresignHTTP(t.Context(), keys, r, payload, "s3", testRegion, now)
			if err != nil {
				t.Fatal(err)
			}
			if r, err = http.NewRequest(method, uri, bytes.NewReader(body)); err != nil {
				t.Fatal(err)
			}
			for k, v := range signed {
				r.Header[k] = v
			}
		} else {
			r.Header.Set("X-Amz-Content-Sha256", payload)
			if err := signer.SignHTTP(t.Context(), keys, r, payload, "s3", testRegion, now); err != nil {
				t.Fatal(err)
			}
		}
		if out[name], err = httputil.DumpRequestOut(r, true); err != nil {
			t.Fatal(err)
		}
	}
	add := func(name, target, payload string, presign bool, header ...string) {
		send(http.MethodPut, name, target, payload, presign, header...)
	}
	add("presigned", "/bucket/key", unsignedPayload, true)
	add("presigned with a type", "/bucket/a/b~c_d-e.f", unsignedPayload, true, "Content-Type", "text/plain")
	add("header", "/bucket/key", hash, false)
	add("header, unsigned payload", "/bucket/key", unsignedPayload, false)
	add("header of an SDK", "/bucket/key?x-id=PutObject", hash, false, "Amz-Sdk-Request", "attempt=1; max=3",
		"Amz-Sdk-Invocation-Id", "0-1", "X-Amz-Checksum-Crc32", "NhCmhg==", "X-Amz-Sdk-Checksum-Algorithm", "CRC32",
		"Accept-Encoding", "identity")
	get := func(name, target, payload string, presign bool, header ...string) {
		send(http.MethodGet, name, target, payload, presign, header...)
	}
	get("presigned GET", "/bucket/key", unsignedPayload, true)
	get("GET", "/bucket/key", emptySHA256, false)
	get("GET of a range, unsigned payload", "/bucket/key", unsignedPayload, false, "Range", "bytes=0-1", "If-Match", `"1"`)
	get("GET of an SDK", "/bucket/key?x-id=GetObject", emptySHA256, false, "Amz-Sdk-Request", "attempt=1; max=3",
		"Amz-Sdk-Invocation-Id", "0-1", "X-Amz-Checksum-Mode", "ENABLED", "Accept-Encoding", "identity")
	return out
}

func TestFastSignaturesAreAccepted(t *testing.T) {
	s := newSigners(t)
	for name, text := range signedRequests(t, time.Now()) {
		if fast, library := s.judge(text); !fast || !library {
			t.Errorf("%s: the fast path says %v, versitygw %v\n%s", name, fast, library, text)
		}
	}
	for name, text := range signedRequests(t, time.Now().Add(-20*time.Minute)) {
		if fast, library := s.judge(text); fast || library {
			t.Errorf("%s, expired: the fast path says %v, versitygw %v\n%s", name, fast, library, text)
		}
	}
	if err := s.accounts.Add(t.Context(), iam.Account{AccessKey: "bob", Secret: "bobssecret",
		Role: iam.RoleUser}); err != nil {
		t.Fatal(err)
	}
	for range 2 * mostSigningKeys { // the cache is bounded
		s.fast.signingKey(iam.Account{AccessKey: string(rune(rand.IntN(1 << 16))), Secret: "x"}, "20260101")
	}
	if n := len(s.fast.keys); n > mostSigningKeys {
		t.Errorf("%d signing keys are cached, expected at most %d", n, mostSigningKeys)
	}
}

// The fast path takes no signature that versitygw refuses, whatever is changed in a request.
func TestFastSignaturesAreNoLooser(t *testing.T) {
	s := newSigners(t)
	r := rand.New(rand.NewPCG(3, 4))
	pieces := []string{" ", "  ", "\t", ";", "&", "=", "/", "%2F", "%20", "+", "0", "a", "A", "host;", "x-amz-date",
		"X-Amz-Date: 20200101T000000Z\r\n", "X-Amz-Acl: private\r\n", "Host: a\r\n", "&X-Amz-Expires=5", "\r\n", ","}
	taken, changes := 0, effort.Rounds{Test: 750, CI: 3000}.Of(t)
	for name, base := range signedRequests(t, time.Now()) {
		head := bytes.Index(base, []byte("\r\n\r\n"))
		for range changes {
			text := bytes.Clone(base)
			for range 1 + r.IntN(2) {
				at := r.IntN(head)
				switch r.IntN(4) {
				case 0:
					text[at] ^= 1 << r.IntN(7)
				case 1:
					text = append(text[:at], text[min(at+1+r.IntN(3), len(text)):]...)
				case 2:
					text = append(text[:at:at], append([]byte(pieces[r.IntN(len(pieces))]), text[at:]...)...)
				default: // a line more
					line := bytes.Index(text, []byte("\r\n")) + 2
					text = append(text[:line:line], append([]byte(pieces[15+r.IntN(3)]), text[line:]...)...)
				}
			}
			fast, library := s.judge(text)
			if fast && !library {
				t.Fatalf("%s: only the fast path takes\n%s", name, text)
			}
			if fast {
				taken++
			}
		}
	}
	if taken == 0 {
		t.Error("no changed request was taken, so nothing was compared")
	}
}

func FuzzFastSignature(f *testing.F) {
	s := newSigners(f)
	for _, text := range signedRequests(f, time.Now()) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if fast, library := s.judge(text); fast && !library {
			t.Errorf("only the fast path takes\n%s", text)
		}
	})
}
