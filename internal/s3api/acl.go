// SPDX-License-Identifier: Apache-2.0

package s3api

import (
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
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
	"github.com/nebulaio/nebulaio/internal/s3api/xmldoc"
)

// everybody is versitygw's name for the group of all users, and allUsers is the name in S3.
const (
	everybody = "all-users"
	allUsers  = "http://acs.amazonaws.com/groups/global/AllUsers"
)

// aclOf returns the ACL that applies to a bucket.
func (b *backend) aclOf(bk *object.Bucket) (auth.ACL, error) {
	r := b.rulesOf(bk)
	return r.ACL, r.ACLFault
}

// GetBucketAcl returns the ACL that applies to the bucket. The S3 library versitygw calls GetBucketAcl after checking
// the signature of a request and before parsing its body. GetBucketAcl also refuses request bodies that are not
// valid, because versitygw calls no other method of the backend before it parses the body.
func (b *backend) GetBucketAcl(ctx context.Context, in *s3.GetBucketAclInput) ([]byte, error) {
	if rctx, ok := ctx.(*fasthttp.RequestCtx); ok {
		spellPolicy(rctx)
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
	r := b.rulesOf(bk)
	if r.ACLFault != nil {
		return nil, b.s3Error("GetBucketAcl", object.Ref{Bucket: bk.Name}, r.ACLFault)
	}
	if owners, _ := ctx.Value(ownersKey).(bool); owners {
		return r.OwnerText, nil
	}
	return r.ACLText, nil
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

// aclActions are the actions on objects that an ACL can grant.
var aclActions = map[auth.Action]struct{}{
	auth.GetObjectAction: {}, auth.GetObjectVersionAction: {}, auth.PutObjectAction: {},
}

// onlyOwners reports whether at least one of the actions cannot be granted by an ACL.
func onlyOwners(actions []auth.Action) bool {
	for _, a := range actions {
		if _, ok := aclActions[a]; !ok {
			return true
		}
	}
	return false
}

// PutBucketAcl stores the ACL of a bucket.
func (b *backend) PutBucketAcl(ctx context.Context, bucket string, acl []byte) error {
	if err := checkDocument(ctx, "AccessControlPolicy"); err != nil {
		return err
	}
	acl, err := normalACL(acl)
	if err != nil {
		return err
	}
	return b.change(ctx, bucket, func(bk *object.Bucket) error {
		if policy.OwnerEnforced(bk) {
			return s3err.GetAPIError(s3err.ErrAclNotSupported)
		}
		bk.Settings[policy.SettingACL] = acl
		return nil
	})
}

// PutObjectAcl always returns an error, because objects have no ACLs of their own.
func (b *backend) PutObjectAcl(ctx context.Context, in *s3.PutObjectAclInput) error {
	bk, err := b.bucketOf(ctx, *in.Bucket)
	if err != nil {
		return err
	}
	if policy.OwnerEnforced(bk) {
		return s3err.GetAPIError(s3err.ErrAclNotSupported)
	}
	return s3err.GetAPIError(s3err.ErrNotImplemented)
}

// normalACL returns an ACL with the plain names of its grantees. versitygw keeps the names as they were in a
// header.
func normalACL(text []byte) ([]byte, error) {
	acl, err := auth.ParseACL(text)
	if err != nil {
		return nil, err
	}
	for i := range acl.Grantees {
		g := &acl.Grantees[i]
		if g.Type != types.TypeCanonicalUser || g.Access == acl.Owner {
			continue
		}
		named, err := granteeOf(g.Access)
		if err != nil {
			return nil, err
		}
		g.Access, g.Type = named.Access, named.Type
	}
	return json.Marshal(acl)
}

// granteeOf parses a grantee of a header: an access key, or the forms of S3, id="ACCESS-KEY" and uri="GROUP".
func granteeOf(text string) (auth.Grantee, error) {
	name := strings.TrimSpace(text)
	kind, value, ok := strings.Cut(name, "=")
	if !ok {
		return auth.Grantee{Access: strings.Trim(name, `"`), Type: types.TypeCanonicalUser}, nil
	}
	value = strings.Trim(strings.TrimSpace(value), `"`)
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "id":
		return auth.Grantee{Access: value, Type: types.TypeCanonicalUser}, nil
	case "uri":
		if value == allUsers {
			return auth.Grantee{Access: everybody, Type: types.TypeGroup}, nil
		}
		return auth.Grantee{}, refusal(http.StatusNotImplemented, "NotImplemented",
			"The only group that can be granted something here is "+allUsers+".")
	case "emailaddress":
		return auth.Grantee{}, refusal(http.StatusBadRequest, "UnresolvableGrantByEmailAddress",
			"Accounts have no e-mail addresses here. Grant to id=\"ACCESS-KEY\".")
	}
	return auth.Grantee{Access: name, Type: types.TypeCanonicalUser}, nil // an access key may have "=" in it
}

// invalidID returns the S3 error for a grant to an account that does not exist.
func invalidID() s3err.S3Error {
	return refusal(http.StatusBadRequest, "InvalidArgument",
		"Invalid id: a grantee is no account here. Grant to id=\"ACCESS-KEY\".")
}

// grantHeaders are the headers that give an object an ACL beside x-amz-acl.
var grantHeaders = []string{
	"X-Amz-Grant-Full-Control", "X-Amz-Grant-Read", "X-Amz-Grant-Read-Acp", "X-Amz-Grant-Write", "X-Amz-Grant-Write-Acp",
}

// objectACL returns an error if a request would give a new object an ACL, because objects have no ACLs of their
// own. An ACL that grants access only to the bucket's owner is accepted.
func objectACL(ctx context.Context, bk *object.Bucket) error {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return nil
	}
	if !asksForACL(rctx) {
		return nil
	}
	asked := argument(rctx, "X-Amz-Acl")
	granted := false
	for _, name := range grantHeaders {
		granted = granted || argument(rctx, name) != ""
	}
	return refusedACL(bk, asked, granted)
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

// refusedACL returns why a requested ACL is refused, or nil if none is requested.
func refusedACL(bk *object.Bucket, asked string, granted bool) error {
	switch types.ObjectCannedACL(asked) {
	case "", types.ObjectCannedACLPrivate, types.ObjectCannedACLBucketOwnerFullControl:
		if !granted {
			return nil
		}
	case types.ObjectCannedACLPublicRead, types.ObjectCannedACLPublicReadWrite, types.ObjectCannedACLAuthenticatedRead,
		types.ObjectCannedACLAwsExecRead, types.ObjectCannedACLBucketOwnerRead:
	default:
		return s3err.GetInvalidArgumentErr(s3err.InvalidArgCannedAcl, strings.Clone(asked))
	}
	if policy.OwnerEnforced(bk) {
		return s3err.GetAPIError(s3err.ErrAclNotSupported)
	}
	return refusal(http.StatusNotImplemented, "NotImplemented",
		"Objects have no ACLs of their own here: give the bucket an ACL or a policy.")
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
