// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3err"
)

// discoveryPath is where clients ask for what this server offers on its own host.
const discoveryPath = "/.nebulaio/gpudirect"

// discovers says whether a request asks for that. Under a bucket's own host name the path is a key.
func (s *Server) discovers(rctx *fasthttp.RequestCtx) bool {
	return s.opts.Discovery != nil && string(rctx.URI().PathOriginal()) == discoveryPath
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
