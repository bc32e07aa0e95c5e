// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"io"
	"strings"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3api/utils"

	"github.com/nebulaio/nebulaio/internal/s3api/conn"
)

// signedTrailer is the x-amz-content-sha256 of a payload in signed chunks with a checksum as its trailer.
const signedTrailer = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"

// trailerTail is the distance of an extra newline from the end of a body. Some clients write the trailer as
// Amazon's documentation shows it: "\n" "\r\n" "x-amz-trailer-signature:" 64 digits "\r\n\r\n".
const trailerTail = 1 + 2 + 24 + 64 + 4

// mendTrailer removes the extra newline from the body. versitygw would count it as part of the checksum and refuse
// the upload; minio-go and mc send it. Without the extra newline, the byte at this position is the end of a
// checksum, or a newline that follows "\r".
func mendTrailer(ctx fiber.Ctx) {
	r := ctx.Request()
	n, body := r.Header.ContentLength(), r.BodyStream()
	if body == nil || n < trailerTail || string(r.Header.Peek("X-Amz-Content-Sha256")) != signedTrailer {
		return
	}
	utils.ContextKeyBodyReader.Set(ctx, &mendedBody{r: body, left: n - trailerTail})
}

// mendedBody leaves out one byte of a body if it is a newline without "\r".
type mendedBody struct {
	r    io.Reader
	left int  // bytes before the position; -1 after it
	last byte // the last byte that was read before the position
}

func (b *mendedBody) Read(p []byte) (int, error) {
	for {
		n, err := b.r.Read(p)
		switch {
		case b.left < 0:
		case n <= b.left:
			b.left -= n
			if n > 0 {
				b.last = p[n-1]
			}
		default:
			at := b.left
			b.left = -1
			if at > 0 {
				b.last = p[at-1]
			}
			if p[at] == '\n' && b.last != '\r' {
				copy(p[at:], p[at+1:n])
				if n--; n == 0 && err == nil {
					continue
				}
			}
		}
		return n, err
	}
}

// endKey is the user value that holds the chunked body of a request, for drain.
const endKey = "nebulaio-body"

// drainFor is the longest time that drain waits for the end of a body.
const drainFor = time.Second

// watchEnd records whether a chunked body was read to its end. A read behind the end would make the HTTP server
// wait for a chunk that never comes.
func watchEnd(ctx fiber.Ctx) {
	r := ctx.Request()
	if body := r.BodyStream(); body != nil && r.Header.ContentLength() == chunked {
		e := &endingBody{r: body}
		if c, ok := netConn(ctx.RequestCtx()).(*conn.Conn); ok {
			e.conn = c
			c.BeginChunks()
		}
		utils.ContextKeyBodyReader.Set(ctx, e)
		ctx.RequestCtx().SetUserValue(endKey, e)
	}
}

// endingBody records how a chunked body ended.
type endingBody struct {
	r      io.Reader
	conn   *conn.Conn // nil in tests
	read   bool       // whether this reader was used, and not the underlying one
	passed bool       // whether the router has received the request
	err    error      // io.EOF after the last chunk; any other error means that the rest cannot be read
}

// pass records that a request goes to the router. The router reads some bodies without endingBody, so that their
// end is not known.
func pass(rctx *fasthttp.RequestCtx) {
	if body, ok := rctx.UserValue(endKey).(*endingBody); ok {
		body.passed = true
	}
}

func (b *endingBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	b.read = true
	n, err := b.r.Read(p)
	if b.conn != nil {
		b.conn.Delivered(n)
	}
	b.err = err
	return n, err
}

// drain reads the rest of a chunked body. versitygw stops at the last chunk of a signed payload, before the end of
// the body, and the rest would look like the connection's next request. If drain does not find the end, it closes
// the connection.
func drain(ctx *fasthttp.RequestCtx) {
	if ctx.Request.Header.ContentLength() != chunked {
		return // versitygw has read the body to its end
	}
	body, ok := ctx.UserValue(endKey).(*endingBody)
	if !ok || body.passed && !body.read {
		ctx.SetConnectionClose()
		return
	}
	if body.err == nil && ctx.Request.BodyStream() != nil {
		c := netConn(ctx)
		_ = c.SetReadDeadline(time.Now().Add(drainFor)) // a connection that is gone fails at the read
		_, _ = io.CopyN(io.Discard, body, 64<<10)       // body.err has the result
		_ = c.SetReadDeadline(time.Time{})
	}
	if body.err != io.EOF {
		ctx.SetConnectionClose() // the rest is too long, or cannot be read
	}
}

// storedEncoding returns the Content-Encoding of an object: that of the request without aws-chunked, which belongs
// only to the transfer.
func storedEncoding(said *string) *string {
	if said == nil || !strings.Contains(*said, "aws-chunked") {
		return said
	}
	var kept []string
	for _, e := range strings.Split(*said, ",") {
		if e = strings.TrimSpace(e); e != "" && e != "aws-chunked" {
			kept = append(kept, e)
		}
	}
	text := strings.Join(kept, ",")
	return &text
}
