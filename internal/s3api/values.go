// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"encoding/json"
	"encoding/xml"
	"net/url"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3api/utils"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Beginnings of the condition keys that name a tag.
const (
	existingTag    = "s3:existingobjecttag/"
	requestTag     = "s3:requestobjecttag/"
	requestTagKeys = "s3:requestobjecttagkeys"
)

// headerKeys are the condition keys that are headers of a request. versitygw sets the other keys.
var headerKeys = map[string]string{
	"s3:x-amz-acl": "X-Amz-Acl", "s3:x-amz-copy-source": "X-Amz-Copy-Source",
	"s3:x-amz-metadata-directive": "X-Amz-Metadata-Directive",
	"s3:x-amz-storage-class":      "X-Amz-Storage-Class", "s3:x-amz-content-sha256": "X-Amz-Content-Sha256",
	"s3:x-amz-server-side-encryption":                    "X-Amz-Server-Side-Encryption",
	"s3:x-amz-server-side-encryption-aws-kms-key-id":     "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id",
	"s3:x-amz-server-side-encryption-customer-algorithm": "X-Amz-Server-Side-Encryption-Customer-Algorithm",
	"s3:x-amz-grant-read":                                "X-Amz-Grant-Read",
	"s3:x-amz-grant-write":                               "X-Amz-Grant-Write",
	"s3:x-amz-grant-read-acp":                            "X-Amz-Grant-Read-Acp",
	"s3:x-amz-grant-write-acp":                           "X-Amz-Grant-Write-Acp",
	"s3:x-amz-grant-full-control":                        "X-Amz-Grant-Full-Control",
	"s3:x-amz-object-ownership":                          "X-Amz-Object-Ownership",
	"s3:object-lock-mode":                                "X-Amz-Object-Lock-Mode",
	"s3:object-lock-legal-hold":                          "X-Amz-Object-Lock-Legal-Hold",
	"s3:object-lock-retain-until-date":                   "X-Amz-Object-Lock-Retain-Until-Date",
	"s3:if-match":                                        "If-Match",
	"s3:if-none-match":                                   "If-None-Match",
}

// ofRequest reports whether the value of a condition key has to be read from the request itself.
func ofRequest(key string) bool {
	_, header := headerKeys[key]
	return header || key == "s3:authtype" || key == "s3:signatureversion" || key == requestTagKeys ||
		strings.HasPrefix(key, requestTag)
}

// carry returns the account of a request with a handle that holds the values that its policies compare. versitygw asks
// for policies by the account alone, so that the account has to carry them.
func (a accounts) carry(rctx *fasthttp.RequestCtx, by auth.Account) auth.Account {
	if by.Access == "" {
		return by
	}
	key, carried := splitHandle(by.SessionToken)
	if carried != "" {
		return by
	}
	if key == "" {
		key = by.Access
	}
	x, err := a.svc.Subject(key)
	if err != nil || !x.Compares(ofRequest) {
		return by
	}
	text, err := json.Marshal(requestValues(rctx))
	if err != nil {
		return by // cannot happen: texts alone
	}
	by.SessionToken = key + handleSeparator + string(text)
	return by
}

// carryAll lets the account of a request carry what its policies compare, before versitygw asks for them.
func (a accounts) carryAll(rctx *fasthttp.RequestCtx) {
	was := accountOf(rctx, string(utils.ContextKeyAccount))
	if now := a.carry(rctx, was); now != was {
		rctx.SetUserValue(string(utils.ContextKeyAccount), now)
	}
}

// requestValues returns the condition keys of a request that versitygw does not set.
func requestValues(rctx *fasthttp.RequestCtx) map[string][]string {
	out := map[string][]string{}
	h, fields := &rctx.Request.Header, form(rctx)
	for key, name := range headerKeys {
		if v := string(h.Peek(name)); v != "" {
			out[key] = []string{v}
		} else if v := fields[strings.ToLower(name)]; v != "" {
			out[key] = []string{v}
		}
	}
	out["s3:authtype"], out["s3:signatureversion"] = []string{"REST-HEADER"}, []string{algorithmV4}
	switch {
	case fields != nil:
		out["s3:authtype"] = []string{"POST"}
	case rctx.QueryArgs().Has("X-Amz-Signature"):
		out["s3:authtype"] = []string{"REST-QUERY-STRING"}
	}
	for name, value := range requestTagging(rctx, fields) {
		out[requestTag+strings.ToLower(name)] = []string{value}
		out[requestTagKeys] = append(out[requestTagKeys], name)
	}
	slices.Sort(out[requestTagKeys])
	return out
}

// requestTagging returns the tags that a request gives to an object: in a header, in a form, or in a document.
func requestTagging(rctx *fasthttp.RequestCtx, fields map[string]string) map[string]string {
	out := map[string]string{}
	if args, err := url.ParseQuery(string(rctx.Request.Header.Peek("X-Amz-Tagging"))); err == nil {
		for name := range args {
			out[name] = args.Get(name)
		}
	}
	text := []byte(fields["tagging"])
	if rctx.IsPut() && rctx.QueryArgs().Has("tagging") {
		text = rctx.Request.Body()
	}
	var doc struct {
		TagSet struct {
			Tag []struct{ Key, Value string }
		}
	}
	if len(text) > 0 && xml.Unmarshal(text, &doc) == nil {
		for _, t := range doc.TagSet.Tag {
			out[t.Key] = t.Value
		}
	}
	return out
}

// values finds the values of condition keys for one request.
type values struct {
	subject   *iam.Subject
	condition map[string][]string // as versitygw sets them
	carried   string              // JSON of the values of the request
	lower     map[string][]string // both together, by names in lower case
}

// at returns the function that document.Request needs, for one resource. The function tags returns the tags of an
// object.
func (v *values) at(tags func(object.Ref) map[string]string, resource string) func(string) []string {
	var existing map[string]string
	return func(name string) []string {
		account := &v.subject.Account
		switch name {
		case "aws:username":
			if iam.Federated(account.User()) {
				return nil // as in AWS, only users have a user name
			}
			return []string{account.User()}
		case "aws:userid":
			return []string{account.User()}
		case "aws:principaltype":
			return []string{principalType(account)}
		case "aws:groups":
			return account.Groups
		}
		if claim, ok := account.Claims[name]; ok {
			return claim
		}
		if tag, ok := strings.CutPrefix(name, existingTag); ok {
			if existing == nil && tags != nil {
				existing = folded(tags(v.refOf(resource)))
			}
			if value, ok := existing[tag]; ok {
				return []string{value}
			}
			return nil
		}
		return v.find(name)
	}
}

// find returns the value of a key that versitygw or the request has set.
func (v *values) find(name string) []string {
	if v.lower == nil {
		v.lower = make(map[string][]string, len(v.condition))
		if v.carried != "" {
			_ = json.Unmarshal([]byte(v.carried), &v.lower) // written by carry
		}
		for k, value := range v.condition {
			// The request as the client sent it wins over the request as versitygw sees it.
			if _, known := v.lower[strings.ToLower(k)]; !known {
				v.lower[strings.ToLower(k)] = value
			}
		}
	}
	return v.lower[name]
}

// refOf returns the object of a resource, in the version that the request names.
func (v *values) refOf(resource string) object.Ref {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(resource, auth.ResourceArnPrefix), "/")
	ref := object.Ref{Bucket: bucket, Key: key}
	if version := v.find("s3:versionid"); len(version) == 1 {
		ref.Version = version[0]
	}
	return ref
}

// folded returns tags by their names in lower case, because the names of condition keys have no case.
func folded(tags map[string]string) map[string]string {
	out := make(map[string]string, len(tags))
	for name, value := range tags {
		out[strings.ToLower(name)] = value
	}
	return out
}

// principalType returns the kind of an account in the words of AWS.
func principalType(a *iam.Account) string {
	switch {
	case iam.Federated(a.Parent):
		return "FederatedUser"
	case a.Token != "":
		return "AssumedRole"
	}
	return "User"
}
