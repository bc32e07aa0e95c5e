// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// versitygw checks object locks before it makes a change. It would miss a lock that is set in between, so the store
// checks the lock again in the same atomic step as the change.

// askedLock adds the retention and the legal hold that a request asks for. judgeWrite adds the default retention
// when the object is made.
func askedLock(
	attrs map[string]string, bk *object.Bucket, mode types.ObjectLockMode, until *time.Time,
	hold types.ObjectLockLegalHoldStatus,
) error {
	asked := mode != "" || hold == types.ObjectLockLegalHoldStatusOn
	if asked && !lockEnabled(bk) && !bk.OnUpstream() { // an upstream decides by itself
		return s3err.GetAPIError(s3err.ErrMissingObjectLockConfigurationNoSpaces)
	}
	if hold == types.ObjectLockLegalHoldStatusOn {
		attrs[attrHold] = "1"
	}
	if mode == "" {
		return nil
	}
	own := types.ObjectLockRetentionMode(strings.Clone(string(mode)))
	doc, err := json.Marshal(types.ObjectLockRetention{Mode: own, RetainUntilDate: until})
	if err != nil {
		return err
	}
	attrs[attrRetention] = string(doc)
	return nil
}

// defaultRetention returns the default retention of an object that is made now, or nil if the bucket has none.
func defaultRetention(bk *object.Bucket) (map[string]string, error) {
	conf := lockOf(bk)
	def := conf.DefaultRetention
	if !conf.Enabled || def == nil {
		return nil, nil
	}
	end := time.Now()
	if def.Days != nil {
		end = end.AddDate(0, 0, int(*def.Days))
	}
	if def.Years != nil {
		end = end.AddDate(int(*def.Years), 0, 0)
	}
	doc, err := json.Marshal(types.ObjectLockRetention{Mode: def.Mode, RetainUntilDate: &end})
	if err != nil {
		return nil, err
	}
	return map[string]string{attrRetention: string(doc)}, nil
}

// judgeWrite returns a Judge that refuses to replace a locked version. The Judge adds the bucket's default
// retention to the new version if its attributes attrs have no retention. A write cannot override a retention.
func judgeWrite(attrs map[string]string) object.Judge {
	_, retained := attrs[attrRetention]
	return func(c object.Change) (map[string]string, error) {
		if c.Removed != nil {
			if err := protected(c.Removed.Attributes, false); err != nil {
				return nil, err
			}
		}
		if retained {
			return nil, nil
		}
		return defaultRetention(c.Bucket)
	}
}

// judgeCopy is judgeWrite for a write that may be a copy of a version of another server. Such a copy has the retention
// that the version has there, and gets no default retention.
func judgeCopy(attrs map[string]string, origin *object.Origin) object.Judge {
	if origin == nil {
		return judgeWrite(attrs)
	}
	return judgeRemoval(false)
}

// judgeRemoval returns a Judge that refuses to delete a locked version. If bypass is true, the deletion may
// override a retention in the mode GOVERNANCE.
func judgeRemoval(bypass bool) object.Judge {
	return func(c object.Change) (map[string]string, error) {
		if c.Removed == nil {
			return nil, nil
		}
		return nil, protected(c.Removed.Attributes, bypass)
	}
}

// protected returns ErrObjectLocked if a version with these attributes must not be removed now. A retention that
// cannot be read also protects the version.
func protected(attrs map[string]string, bypass bool) error {
	locked := s3err.GetAPIError(s3err.ErrObjectLocked)
	if attrs[attrHold] == "1" {
		return locked
	}
	mode, active := retentionOf(attrs[attrRetention])
	if active && !(bypass && mode == types.ObjectLockRetentionModeGovernance) {
		return locked
	}
	return nil
}

// retentionOf returns the mode of a stored retention, and whether it is in force.
func retentionOf(doc string) (mode types.ObjectLockRetentionMode, active bool) {
	if doc == "" {
		return "", false
	}
	var r types.ObjectLockRetention
	if json.Unmarshal([]byte(doc), &r) != nil || r.RetainUntilDate == nil {
		return "", true
	}
	return r.Mode, r.RetainUntilDate.After(time.Now())
}

// replaceable returns ErrObjectLocked if the retention next must not replace the retention is. A retention can
// always be prolonged in its own mode. An active retention in the mode COMPLIANCE cannot be changed in any other
// way, and one in the mode GOVERNANCE only with bypass.
func replaceable(is, next string, bypass bool) error {
	mode, active := retentionOf(is)
	if !active || bypass && mode == types.ObjectLockRetentionModeGovernance {
		return nil
	}
	var from, to types.ObjectLockRetention
	if json.Unmarshal([]byte(is), &from) != nil || json.Unmarshal([]byte(next), &to) != nil || from.Mode != to.Mode ||
		from.RetainUntilDate == nil || to.RetainUntilDate == nil || to.RetainUntilDate.Before(*from.RetainUntilDate) {
		return s3err.GetAPIError(s3err.ErrObjectLocked)
	}
	return nil
}

// mayBypass reports whether a request asks to override retention in the mode GOVERNANCE and has the permission.
func (b *backend) mayBypass(ctx context.Context, bk *object.Bucket, ref object.Ref) bool {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok || !bypasses(rctx) || !lockEnabled(bk) && !bk.OnUpstream() {
		return false
	}
	request, ok := ctx.Value(requestKey).(fiber.Ctx)
	if !ok {
		return false // the request did not come through the guard
	}
	defer named(rctx, ref.Version)()
	defer exactly(rctx, ref, ownerUse)()
	if anonymous(ctx) {
		return auth.VerifyPublicAccess(request, b, auth.BypassGovernanceRetentionAction, auth.PermissionWrite, bk.Name,
			hide(ref.Key)) == nil
	}
	r := b.rulesOf(bk)
	if r.ACLFault != nil {
		return false
	}
	root, _ := ctx.Value(string(utils.ContextKeyIsRoot)).(bool)
	// Without a policy, only the owner may override retention, because ACLs cannot grant it.
	return auth.VerifyAccess(request, b, auth.AccessOptions{
		Acl: r.ACL, AclPermission: auth.PermissionWrite, DisableACL: true, IsRoot: root,
		Acc: b.iam.carry(rctx, accountOf(ctx, string(utils.ContextKeyAccount))), Iam: b.iam,
		Bucket: bk.Name, Object: hide(ref.Key), Actions: []auth.Action{auth.BypassGovernanceRetentionAction},
	}) == nil
}
