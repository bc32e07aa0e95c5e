// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"crypto/tls"
	"net"

	"github.com/nebulaio/nebulaio/internal/s3api/conn"
)

// trusted is a listener whose connections count as TLS connections, although they stay inside of this process. A policy
// with a condition on aws:SecureTransport then decides as for the client of the other part of the process.
type trusted struct{ net.Listener }

func (t trusted) Accept() (net.Conn, error) {
	c, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if inner, ok := c.(*conn.Conn); ok {
		return &trustedConn{inner}, nil
	}
	return c, nil
}

// trustedConn is a connection of a trusted listener. The HTTP server recognizes TLS connections by the methods of
// trustedConn.
type trustedConn struct{ *conn.Conn }

// Handshake does nothing, because the connection is not encrypted.
func (*trustedConn) Handshake() error { return nil }

// ConnectionState returns an empty state: no protocol was negotiated.
func (*trustedConn) ConnectionState() tls.ConnectionState { return tls.ConnectionState{} }
