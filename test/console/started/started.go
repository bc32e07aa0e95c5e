// SPDX-License-Identifier: Apache-2.0

// Package started runs a server with its console inside of a test, and sends requests as a browser does.
package started

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/node"
)

// RootUser and RootPassword are the administrator's keys of every Server.
const (
	RootUser     = "operator"
	RootPassword = "operator-secret"
)

// Server is a running server.
type Server struct {
	node.Started
	Config *config.Config
	Stop   func() // ends the server before the end of the test
	t      testing.TB
}

// Run starts a server with settings in addition to the defaults of tests. The server ends with the test. Only one
// Server can run in a process at a time.
func Run(t testing.TB, settings map[string]string) *Server {
	t.Helper()
	return RunWith(t, Options{Settings: settings})
}

// Options are what a test chooses for its server.
type Options struct {
	Settings map[string]string // in addition to the defaults of tests
	File     string            // configuration file; empty means none
	Now      func() time.Time  // clock by which keys expire; nil means the real one
}

// RunWith starts a server as Run does, with more choices.
func RunWith(t testing.TB, o Options) *Server {
	t.Helper()
	flags := map[string]string{"data": filepath.Join(t.TempDir(), "store"), "address": "127.0.0.1:0",
		"console_address": "127.0.0.1:0"}
	for k, v := range o.Settings {
		flags[k] = v
	}
	env := map[string]string{config.RootUserVariable: RootUser, config.RootPasswordVariable: RootPassword}
	c, err := config.Load(config.Inputs{File: o.File, Flags: flags, Env: func(name string) string { return env[name] }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	up, ended := make(chan node.Started, 1), make(chan error, 1)
	go func() {
		ended <- node.Run(ctx, node.Options{Config: c, Version: "test", Log: io.Discard, Now: o.Now,
			Started: func(s node.Started) { up <- s }})
	}()
	s := &Server{Config: c, t: t}
	select {
	case s.Started = <-up:
	case err := <-ended:
		t.Fatal(err)
	}
	s.Stop = sync.OnceFunc(func() {
		stop(errors.New("the test is over"))
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.Stop)
	return s
}

// AddUser adds an account with the secret NAME-secret.
func (s *Server) AddUser(name string, role iam.Role) {
	s.t.Helper()
	a, err := node.Administer(s.t.Context(), s.Config)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Close()
	if err := a.AddUser(s.t.Context(), iam.Account{AccessKey: name, Secret: name + "-secret", Role: role}); err != nil {
		s.t.Fatal(err)
	}
}

// Browser is a client with cookies, as one user has it.
type Browser struct {
	http *http.Client
	base string
	CSRF string // of the session; sent with requests that have effects
	t    testing.TB
}

// Browser returns a client that keeps cookies as a browser does, and is not logged in. Redirects are not followed.
func (s *Server) Browser() *Browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = trusting()
	s.t.Cleanup(transport.CloseIdleConnections)
	return &Browser{base: s.Console, t: s.t, http: &http.Client{Jar: jar, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// LogIn returns a browser with a session of an account.
func (s *Server) LogIn(access, secret string) *Browser {
	s.t.Helper()
	b := s.Browser()
	var in struct {
		CSRF string `json:"csrf"`
	}
	r := b.JSON(http.MethodPost, "session", map[string]string{"access_key": access, "secret_key": secret})
	if r.Status != http.StatusOK {
		s.t.Fatalf("log in as %s: %d %s", access, r.Status, r.Body)
	}
	r.Into(&in)
	b.CSRF = in.CSRF
	return b
}

// Root returns a browser with a session of the administrator.
func (s *Server) Root() *Browser {
	s.t.Helper()
	return s.LogIn(RootUser, RootPassword)
}

// Reply is a reply of the console.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
	t      testing.TB
}

// Into decodes the JSON of a reply.
func (r *Reply) Into(v any) {
	r.t.Helper()
	if err := json.Unmarshal(r.Body, v); err != nil {
		r.t.Fatalf("%d %s: %v", r.Status, r.Body, err)
	}
}

// Code returns the code of an error reply, or "".
func (r *Reply) Code() string {
	var e struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal(r.Body, &e) // another body has no code
	return e.Error.Code
}

// Request is a request of a browser. Path begins with a slash, or is relative to the API.
type Request struct {
	Method string
	Path   string
	Header map[string]string // an empty value removes the header
	Host   string
	Body   io.Reader
	Size   int64
}

// Send sends a request with the cookies and the token of the session.
func (b *Browser) Send(q Request) *Reply {
	b.t.Helper()
	r, err := b.Try(q)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// Try is Send for requests that may break off.
func (b *Browser) Try(q Request) (*Reply, error) {
	path := q.Path
	if !strings.HasPrefix(path, "/") {
		path = "/console/api/" + path
	}
	r, err := http.NewRequestWithContext(b.t.Context(), q.Method, b.base, q.Body)
	if err != nil {
		return nil, err
	}
	// The path is sent as it is written, without being cleaned.
	raw, query, _ := strings.Cut(path, "?")
	unescaped, err := url.PathUnescape(raw)
	if err != nil {
		return nil, err
	}
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery = unescaped, raw, query
	if q.Body != nil {
		r.ContentLength = q.Size
	}
	if q.Host != "" {
		r.Host = q.Host
	}
	if b.CSRF != "" && q.Method != http.MethodGet {
		r.Header.Set("X-CSRF-Token", b.CSRF)
	}
	for k, v := range q.Header {
		if v == "" {
			r.Header.Del(k)
			continue
		}
		r.Header.Set(k, v)
	}
	resp, err := b.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return &Reply{Status: resp.StatusCode, Header: resp.Header, Body: body, t: b.t}, err
}

// Stream opens a stream of server-sent events of the API. The caller closes the body.
func (b *Browser) Stream(path string) *http.Response {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.base+"/console/api/"+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp
}

// JSON sends a request to the API with a JSON body, or without one if v is nil.
func (b *Browser) JSON(method, path string, v any) *Reply {
	b.t.Helper()
	q := Request{Method: method, Path: path}
	if v != nil {
		text, err := json.Marshal(v)
		if err != nil {
			b.t.Fatal(err)
		}
		q.Body, q.Size = bytes.NewReader(text), int64(len(text))
		q.Header = map[string]string{"Content-Type": "application/json"}
	}
	return b.Send(q)
}

// Must sends a request as JSON does, and ends the test unless the reply has a status of success.
func (b *Browser) Must(method, path string, v any) *Reply {
	b.t.Helper()
	r := b.JSON(method, path, v)
	if r.Status/100 != 2 {
		b.t.Fatalf("%s %s: %d %s", method, path, r.Status, r.Body)
	}
	return r
}

// Put uploads an object with one request.
func (b *Browser) Put(bucket, key, content string, header map[string]string) *Reply {
	b.t.Helper()
	return b.Send(Request{Method: http.MethodPut,
		Path:   fmt.Sprintf("buckets/%s/content?key=%s", bucket, url.QueryEscape(key)),
		Header: header, Body: strings.NewReader(content), Size: int64(len(content))})
}

// Cookies returns the cookies that the browser would send.
func (b *Browser) Cookies() []*http.Cookie {
	u, err := url.Parse(b.base + "/console/")
	if err != nil {
		b.t.Fatal(err)
	}
	return b.http.Jar.Cookies(u)
}

// SetCookie puts a cookie into the browser.
func (b *Browser) SetCookie(c *http.Cookie) {
	u, err := url.Parse(b.base + "/console/")
	if err != nil {
		b.t.Fatal(err)
	}
	b.http.Jar.SetCookies(u, []*http.Cookie{c})
}
