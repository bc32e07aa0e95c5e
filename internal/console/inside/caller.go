// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"context"
	"encoding/xml"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// host is the host name of requests inside of the process. It is no name of a network, and never a bucket's.
const host = "console.invalid"

// Caller sends S3 requests to the front end that accepts the connections of a Listener. A Caller is safe for concurrent
// use.
type Caller struct {
	listener *Listener
	region   string
	now      func() time.Time
}

// NewCaller returns a Caller that signs for a region.
func NewCaller(l *Listener, region string) *Caller {
	return &Caller{listener: l, region: region, now: time.Now}
}

// As is the account in whose name a request is sent, and the address of its client.
type As struct {
	Account iam.Account
	From    net.Addr
}

// Request is one S3 request.
type Request struct {
	Method      string
	Bucket, Key string // empty for requests about all buckets, or about a bucket
	Query       url.Values
	Header      http.Header
	Body        io.Reader // nil for a request without a body
	Size        int64     // of the body in bytes
}

// Do sends a request and returns the reply. The caller closes the body of the reply. A reply of S3 that refuses the
// request is an error of type *s3.Fault. Do sends the request once: over a connection inside of the process, no retry
// can help.
func (c *Caller) Do(ctx context.Context, as As, r Request) (*http.Response, error) {
	u := &url.URL{Scheme: "http", Host: host, Path: "/" + r.Bucket}
	if r.Key != "" {
		u.Path += "/" + r.Key
	}
	u.RawPath = s3.EscapePath(u.Path)
	u.RawQuery = strings.ReplaceAll(r.Query.Encode(), "+", "%20")
	req := (&http.Request{Method: r.Method, URL: u, Host: host, Header: r.Header.Clone(), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1, ContentLength: r.Size}).WithContext(ctx)
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("User-Agent", "nebulaio-console")
	hash := ""
	if r.Body != nil {
		hash = s3.UnsignedPayload
	}
	keys := s3.Credentials{AccessKey: as.Account.AccessKey, SecretKey: as.Account.Secret,
		SessionToken: as.Account.Token}
	if err := s3.SignRequest(ctx, req, keys, c.region, hash, c.now()); err != nil {
		return nil, err
	}
	switch {
	case r.Body != nil && r.Size == 0:
		req.Body = http.NoBody // otherwise the size would count as unknown
	case r.Body != nil:
		req.Body = io.NopCloser(r.Body)
	}
	resp, err := c.transport(as.From).RoundTrip(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, errs.Wrap("ask the S3 front end for", r.Bucket+"/"+r.Key, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	return nil, s3.FaultOf(resp)
}

// transport returns a transport for one request. Its connection stands for the address of one client, and so must not
// serve the requests of others.
func (c *Caller) transport(from net.Addr) *http.Transport {
	var only http.Protocols
	only.SetHTTP1(true)
	return &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return c.listener.Dial(from) },
		Protocols:              &only,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		WriteBufferSize:        64 << 10,
		ReadBufferSize:         64 << 10,
	}
}

// maxDocument is the largest XML reply that XML reads, in bytes. A page of 1000 versions has less than 2 MiB.
const maxDocument = 16 << 20

// XML sends a request and decodes the XML of its reply into out. If out is nil, XML ignores the reply. XML returns the
// headers of the reply.
func (c *Caller) XML(ctx context.Context, as As, r Request, out any) (http.Header, error) {
	resp, err := c.Do(ctx, as, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return nil, errs.Wrap("read the reply of the S3 front end about", r.Bucket+"/"+r.Key, err)
	}
	if len(body) > maxDocument {
		return nil, errs.New(errs.Unsupported, "read the reply of the S3 front end about", r.Bucket+"/"+r.Key,
			"it has more than 16 MiB")
	}
	if fault, is := s3.FaultIn(body); is {
		return nil, fault // S3 begins the reply to a slow request before it knows the result
	}
	if out == nil || len(body) == 0 {
		return resp.Header, nil
	}
	return resp.Header, errs.Wrap("read the reply of the S3 front end about", r.Bucket+"/"+r.Key, xml.Unmarshal(body, out))
}
