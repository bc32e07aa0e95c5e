// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3err"
)

// discoveryPath is where clients ask for what this server offers on its own host.
const discoveryPath = "/.nebulaio/gpudirect"

// discovers says whether a request asks for that. Under a bucket's own host name the path is a key.
func (s *Server) discovers(rctx *fasthttp.RequestCtx) bool {
	return s.opts.Discovery != nil && string(rctx.URI().PathOriginal()) == discoveryPath && !s.ofBucket(string(rctx.Host()))
}

// ofBucket says whether a host's name, which may have a port behind it, is a bucket's, as versitygw judges it.
func (s *Server) ofBucket(host string) bool {
	if s.opts.Domain == "" {
		return false
	}
	bucket, _, found := strings.Cut(host, "."+s.opts.Domain)
	return found && bucket != ""
}

// discover answers it. Other methods than reading have no meaning there.
func (s *Server) discover(ctx fiber.Ctx) error {
	rctx := ctx.RequestCtx()
	if !rctx.IsGet() && !rctx.IsHead() {
		return answer(ctx, s3err.GetAPIError(s3err.ErrMethodNotAllowed))
	}
	rctx.SetUserValue(operationKey, "Discovery")
	rctx.Response.Header.SetContentType(fiber.MIMEApplicationJSON)
	rctx.Response.Header.Set("Cache-Control", "no-store")
	return ctx.Send(s.opts.Discovery())
}
