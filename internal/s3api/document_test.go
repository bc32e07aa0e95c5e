// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"strings"
	"testing"
)

// TestDocumentsThatAskForMore puts documents with restrictions that would be passed over.
func TestDocumentsThatAskForMore(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/corp", nil, "x-amz-bucket-object-lock-enabled", "true", "x-amz-object-ownership",
		"BucketOwnerPreferred")
	w.must(200, "PUT", "/corp/key", []byte("x"))
	for path, docs := range map[string][]string{
		"/corp?versioning": {
			"<VersioningConfiguration><Status>Enabled</Status><MfaDelete>Enabled</MfaDelete></VersioningConfiguration>",
			"<VersioningConfiguration><Status>Enabled</Status><Status>Enabled</Status></VersioningConfiguration>",
			"<VersioningConfiguration><Status>Enabled</Status><Only>x</Only></VersioningConfiguration>",
		},
		"/corp?object-lock": {
			"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>COMPLIANCE</Mode></DefaultRetention></Rule></ObjectLockConfiguration>",
			"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rules><DefaultRetention><Mode>COMPLIANCE</Mode><Days>1</Days></DefaultRetention></Rules></ObjectLockConfiguration>",
			"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>COMPLIANCE</Mode><Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>",
			"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><Prefix>x</Prefix></Rule></ObjectLockConfiguration>",
		},
		"/corp/key?retention": {strings.Replace(string(retention("GOVERNANCE", 1)), "<Mode>",
			"<Mode>COMPLIANCE</Mode><Mode>", 1), strings.Replace(string(retention("GOVERNANCE", 1)), "</R",
			"<Until>x</Until></R", 1)},
		"/corp/key?legal-hold": {"<LegalHold><Status>ON</Status><Status>OFF</Status></LegalHold>",
			"<LegalHold><Status>OFF</Status><Hold>ON</Hold></LegalHold>"},
		"/corp?tagging": {
			"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value><Value>c</Value></Tag></TagSet></Tagging>"},
		"/corp/key?tagging": {
			"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value><Key>c</Key></Tag></TagSet></Tagging>"},
		"/corp?ownershipControls": {strings.Replace(enforcedControls, "<Rule>", "<Strict>true</Strict><Rule>", 1)},
		"/corp?acl": {"<AccessControlPolicy><Owner><ID>" + rootKey +
			"</ID></Owner><AccessControlList></AccessControlList><Deny>x</Deny></AccessControlPolicy>"},
		"/corp?cors": {"<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*</AllowedOrigin><DeniedOrigin>x</DeniedOrigin></CORSRule></CORSConfiguration>"},
	} {
		for _, doc := range docs {
			r := w.do("PUT", path, []byte(doc), "Content-MD5", md5Base64(doc))
			if r.StatusCode != 400 && r.StatusCode != 501 {
				t.Errorf("%s %s: %d %s", path, doc, r.StatusCode, r.body)
			}
		}
	}
	w.put5("/corp?versioning", []byte(`<?xml version="1.0"?><VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><!-- x --><Status>Enabled</Status><MfaDelete>Disabled</MfaDelete></VersioningConfiguration>`), 200)
	w.put5("/corp?acl", []byte(`<AccessControlPolicy><Owner><ID>`+rootKey+
		`</ID><DisplayName>r</DisplayName></Owner><AccessControlList><Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser"><ID>`+
		rootKey+`</ID></Grantee><Permission>READ</Permission></Grant></AccessControlList></AccessControlPolicy>`), 200)
}

// TestACLsGrantNoSettings: who may write objects by an ACL may not change the bucket.
func TestACLsGrantNoSettings(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	for bucket, header := range map[string][]string{
		"public": {"x-amz-acl", "public-read-write"}, "granted": {"x-amz-grant-full-control", "bob"},
		"written": {"x-amz-grant-write", "bob"},
	} {
		w.as("alice", 200, "PUT", "/"+bucket, "", append([]string{"x-amz-object-ownership", "BucketOwnerPreferred"},
			header...)...)
		w.as("bob", 200, "PUT", "/"+bucket+"/key", "x")
		for _, path := range []string{"?policy", "?versioning", "?cors", "?tagging", "?ownershipControls", "?object-lock",
			"?website", "/key?retention", "/key?legal-hold", "/key?tagging"} {
			body := map[string]string{
				"?policy":            strings.ReplaceAll(policyOf(statement("Allow", "bob", "s3:*", "%s")), "%s", bucket),
				"?versioning":        "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>",
				"?ownershipControls": enforcedControls, "?tagging": "<Tagging><TagSet></TagSet></Tagging>",
				"?cors": "<CORSConfiguration/>", "?object-lock": "<ObjectLockConfiguration/>",
				"?website": "<WebsiteConfiguration/>", "/key?retention": "<Retention/>", "/key?legal-hold": "<LegalHold/>",
				"/key?tagging": "<Tagging><TagSet></TagSet></Tagging>",
			}[path]
			w.as("bob", 403, "PUT", "/"+bucket+path, body)
		}
		for _, path := range []string{"?policy", "?cors", "?tagging", "?ownershipControls", "/key?tagging", "/key?retention",
			"?object-lock"} {
			if r, err := w.try("bob", "bob-secret", "GET", "/"+bucket+path, nil); err != nil || r.StatusCode < 400 {
				t.Errorf("GET /%s%s: %d %s", bucket, path, r.StatusCode, r.body)
			}
		}
		w.as("bob", 204, "DELETE", "/"+bucket+"/key", "")
		w.as("bob", 403, "DELETE", "/"+bucket, "")
		w.as("bob", 403, "DELETE", "/"+bucket+"?policy", "")
		w.as("alice", 204, "DELETE", "/"+bucket, "")
	}
}
