// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/model"
)

const (
	rootKey, rootSecret = "rootaccess", "rootsecretkey"
	testRegion          = "us-east-1"
)

// world is a running front end and a client of it.
type world struct {
	t      testing.TB
	scheme string
	addr   string
	store  object.Store
	iam    *iam.Service
	http   *http.Client
	events chan Event
	log    *syncBuffer
	server *Server
	stop   context.CancelFunc
	done   chan error
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start runs a front end over store (nil: a fresh model) until the test ends.
func start(t testing.TB, store object.Store, change func(*Options)) *world {
	t.Helper()
	if store == nil {
		store = model.New()
	}
	accounts, err := iam.Open(t.Context(), store, iam.Account{AccessKey: rootKey, Secret: rootSecret})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, scheme: "http", addr: l.Addr().String(), store: store, iam: accounts, events: make(chan Event, 4096),
		log: &syncBuffer{}, done: make(chan error, 1)}
	w.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: time.Minute}
	o := Options{
		Store: store, Accounts: accounts, Listeners: []net.Listener{l}, Region: testRegion, Drain: 10 * time.Second,
		Observe: func(e Event) { w.events <- e }, Log: slog.New(slog.NewTextHandler(w.log, nil)),
	}
	if change != nil {
		change(&o)
	}
	w.server, err = New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	go func() { w.done <- w.server.Serve(ctx) }()
	t.Cleanup(func() {
		w.http.CloseIdleConnections()
		cancel()
		if err := <-w.done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return w
}

// reply is an answer that has been read.
type reply struct {
	*http.Response
	body []byte
}

// code is the S3 error code of a reply.
func (r *reply) code() string {
	var e struct{ Code string }
	_ = xml.Unmarshal(r.body, &e) // no error has no code
	return e.Code
}

// do sends a signed request; path is escaped as it has to be on the wire, headers are name and value in turn.
func (w *world) do(method, path string, body []byte, headers ...string) *reply {
	w.t.Helper()
	r, err := w.try(rootKey, rootSecret, method, path, body, headers...)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

func (w *world) try(key, secret, method, path string, body []byte, headers ...string) (*reply, error) {
	req := w.request(method, path, body, headers...)
	if key != "" {
		sum := sha256.Sum256(body)
		sign(w.t, req, key, secret, hex.EncodeToString(sum[:]))
	}
	return w.roundTrip(req)
}

// nobody sends a request without an account.
func (w *world) nobody(method, path, body string, headers ...string) *reply {
	w.t.Helper()
	return w.sent(w.request(method, path, []byte(body), headers...))
}

// sent sends a request as it is. A request that gets no whole reply fails the test.
func (w *world) sent(req *http.Request) *reply {
	w.t.Helper()
	r, err := w.roundTrip(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	return r
}

func (w *world) roundTrip(req *http.Request) (*reply, error) {
	resp, err := w.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return &reply{resp, text}, err
}

// sign signs a request with version 4; hash is what X-Amz-Content-Sha256 says.
func sign(t testing.TB, req *http.Request, key, secret, hash string) {
	t.Helper()
	req.Header.Set("X-Amz-Content-Sha256", hash)
	err := v4.NewSigner().SignHTTP(context.Background(), aws.Credentials{AccessKeyID: key, SecretAccessKey: secret}, req,
		hash, "s3", testRegion, time.Now(),
		func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) request(method, path string, body []byte, headers ...string) *http.Request {
	w.t.Helper()
	req, err := http.NewRequest(method, w.scheme+"://"+w.addr+"/", bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	path, query, _ := strings.Cut(path, "?")
	req.URL.Opaque = "//" + w.addr + path // as it is, dots and all
	req.URL.RawQuery = query
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

// must is do for what has to answer with a status.
func (w *world) must(status int, method, path string, body []byte, headers ...string) *reply {
	w.t.Helper()
	r := w.do(method, path, body, headers...)
	if r.StatusCode != status {
		w.t.Fatalf("%s %s: status %d, expected %d: %s", method, path, r.StatusCode, status, r.body)
	}
	return r
}

func md5Base64(s string) string {
	sum := md5.Sum([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}
