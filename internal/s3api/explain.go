// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/iam/document"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// Question asks whether an account may do something.
type Question struct {
	AccessKey string `json:"access_key"`
	Action    string `json:"action"`   // such as s3:GetObject
	Resource  string `json:"resource"` // BUCKET or BUCKET/KEY, or an ARN; empty or * for an action without a bucket
	// Values are the values of condition keys, such as aws:SourceIp. Without a value, the request comes from this host.
	Values map[string]string `json:"values,omitempty"`
}

// Answer is the decision on a Question.
type Answer struct {
	Allowed bool `json:"allowed"`
	// Reason names what decided, as a sentence without a period.
	Reason string `json:"reason"`
}

// Explain decides a question as the S3 front end would decide the request. Explain needs no running server. Explain
// fails with iam.ErrNoSuchAccount, with object.ErrNoSuchBucket, and with kind Invalid if the action or a condition key
// is not known.
func Explain(ctx context.Context, store object.Store, svc *iam.Service, q Question) (Answer, error) {
	const op = "test"
	account, err := svc.Get(q.AccessKey)
	if err != nil {
		return Answer{}, errs.Wrap(op, q.AccessKey, err)
	}
	action, err := knownAction(q.Action)
	if err != nil {
		return Answer{}, err
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(q.Resource, auth.ResourceArnPrefix), "/")
	b := newBackend(Options{Store: store, Accounts: svc, Log: slog.New(slog.DiscardHandler),
		ETag: func(string) object.ETagKind { return object.ETagMD5 }})
	rctx, err := q.request(action)
	if err != nil {
		return Answer{}, err
	}
	app := fiber.New()
	request := app.AcquireCtx(rctx)
	defer app.ReleaseCtx(request)
	rctx.SetUserValue(string(utils.ContextKeyAccount), toAuth(account))
	b.iam.carryAll(rctx)
	acc := accountOf(rctx, string(utils.ContextKeyAccount))
	root := account.AccessKey == svc.Root().AccessKey
	switch action {
	case auth.CreateBucketAction:
		err = auth.VerifyCreateBucketAccess(request, b.iam, root, acc, bucket)
	case auth.ListAllMyBucketsAction:
		err = auth.VerifyListAllMyBucketsAccess(request, b.iam, root, acc)
	default:
		var bk *object.Bucket
		if bk, err = store.Bucket(ctx, bucket); err != nil {
			return Answer{}, errs.Wrap(op, bucket, err)
		}
		use := useFor([]auth.Action{action})
		if listsByACL(action) {
			use = bucketUse
		}
		ref := object.Ref{Bucket: bucket, Key: key, Version: string(rctx.QueryArgs().Peek("versionId"))}
		defer exactly(rctx, ref, use)()
		list, aclErr := b.effectiveACL(rctx, bk, object.Ref{Bucket: bucket, Key: key}, senderOf(rctx), use)
		if aclErr != nil {
			return Answer{}, errs.Wrap(op, bucket, aclErr)
		}
		err = auth.VerifyAccess(request, b, auth.AccessOptions{Acl: list, AclPermission: permissionOf(action), IsRoot: root,
			Acc: acc, Bucket: bucket, Object: hide(key), Actions: []auth.Action{action}, Iam: b.iam,
			DisableACL: use == ownerUse})
	}
	return b.iam.answer(account, action, q, err)
}

// listsByACL reports whether an action lists a bucket or reads or writes its ACL, which ACLs can grant.
func listsByACL(action auth.Action) bool {
	switch action {
	case auth.ListBucketAction, auth.ListBucketVersionsAction, auth.ListBucketMultipartUploadsAction,
		auth.GetBucketAclAction, auth.PutBucketAclAction:
		return true
	}
	return false
}

// answer says why a request is allowed or denied.
func (a accounts) answer(account iam.Account, action auth.Action, q Question, err error) (Answer, error) {
	x, gone := a.svc.Subject(account.AccessKey)
	if gone != nil {
		return Answer{}, gone
	}
	given := map[string][]string{}
	for k, v := range q.Values {
		given[k] = []string{v}
	}
	resource := auth.ResourceArnPrefix + strings.TrimPrefix(q.Resource, auth.ResourceArnPrefix)
	v := values{subject: x, condition: given}
	verdict := x.Decide(&document.Request{Action: string(action), Resource: resource, Value: v.at(a.tags, resource)})
	var known s3err.S3Error
	switch {
	case err == nil && verdict.Identity == document.Allow:
		return Answer{Allowed: true, Reason: "allowed by " + verdict.By}, nil
	case err == nil:
		return Answer{Allowed: true, Reason: "allowed by the bucket's owner, policy or ACL"}, nil
	case !errors.As(err, &known) || known.StatusCode() != http.StatusForbidden:
		return Answer{}, errs.Wrap("test", q.Resource, err)
	case verdict.Denied():
		return Answer{Reason: "denied by " + verdict.By}, nil
	case verdict.Session != document.Allow:
		return Answer{Reason: "the session policy does not allow it"}, nil
	case strings.Contains(known.BaseError().Description, "explicit deny"):
		return Answer{Reason: "denied by the bucket's policy"}, nil
	}
	return Answer{Reason: "neither the role, nor a policy of the user or of its groups, nor the bucket allows it"}, nil
}

// request returns an HTTP request with the values of a question.
func (q Question) request(action auth.Action) (*fasthttp.RequestCtx, error) {
	from := net.IPv4(127, 0, 0, 1)
	var r fasthttp.Request
	r.Header.SetMethod(fasthttp.MethodGet)
	if permissionOf(action) == auth.PermissionWrite {
		r.Header.SetMethod(fasthttp.MethodPut)
	}
	for name, value := range q.Values {
		key := strings.ToLower(name)
		arg, isArg := map[string]string{"s3:prefix": "prefix", "s3:delimiter": "delimiter", "s3:max-keys": "max-keys",
			"s3:versionid": "versionId"}[key]
		header, isHeader := headerKeys[key]
		if other, ok := map[string]string{"s3:x-amz-acl": "X-Amz-Acl", "aws:useragent": "User-Agent",
			"aws:referer": "Referer"}[key]; ok {
			header, isHeader = other, true
		}
		switch tag, isTag := strings.CutPrefix(key, requestTag); {
		case isArg:
			r.URI().QueryArgs().Set(arg, value)
		case isHeader:
			r.Header.Set(header, value)
		case isTag:
			r.Header.Set("X-Amz-Tagging", strings.Trim(string(r.Header.Peek("X-Amz-Tagging"))+"&"+tag+"="+value, "&"))
		case key == "aws:sourceip":
			if from = net.ParseIP(value); from == nil {
				return nil, errs.New(errs.Invalid, "test", name, fmt.Sprintf("value %q, expected an IP address", value))
			}
		default:
			return nil, errs.New(errs.Invalid, "test", name, "this condition key cannot be set for a test").
				WithFix("set aws:SourceIp, aws:UserAgent, aws:Referer, s3:prefix, s3:delimiter, s3:max-keys, s3:VersionId, " +
					"s3:RequestObjectTag/NAME or the key of a header such as s3:x-amz-acl")
		}
	}
	rctx := &fasthttp.RequestCtx{}
	rctx.Init(&r, &net.TCPAddr{IP: from}, nil)
	return rctx, nil
}

// KnownActions returns the actions that requests to this server can have, as policies name them.
func KnownActions() []string {
	return append(policy.KnownActions(), string(auth.ListAllMyBucketsAction))
}

// knownAction returns an action in versitygw's letter case.
func knownAction(name string) (auth.Action, error) {
	all := KnownActions()
	at := slices.IndexFunc(all, func(a string) bool { return strings.EqualFold(a, name) })
	if at < 0 {
		return "", errs.New(errs.Invalid, "test", name, "no request to this server has this action").
			WithFix("name one action, such as s3:GetObject")
	}
	return auth.Action(all[at]), nil
}

// permissionOf returns the permission of an ACL that an action needs.
func permissionOf(action auth.Action) auth.Permission {
	name := strings.TrimPrefix(string(action), "s3:")
	switch {
	case strings.HasSuffix(name, "Acl") && strings.HasPrefix(name, "Get"):
		return auth.PermissionReadAcp
	case strings.HasSuffix(name, "Acl"):
		return auth.PermissionWriteAcp
	case strings.HasPrefix(name, "Get"), strings.HasPrefix(name, "List"):
		return auth.PermissionRead
	}
	return auth.PermissionWrite
}
