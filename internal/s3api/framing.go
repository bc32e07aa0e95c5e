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
// The HTTP server below is lenient: it takes a bare newline for the end of a
// line, joins folded lines, and lets Transfer-Encoding win over Content-Length.
// A proxy in front may read the same bytes differently. Then one client's body
// becomes another client's request. We refuse every header with two readings.
func misframed(h *fasthttp.RequestHeader) string {
	if p := h.Protocol(); string(p) != "HTTP/1.1" && string(p) != "HTTP/1.0" {
		return "the version is neither HTTP/1.1 nor HTTP/1.0"
	}
	if why := misaddressed(h); why != "" {
		return why
	}
	return misframedLines(h.RawHeaders(), h.IsHTTP11())
}

// misaddressed returns why the target of a request is refused, or "". HTTP takes the host of a whole URL as the host,
// and the server below the header. It cuts a fragment off, so that "a#b" would be the object "a".
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

// misframedLines is misframed for the lines behind the request line.
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

// tokenBytes says whether b can be the name of a header.
func tokenBytes(b []byte) bool {
	for _, c := range b {
		if !tokenByte[c] {
			return false
		}
	}
	return len(b) > 0
}

// tokenByte marks the bytes of header names.
var tokenByte = func() (set [256]bool) {
	for c := range set {
		set[c] = token(string(rune(c))) && c < 0x80
	}
	return set
}()

// refuseFraming answers a request whose end cannot be known for sure. The connection ends with it.
func refuseFraming(ctx *fasthttp.RequestCtx, why string) {
	end(ctx, s3err.APIError{
		Code: "BadRequest", Description: "The request cannot be read as HTTP without doubt: " + why + ".",
		HTTPStatusCode: http.StatusBadRequest,
	})
}

// knownMethod says whether S3 or its administration has a use for a method. The router fails at any other.
func knownMethod(method []byte) bool {
	switch string(method) {
	case fasthttp.MethodGet, fasthttp.MethodHead, fasthttp.MethodPut, fasthttp.MethodPost, fasthttp.MethodDelete,
		fasthttp.MethodOptions, fasthttp.MethodPatch:
		return true
	}
	return false
}

// refuseMethod answers a request with a method that S3 does not have.
func refuseMethod(ctx *fasthttp.RequestCtx) {
	end(ctx, s3err.APIError{
		Code: "MethodNotAllowed", Description: "The specified method is not allowed against this resource.",
		HTTPStatusCode: http.StatusMethodNotAllowed,
	})
}

// end answers a request that never comes to the router, and closes its connection.
func end(ctx *fasthttp.RequestCtx, err s3err.APIError) {
	ctx.SetUserValue(errorKey, err)
	ctx.SetStatusCode(err.HTTPStatusCode)
	ctx.SetContentType(fiber.MIMEApplicationXML)
	ctx.SetBody(err.XMLBody(utils.NewS3RequestID(), utils.NewS3HostID()))
	ctx.SetConnectionClose()
}

// requestIDHeader is the name of the identifier of a request as it stands in replies.
const requestIDHeader = "X-Amz-Request-Id"

// cleanHeaders leaves one identifier of a request in its reply, and replaces control characters in the headers by
// spaces.
//
// What clients send is checked where it comes in. This is for text that an older
// version has stored, and for places that nobody has thought of.
func cleanHeaders(h *fasthttp.ResponseHeader) {
	var bad [][2]string
	written := 0
	for k, v := range h.All() {
		// versitygw writes its identifiers twice, the second time in lower case. Clients would join them.
		if len(k) == len(requestIDHeader) && strings.EqualFold(string(k), requestIDHeader) {
			written++
		}
		if !printableBytes(v) {
			bad = append(bad, [2]string{string(k), string(v)})
		}
	}
	if written > 1 {
		// Names are taken literally here, so that the first one stays.
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

// printableBytes is printable for bytes.
func printableBytes(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
