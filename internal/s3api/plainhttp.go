// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"errors"
	"slices"
)

// plainRefusal is the reply to a request of plain HTTP on a port of TLS, in the words of Go's own server.
const plainRefusal = "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
	"Client sent an HTTP request to an HTTPS server: this port speaks https:// alone.\n"

var errPlainHTTP = errors.New("a request of plain HTTP on a port of TLS")

// httpBeginnings are the first bytes of a request of HTTP. A record of TLS begins with a byte below 32.
var httpBeginnings = []string{"GET /", "HEAD ", "POST ", "PUT /", "DELET", "OPTIO", "PATCH", "CONNE", "TRACE", "PRI *"}

// looksLikeHTTP says whether the first bytes of a connection begin a request of HTTP.
func looksLikeHTTP(first []byte) bool {
	return len(first) >= 5 && slices.Contains(httpBeginnings, string(first[:5]))
}

// refusePlain answers a client that does not speak TLS, and returns the error that ends the connection.
func (c *stallConn) refusePlain() error {
	c.linger.Store(true) // it may still be sending
	if _, err := c.Write([]byte(plainRefusal)); err != nil {
		return err
	}
	return errPlainHTTP
}
