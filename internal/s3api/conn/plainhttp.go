// SPDX-License-Identifier: Apache-2.0

package conn

import (
	"errors"
	"slices"
)

// plainRefusal is the reply to plain HTTP on a TLS port, with the text of Go's own server.
const plainRefusal = "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: " +
	"close\r\n\r\n" +
	"Client sent an HTTP request to an HTTPS server: this port speaks https:// alone.\n"

var errPlainHTTP = errors.New("a request of plain HTTP on a TLS port")

// httpBeginnings are the first five bytes of HTTP requests. A TLS record begins with a byte below 32.
var httpBeginnings = []string{"GET /", "HEAD ", "POST ", "PUT /", "DELET", "OPTIO", "PATCH", "CONNE", "TRACE", "PRI *"}

// looksLikeHTTP reports whether the first bytes of a connection begin an HTTP request.
func looksLikeHTTP(first []byte) bool {
	return len(first) >= 5 && slices.Contains(httpBeginnings, string(first[:5]))
}

// refusePlain replies to a client that does not use TLS, and returns the error that ends the connection.
func (c *Conn) refusePlain() error {
	c.Linger() // the client may still be sending
	if _, err := c.Write([]byte(plainRefusal)); err != nil {
		return err
	}
	return errPlainHTTP
}
