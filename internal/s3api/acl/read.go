// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"
)

// Accounts tells which accounts exist. A grantee has to be one of them.
type Accounts interface {
	// Exists reports whether an account has the access key.
	Exists(access string) bool
}

// grantHeaders are the headers that grant a permission, in the order in which S3 lists the grants.
var grantHeaders = []struct {
	name       string
	permission auth.Permission
}{
	{"X-Amz-Grant-Read", auth.PermissionRead}, {"X-Amz-Grant-Write", auth.PermissionWrite},
	{"X-Amz-Grant-Read-Acp", auth.PermissionReadAcp}, {"X-Amz-Grant-Write-Acp", auth.PermissionWriteAcp},
	{"X-Amz-Grant-Full-Control", auth.PermissionFullControl},
}

// Asked is what a request says about an ACL: a canned ACL, headers with grants, or a document.
type Asked struct {
	Canned string
	Grants map[string]string // values of the headers X-Amz-Grant-…, by name; only those with a value
	Body   []byte
}

// AskedBy reads the headers of a request by the function get. The caller sets the field Body.
func AskedBy(get func(header string) string) Asked {
	a := Asked{Canned: get("X-Amz-Acl")}
	for _, h := range grantHeaders {
		if v := get(h.name); v != "" {
			if a.Grants == nil {
				a.Grants = map[string]string{}
			}
			a.Grants[h.name] = v
		}
	}
	return a
}

// Empty reports whether the headers of a request say nothing about an ACL.
func (a Asked) Empty() bool { return a.Canned == "" && a.Grants == nil }

// Target is the bucket or object whose ACL a request sets.
type Target struct {
	OfBucket    bool
	Owner       string // owner of the bucket or object
	BucketOwner string
	Accounts    Accounts
}

// Make returns the ACL that a request asks for. The errors are S3 errors.
func (t Target) Make(a Asked) (auth.ACL, error) {
	switch {
	case a.Canned != "" && a.Grants != nil:
		return auth.ACL{}, s3err.GetAPIError(s3err.ErrBothCannedAndHeaderGrants)
	case !a.Empty() && len(a.Body) > 0:
		return auth.ACL{}, s3err.GetAPIError(s3err.ErrUnexpectedContent)
	case a.Canned != "":
		if acl, ok := Canned(a.Canned, t.OfBucket, t.Owner, t.BucketOwner); ok {
			return acl, nil
		}
		if a.Canned == "aws-exec-read" {
			return auth.ACL{}, refusal(http.StatusNotImplemented, "NotImplemented",
				"The canned ACL aws-exec-read is for a service that only AWS has.")
		}
		return auth.ACL{}, s3err.GetInvalidArgumentErr(s3err.InvalidArgCannedAcl, strings.Clone(a.Canned))
	case a.Grants != nil:
		return t.fromHeaders(a.Grants)
	case len(a.Body) > 0:
		return t.fromXML(a.Body)
	}
	return Private(t.Owner), nil
}

func refusal(status int, code, text string) error {
	return s3err.APIError{Code: code, Description: text, HTTPStatusCode: status}
}

// tooMany returns an error if an ACL has more grants than S3 allows.
func tooMany(acl auth.ACL) error {
	if len(acl.Grantees) > MaxGrants {
		return refusal(http.StatusBadRequest, "InvalidRequest",
			fmt.Sprintf("The ACL has %d grants, expected at most %d.", len(acl.Grantees), MaxGrants))
	}
	return nil
}

func (t Target) fromHeaders(grants map[string]string) (auth.ACL, error) {
	out := auth.ACL{Owner: t.Owner, Grantees: []auth.Grantee{}}
	for _, h := range grantHeaders {
		value, ok := grants[h.name]
		if !ok {
			continue
		}
		for text := range strings.SplitSeq(value, ",") {
			if len(out.Grantees) > MaxGrants {
				return out, tooMany(out)
			}
			g, err := Grantee(text)
			if err == nil {
				err = t.known(g)
			}
			if err != nil {
				return out, err
			}
			g.Permission = h.permission
			out.Grantees = append(out.Grantees, g)
		}
	}
	return out, tooMany(out)
}

// known returns an error if a grantee is an account that does not exist.
func (t Target) known(g auth.Grantee) error {
	if g.Type == types.TypeGroup || g.Access == t.Owner || t.Accounts.Exists(g.Access) {
		return nil
	}
	return refusal(http.StatusBadRequest, "InvalidArgument",
		"Invalid id: a grantee is no account here. Grant to id=\"ACCESS-KEY\".")
}

// Grantee parses a grantee of a header: an access key, or the forms of S3, id="ACCESS-KEY" and uri="GROUP". The errors
// are S3 errors.
func Grantee(text string) (auth.Grantee, error) {
	name := strings.TrimSpace(text)
	kind, value, ok := strings.Cut(name, "=")
	if !ok {
		return toUser(strings.Clone(strings.Trim(name, `"`)), ""), nil
	}
	value = strings.Clone(strings.Trim(strings.TrimSpace(value), `"`))
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "id":
		return toUser(value, ""), nil
	case "uri":
		return group(value)
	case "emailaddress":
		return auth.Grantee{}, noEmail()
	}
	return toUser(strings.Clone(name), ""), nil // an access key may have "=" in it
}

func group(uri string) (auth.Grantee, error) {
	if _, ok := groups[uri]; !ok {
		return auth.Grantee{}, refusal(http.StatusBadRequest, "InvalidArgument", "Invalid group uri")
	}
	return toGroup(uri, ""), nil
}

func noEmail() error {
	return refusal(http.StatusBadRequest, "UnresolvableGrantByEmailAddress",
		"Accounts have no e-mail addresses here. Grant to id=\"ACCESS-KEY\".")
}

// document is the XML of an ACL.
type document struct {
	Owner *struct{ ID string }
	List  struct {
		Grants []struct {
			Grantee *struct {
				Attrs                 []xml.Attr `xml:",any,attr"`
				ID, URI, EmailAddress string
			}
			Permission auth.Permission
		} `xml:"Grant"`
	} `xml:"AccessControlList"`
}

// fromXML reads the XML of an ACL. The caller has checked that the XML has no unknown and no repeated element.
func (t Target) fromXML(body []byte) (auth.ACL, error) {
	malformed := s3err.GetAPIError(s3err.ErrMalformedACL)
	var doc document
	if xml.Unmarshal(body, &doc) != nil {
		return auth.ACL{}, s3err.GetAPIError(s3err.ErrMalformedXML)
	}
	if doc.Owner == nil || doc.Owner.ID == "" {
		return auth.ACL{}, malformed
	}
	if doc.Owner.ID != t.Owner { // an ACL cannot change the owner
		return auth.ACL{}, refusal(http.StatusBadRequest, "InvalidArgument", "Invalid id")
	}
	out := auth.ACL{Owner: t.Owner, Grantees: []auth.Grantee{}}
	for _, grant := range doc.List.Grants {
		if len(out.Grantees) > MaxGrants {
			return out, tooMany(out)
		}
		switch grant.Permission {
		case auth.PermissionFullControl, auth.PermissionRead, auth.PermissionWrite, auth.PermissionReadAcp,
			auth.PermissionWriteAcp:
		default:
			return out, malformed
		}
		if grant.Grantee == nil {
			return out, malformed
		}
		var kind string
		for _, attr := range grant.Grantee.Attrs {
			if attr.Name.Local == "type" {
				kind = attr.Value
			}
		}
		var g auth.Grantee
		var err error
		switch {
		case kind == string(types.TypeGroup) && grant.Grantee.URI != "":
			g, err = group(grant.Grantee.URI)
		case kind == string(types.TypeGroup) && grant.Grantee.ID == Everybody: // the form of versitygw
			g = toGroup(AllUsers, "")
		case kind == string(types.TypeAmazonCustomerByEmail):
			err = noEmail()
		case kind == string(types.TypeCanonicalUser) && grant.Grantee.ID != "":
			g = toUser(grant.Grantee.ID, "")
			err = t.known(g)
		default:
			err = malformed
		}
		if err != nil {
			return out, err
		}
		g.Permission = grant.Permission
		out.Grantees = append(out.Grantees, g)
	}
	return out, tooMany(out)
}
