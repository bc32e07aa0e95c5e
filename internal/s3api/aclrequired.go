// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"net/http"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3api/utils"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/acl"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// aclActions are the actions of the operations that an ACL can grant.
var aclActions = map[string]auth.Action{
	"GetObject": auth.GetObjectAction, "HeadObject": auth.GetObjectAction,
	"GetObjectAttributes": auth.GetObjectAttributesAction, "GetObjectAcl": auth.GetObjectAclAction,
	"PutObjectAcl": auth.PutObjectAclAction, "PutObject": auth.PutObjectAction, "PostObject": auth.PutObjectAction,
	"CopyObject": auth.PutObjectAction, "CreateMultipartUpload": auth.PutObjectAction, "UploadPart": auth.PutObjectAction,
	"UploadPartCopy": auth.PutObjectAction, "CompleteMultipartUpload": auth.PutObjectAction,
	"AbortMultipartUpload": auth.AbortMultipartUploadAction, "DeleteObject": auth.DeleteObjectAction,
	"DeleteObjects": auth.DeleteObjectAction, "HeadBucket": auth.ListBucketAction, "ListObjects": auth.ListBucketAction,
	"ListObjectsV2": auth.ListBucketAction, "ListObjectVersions": auth.ListBucketVersionsAction,
	"ListMultipartUploads": auth.ListBucketMultipartUploadsAction, "GetBucketAcl": auth.GetBucketAclAction,
	"PutBucketAcl": auth.PutBucketAclAction,
}

// ofVersions are the actions of aclActions that differ if the request names a version.
var ofVersions = map[auth.Action]auth.Action{
	auth.GetObjectAction:           auth.GetObjectVersionAction,
	auth.GetObjectAttributesAction: auth.GetObjectVersionAttributesAction,
	auth.DeleteObjectAction:        auth.DeleteObjectVersionAction,
}

// tellACL tells in the HTTP side of a finished request, and in its removals, whether an ACL was needed to allow them.
// The decision is made once more without ACLs, after the reply is ready. So only buckets with an access log pay for it.
// For a copy, the decision is about the new object and not about the source.
func tellACL(s *Server, rctx *fasthttp.RequestCtx, e *Event, deleted []removal) {
	action, ok := aclActions[e.Operation]
	bk, err := s.opts.Store.Bucket(background, e.Bucket)
	if !ok || err != nil || e.Status >= http.StatusBadRequest || policy.OwnerEnforced(bk) {
		return
	}
	h := *e.HTTP // the audit log may still read the other one
	e.HTTP = &h
	ref := object.Ref{Bucket: e.Bucket, Key: e.Key, Version: string(rctx.QueryArgs().Peek("versionId"))}
	switch {
	case e.Operation == "DeleteObjects":
		for i := range deleted {
			ref.Key, ref.Version = deleted[i].key, deleted[i].asked
			deleted[i].acl = allowedByACL(s, rctx, bk, ref, action)
			h.ACL = h.ACL || deleted[i].acl
		}
		return
	case e.Operation == "PostObject":
		ref.Key = form(rctx)["key"]
	}
	h.ACL = allowedByACL(s, rctx, bk, ref, action)
}

// allowedByACL reports whether a request that was allowed would have been denied without ACLs.
func allowedByACL(s *Server, rctx *fasthttp.RequestCtx, bk *object.Bucket, ref object.Ref, action auth.Action) bool {
	permission := permissionOf(action)
	if of, ok := ofVersions[action]; ok && ref.Version != "" {
		action = of
	}
	defer named(rctx, ref.Version)()
	defer exactly(rctx, ref, ownerUse)()
	owners := rctx.UserValue(ownersKey)
	rctx.SetUserValue(ownersKey, true) // no ACL decides
	defer rctx.SetUserValue(ownersKey, owners)
	request := s.authorizer.app.AcquireCtx(rctx) // that of the router is released
	defer s.authorizer.app.ReleaseCtx(request)
	if anonymous(rctx) {
		return auth.VerifyPublicAccess(request, s.backend, action, permission, ref.Bucket, hide(ref.Key)) != nil
	}
	account := accountOf(rctx, string(utils.ContextKeyAccount))
	root := account.Access == s.opts.Accounts.Root().AccessKey
	return auth.VerifyAccess(request, s.backend, auth.AccessOptions{
		Acl: acl.Private(bk.Owner), AclPermission: permission, IsRoot: root, Acc: s.backend.iam.carry(rctx, account),
		Bucket: ref.Bucket, Object: hide(ref.Key), Actions: []auth.Action{action}, Iam: s.backend.iam, DisableACL: true,
	}) != nil
}
