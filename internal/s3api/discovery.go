// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"errors"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3err"
)

// discoveryPath is the path at which clients ask for the GPUDirect door of the server.
const discoveryPath = "/.nebulaio/gpudirect"

// discovers reports whether a request asks for the door. In a virtual-hosted request, the path is a key instead.
func (s *Server) discovers(rctx *fasthttp.RequestCtx) bool {
	return s.opts.Discovery != nil && string(rctx.URI().PathOriginal()) == discoveryPath
}

// unsigned is the reply to a request without a signature. A client of an older release shows the reason and the
// fix, and uses HTTP.
const unsigned = `{"version":1,"enabled":false,"socket":"","store":"",` +
	`"reason":"the server tells of its door only to who signs the request, and this client does not",` +
	`"fix":"use a client of the server's release, with an access key and a secret key"}`

// discover replies with the description of the door if the request is signed by an account of this server. Others
// get neither the path of the socket nor the name of the store. Only GET and HEAD are allowed.
func (s *Server) discover(ctx fiber.Ctx) error {
	rctx := ctx.RequestCtx()
	if !rctx.IsGet() && !rctx.IsHead() {
		return answer(ctx, s3err.GetAPIError(s3err.ErrMethodNotAllowed))
	}
	rctx.SetUserValue(operationKey, "Discovery")
	if len(rctx.Request.Header.Peek("Authorization")) == 0 {
		return sendJSON(ctx, []byte(unsigned))
	}
	if err := s.signature(ctx); err != nil {
		var known s3err.S3Error
		if !errors.As(err, &known) {
			s.opts.Log.Error("the request failed", "operation", "Discovery", "error", err)
			known = s3err.GetAPIError(s3err.ErrInternalError)
		}
		return answer(ctx, known)
	}
	return sendJSON(ctx, s.opts.Discovery())
}

func sendJSON(ctx fiber.Ctx, body []byte) error {
	h := &ctx.RequestCtx().Response.Header
	h.SetContentType(fiber.MIMEApplicationJSON)
	h.Set("Cache-Control", "no-store")
	return ctx.Send(body)
}
