// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Headers of replies to reads of objects that another S3 server keeps.
const (
	cacheHeader    = "X-Nebulaio-Cache"
	cacheAgeHeader = "X-Nebulaio-Cache-Age"
	verifiedHeader = "X-Nebulaio-Verified"
)

// servedKey is the user value that holds how a read is served, for the access log.
const servedKey = "nebulaio-served"

// tellSource adds headers to a reply that tell where the bytes come from, if another S3 server keeps the object.
func tellSource(ctx context.Context, content object.Content, r object.Range) {
	s, ok := content.(object.Sourced)
	rctx, http := ctx.(*fasthttp.RequestCtx)
	if !ok || !http {
		return
	}
	from := s.Served(r)
	h := &rctx.Response.Header
	h.Set(cacheHeader, from.From)
	h.Set(cacheAgeHeader, strconv.FormatInt(max(from.Age, 0), 10))
	h.Set(verifiedHeader, from.Verified)
	rctx.SetUserValue(servedKey, from.From)
}
