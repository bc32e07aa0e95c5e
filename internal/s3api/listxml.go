// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"encoding/xml"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// entries writes the entries of a list reply as XML. versitygw encodes a reply by reflection, which took more than half
// of the CPU time of a page with 1000 keys. The written text is the same as that of versitygw's types.
type entries struct {
	encoder encoder
	owners  *object.Bucket // the bucket whose objects are shown with their owners; nil to show no owners
}

// behindEntries is the beginning of the element that follows the entries in a list reply. The element occurs once,
// because names are escaped.
const behindEntries = "<EncodingType>"

// insert adds the entries of a page to the reply of a request, which versitygw writes without entries.
func (w entries) insert(ctx context.Context, p *object.Page) error {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return errs.New(errs.Invalid, "list", "", "the request is not an HTTP request")
	}
	if len(p.Objects)+len(p.Prefixes) == 0 {
		return nil
	}
	mend(rctx, func(body []byte) []byte {
		at := bytes.LastIndex(body, []byte(behindEntries))
		if at < 0 { // a page without its entries would say that the bucket is empty
			panic(failure{errs.New(errs.Unsupported, "list", "", "the reply has no element "+behindEntries)})
		}
		out := make([]byte, 0, len(body)+w.size(p))
		out = w.append(append(out, body[:at]...), p)
		return append(out, body[at:]...)
	})
	return nil
}

// size estimates the length of the entries of a page in bytes.
func (w entries) size(p *object.Page) int {
	n := 0
	for i := range p.Objects {
		n += 384 + len(p.Objects[i].Key)
	}
	for _, prefix := range p.Prefixes {
		n += 64 + len(prefix)
	}
	return n
}

// append appends the objects and the common prefixes of a page to b.
func (w entries) append(b []byte, p *object.Page) []byte {
	for i := range p.Objects {
		b = w.object(b, &p.Objects[i])
	}
	for _, prefix := range p.Prefixes {
		b = append(b, "<CommonPrefixes><Prefix>"...)
		b = appendText(b, w.encoder.text(prefix))
		b = append(b, "</Prefix></CommonPrefixes>"...)
	}
	return b
}

func (w entries) object(b []byte, o *object.Info) []byte {
	sum := full(o)
	b = append(b, "<Contents><LastModified>"...)
	b = o.Modified.UTC().AppendFormat(b, time.RFC3339)
	b = append(b, "</LastModified>"...)
	if sum.Algorithm != "" {
		b = append(b, "<ChecksumAlgorithm>"...)
		b = appendText(b, string(sum.Algorithm))
		b = append(b, "</ChecksumAlgorithm>"...)
	}
	b = append(b, "<ChecksumType>"...)
	b = appendText(b, string(sum.Type))
	b = append(b, "</ChecksumType><ETag>&#34;"...)
	b = appendText(b, o.ETag)
	b = append(b, "&#34;</ETag><Key>"...)
	b = appendText(b, w.encoder.text(o.Key))
	b = append(b, "</Key>"...)
	if w.owners != nil {
		owner := ownerIn(w.owners, o.Attributes)
		b = append(b, "<Owner><DisplayName>"...)
		b = appendText(b, owner)
		b = append(b, "</DisplayName><ID>"...)
		b = appendText(b, owner)
		b = append(b, "</ID></Owner>"...)
	}
	b = append(b, "<Size>"...)
	b = strconv.AppendInt(b, o.Size, 10)
	b = append(b, "</Size><StorageClass>"...)
	b = appendText(b, classIn(o.Bucket, o.Attributes))
	return append(b, "</StorageClass></Contents>"...)
}

// appendText appends s as the text of an XML element.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '&' || c == '<' || c == '>' || c == '"' || c == '\'' {
			var escaped bytes.Buffer
			_ = xml.EscapeText(&escaped, []byte(s)) // a buffer takes everything
			return append(b, escaped.Bytes()...)
		}
	}
	return append(b, s...)
}
