// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// asksExact reports whether a listing of versions has the header HeaderExact.
func asksExact(ctx context.Context) bool {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	return ok && string(rctx.Request.Header.Peek(object.HeaderExact)) == "true"
}

// exactTime is the form of times in an exact listing.
const exactTime = "2006-01-02T15:04:05.000Z"

// insertVersions adds the entries of a page to the reply of a listing of versions, which versitygw writes without
// entries. versitygw lists delete markers apart from versions, so that their order is lost.
func insertVersions(ctx context.Context, e encoder, owner string, p *object.Page) error {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return errs.New(errs.Invalid, "list", "", "the request is not an HTTP request")
	}
	mend(rctx, func(body []byte) []byte {
		at := bytes.LastIndex(body, []byte(behindEntries))
		if at < 0 { // a page without its entries would say that the bucket is empty
			panic(failure{errs.New(errs.Unsupported, "list", "", "the reply has no element "+behindEntries)})
		}
		out := make([]byte, 0, len(body)+512*len(p.Objects))
		out = append(out, body[:at]...)
		for i := range p.Objects {
			out = appendVersion(out, e, owner, &p.Objects[i])
		}
		return append(out, body[at:]...)
	})
	return nil
}

func appendVersion(b []byte, e encoder, owner string, o *object.Info) []byte {
	name := "Version"
	if o.Marker {
		name = "DeleteMarker"
	}
	b = append(b, "<"+name+"><Key>"...)
	b = appendText(b, e.text(o.Key))
	b = append(b, "</Key><VersionId>"+o.Version+"</VersionId><IsLatest>"+strconv.FormatBool(o.Latest)+
		"</IsLatest><LastModified>"...)
	b = append(o.Modified.UTC().AppendFormat(b, exactTime), "</LastModified>"...)
	if !o.Marker {
		b = append(b, "<ETag>"...)
		b = appendText(b, quoted(o.ETag))
		b = append(b, "</ETag><Size>"+strconv.FormatInt(o.Size, 10)+"</Size><StorageClass>"+classOf(o.Attributes)+
			"</StorageClass>"...)
	}
	b = append(b, "<Owner><ID>"...)
	b = appendText(b, owner)
	return append(b, "</ID></Owner></"+name+">"...)
}
