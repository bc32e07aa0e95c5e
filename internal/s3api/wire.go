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

// signedTrailer is the payload of clients that send a checksum behind signed chunks.
const signedTrailer = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"

// trailerTail is how far before a body's end a newline stands where a client ends its trailer
// as Amazon's description does, with a newline before the usual two bytes:
// "\n" "\r\n" "x-amz-trailer-signature:" 64 digits "\r\n\r\n".
const trailerTail = 1 + 2 + 24 + 64 + 4

// mendTrailer takes that newline out of the body, for versitygw counts it as part
// of the checksum and refuses the upload; minio-go and mc send it. Where it does
// not stand, that place holds the end of a checksum, which is no newline, or of
// the last chunk where there is no checksum at all, which is one behind "\r".
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
	left int  // bytes before it; -1 behind it
	last byte // the one before it, as far as it was read
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

// endKey is where drain finds the body of a request whose length is not known.
const endKey = "nebulaio-body"

// drainFor bounds how long a client is waited for that does not end its body.
const drainFor = time.Second

// watchEnd lets drain know whether a body of chunks was read to its end: read behind it, the HTTP
// server would wait for a chunk that never comes.
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

// endingBody remembers how a body of chunks ended.
type endingBody struct {
	r      io.Reader
	conn   *conn.Conn // nil in tests
	read   bool       // this reader was used, and not the one below it
	passed bool       // the router has had the request
	err    error      // io.EOF behind the last chunk; any other means that the rest cannot be read
}

// pass notes that a request goes to the router. It reads some bodies without our reader, so that nobody
// knows where they ended.
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

// drain reads what is left of a chunked body. The last chunk of a signed payload
// ends what the front end reads, but not the body; the rest would be taken for
// the connection's next request. Where the end is not found, the connection ends.
func drain(ctx *fasthttp.RequestCtx) {
	if ctx.Request.Header.ContentLength() != chunked {
		return // versitygw has done it
	}
	body, ok := ctx.UserValue(endKey).(*endingBody)
	if !ok || body.passed && !body.read {
		ctx.SetConnectionClose()
		return
	}
	if body.err == nil && ctx.Request.BodyStream() != nil {
		c := netConn(ctx)
		_ = c.SetReadDeadline(time.Now().Add(drainFor)) // a connection that is gone fails at the read
		_, _ = io.CopyN(io.Discard, body, 64<<10)       // body.err says how it went
		_ = c.SetReadDeadline(time.Time{})
	}
	if body.err != io.EOF {
		ctx.SetConnectionClose() // too much to read for nothing, or broken
	}
}

// storedEncoding is the encoding of an object: what the client said but for
// aws-chunked, which is the wire's own and was taken off.
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
