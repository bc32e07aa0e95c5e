// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// call is one request, which may have to be sent several times.
type call struct {
	op     string // for errors: "get"
	method string
	bucket string
	key    string
	query  url.Values
	header http.Header
	// body, if not nil, opens the content anew; size is its length on the wire.
	body func() (io.ReadCloser, error)
	size int64
	// hash is the hash of the content in the signature; empty: no content.
	hash    string
	traffic *traffic
	// connected, if not nil, is called with the connection before the request is sent.
	connected func(net.Conn)
	// at, if not empty, is the address to which a server redirected the client.
	at string
}

func (q *call) name() string { return URL(q.bucket, q.key) }

// emptyHash is the SHA-256 of nothing.
var emptyHash = hashOf(nil)

const unsignedPayload = "UNSIGNED-PAYLOAD"

func hashOf(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// escape encodes a path or a value for a signature: everything but letters, digits, "-._~" and, in paths, "/" becomes
// hex.
func escape(s string, path bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~', path &&
			c == '/':
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

// virtual reports whether a bucket is named in the host: Amazon requires that, and a certificate covers one label.
func (c *Client) virtual(bucket string) bool {
	host := c.base.Hostname()
	amazon := host == "amazonaws.com" || strings.HasSuffix(host, ".amazonaws.com") ||
		strings.HasSuffix(host, ".amazonaws.com.cn")
	return bucket != "" && (amazon || c.o.VirtualHost) && !strings.ContainsAny(bucket, "._")
}

// address returns the URL of a call.
func (c *Client) address(q *call) (*url.URL, error) {
	u := *c.base
	path := u.Path
	switch {
	case c.virtual(q.bucket):
		u.Host = q.bucket + "." + u.Host
	case q.bucket != "":
		path += "/" + q.bucket
	}
	if path += "/"; q.key != "" {
		path += q.key
	} else if q.bucket != "" && !c.virtual(q.bucket) {
		path = strings.TrimSuffix(path, "/")
	}
	u.Path, u.RawPath = path, escape(path, true)
	var query []string
	for _, k := range slices.Sorted(mapKeys(q.query)) {
		for _, v := range q.query[k] {
			query = append(query, escape(k, false)+"="+escape(v, false))
		}
	}
	u.RawQuery = strings.Join(query, "&")
	if q.at != "" {
		to, err := url.Parse(q.at)
		if err != nil || to.Host == "" || to.Scheme != u.Scheme {
			return nil, errs.New(errs.Unsupported, q.op, q.name(),
				fmt.Sprintf("the server sends the client to %q; expected a URL with %s", q.at, u.Scheme))
		}
		if !c.ours(to.Hostname()) {
			return nil, errs.New(errs.Permission, q.op, q.name(),
				fmt.Sprintf("the server sends the client to %q, which is no part of %s: it would get the content, and a signature",
					to.Host, u.Hostname())).
				WithFix("if that server is to be trusted, make it the endpoint")
		}
		u.Host, u.Path, u.RawPath = to.Host, to.Path, to.RawPath
	}
	return &u, nil
}

// ours reports whether a host may replace the endpoint: itself, a host below it, or, for Amazon, another host of
// Amazon.
func (c *Client) ours(host string) bool {
	base := c.base.Hostname()
	below := func(host, domain string) bool { return host == domain || strings.HasSuffix(host, "."+domain) }
	if below(host, base) {
		return true
	}
	for _, domain := range []string{"amazonaws.com", "amazonaws.com.cn"} {
		if below(base, domain) && below(host, domain) {
			return true
		}
	}
	return false
}

func mapKeys(m url.Values) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// once sends a call a single time. The result is a successful reply with its body open, a *Fault, or the error of the
// connection.
func (c *Client) once(ctx context.Context, q *call) (*http.Response, error) {
	u, err := c.address(q)
	if err != nil {
		return nil, err
	}
	r := &http.Request{Method: q.method, URL: u, Host: u.Host, Header: q.header.Clone(), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("User-Agent", "nebulaio")
	hash := q.hash
	if hash == "" {
		hash = emptyHash
	}
	r.Header.Set("X-Amz-Content-Sha256", hash)
	r.ContentLength = q.size
	keys, err := c.keys(ctx)
	if err != nil {
		return nil, err
	}
	if keys.AccessKeyID != "" {
		at := time.Now().Add(time.Duration(c.skew.Load()))
		if err := c.signer.SignHTTP(ctx, keys, r, hash, "s3", c.region(q.bucket), at); err != nil {
			return nil, errs.Wrap("sign request for", q.name(), err)
		}
	}
	if q.body != nil {
		if r.Body, err = q.body(); err != nil {
			return nil, &sourceError{err}
		}
	}
	q.traffic.request()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		q.traffic.connection(i.Conn)
		if q.connected != nil {
			q.connected(i.Conn)
		}
	}})
	resp, err := c.http.Do(r.WithContext(ctx))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	f := faultOf(resp)
	if f.Status == http.StatusServiceUnavailable || f.Status == http.StatusTooManyRequests {
		c.slowed.Add(1)
	}
	f.anonymous = keys.AccessKeyID == ""
	if q.method == http.MethodHead && f.Region == "" && refusesRequest(f.Status) {
		return nil, c.explained(ctx, q, f)
	}
	return nil, f
}

// refusesRequest reports whether a status is about the request or its signature, which can have many reasons, and not
// about the object. A missing object is requested often, and its status is clear enough.
func refusesRequest(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusUnauthorized || status == http.StatusForbidden
}

// explained asks for the reason of a refused HEAD with a GET of one byte. The reply to a HEAD has no body, so a wrong
// secret key and a missing permission look alike. It returns f if the GET tells no more.
func (c *Client) explained(ctx context.Context, q *call, f *Fault) error {
	get := *q
	get.method, get.header = http.MethodGet, http.Header{"Range": {"bytes=0-0"}}
	resp, err := c.once(ctx, &get)
	if err == nil {
		resp.Body.Close()
		return f
	}
	if told, ok := err.(*Fault); ok && told.Status == f.Status {
		return told
	}
	return f
}

// do sends a call until it succeeds, within the limits of tries. The reply's body is open.
func (c *Client) do(ctx context.Context, q *call, t *tries) (*http.Response, error) {
	for moves := 0; ; {
		resp, err := c.once(ctx, q)
		if err == nil {
			return resp, nil
		}
		if moves < 3 && c.corrected(q, err) {
			moves++
			q.traffic.retry()
			continue
		}
		if err := t.again(ctx, q.op, q.name(), err); err != nil {
			return nil, err
		}
		q.traffic.retry()
	}
}

// corrected reports whether a refusal names the mistake in the request, so that the next one will be right: another
// region, another host, our clock.
func (c *Client) corrected(q *call, err error) bool {
	f, ok := err.(*Fault)
	if !ok {
		return false
	}
	switch {
	case f.Region != "" && (f.Status == http.StatusMovedPermanently || f.Status == http.StatusBadRequest ||
		f.Status == http.StatusForbidden) && c.learnRegion(q.bucket, f.Region):
		return true
	case f.Status == http.StatusTemporaryRedirect && f.location != "" && f.location != q.at:
		q.at = f.location
		return true
	case f.Code == "RequestTimeTooSkewed" && !f.date.IsZero():
		return c.skew.CompareAndSwap(0, int64(time.Until(f.date)))
	}
	return false
}

// How long to wait before a retry, and how long in total without progress.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = 5 * time.Second
	mostAfter  = 30 * time.Second
	patience   = 2 * time.Minute
)

// tries counts the failures of one piece of work.
type tries struct {
	c      *Client
	failed int // in a row, without progress
	total  int
	since  time.Time
}

func (c *Client) tries() *tries { return &tries{c: c, since: time.Now()} }

// moved records progress: further failures are counted from zero, up to ten times as often in total.
func (t *tries) moved() {
	t.failed, t.since = 0, time.Now()
}

// again waits, after err, until the next try. If there is none, again returns the final error.
func (t *tries) again(ctx context.Context, op, name string, err error) error {
	if ctx.Err() != nil {
		return failure(op, name, context.Cause(ctx))
	}
	if !transient(err) {
		return failure(op, name, err)
	}
	t.failed++
	t.total++
	took := time.Since(t.since)
	if t.failed > t.c.o.Retries || t.total > 10*t.c.o.Retries || took > patience {
		if t.total == 1 {
			return failure(op, name, err)
		}
		return errs.Wrap(op, name, &errs.Error{Kind: errs.KindOf(failure(op, name, err)),
			Op:  fmt.Sprintf("given up after %d tries in %s", t.total, units.Duration(took)),
			Err: err, Fix: errs.FixOf(failure(op, name, err))})
	}
	pause := min(mostPause, firstPause<<min(t.failed-1, 10))
	pause = pause/2 + rand.N(pause/2+1)
	if f, ok := err.(*Fault); ok && f.after > 0 {
		pause = max(pause, min(f.after, mostAfter))
	}
	if err := t.c.wait(ctx, pause); err != nil {
		return failure(op, name, err)
	}
	return nil
}

// pause waits, or returns the reason why the context has ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
