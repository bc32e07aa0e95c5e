// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/acl"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
	"github.com/nebulaio/nebulaio/internal/s3api/xmldoc"
)

// GetBucketAcl returns the ACL by which versitygw decides on a request. The S3 library versitygw calls GetBucketAcl
// after checking the signature of a request and before parsing its body. GetBucketAcl also refuses request bodies that
// are not valid, because versitygw calls no other method of the backend before it parses the body.
func (b *backend) GetBucketAcl(ctx context.Context, in *s3.GetBucketAclInput) ([]byte, error) {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if ok {
		spellPolicy(rctx)
		b.iam.carryAll(rctx)
		keepAskedACL(b, rctx)
	}
	var missing *xmldoc.Missing
	listErr := checkLists(ctx)
	if listErr != nil && !errors.As(listErr, &missing) {
		return nil, listErr
	}
	bk, err := b.bucketOf(ctx, *in.Bucket)
	if missing != nil {
		err = deleteNothing(ctx, b, bk, missing)
	}
	if err != nil {
		return nil, err
	}
	if r := b.rulesOf(bk); r.ACLFault != nil {
		return nil, b.s3Error("GetBucketAcl", object.Ref{Bucket: bk.Name}, r.ACLFault)
	}
	return requestACL(ctx, b, bk)
}

// ownersKey is the user value that tells GetBucketAcl that no ACL can grant the request.
const ownersKey = "nebulaio-owners"

// grantable reports whether an ACL can grant a request, as in S3. An ACL can grant listing a bucket, reading,
// writing and deleting objects, and reading and writing the ACL. versitygw would let the permission to write change
// all settings.
func grantable(rctx *fasthttp.RequestCtx, at level, plain bool) bool {
	if at == onBucket && string(rctx.Method()) == fasthttp.MethodDelete {
		return false
	}
	if plain {
		return true
	}
	if at == onObject && string(rctx.Method()) == fasthttp.MethodDelete && rctx.QueryArgs().Has("versionId") {
		return false // only the owner may delete old versions
	}
	for k := range rctx.QueryArgs().All() {
		if _, settings := ownersArgs[at][string(k)]; settings && !(string(k) == "versioning" && rctx.IsGet()) {
			return false
		}
	}
	return true
}

// ownersArgs are the sub-resources to which no ACL can grant access. The one exception is reading the versioning
// state.
var ownersArgs = map[level]map[string]struct{}{
	onBucket: setOf("accelerate", "analytics", "cors", "encryption", "intelligent-tiering", "inventory", "lifecycle",
		"logging", "metrics", "notification", "object-lock", "ownershipControls", "policy", "policyStatus",
		"publicAccessBlock", "replication", "requestPayment", "tagging", "versioning", "website"),
	onObject: setOf("legal-hold", "restore", "retention", "tagging"),
}

// aclUses are the actions on objects that an ACL can grant, with the ACL that decides.
var aclUses = map[auth.Action]aclUse{
	auth.GetObjectAction: readUse, auth.GetObjectVersionAction: readUse, auth.PutObjectAction: bucketUse,
	auth.GetObjectAclAction: readUse, auth.PutObjectAclAction: grantUse,
}

// useFor returns which ACL decides on an action.
func useFor(actions []auth.Action) aclUse {
	use := bucketUse
	for _, a := range actions {
		u, ok := aclUses[a]
		if !ok {
			return ownerUse
		}
		use = max(use, u)
	}
	return use
}

// askedACLKey is the user value that holds the acl.Asked of a request that sets the ACL of a bucket.
const askedACLKey = "nebulaio-asked-acl"

// keepAskedACL keeps the ACL that a request sets for a bucket, and replaces it by one that versitygw accepts. versitygw
// does not know groups and some canned ACLs. The caller calls keepAskedACL after the signature was checked.
func keepAskedACL(b *backend, rctx *fasthttp.RequestCtx) {
	if !rctx.IsPut() || !rctx.QueryArgs().Has("acl") || rctx.UserValue(askedACLKey) != nil || levelOf(rctx) != onBucket {
		return
	}
	body := bytes.Clone(rctx.Request.Body())
	rctx.Request.SetBody(nil)
	hideACL(b, rctx, body)
}

// hideACL keeps the ACL that a request asks for in the user value askedACLKey. If versitygw would not accept the ACL,
// hideACL replaces it by a grant to the root account.
func hideACL(b *backend, rctx *fasthttp.RequestCtx, body []byte) {
	h := &rctx.Request.Header
	asked := acl.AskedBy(func(name string) string { return string(h.Peek(name)) })
	asked.Body = body
	rctx.SetUserValue(askedACLKey, asked)
	if asked.Grants == nil && len(body) == 0 && auth.ValidateCannedACL(types.BucketCannedACL(asked.Canned)) == nil {
		return
	}
	for name := range asked.Grants {
		h.Del(name)
	}
	h.Del("X-Amz-Acl")
	h.Set("X-Amz-Grant-Full-Control", b.accounts.Root().AccessKey)
}

// askedBucketACL returns the ACL that a request sets for a bucket, as the bucket stores it. If the request says nothing
// about an ACL, askedBucketACL returns the ACL given, which is versitygw's.
func askedBucketACL(ctx context.Context, b *backend, bk *object.Bucket, given []byte) ([]byte, error) {
	asked, ok := ctx.Value(askedACLKey).(acl.Asked)
	if !ok || asked.Empty() && len(asked.Body) == 0 {
		return given, nil
	}
	if len(asked.Body) > 0 {
		if err := xmldoc.Check(asked.Body, "AccessControlPolicy"); err != nil {
			return nil, malformedXML(err)
		}
	}
	to := acl.Target{OfBucket: true, Owner: bk.Owner, BucketOwner: bk.Owner, Accounts: existing{b.accounts}}
	made, err := to.Make(asked)
	if err == nil {
		err = blockedACL(bk, acl.IsPublic(made))
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(made)
}

// PutBucketAcl stores the ACL of a bucket.
func (b *backend) PutBucketAcl(ctx context.Context, bucket string, text []byte) error {
	return b.change(ctx, bucket, func(bk *object.Bucket) error {
		if policy.OwnerEnforced(bk) {
			return s3err.GetAPIError(s3err.ErrAclNotSupported)
		}
		made, err := askedBucketACL(ctx, b, bk, text)
		if err == nil {
			bk.Settings[policy.SettingACL] = bytes.Clone(made)
		}
		return err
	})
}

// grantHeaders are the headers that give an object an ACL beside x-amz-acl.
var grantHeaders = []string{
	"X-Amz-Grant-Full-Control", "X-Amz-Grant-Read", "X-Amz-Grant-Read-Acp", "X-Amz-Grant-Write", "X-Amz-Grant-Write-Acp",
}

// formGrant returns the field of a form that has the meaning of a header about ACLs. The canned ACL is the field acl.
func formGrant(fields map[string]string, header string) string {
	if header == "X-Amz-Acl" {
		return fields["acl"]
	}
	return fields[strings.ToLower(header)]
}

// asksForACL reports whether a header or an argument may ask for an ACL. The check is quick, because most requests
// ask for none.
func asksForACL(rctx *fasthttp.RequestCtx) bool {
	for k := range rctx.Request.Header.All() {
		if len(k) > len("x-amz-") && (k[6]|0x20 == 'a' || k[6]|0x20 == 'g') && k[0]|0x20 == 'x' {
			return true
		}
	}
	return !plainQuery(rctx.QueryArgs())
}

// refusedACL returns why a requested ACL is refused, or nil if none is requested. The canned ACL private grants nothing
// to others, and clients such as s3cmd send it with every write, so it is accepted.
func refusedACL(bk *object.Bucket, asked string, granted bool) error {
	switch types.ObjectCannedACL(asked) {
	case "", types.ObjectCannedACLBucketOwnerFullControl, types.ObjectCannedACLPrivate:
		if !granted {
			return nil
		}
	case types.ObjectCannedACLPublicRead, types.ObjectCannedACLPublicReadWrite,
		types.ObjectCannedACLAuthenticatedRead,
		types.ObjectCannedACLAwsExecRead, types.ObjectCannedACLBucketOwnerRead:
	default:
		return s3err.GetInvalidArgumentErr(s3err.InvalidArgCannedAcl, strings.Clone(asked))
	}
	if policy.OwnerEnforced(bk) {
		return s3err.GetAPIError(s3err.ErrAclNotSupported)
	}
	return refusal(http.StatusNotImplemented, "NotImplemented",
		"Another S3 server keeps the objects of this bucket, and their ACLs cannot be set or read here.")
}

// argumentACL reports whether the arguments of a request ask for an ACL. versitygw reads the ACL of a bucket only
// from headers.
func argumentACL(rctx *fasthttp.RequestCtx) bool {
	for k := range rctx.QueryArgs().All() {
		name := strings.ToLower(string(k))
		if name == "x-amz-acl" || strings.HasPrefix(name, "x-amz-grant-") {
			return true
		}
	}
	return false
}

// argument returns an S3 header, which a presigned URL may carry as an argument.
func argument(rctx *fasthttp.RequestCtx, name string) string {
	if v := rctx.Request.Header.Peek(name); len(v) > 0 {
		return string(v)
	}
	for k, v := range rctx.QueryArgs().All() {
		if strings.EqualFold(string(k), name) {
			return string(v)
		}
	}
	return ""
}

// invalidGrantee returns the S3 error for a grant to an account that does not exist.
func invalidGrantee() s3err.S3Error {
	return invalid("Invalid id: a grantee is no account here. Grant to id=\"ACCESS-KEY\".")
}
