// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"net"
	"strings"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/object"
)

// hostIDHeader is the second identifier of a reply, beside the request's identifier. Its letters are as the HTTP server
// has them, because most replies are looked up without a change of letters.
const hostIDHeader = "X-Amz-Id-2"

// Value returns who sent the request for the key of object.RequesterOf, and otherwise a user value of the request. Only
// changes of journalled buckets ask who sent them.
func (d detached) Value(key any) any {
	if key == object.RequesterKey() {
		return requesterOf(d.RequestCtx)
	}
	return d.RequestCtx.Value(key)
}

// requesterOf returns who sent a request. Its strings share no memory with the request.
func requesterOf(rctx *fasthttp.RequestCtx) object.Requester {
	r := object.Requester{
		Principal: accountNamed(rctx), Remote: rctx.RemoteAddr().String(), Agent: string(rctx.UserAgent()),
		RequestID: string(rctx.Response.Header.Peek(requestIDHeader)),
		HostID:    string(rctx.Response.Header.Peek(hostIDHeader)),
	}
	if host, _, err := net.SplitHostPort(r.Remote); err == nil {
		r.Remote = host
	}
	return r
}

// accountNamed returns the access key of the account that signed a request, or "" for an anonymous request.
func accountNamed(rctx *fasthttp.RequestCtx) string {
	if access, ok := rctx.UserValue(accountKey).(string); ok {
		return access
	}
	a, _ := rctx.UserValue("account").(auth.Account)
	return strings.Clone(a.Access)
}

// changeKinds are the kinds of the changes of attributes in the store's journal, by operation.
var changeKinds = map[string]object.ChangeKind{
	"PutObjectTagging": object.ChangeTags, "DeleteObjectTagging": object.ChangeUntag, "PutObjectAcl": object.ChangeACL,
	"PutObjectRetention": object.ChangeRetention, "PutObjectLegalHold": object.ChangeHold,
}

// changing returns the context for a call of the store that changes attributes of an object.
func changing(ctx context.Context, op string) context.Context {
	if kind, ok := changeKinds[op]; ok {
		return object.WithChangeKind(patient(ctx), kind)
	}
	return patient(ctx)
}
