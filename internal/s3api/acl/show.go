// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"cmp"
	"encoding/xml"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/auth"
)

type shownGrantee struct {
	XSI         string `xml:"xmlns:xsi,attr"`
	Type        string `xml:"xsi:type,attr"`
	ID          string `xml:",omitempty"`
	DisplayName string `xml:",omitempty"`
	URI         string `xml:",omitempty"`
}

type shownGrant struct {
	Grantee    shownGrantee
	Permission auth.Permission
}

type shownPolicy struct {
	XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ AccessControlPolicy"`
	Owner   struct{ ID, DisplayName string }
	Grants  []shownGrant `xml:"AccessControlList>Grant"`
}

// XML returns an ACL as the reply of S3 to GetBucketAcl and GetObjectAcl. The display name of an account is its access
// key. Grants to groups come first, because some clients sort grants by a display name, which groups do not have.
func XML(acl auth.ACL) ([]byte, error) {
	out := shownPolicy{Grants: make([]shownGrant, 0, len(acl.Grantees))}
	out.Owner.ID, out.Owner.DisplayName = acl.Owner, acl.Owner
	grants := slices.Clone(acl.Grantees)
	slices.SortStableFunc(grants, func(a, b auth.Grantee) int { return cmp.Compare(rank(a), rank(b)) })
	for _, g := range grants {
		grantee := shownGrantee{XSI: "http://www.w3.org/2001/XMLSchema-instance", Type: string(g.Type)}
		if g.Type == types.TypeGroup {
			grantee.URI = groupURI(g.Access)
		} else {
			grantee.ID, grantee.DisplayName = g.Access, g.Access
		}
		out.Grants = append(out.Grants, shownGrant{Grantee: grantee, Permission: g.Permission})
	}
	text, err := xml.Marshal(out)
	return append([]byte(xml.Header), text...), err
}

// rank returns the place of a grantee in a reply: groups before accounts.
func rank(g auth.Grantee) int {
	if g.Type == types.TypeGroup {
		return 0
	}
	return 1
}
