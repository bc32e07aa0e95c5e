// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/conn"
	"github.com/nebulaio/nebulaio/internal/s3api/ktls"
)

// Names of user values that the handlers of one request share.
const (
	operationKey = "nebulaio-operation"
	errorKey     = "nebulaio-error"
	requestKey   = "nebulaio-request"
)

// observe returns the outermost handler. It removes the deadline of the header when the header has arrived, and
// calls Options.Observe when the reply has been sent.
func (s *Server) observe(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		_ = netConn(ctx).SetReadDeadline(time.Time{}) // a closed connection fails at the next read
		start := ctx.Time()
		sending := false // whether the reply's body is sent after this handler returns
		s.inFlight.Add(1)
		defer func() {
			if !sending {
				s.inFlight.Add(-1)
			}
		}()
		if why := misframed(&ctx.Request.Header); why != "" {
			refuseFraming(ctx, why)
		} else if !knownMethod(ctx.Method()) {
			refuseMethod(ctx)
		} else {
			s.rewriteHost(ctx)
			s.crowd.n.Add(1)
			if !(quickPath{s.directories}).put(ctx) {
				next(ctx)
				drain(ctx)
				cleanHeaders(&ctx.Response.Header)
			}
			s.crowd.n.Add(-1)
		}
		if c, ok := netConn(ctx).(*conn.Conn); ok {
			c.EndChunks()
			if ctx.Response.ConnectionClose() && hasBody(ctx) {
				c.Linger() // the body was not read to its end
			}
		}
		body, streamed := ctx.Response.BodyStream().(*sentBody)
		if streamed {
			body.log = s.opts.Log
		}
		if s.opts.Observe == nil && s.opts.Audit == nil && s.opts.AccessLog == nil {
			return
		}
		e := s.event(ctx, start)
		if record(s, ctx, &e); e.Status != ctx.Response.StatusCode() {
			e.Status, streamed = ctx.Response.StatusCode(), false
		}
		to, logged := loggingOf(s, &e)
		if logged && e.HTTP == nil {
			e.HTTP = describeHTTP(ctx)
		}
		deleted, _ := ctx.UserValue(removalsKey).([]removal)
		if logged {
			tellACL(s, ctx, &e, deleted)
		}
		finished := func(e *Event) {
			if logged {
				logAccess(s, to, e, deleted)
			}
			if s.opts.Observe != nil {
				s.opts.Observe(*e)
			}
		}
		if streamed && !ctx.IsHead() {
			sending = true
			body.finish = func(n int64, err error) {
				s.inFlight.Add(-1)
				e.Out, e.Err, e.Duration = n, err, time.Since(start)
				finished(&e)
			}
			return
		}
		e.Out = int64(len(ctx.Response.Body()))
		if ctx.IsHead() {
			e.Out = 0
		}
		e.Duration = time.Since(start)
		finished(&e)
	}
}

// crowd counts the requests in the handlers, unlike those whose reply is being sent.
type crowd struct {
	n    atomic.Int64
	most int64
}

// full reports whether there are more requests than the limit. versitygw does not count those that quickPath answers.
func (c *crowd) full() bool { return c.n.Load() > c.most }

// hasBody reports whether a request has a body, by its Content-Length or in chunks.
func hasBody(ctx *fasthttp.RequestCtx) bool {
	n := ctx.Request.Header.ContentLength()
	return n > 0 || n == -1
}

// netConn returns the connection on which deadlines are set.
func netConn(ctx *fasthttp.RequestCtx) net.Conn {
	switch c := ctx.Conn().(type) {
	case *ktls.Conn:
		return c.NetConn()
	case *trustedConn:
		return c.Conn
	default:
		return c
	}
}

func (s *Server) event(ctx *fasthttp.RequestCtx, start time.Time) Event {
	e := Event{
		Time: start, Method: string(ctx.Method()), Status: ctx.Response.StatusCode(), Operation: "Unknown",
		RequestID: string(ctx.Response.Header.Peek(requestIDHeader)),
		Remote:    ctx.RemoteAddr().String(),
	}
	if op, ok := ctx.UserValue(operationKey).(string); ok && op != "" {
		e.Operation = op
	}
	if err, ok := ctx.UserValue(errorKey).(error); ok {
		e.Code = codeOf(err)
	}
	e.Served, _ = ctx.UserValue(servedKey).(string)
	if access, ok := ctx.UserValue(accountKey).(string); ok {
		e.Account = access
	} else if a, ok := ctx.UserValue("account").(auth.Account); ok {
		e.Account = strings.Clone(a.Access)
	}
	// The client of a refused request may not have sent the body.
	if n := ctx.Request.Header.ContentLength(); n > 0 && e.Status < 300 {
		e.In = int64(n)
	}
	path := bytes.TrimPrefix(ctx.URI().PathOriginal(), []byte("/"))
	bucket, key, _ := strings.Cut(string(path), "/")
	e.Bucket, e.Key = unescape(bucket), unescape(key)
	return e
}

func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	if u, err := url.PathUnescape(s); err == nil {
		return u
	}
	return s
}

func codeOf(err error) string {
	var s3 s3err.S3Error
	if errors.As(err, &s3) {
		return s3.BaseError().Code
	}
	return "InternalError"
}

// sentBody is the body of a reply. It counts the sent bytes and passes each call to the store's Body, so that a
// file can go directly to the socket.
type sentBody struct {
	object.Body
	ref    object.Ref
	log    interface{ Error(string, ...any) }
	sent   int64
	err    error
	finish func(int64, error)
}

func (b *sentBody) Read(p []byte) (int, error) {
	n, err := b.Body.Read(p)
	b.note(int64(n), err)
	return n, err
}

func (b *sentBody) WriteTo(w io.Writer) (int64, error) {
	n, err := b.Body.WriteTo(w)
	b.note(n, err)
	return n, err
}

func (b *sentBody) note(n int64, err error) {
	b.sent += n
	if err != nil && err != io.EOF && b.err == nil {
		b.err = err
	}
}

// Close closes the body of a reply and reports the number of sent bytes. The HTTP server calls Close when the whole
// reply has been written, or when writing the reply has failed.
func (b *sentBody) Close() error {
	err := b.Body.Close()
	if b.err != nil && b.log != nil && errors.Is(b.err, object.ErrDamaged) {
		b.log.Error("damaged content: the connection was closed in the middle of a reply",
			"bucket", b.ref.Bucket, "key", b.ref.Key, "version", b.ref.Version, "sent", b.sent, "error", b.err)
	}
	if b.finish != nil {
		finish := b.finish
		b.finish = nil
		finish(b.sent, b.err)
	}
	return err
}
