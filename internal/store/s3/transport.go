// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// ClientTLS returns the TLS settings of a client. The parameter caFile names a PEM file with certificate authorities
// that are trusted in addition to those of the system; "" means none. If insecure is set, the client accepts every
// certificate.
func ClientTLS(caFile string, insecure bool) (*tls.Config, error) {
	conf := &tls.Config{InsecureSkipVerify: insecure, MinVersion: tls.VersionTLS12} //nolint:gosec // asked for
	if caFile == "" {
		return conf, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, errs.Wrap("read certificates", caFile, err)
	}
	if conf.RootCAs, err = x509.SystemCertPool(); err != nil {
		conf.RootCAs = x509.NewCertPool()
	}
	if !conf.RootCAs.AppendCertsFromPEM(pem) {
		return nil, errs.New(errs.Invalid, "read certificates", caFile, "has none; expected one or more in PEM")
	}
	return conf, nil
}

// newTransport returns the transport of net/http, set up for content. It uses HTTP/1.1, since HTTP/2 costs several
// times the processor time per byte and has one connection. It has small buffers, which larger reads and writes
// bypass, and no compression.
func newTransport(o Options) (*http.Transport, error) {
	conf, err := ClientTLS(o.CAFile, o.InsecureTLS)
	if err != nil {
		return nil, err
	}
	conf.NextProtos = []string{"http/1.1"}
	d := net.Dialer{Timeout: min(o.Timeout, 10*time.Second), KeepAlive: 30 * time.Second}
	var only http.Protocols
	only.SetHTTP1(true)
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &conn{Conn: c, quiet: o.Timeout}, nil
		},
		Protocols:           &only,
		TLSClientConfig:     conf,
		TLSHandshakeTimeout: min(o.Timeout, 10*time.Second),
		DisableCompression:  true,
		MaxIdleConns:        2 * o.Connections,
		MaxIdleConnsPerHost: 2 * o.Connections,
		// Twice, for reads and writes at once and what is asked beside them;
		// callers keep to Parallel.
		MaxConnsPerHost:        2 * o.Connections,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		ReadBufferSize:         4 << 10,
		WriteBufferSize:        4 << 10,
	}, nil
}

// conn closes after a time without traffic, and sends bodies block by block.
type conn struct {
	net.Conn
	quiet time.Duration
}

func (c *conn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.quiet)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write sends p, and also restarts the timeout of a Read that waits for the reply.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.quiet)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// ReadFrom sends the body of a request; net/http calls it. ReadFrom sends each block of a payload with one call,
// instead of copying it through a buffer of 32 KiB.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	if l, ok := r.(*io.LimitedReader); ok {
		if p, ok := l.R.(*payload); ok {
			n, err := p.writeTo(c, l.N)
			l.N -= n
			return n, err
		}
	}
	return io.Copy(struct{ io.Writer }{c}, r)
}

// writeAll sends several pieces with one system call.
func (c *conn) writeAll(pieces net.Buffers) (int64, error) {
	if err := c.SetDeadline(time.Now().Add(c.quiet)); err != nil {
		return 0, err
	}
	return pieces.WriteTo(c.Conn)
}
