// SPDX-License-Identifier: Apache-2.0

// Package acl reads, writes and evaluates the access control lists of buckets and objects.
//
// An ACL has an owner and grants. The owner may always do everything. A grant gives one permission to an account or to
// a group. The package uses the types of the S3 library versitygw, because stored ACLs of buckets have their form.
package acl

import (
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/auth"
)

// Groups have these names in S3.
const (
	// AllUsers is the group of everybody, with and without an account.
	AllUsers = "http://acs.amazonaws.com/groups/global/AllUsers"
	// AuthenticatedUsers is the group of all accounts.
	AuthenticatedUsers = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"
	// LogDelivery is the group that delivers access logs.
	LogDelivery = "http://acs.amazonaws.com/groups/s3/LogDelivery"
)

// Everybody is the name that stored ACLs use for the group AllUsers.
const Everybody = "all-users"

// groups maps the names of groups in S3 to the names in stored ACLs.
var groups = map[string]string{
	AllUsers: Everybody, AuthenticatedUsers: "authenticated-users", LogDelivery: "log-delivery",
}

// groupURI returns the name in S3 of a group in a stored ACL.
func groupURI(stored string) string {
	for uri, name := range groups {
		if name == stored {
			return uri
		}
	}
	return AllUsers
}

// MaxGrants is the largest number of grants of an ACL, as in S3.
const MaxGrants = 100

// Private returns the ACL that grants everything to the owner and nothing to others.
func Private(owner string) auth.ACL {
	return auth.ACL{Owner: owner, Grantees: []auth.Grantee{toUser(owner, auth.PermissionFullControl)}}
}

func toUser(access string, p auth.Permission) auth.Grantee {
	return auth.Grantee{Permission: p, Access: access, Type: types.TypeCanonicalUser}
}

func toGroup(uri string, p auth.Permission) auth.Grantee {
	return auth.Grantee{Permission: p, Access: groups[uri], Type: types.TypeGroup}
}

// Canned returns the ACL that a canned ACL of S3 stands for. The second result is false if S3 has no canned ACL of this
// name for a bucket (if ofBucket is true) or for an object. The parameter bucketOwner is the owner of an object's
// bucket.
func Canned(name string, ofBucket bool, owner, bucketOwner string) (auth.ACL, bool) {
	out := Private(owner)
	add := func(g ...auth.Grantee) { out.Grantees = append(out.Grantees, g...) }
	switch name {
	case "private":
	case "public-read":
		add(toGroup(AllUsers, auth.PermissionRead))
	case "public-read-write":
		add(toGroup(AllUsers, auth.PermissionRead), toGroup(AllUsers, auth.PermissionWrite))
	case "authenticated-read":
		add(toGroup(AuthenticatedUsers, auth.PermissionRead))
	case "log-delivery-write":
		add(toGroup(LogDelivery, auth.PermissionWrite), toGroup(LogDelivery, auth.PermissionReadAcp))
		return out, ofBucket
	case "bucket-owner-read", "bucket-owner-full-control":
		permission := auth.PermissionRead
		if name == "bucket-owner-full-control" {
			permission = auth.PermissionFullControl
		}
		if owner != bucketOwner {
			add(toUser(bucketOwner, permission))
		}
		return out, !ofBucket
	default:
		return auth.ACL{}, false
	}
	return out, true
}

// Requester is the sender of a request. The zero Requester is anonymous.
type Requester struct{ Access string }

// Allows reports whether an ACL gives a permission to the sender of a request. If ignorePublic is true, grants to
// groups have no effect. The owner of the ACL has every permission.
func Allows(acl auth.ACL, who Requester, permission auth.Permission, ignorePublic bool) bool {
	if who.Access != "" && who.Access == acl.Owner {
		return true
	}
	for _, g := range acl.Grantees {
		if g.Permission != permission && g.Permission != auth.PermissionFullControl {
			continue
		}
		switch {
		case g.Type == types.TypeGroup:
			if !ignorePublic && (g.Access == Everybody || g.Access == groups[AuthenticatedUsers] && who.Access != "") {
				return true
			}
		case who.Access != "" && g.Access == who.Access:
			return true
		}
	}
	return false
}

// DeliversLogs reports whether the ACL of a bucket lets the group LogDelivery write access logs. As in S3, the group
// needs the permissions WRITE and READ_ACP.
func DeliversLogs(acl auth.ACL) bool {
	granted := func(permission auth.Permission) bool {
		for _, g := range acl.Grantees {
			if g.Type == types.TypeGroup && g.Access == groups[LogDelivery] &&
				(g.Permission == permission || g.Permission == auth.PermissionFullControl) {
				return true
			}
		}
		return false
	}
	return granted(auth.PermissionWrite) && granted(auth.PermissionReadAcp)
}

// Granted returns an ACL with the permissions that acl grants to the sender of a request, in versitygw's form. The
// owner of the returned ACL is the given owner of the bucket.
func Granted(acl auth.ACL, who Requester, owner string, ignorePublic bool) auth.ACL {
	out := auth.ACL{Owner: owner, Grantees: []auth.Grantee{}}
	for _, p := range []auth.Permission{auth.PermissionRead, auth.PermissionWrite, auth.PermissionReadAcp,
		auth.PermissionWriteAcp} {
		switch {
		case !Allows(acl, who, p, ignorePublic):
		case who.Access == "":
			out.Grantees = append(out.Grantees, toGroup(AllUsers, p))
		default:
			out.Grantees = append(out.Grantees, toUser(who.Access, p))
		}
	}
	return out
}

// IsPublic reports whether an ACL grants something to the groups AllUsers or AuthenticatedUsers.
func IsPublic(acl auth.ACL) bool {
	for _, g := range acl.Grantees {
		if g.Type == types.TypeGroup && (g.Access == Everybody || g.Access == groups[AuthenticatedUsers]) {
			return true
		}
	}
	return false
}

// IsPrivate reports whether an ACL grants something to nobody but its owner.
func IsPrivate(acl auth.ACL) bool {
	for _, g := range acl.Grantees {
		if g.Type == types.TypeGroup || g.Access != acl.Owner {
			return false
		}
	}
	return true
}

// isPlain reports whether an ACL equals Private of its owner.
func isPlain(acl auth.ACL) bool {
	return len(acl.Grantees) == 1 && acl.Grantees[0] == toUser(acl.Owner, auth.PermissionFullControl)
}

// Text returns the stored form of an object's ACL. Text returns "" for the ACL of Private, which needs no storage.
func Text(acl auth.ACL) (string, error) {
	if isPlain(acl) {
		return "", nil
	}
	text, err := json.Marshal(acl)
	return string(text), err
}

// OfObject returns the ACL of an object from its stored form. An object without an ACL is private to its owner.
func OfObject(text, owner string) (auth.ACL, error) {
	if text == "" {
		return Private(owner), nil
	}
	acl, err := auth.ParseACL([]byte(text))
	acl.Owner = owner
	return acl, err
}
