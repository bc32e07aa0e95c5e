// SPDX-License-Identifier: Apache-2.0

package document

import "strings"

// knownKeys are the condition keys that this server sets for requests, in lower case. A key that the server never sets
// is refused, because a statement that denies by it would never apply.
var knownKeys = map[string]struct{}{
	"aws:username": {}, "aws:userid": {}, "aws:principaltype": {}, "aws:groups": {},
	"aws:sourceip": {}, "aws:currenttime": {}, "aws:epochtime": {}, "aws:securetransport": {}, "aws:useragent": {},
	"aws:referer": {},
	"s3:prefix":   {}, "s3:delimiter": {}, "s3:max-keys": {}, "s3:versionid": {}, "s3:x-amz-acl": {},
	"s3:x-amz-copy-source": {}, "s3:x-amz-metadata-directive": {}, "s3:x-amz-storage-class": {},
	"s3:x-amz-content-sha256": {}, "s3:x-amz-server-side-encryption": {},
	"s3:x-amz-server-side-encryption-aws-kms-key-id":     {},
	"s3:x-amz-server-side-encryption-customer-algorithm": {},
	"s3:x-amz-grant-read":                                {}, "s3:x-amz-grant-write": {},
	"s3:x-amz-grant-read-acp": {}, "s3:x-amz-grant-write-acp": {}, "s3:x-amz-grant-full-control": {},
	"s3:x-amz-object-ownership": {},
	"s3:object-lock-mode":       {}, "s3:object-lock-legal-hold": {}, "s3:object-lock-retain-until-date": {},
	"s3:if-match": {}, "s3:if-none-match": {}, "s3:authtype": {}, "s3:signatureversion": {}, "s3:requestobjecttagkeys": {},
}

// serviceKeys are the condition keys that this server sets only for requests of its own services, in lower case.
// Policies of buckets can name them. Policies of users cannot, because a user is no service.
var serviceKeys = map[string]bool{"aws:sourcearn": true, "aws:sourceaccount": true}

// keyFamilies are the beginnings of condition keys whose rest is the name of a tag or of a claim.
var keyFamilies = []string{"s3:existingobjecttag/", "s3:requestobjecttag/", "jwt:"}

func knownKey(name string) bool {
	if _, ok := knownKeys[name]; ok {
		return true
	}
	for _, family := range keyFamilies {
		if rest, ok := strings.CutPrefix(name, family); ok && rest != "" {
			return true
		}
	}
	return false
}
