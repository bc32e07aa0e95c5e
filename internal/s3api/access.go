// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3api/middlewares"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// maxAhead is the longest time by which the date of a signature may be ahead of this machine's clock, as in S3.
const maxAhead = 15 * time.Minute

// anonymous reports whether a request without an account was admitted because everybody has the permission.
func anonymous(ctx context.Context) bool {
	is, _ := ctx.Value(string(utils.ContextKeyPublicBucket)).(bool)
	return is
}

// allowed returns nil if a request may perform the actions on the object of ref. It decides anew, even if versitygw
// has already decided on the request.
func (b *backend) allowed(ctx context.Context, ref object.Ref, permission auth.Permission,
	actions ...auth.Action) error {
	request, ok := ctx.Value(requestKey).(fiber.Ctx)
	if !ok {
		return s3err.GetAPIError(s3err.ErrAccessDenied) // the request did not come through the guard
	}
	defer named(request.RequestCtx(), ref.Version)()
	use := useFor(actions)
	defer exactly(request.RequestCtx(), ref, use)()
	if anonymous(ctx) {
		for _, action := range actions {
			if err := auth.VerifyPublicAccess(request, b, action, permission, ref.Bucket, hide(ref.Key)); err != nil {
				return err
			}
		}
		return nil
	}
	bk, err := b.bucketOf(ctx, ref.Bucket)
	if err != nil {
		return err
	}
	acl, err := b.effectiveACL(ctx, bk, ref, senderOf(ctx), use)
	if err != nil {
		return err
	}
	root, _ := ctx.Value(string(utils.ContextKeyIsRoot)).(bool)
	return auth.VerifyAccess(request, b, auth.AccessOptions{
		Acl: acl, AclPermission: permission, IsRoot: root,
		Acc:    b.iam.carry(request.RequestCtx(), accountOf(ctx, string(utils.ContextKeyAccount))),
		Bucket: ref.Bucket, Object: hide(ref.Key), Actions: actions, Iam: b.iam,
		DisableACL: use == ownerUse,
	})
}

// named makes policy conditions see the given version instead of the version in the request's arguments. The
// returned function restores the arguments.
func named(rctx *fasthttp.RequestCtx, version string) (restore func()) {
	const arg = "versionId"
	args := rctx.QueryArgs()
	was := string(args.Peek(arg))
	if was == version {
		return func() {}
	}
	had := args.Has(arg)
	args.Del(arg)
	if version != "" {
		args.Set(arg, version)
	}
	return func() {
		args.Del(arg)
		if had {
			args.Set(arg, was)
		}
	}
}

// authorizePublic returns nil if everybody may perform an action on the version that a request names. versitygw has
// checked only the current version.
func (b *backend) authorizePublic(ctx context.Context, ref object.Ref, action auth.Action,
	permission auth.Permission) error {
	if !anonymous(ctx) || ref.Version == "" {
		return nil
	}
	return b.allowed(ctx, ref, permission, action)
}

// authorizeRead checks the permission to read a version, if versitygw has checked another version. For requests
// without an account, versitygw has checked the current version. For an empty version in the arguments, it has
// checked none.
func (b *backend) authorizeRead(ctx context.Context, ref object.Ref) error {
	if r, ok := ctx.(*fasthttp.RequestCtx); ok && ref.Version == "" && r.QueryArgs().Has("versionId") {
		return b.allowed(ctx, ref, auth.PermissionRead, auth.GetObjectAction)
	}
	return b.authorizePublic(ctx, ref, auth.GetObjectVersionAction, auth.PermissionRead)
}

// mayCompare returns nil if a request may use a condition on the current object. As in S3, a condition on ETag,
// size or time needs the permission to read, because its result reveals something about the object.
func (b *backend) mayCompare(ctx context.Context, ref object.Ref, c object.Condition) error {
	if (c.IfMatch == "" || c.IfMatch == "*") && c.IfSize == nil && c.IfModified == nil {
		return nil
	}
	return b.allowed(ctx, ref, auth.PermissionRead, ofVersion(ref, auth.GetObjectAction, auth.GetObjectVersionAction))
}

// ofVersion returns the action version if ref names a version, and the action current otherwise.
func ofVersion(ref object.Ref, current, version auth.Action) auth.Action {
	if ref.Version == "" {
		return current
	}
	return version
}

// shown returns the tags, the retention and the legal hold of an object, as far as the request may see them. S3 has a
// separate action for each.
func (b *backend) shown(ctx context.Context, ref object.Ref, attrs map[string]string) map[string]string {
	all := []struct {
		name   string
		action auth.Action
	}{
		{attrTags, ofVersion(ref, auth.GetObjectTaggingAction, auth.GetObjectVersionTaggingAction)},
		{attrRetention, auth.GetObjectRetentionAction}, {attrHold, auth.GetObjectLegalHoldAction},
	}
	var out map[string]string
	for _, a := range all {
		v, ok := attrs[a.name]
		if !ok || b.allowed(ctx, ref, auth.PermissionRead, a.action) != nil {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[a.name] = v
	}
	return out
}

// copySource reads the header that names the source of a copy: BUCKET/KEY or BUCKET/KEY?versionId=VERSION, with
// bucket and key escaped. Only this function reads the header, so that the permission is checked for the same
// object that is read.
func copySource(header string) (object.Ref, error) {
	text, query, asked := strings.Cut(header, "?")
	name, err := url.QueryUnescape(strings.TrimPrefix(text, "/"))
	version, unescaped := "", error(nil)
	if !asked {
		// Some clients escape the whole header.
		name, version, asked = strings.Cut(name, "?versionId=")
	} else {
		value, ok := strings.CutPrefix(query, "versionId=")
		if !ok || strings.ContainsAny(value, "&?=;") {
			return object.Ref{}, refusal(http.StatusBadRequest, "InvalidArgument", "Unsupported copy source parameter.")
		}
		version, unescaped = url.QueryUnescape(value)
	}
	if err != nil || unescaped != nil {
		return object.Ref{}, s3err.GetInvalidArgumentErr(s3err.InvalidArgCopySourceEncoding, header)
	}
	bucket, key, _ := strings.Cut(name, "/")
	switch {
	case bucket == "" || key == "":
		return object.Ref{}, s3err.GetInvalidArgumentErr(s3err.InvalidArgCopySourceBucket, header)
	case asked && version == "":
		return object.Ref{}, s3err.GetInvalidArgumentErr(s3err.InvalidArgVersionId, "")
	}
	return object.Ref{Bucket: bucket, Key: key, Version: version}, nil
}

// form returns the fields of a form that a browser posts, nil for every other request.
func form(ctx context.Context) map[string]string {
	posted, _ := ctx.Value(string(utils.ContextKeyObjectPostResult)).(middlewares.PostObjectResult)
	return posted.Fields
}

// authorizeForm returns nil if a form may be posted. versitygw has checked only the bucket, so that no statement
// about keys was applied.
func (b *backend) authorizeForm(ctx context.Context, ref object.Ref, fields map[string]string) error {
	actions := []auth.Action{auth.PutObjectAction}
	if fields["tagging"] != "" {
		actions = append(actions, auth.PutObjectTaggingAction)
	}
	if err := b.allowed(ctx, ref, auth.PermissionWrite, actions...); err != nil {
		return err
	}
	if early(fields["x-amz-date"]) {
		return notYet()
	}
	for name, value := range fields {
		if value != "" && (isRefused(name) || strings.HasPrefix(name, "x-amz-object-lock-")) {
			return refusal(http.StatusNotImplemented, "NotImplemented",
				"A field of the form implies functionality that is not implemented: "+strings.Clone(name)+".")
		}
	}
	return nil
}

// early reports whether the date of a signature is too far in the future.
func early(date string) bool {
	if date == "" { // most requests, for which an error of the parser would be made
		return false
	}
	t, err := time.Parse("20060102T150405Z", date)
	return err == nil && time.Until(t) > maxAhead // versitygw refuses a date in another format
}

// notYet returns the S3 error for a request with a date in the future.
func notYet() s3err.S3Error {
	return refusal(http.StatusForbidden, "AccessDenied", "Request is not valid yet")
}
