// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3api/utils"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/iam/document"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/acl"
)

// conditionRequest returns what the conditions of a bucket's policy compare for a request on the object of ref. The
// values are computed when a condition needs them.
func conditionRequest(b *backend, rctx *fasthttp.RequestCtx, ref object.Ref) *document.Request {
	resource := auth.ResourceArnPrefix + ref.Bucket + "/" + ref.Key
	account := accountOf(rctx, string(utils.ContextKeyAccount))
	subject := &iam.Subject{}
	if account.Access != "" {
		key, _ := splitHandle(account.SessionToken)
		if key == "" {
			key = account.Access
		}
		if x, err := b.accounts.Subject(key); err == nil {
			subject = x
		}
	}
	var at func(string) []string
	return &document.Request{Resource: resource, Value: func(name string) []string {
		if account.Access == "" {
			switch name {
			case "aws:username", "aws:groups":
				return nil
			case "aws:userid", "aws:principaltype":
				return []string{"Anonymous"}
			}
		}
		if at == nil {
			v := values{subject: subject, condition: conditionValues(rctx, ref)}
			at = v.at(b.iam.tags, resource)
		}
		return at(name)
	}}
}

// conditionValues returns the condition keys of a request that do not depend on the account.
func conditionValues(rctx *fasthttp.RequestCtx, ref object.Ref) map[string][]string {
	out := requestValues(rctx)
	now := time.Now().UTC()
	out["aws:currenttime"] = []string{now.Format(time.RFC3339)}
	out["aws:epochtime"] = []string{strconv.FormatInt(now.Unix(), 10)}
	out["aws:securetransport"] = []string{strconv.FormatBool(rctx.IsTLS())}
	out["aws:sourceip"] = []string{rctx.RemoteIP().String()}
	set := func(name, value string) {
		if value == "" {
			delete(out, name)
		} else {
			out[name] = []string{value}
		}
	}
	h, args := &rctx.Request.Header, rctx.QueryArgs()
	set("aws:useragent", string(h.UserAgent()))
	set("aws:referer", string(h.Referer()))
	set("s3:prefix", string(args.Peek("prefix")))
	set("s3:delimiter", string(args.Peek("delimiter")))
	set("s3:max-keys", string(args.Peek("max-keys")))
	set("s3:versionid", ref.Version)
	if len(out["s3:x-amz-copy-source"]) == 1 {
		set("s3:x-amz-copy-source", plainSource(out["s3:x-amz-copy-source"][0]))
	}
	asked, ok := rctx.UserValue(askedACLKey).(acl.Asked)
	if !ok {
		fields := form(rctx)
		asked = acl.AskedBy(func(header string) string {
			if fields != nil {
				return formGrant(fields, header)
			}
			return argument(rctx, header)
		})
	}
	set("s3:x-amz-acl", asked.Canned)
	for _, header := range grantHeaders {
		set("s3:"+strings.ToLower(header), asked.Grants[header])
	}
	return out
}

// plainSource returns the source of a copy as policies name it: BUCKET/KEY, without escapes and without a version.
func plainSource(header string) string {
	text, _, _ := strings.Cut(strings.TrimPrefix(header, "/"), "?")
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}
