// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"crypto/tls"
	"net/http"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"
)

// HTTP describes the HTTP side of a request, for audit logs and for the access logs of buckets. The strings of an HTTP
// share no memory with the request.
type HTTP struct {
	HostID  string // x-amz-id-2 of the reply
	Agent   string // User-Agent of the client
	Referer string
	Host    string // Host header of the client
	// URI is the path with the arguments, as the client sent them. The values of signatures and tokens are replaced by
	// "-".
	URI       string
	Proto     string // such as "HTTP/1.1"
	VersionID string // version that the client named, or that the reply names
	Signature string // "SigV4", "SigV2", or empty for an anonymous request
	Auth      string // "AuthHeader", "QueryString", or empty for an anonymous request
	TLS       string // such as "TLSv1.3"; empty for plain HTTP
	Cipher    string
	Size      int64 // size of the object in bytes; -1 if it is not known
	// ACL tells that the request was allowed only because of an ACL. Audit logs and buckets without an access log do not
	// set ACL.
	ACL bool
}

// describeHTTP returns the HTTP side of a request whose reply is ready.
func describeHTTP(rctx *fasthttp.RequestCtx) *HTTP {
	req, resp := &rctx.Request.Header, &rctx.Response.Header
	h := &HTTP{
		HostID: string(resp.Peek(hostIDHeader)), Agent: string(rctx.UserAgent()), Referer: string(rctx.Referer()),
		Host: string(rctx.Host()), URI: harmless(string(req.RequestURI())), Proto: string(req.Protocol()),
		VersionID: string(rctx.QueryArgs().Peek("versionId")), Size: -1,
	}
	if v := resp.Peek("x-amz-version-id"); len(v) > 0 {
		h.VersionID = string(v)
	}
	switch auth := string(req.Peek("Authorization")); {
	case strings.HasPrefix(auth, "AWS4-"):
		h.Signature, h.Auth = "SigV4", "AuthHeader"
	case strings.HasPrefix(auth, "AWS "):
		h.Signature, h.Auth = "SigV2", "AuthHeader"
	case rctx.QueryArgs().Has("X-Amz-Signature"):
		h.Signature, h.Auth = "SigV4", "QueryString"
	case rctx.QueryArgs().Has("Signature"):
		h.Signature, h.Auth = "SigV2", "QueryString"
	}
	if state := rctx.TLSConnectionState(); state != nil && state.Version != 0 {
		h.TLS = strings.Replace(tls.VersionName(state.Version), "TLS ", "TLSv", 1)
		h.Cipher = tls.CipherSuiteName(state.CipherSuite)
	}
	return h
}

// secretArgs are the arguments whose values let others repeat a request.
var secretArgs = []string{"X-Amz-Signature=", "Signature=", "X-Amz-Security-Token=", "X-Amz-S3session-Token="}

// harmless replaces the values of secretArgs in a request's URI.
func harmless(uri string) string {
	path, args, ok := strings.Cut(uri, "?")
	if !ok {
		return uri
	}
	all := strings.Split(args, "&")
	for i, arg := range all {
		for _, name := range secretArgs {
			if len(arg) > len(name) && strings.EqualFold(arg[:len(name)], name) {
				all[i] = arg[:len(name)] + "-"
			}
		}
	}
	return path + "?" + strings.Join(all, "&")
}

// record tells Options.Audit about a request before its reply is sent. If the request cannot be recorded, the client
// gets status 503 in place of the reply: a change may have been made, but it was not acknowledged.
func record(s *Server, rctx *fasthttp.RequestCtx, e *Event) {
	if s.opts.Audit == nil {
		return
	}
	e.HTTP, e.Duration, e.Out = describeHTTP(rctx), time.Since(e.Time), announced(rctx)
	if err := s.opts.Audit(e); err == nil {
		return
	}
	refused := s3err.APIError{Code: "ServiceUnavailable", HTTPStatusCode: http.StatusServiceUnavailable,
		Description: "The request could not be written to the audit log. Please try again."}
	requestID := e.RequestID
	if requestID == "" {
		requestID = utils.NewS3RequestID()
	}
	rctx.Response.Reset() // closes the body of the reply
	rctx.Response.Header.Set(requestIDHeader, requestID)
	rctx.SetContentType("application/xml")
	rctx.SetStatusCode(refused.HTTPStatusCode)
	rctx.SetBody(refused.XMLBody(requestID, ""))
	rctx.SetConnectionClose()
	e.Code = refused.Code
}

// announced returns the size of the reply's body, before it is sent.
func announced(rctx *fasthttp.RequestCtx) int64 {
	if rctx.IsHead() {
		return 0
	}
	if body, ok := rctx.Response.BodyStream().(*sentBody); ok {
		return body.Len()
	}
	return int64(len(rctx.Response.Body()))
}
