// SPDX-License-Identifier: Apache-2.0

package object

import (
	"encoding/json"
	"time"
)

// The Attr constants are the names under which the S3 front end keeps its values in the attributes of an object. A
// store on another S3 server translates attributes to headers by these names.
const (
	AttrType        = "content-type"
	AttrEncoding    = "content-encoding"
	AttrDisposition = "content-disposition"
	AttrLanguage    = "content-language"
	AttrCache       = "cache-control"
	AttrExpires     = "expires"
	AttrRedirect    = "website-redirect"
	AttrClass       = "storage-class" // name of the storage class on an upstream; missing means STANDARD
	// AttrTags is a JSON object with the tags of the object.
	AttrTags = "tags"
	// AttrRetention is a JSON object with the fields Mode and RetainUntilDate.
	AttrRetention = "retention"
	// AttrHold is "1" if the object has a legal hold, and "0" if a legal hold was taken away.
	AttrHold    = "legal-hold"
	AttrSumAlgo = "checksum-algorithm" // name of the algorithm in upper case, such as "CRC32C"
	AttrSumType = "checksum-type"      // "FULL_OBJECT" or "COMPOSITE"
	AttrSum     = "checksum"           // value in base64
	// AttrUpload and AttrUploadParts name the multipart upload that made the object, and the digest of its parts.
	AttrUpload      = "upload"
	AttrUploadParts = "upload-parts"
	// AttrReplication is the replication status of the version: "REPLICA", or a JSON object with the status at each
	// target.
	AttrReplication = "replication"
	// AttrOwner is the access key of the object's owner; missing means the owner of the bucket. AttrACL is a JSON object
	// with the ACL of the object; missing means that the object is private to its owner.
	AttrOwner = "owner"
	AttrACL   = "acl"
	// AttrMeta begins the name of an attribute with user metadata. The name of the metadata follows in lower case.
	AttrMeta = "meta:"
)

// ChangedAttributes returns the attributes that an object keeps when its content is changed: headers, user metadata and
// tags. Checksums and parts belong to the old content, and a lock to the old version. The result shares no memory with
// attributes.
func ChangedAttributes(attributes map[string]string) map[string]string {
	out := make(map[string]string, len(attributes))
	for name, value := range attributes {
		switch name {
		case AttrRetention, AttrHold, AttrSumAlgo, AttrSumType, AttrSum, AttrUpload, AttrUploadParts, AttrReplication,
			AttrSealed:
		default:
			out[name] = value
		}
	}
	return out
}

// Locked reports whether a legal hold or a retention protects a version with these attributes at the time now. A
// retention that cannot be read protects the version too.
func Locked(attributes map[string]string, now time.Time) bool {
	if attributes[AttrHold] == "1" {
		return true
	}
	doc := attributes[AttrRetention]
	if doc == "" {
		return false
	}
	var r struct{ RetainUntilDate *time.Time }
	return json.Unmarshal([]byte(doc), &r) != nil || r.RetainUntilDate == nil || r.RetainUntilDate.After(now)
}
