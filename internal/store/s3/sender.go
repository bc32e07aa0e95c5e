// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// SenderOptions are the address of the server and the credentials of a Sender.
type SenderOptions struct {
	Endpoint    string              // URL of the server, "http://host:port" or "https://host"
	Region      string              // region of the signature; empty means us-east-1
	Credentials CredentialsProvider // nil means that requests are not signed
	// VirtualHost names the bucket in the host instead of the path. Amazon's endpoints always get the bucket in the
	// host.
	VirtualHost bool
	CAFile      string // PEM file with additional certificate authorities
	InsecureTLS bool   // accept any certificate
	Connections int    // largest number of connections; 0 means 64
	// Dial is the longest time for a new connection; 0 means 5 s.
	Dial time.Duration
	// Direct sends GET requests without the goroutines of net/http, if the server is reached without TLS and without a
	// proxy. Then the first byte of a reply comes sooner.
	Direct bool
}

// Sender sends single requests to one S3 server. A Sender never waits and never retries, except for requests that it
// signed for a wrong region or by a wrong clock. A Sender is safe for concurrent use.
type Sender struct {
	c    *Client
	keys CredentialsProvider
	host bool
	skew atomic.Int64
	// direct is nil if all requests are sent by net/http.
	direct *direct
	day    atomic.Pointer[dayKey] // the key that was used last
}

// Request is one request of a Sender.
type Request struct {
	Method      string
	Bucket, Key string
	Query       url.Values
	Header      http.Header
	// Text is the content of a small request, which is signed.
	Text []byte
	// Body is the content of a large request, which is not signed. Size is the length of Body.
	Body io.ReadCloser
	Size int64
	// Framed means that Body is in the format aws-chunked with an unsigned trailer.
	Framed bool
}

// NewSender returns a Sender, which connects only with the first request. NewSender fails with kind Invalid for invalid
// options.
func NewSender(o SenderOptions) (*Sender, error) {
	if o.Connections == 0 {
		o.Connections = 64
	}
	if o.Dial == 0 {
		o.Dial = 5 * time.Second
	}
	c, err := New(Options{Endpoint: o.Endpoint, Region: o.Region, CAFile: o.CAFile, InsecureTLS: o.InsecureTLS,
		Connections: o.Connections})
	if err != nil {
		return nil, err
	}
	t, err := newTransport(c.o)
	if err != nil {
		return nil, err
	}
	// The callers of a Sender watch its requests themselves, and a slow client of theirs is no silent server.
	d := net.Dialer{Timeout: o.Dial, KeepAlive: 30 * time.Second}
	t.DialContext = d.DialContext
	t.TLSHandshakeTimeout = o.Dial
	t.MaxConnsPerHost = 0 // callers limit their requests
	t.ExpectContinueTimeout = time.Second
	c.http.Transport = t
	s := &Sender{c: c, keys: o.Credentials, host: o.VirtualHost}
	if o.Direct {
		s.direct = newDirect(t)
	}
	return s, nil
}

// Endpoint returns the URL of the server in its canonical form: host in lower case, no default port, no slash at the
// end.
func (s *Sender) Endpoint() string {
	u := *s.c.base
	u.Host = strings.ToLower(u.Host)
	if u.Port() == "80" && u.Scheme == "http" || u.Port() == "443" && u.Scheme == "https" {
		u.Host = u.Host[:strings.LastIndexByte(u.Host, ':')]
	}
	return u.String()
}

// Secure reports whether the server is reached by TLS.
func (s *Sender) Secure() bool { return s.c.secure() }

// Close closes idle connections.
func (s *Sender) Close() {
	s.c.http.CloseIdleConnections()
	if s.direct != nil {
		s.direct.close()
	}
}

// mostCorrections limits how often one request is repeated with another region or clock.
const mostCorrections = 2

// Send sends a request. The result is a reply with status 2xx or 304 and its body open, a *Fault, or the error of the
// connection. Send closes r.Body in every case, possibly after it has returned.
func (s *Sender) Send(ctx context.Context, r *Request) (*http.Response, error) {
	for n := 0; ; n++ {
		resp, err := s.once(ctx, r)
		f, ok := err.(*Fault)
		if !ok || r.Body != nil || n == mostCorrections || !s.learn(r.Bucket, f) {
			return resp, err
		}
	}
}

// learn reports whether a refusal names the right region or shows a wrong clock, so that the next request will be
// right.
func (s *Sender) learn(bucket string, f *Fault) bool {
	switch {
	case f.Region != "" && (f.Status == http.StatusMovedPermanently || f.Status == http.StatusBadRequest ||
		f.Status == http.StatusForbidden) && s.c.learnRegion(bucket, f.Region):
		return true
	case f.Code == "RequestTimeTooSkewed" && !f.date.IsZero():
		return s.skew.CompareAndSwap(0, int64(time.Until(f.date)))
	}
	return false
}

func (s *Sender) once(ctx context.Context, r *Request) (*http.Response, error) {
	fail := func(err error) (*http.Response, error) {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	u, err := s.address(r)
	if err != nil {
		return fail(err)
	}
	req := &http.Request{Method: r.Method, URL: u, Host: u.Host, Header: r.Header.Clone(), Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1}
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("User-Agent", "nebulaio")
	hash := emptyHash
	switch {
	case r.Body != nil && r.Framed:
		hash = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	case r.Body != nil:
		hash = unsignedPayload
	case r.Text != nil:
		hash = hashOf(r.Text)
	}
	req.Header.Set("X-Amz-Content-Sha256", hash)
	req.ContentLength = int64(len(r.Text))
	if r.Body != nil {
		req.ContentLength = r.Size
	}
	if err := s.sign(ctx, req, r.Bucket, hash); err != nil {
		return fail(err)
	}
	switch {
	case r.Body != nil && r.Size == 0:
		_ = r.Body.Close()
		req.Body = http.NoBody
	case r.Body != nil:
		req.Body = r.Body
	case len(r.Text) > 0:
		req.Body = io.NopCloser(bytes.NewReader(r.Text))
	}
	resp, err := s.do(req.WithContext(ctx))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, withoutURL(err)
	}
	if resp.StatusCode/100 == 2 || resp.StatusCode == http.StatusNotModified {
		return resp, nil
	}
	f := faultOf(resp)
	f.header = resp.Header
	return nil, f
}

// do sends a signed request.
func (s *Sender) do(r *http.Request) (*http.Response, error) {
	if s.direct != nil && s.direct.takes(r) {
		return s.direct.send(r)
	}
	return s.c.http.Do(r)
}

// withoutURL returns the cause of an error of net/http, whose text repeats the method and the address.
func withoutURL(err error) error {
	if u, ok := err.(*url.Error); ok {
		return u.Err
	}
	return err
}

func (s *Sender) sign(ctx context.Context, req *http.Request, bucket, hash string) error {
	if s.keys == nil {
		return nil
	}
	k, err := s.keys(ctx)
	if err != nil {
		return errs.Wrap("get credentials for", s.Endpoint(), err)
	}
	if k.AccessKey == "" {
		return nil
	}
	at := time.Now().Add(time.Duration(s.skew.Load()))
	if s.signQuickly(req, k, s.c.region(bucket), hash, at) {
		return nil
	}
	creds := aws.Credentials{AccessKeyID: k.AccessKey, SecretAccessKey: k.SecretKey, SessionToken: k.SessionToken}
	return errs.Wrap("sign request for", req.URL.Path, s.c.signer.SignHTTP(ctx, creds, req, hash, "s3",
		s.c.region(bucket), at, func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }))
}

func (s *Sender) address(r *Request) (*url.URL, error) {
	u, err := s.c.address(&call{op: r.Method, bucket: r.Bucket, key: r.Key, query: r.Query})
	if err != nil || !s.host || s.c.virtual(r.Bucket) || r.Bucket == "" {
		return u, err
	}
	u.Host = r.Bucket + "." + u.Host
	base := s.c.base.Path
	u.Path = base + strings.TrimPrefix(u.Path[len(base):], "/"+r.Bucket)
	if u.Path == "" {
		u.Path = "/"
	}
	u.RawPath = escape(u.Path, true)
	return u, nil
}

// Header returns a header of the reply, or "" if the Fault was not read from a reply.
func (f *Fault) Header(name string) string { return f.header.Get(name) }

// After returns how long the server asks its clients to wait; 0 if the reply does not say.
func (f *Fault) After() time.Duration { return f.after }

// FaultIn returns the error in a reply whose status says that the request succeeded. Servers begin the reply to a slow
// request before they know its result.
func FaultIn(body []byte) (*Fault, bool) {
	f, ok := parseFault(body)
	if !ok {
		return nil, false
	}
	f.Status = StatusOfCode(f.Code)
	return &f, true
}

// StatusOfCode returns the usual HTTP status of an S3 error code.
func StatusOfCode(code string) int {
	switch code {
	case "NoSuchKey", "NoSuchBucket", "NoSuchUpload", "NoSuchVersion", "NotFound":
		return http.StatusNotFound
	case "AccessDenied":
		return http.StatusForbidden
	case "PreconditionFailed":
		return http.StatusPreconditionFailed
	case "ConditionalRequestConflict", "OperationAborted":
		return http.StatusConflict
	case "InternalError":
		return http.StatusInternalServerError
	case "SlowDown", "ServiceUnavailable":
		return http.StatusServiceUnavailable
	case "NotImplemented":
		return http.StatusNotImplemented
	case "MethodNotAllowed":
		return http.StatusMethodNotAllowed
	}
	return http.StatusBadRequest
}

// EscapePath encodes a key for the header x-amz-copy-source, as for the path of a request.
func EscapePath(s string) string { return escape(s, true) }

// ParseContentRange reads a header Content-Range such as "bytes 0-9/100". The result size is -1 for "*". The result ok
// is false if the text is malformed.
func ParseContentRange(s string) (off, n, size int64, ok bool) { return parseContentRange(s) }

// FrameTrailer returns the last chunk of the format aws-chunked, with a checksum as trailer.
func FrameTrailer(name, value string) []byte {
	return []byte("0\r\n" + name + ":" + value + "\r\n\r\n")
}

// FrameHead returns the line before a chunk of n bytes in the format aws-chunked. The line "\r\n" follows the chunk.
func FrameHead(n int) []byte { return []byte(strconv.FormatInt(int64(n), 16) + "\r\n") }
