// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3api/utils"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/acl"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// As in S3, the ACL of an object decides who reads the object and its ACL. The ACL of a bucket decides who lists the
// bucket, who writes and deletes its objects, and who reads and writes the ACL of the bucket. versitygw knows only ACLs
// of buckets. So it gets an ACL that is made for each request, from the ACL that decides on the request.

// aclUse tells which ACL decides on a request.
type aclUse int

const (
	bucketUse aclUse = iota // the ACL of the bucket
	readUse                 // the ACL of the object, by its permissions READ and READ_ACP
	grantUse                // the ACL of the object, by its permission WRITE_ACP
	ownerUse                // none: only the bucket's owner may
)

// useOf returns which ACL decides on a request.
func useOf(rctx *fasthttp.RequestCtx, at level) aclUse {
	if owners, _ := rctx.UserValue(ownersKey).(bool); owners {
		return ownerUse
	}
	if at != onObject {
		return bucketUse
	}
	args := rctx.QueryArgs()
	switch {
	case args.Has("acl") && rctx.IsPut():
		return grantUse
	case args.Has("uploadId"):
		return bucketUse
	case rctx.IsGet(), rctx.IsHead():
		return readUse
	}
	return bucketUse
}

// senderOf returns the sender of a request.
func senderOf(ctx context.Context) acl.Requester {
	return acl.Requester{Access: accountOf(ctx, string(utils.ContextKeyAccount)).Access}
}

// effectiveACL returns the ACL by which versitygw decides on a request of an account. The ACL grants to who exactly
// what the ACL that decides grants to who. If ACLs have no effect in the bucket, the ACL grants everything to the
// owner.
func (b *backend) effectiveACL(ctx context.Context, bk *object.Bucket, ref object.Ref, who acl.Requester,
	use aclUse) (auth.ACL, error) {
	r := b.rulesOf(bk)
	if r.ACLFault != nil {
		return auth.ACL{}, b.s3Error("Authorize", ref, r.ACLFault)
	}
	owners := func() (auth.ACL, error) { return acl.Private(r.ACL.Owner), nil }
	if use == readUse && bk.OnUpstream() {
		use = bucketUse // another server keeps the objects and their ACLs
	}
	if use == ownerUse || policy.OwnerEnforced(bk) || use == grantUse && bk.OnUpstream() {
		return owners()
	}
	ignore := r.Block.IgnorePublicAcls
	if use == bucketUse {
		return acl.Granted(r.ACL, who, r.ACL.Owner, ignore), nil
	}
	of, err := objectACLOf(ctx, b, bk, ref)
	switch {
	case errors.Is(err, object.ErrNoSuchKey), errors.Is(err, object.ErrNoSuchVersion), errors.Is(err, object.ErrIsMarker):
		// Who may list the bucket may know that the object does not exist. Others get AccessDenied.
		return acl.Granted(r.ACL, who, r.ACL.Owner, ignore), nil
	case err != nil:
		return auth.ACL{}, b.s3Error("Authorize", ref, err)
	}
	out := acl.Granted(of, who, r.ACL.Owner, ignore)
	if use == grantUse {
		// versitygw asks for the permission WRITE if a request sets the ACL of an object.
		set := acl.Allows(of, who, auth.PermissionWriteAcp, ignore)
		out.Grantees = out.Grantees[:0]
		if set && who.Access != "" {
			out = acl.Private(who.Access)
			out.Owner = r.ACL.Owner
		}
	}
	return out, nil
}

// objectsHaveACLs reports whether each object of a bucket may have another ACL. Objects on another server have none
// here.
func objectsHaveACLs(bk *object.Bucket) bool { return !policy.OwnerEnforced(bk) && !bk.OnUpstream() }

// objectACLOf returns the ACL of an object. The error is that of the store.
func objectACLOf(ctx context.Context, b *backend, bk *object.Bucket, ref object.Ref) (auth.ACL, error) {
	info, err := b.store.Stat(patient(ctx), ref)
	if err == nil && info.Marker {
		err = object.ErrIsMarker
	}
	if err != nil {
		return auth.ACL{}, err
	}
	return aclIn(bk, info.Attributes)
}

// aclIn returns the ACL in the attributes of an object. An object without an owner belongs to the bucket's owner. If
// the bucket's owner owns all objects, ACLs have no effect.
func aclIn(bk *object.Bucket, attrs map[string]string) (auth.ACL, error) {
	if policy.OwnerEnforced(bk) {
		return acl.Private(bk.Owner), nil
	}
	return acl.OfObject(attrs[attrACL], ownerIn(bk, attrs))
}

// ownerIn returns the owner of an object with the given attributes.
func ownerIn(bk *object.Bucket, attrs map[string]string) string {
	if owner := attrs[attrOwner]; owner != "" && !policy.OwnerEnforced(bk) {
		return owner
	}
	return bk.Owner
}

// requestACL returns the ACL, as JSON, by which versitygw decides on a request. A request that copies asks twice: first
// for the bucket of its path, then for the bucket of its source.
func requestACL(ctx context.Context, b *backend, bk *object.Bucket) ([]byte, error) {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	r := b.rulesOf(bk)
	if !ok {
		return r.ACLText, nil
	}
	if owners, _ := rctx.UserValue(ownersKey).(bool); owners {
		return r.OwnerText, nil
	}
	header := rctx.Request.Header.Peek("X-Amz-Copy-Source")
	if policy.OwnerEnforced(bk) && len(header) == 0 {
		return r.ACLText, nil // most requests
	}
	at := levelOf(rctx)
	use := useOf(rctx, at)
	_, key := splitPath(rctx)
	ref := object.Ref{Bucket: bk.Name, Key: reveal(key), Version: string(rctx.QueryArgs().Peek("versionId"))}
	if len(header) > 0 && rctx.IsPut() && at == onObject {
		if asked, _ := rctx.UserValue(copyAskedKey).(bool); asked {
			from, err := copySource(string(header))
			if err != nil {
				return nil, err
			}
			ref, use = from, readUse
			rctx.SetUserValue(sourceKey, from)
		}
		rctx.SetUserValue(copyAskedKey, true)
	}
	if policy.OwnerEnforced(bk) {
		return r.ACLText, nil
	}
	of, err := b.effectiveACL(ctx, bk, ref, senderOf(ctx), use)
	if err != nil {
		return nil, err
	}
	return json.Marshal(of)
}

// copyAskedKey is the user value that tells that versitygw has asked for the ACL of the destination of a copy.
// sourceKey is the user value that holds the object.Ref of the source, from the time at which versitygw asks about the
// source.
const (
	copyAskedKey = "nebulaio-copy-asked"
	sourceKey    = "nebulaio-copy-source"
)
