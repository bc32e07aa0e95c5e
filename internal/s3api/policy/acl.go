// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Setting, SettingACL and SettingOwnership are the keys of object.Bucket.Settings that hold a bucket's access
// rules.
const (
	Setting          = "policy"
	SettingACL       = "acl"
	SettingOwnership = "ownership"
)

// OwnerEnforced reports whether a bucket has the S3 setting BucketOwnerEnforced, under which ACLs have no effect.
func OwnerEnforced(bk *object.Bucket) bool {
	return types.ObjectOwnership(bk.Settings[SettingOwnership]) == types.ObjectOwnershipBucketOwnerEnforced
}

// aclInForce returns the ACL that applies to a bucket, parsed and as JSON. If ACLs have no effect in the bucket,
// the ACL grants access only to the owner.
func aclInForce(bk *object.Bucket) (auth.ACL, []byte, error) {
	text := bk.Settings[SettingACL]
	acl, err := auth.ParseACL(text)
	if err != nil || !OwnerEnforced(bk) || acl.Owner == "" {
		return acl, text, err
	}
	return OwnersACL(acl.Owner)
}

// OwnersACL returns an ACL that grants everything to the owner and nothing to others, in two forms: parsed and as
// JSON.
func OwnersACL(owner string) (auth.ACL, []byte, error) {
	acl := auth.ACL{Owner: owner, Grantees: []auth.Grantee{{
		Permission: auth.PermissionFullControl, Access: owner, Type: types.TypeCanonicalUser,
	}}}
	text, err := json.Marshal(acl)
	return acl, text, err
}

// aclStays returns an error if a first policy would disable an ACL that grants access to others.
func aclStays(bk *object.Bucket) error {
	if bk.Settings[Setting] != nil || bk.Settings[SettingACL] == nil {
		return nil
	}
	acl, _, err := aclInForce(bk)
	if err != nil {
		return errs.Wrap("read the ACL of", bk.Name, err)
	}
	for _, grantee := range acl.Grantees {
		if grantee.Access != acl.Owner {
			return errs.New(errs.Invalid, "grant access to", bk.Name,
				fmt.Sprintf("its ACL allows %s something to %q, and has no effect beside a policy", grantee.Permission,
					grantee.Access)).
				WithFix("set the ACL private (aws s3api put-bucket-acl --acl private), and grant those users access, too")
		}
	}
	return nil
}
