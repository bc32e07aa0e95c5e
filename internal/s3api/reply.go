// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"encoding/xml"
	"slices"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3response"
)

// mendKey is where mendReply finds what is to be changed in a reply.
const mendKey = "nebulaio-mend"

// mend has the document of a reply changed where versitygw's types cannot say
// what S3 does. Replies that are no success are left alone.
func mend(rctx *fasthttp.RequestCtx, change func([]byte) []byte) { rctx.SetUserValue(mendKey, change) }

func mendReply(rctx *fasthttp.RequestCtx) {
	change, ok := rctx.UserValue(mendKey).(func([]byte) []byte)
	if !ok || rctx.Response.StatusCode() != fasthttp.StatusOK || rctx.Response.IsBodyStream() {
		return
	}
	rctx.Response.SetBody(change(bytes.Clone(rctx.Response.Body())))
}

// countParts adds the number of all parts to the attributes of an object, which SDKs call TotalPartsCount.
func countParts(ctx context.Context, n int) {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return
	}
	open := []byte("<ObjectParts>") // stands once: what names contain is escaped
	mend(rctx, func(body []byte) []byte {
		count := append(bytes.Clone(open), "<PartsCount>"+strconv.Itoa(n)+"</PartsCount>"...)
		return bytes.Replace(body, open, count, 1)
	})
}

// sortTags puts the tags of a reply into the order of their keys: the front end has them from a
// map, so that two replies would differ without a change.
func sortTags(ctx context.Context) {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok || !rctx.IsGet() || !rctx.QueryArgs().Has("tagging") {
		return
	}
	mend(rctx, func(body []byte) []byte {
		var doc s3response.Tagging
		at := bytes.Index(body, []byte("<Tagging"))
		if at < 0 || xml.Unmarshal(body[at:], &doc) != nil {
			return body
		}
		slices.SortFunc(doc.TagSet.Tags, func(a, b s3response.Tag) int { return strings.Compare(a.Key, b.Key) })
		text, err := xml.Marshal(doc)
		if err != nil {
			return body
		}
		return append(body[:at], text...)
	})
}
