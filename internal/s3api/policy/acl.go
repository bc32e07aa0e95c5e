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

// Names of the settings of a bucket that hold its rules.
const (
	Setting          = "policy"
	SettingACL       = "acl"
	SettingOwnership = "ownership"
)

// OwnerEnforced reports whether ACLs have no effect in a bucket, because its owner owns all objects.
func OwnerEnforced(bk *object.Bucket) bool {
	return types.ObjectOwnership(bk.Settings[SettingOwnership]) == types.ObjectOwnershipBucketOwnerEnforced
}

// aclInForce returns the ACL by which a bucket is judged, and the same as a document. If ACLs have no effect in the
// bucket, it is an ACL of the owner alone.
func aclInForce(bk *object.Bucket) (auth.ACL, []byte, error) {
	text := bk.Settings[SettingACL]
	acl, err := auth.ParseACL(text)
	if err != nil || !OwnerEnforced(bk) || acl.Owner == "" {
		return acl, text, err
	}
	return OwnersACL(acl.Owner)
}

// OwnersACL returns the ACL that grants everything to the owner and nothing to others, and the same as a document.
func OwnersACL(owner string) (auth.ACL, []byte, error) {
	acl := auth.ACL{Owner: owner, Grantees: []auth.Grantee{{
		Permission: auth.PermissionFullControl, Access: owner, Type: types.TypeCanonicalUser,
	}}}
	text, err := json.Marshal(acl)
	return acl, text, err
}

// aclStays refuses a first policy for a bucket whose ACL grants something to others. The new policy would put that ACL
// out of force.
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
