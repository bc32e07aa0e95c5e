// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"
)

// misframed returns why the header of a request is refused, or "".
//
// The HTTP server is lenient: it accepts a bare newline as the end of a line, joins folded lines, and prefers
// Transfer-Encoding to Content-Length. A proxy in front of the server may interpret the same bytes differently, so
// that one client's body becomes another client's request. So misframed refuses every header that is ambiguous.
func misframed(h *fasthttp.RequestHeader) string {
	if p := h.Protocol(); string(p) != "HTTP/1.1" && string(p) != "HTTP/1.0" {
		return "the version is neither HTTP/1.1 nor HTTP/1.0"
	}
	if why := misaddressed(h); why != "" {
		return why
	}
	return misframedLines(h.RawHeaders(), h.IsHTTP11())
}

// misaddressed returns why the target of a request is refused, or "". If the target is a whole URL, HTTP uses its
// host, but the HTTP server uses the Host header. The HTTP server also cuts off a fragment, so that "a#b" would be
// the object "a".
func misaddressed(h *fasthttp.RequestHeader) string {
	target := h.RequestURI()
	if bytes.IndexByte(target, '#') >= 0 {
		return "its target has a fragment (#); in a key it is written %23"
	}
	if len(target) == 0 || target[0] == '/' {
		return ""
	}
	scheme, rest, whole := bytes.Cut(target, []byte("://"))
	if !whole {
		return "" // "*"
	}
	if s := string(scheme); !strings.EqualFold(s, "http") && !strings.EqualFold(s, "https") {
		return "its target is a URL that is neither http nor https"
	}
	if end := bytes.IndexAny(rest, "/?"); end >= 0 {
		rest = rest[:end]
	}
	if !bytes.EqualFold(rest, h.Host()) {
		return "the host in its first line is not the Host header"
	}
	return ""
}

// misframedLines does the work of misframed for the lines after the request line.
func misframedLines(raw []byte, http11 bool) string {
	lengths, encodings := 0, 0
	for len(raw) > 0 {
		end := bytes.IndexByte(raw, '\n')
		if end < 1 || raw[end-1] != '\r' {
			return "a header line does not end in CR LF"
		}
		line := raw[:end-1]
		raw = raw[end+1:]
		if len(line) == 0 {
			break
		}
		if line[0] == ' ' || line[0] == '\t' {
			return "a header line is folded"
		}
		colon := bytes.IndexByte(line, ':')
		if colon < 1 || !tokenBytes(line[:colon]) {
			return "the name of a header has characters other than letters, digits and !#$%&'*+-.^_`|~"
		}
		switch name, value := line[:colon], line[colon+1:]; {
		case len(name) == len("Content-Length") && strings.EqualFold(string(name), "Content-Length"):
			lengths++
		case len(name) == len("Transfer-Encoding") && strings.EqualFold(string(name), "Transfer-Encoding"):
			if encodings++; !strings.EqualFold(strings.Trim(string(value), " \t"), "chunked") {
				return "the only Transfer-Encoding that is read is chunked"
			}
		}
	}
	switch {
	case lengths > 1:
		return "Content-Length is given more than once"
	case encodings > 1:
		return "Transfer-Encoding is given more than once"
	case lengths > 0 && encodings > 0:
		return "both Content-Length and Transfer-Encoding are given"
	case encodings > 0 && !http11:
		return "Transfer-Encoding is given in a request of HTTP/1.0"
	}
	return ""
}

// tokenBytes reports whether b can be the name of a header.
func tokenBytes(b []byte) bool {
	for _, c := range b {
		if !tokenByte[c] {
			return false
		}
	}
	return len(b) > 0
}

// tokenByte marks the bytes that are allowed in header names.
var tokenByte = func() (set [256]bool) {
	for c := range set {
		set[c] = token(string(rune(c))) && c < 0x80
	}
	return set
}()

// refuseFraming refuses a request whose end is ambiguous, and closes the connection.
func refuseFraming(ctx *fasthttp.RequestCtx, why string) {
	end(ctx, s3err.APIError{
		Code: "BadRequest", Description: "The request cannot be read as HTTP without doubt: " + why + ".",
		HTTPStatusCode: http.StatusBadRequest,
	})
}

// knownMethod reports whether S3 or the admin API uses a method. The router fails for any other method.
func knownMethod(method []byte) bool {
	switch string(method) {
	case fasthttp.MethodGet, fasthttp.MethodHead, fasthttp.MethodPut, fasthttp.MethodPost, fasthttp.MethodDelete,
		fasthttp.MethodOptions, fasthttp.MethodPatch:
		return true
	}
	return false
}

// refuseMethod refuses a request with a method that S3 does not have.
func refuseMethod(ctx *fasthttp.RequestCtx) {
	end(ctx, s3err.APIError{
		Code: "MethodNotAllowed", Description: "The specified method is not allowed against this resource.",
		HTTPStatusCode: http.StatusMethodNotAllowed,
	})
}

// end refuses a request before the router sees it, and closes the connection.
func end(ctx *fasthttp.RequestCtx, err s3err.APIError) {
	ctx.SetUserValue(errorKey, err)
	ctx.SetStatusCode(err.HTTPStatusCode)
	ctx.SetContentType(fiber.MIMEApplicationXML)
	ctx.SetBody(err.XMLBody(utils.NewS3RequestID(), utils.NewS3HostID()))
	ctx.SetConnectionClose()
}

// requestIDHeader is the header of a reply with the identifier of the request.
const requestIDHeader = "X-Amz-Request-Id"

// cleanHeaders removes repeated request identifiers from a reply, and replaces control characters in its headers by
// spaces.
//
// Requests are checked when they arrive. cleanHeaders is for text that an older version has stored, and for cases
// that the checks miss.
func cleanHeaders(h *fasthttp.ResponseHeader) {
	var bad [][2]string
	written := 0
	for k, v := range h.All() {
		// versitygw writes its identifiers twice, the second time in lower case. Clients would join the two values.
		if len(k) == len(requestIDHeader) && strings.EqualFold(string(k), requestIDHeader) {
			written++
		}
		if !printableBytes(v) {
			bad = append(bad, [2]string{string(k), string(v)})
		}
	}
	if written > 1 {
		// This deletion compares names by case, so that the first header stays.
		h.Del(utils.HeaderAmzRequestID)
		h.Del(utils.HeaderAmzID2)
	}
	for _, kv := range bad {
		h.Set(kv[0], strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return ' '
			}
			return r
		}, kv[1]))
	}
}

// printableBytes reports whether b can be the value of a header.
func printableBytes(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
