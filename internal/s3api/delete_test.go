// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"strings"
	"testing"
)

// TestQuietDeletionsTellOfFailuresAlone as S3 does.
func TestQuietDeletionsTellOfFailuresAlone(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	for quiet, shown := range map[string]bool{"<Quiet>true</Quiet>": false, "<Quiet>false</Quiet>": true, "<Quiet/>": true,
		"": true} {
		w.must(200, "PUT", "/bucket/Quiet", nil)
		doc := "<Delete><Object><Key>Quiet</Key></Object><Object><Key></Key></Object>" + quiet + "</Delete>"
		r := w.must(200, "POST", "/bucket?delete", []byte(doc), "Content-MD5", md5Base64(doc))
		if got := strings.Contains(string(r.body), "<Deleted>"); got != shown ||
			!strings.Contains(string(r.body), "<Error>") {
			t.Errorf("%q: %s", quiet, r.body)
		}
		w.must(404, "GET", "/bucket/Quiet", nil)
	}
}

// TestListsOfDeletionsWithTwoReadings are refused, and nothing is deleted.
func TestListsOfDeletionsWithTwoReadings(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", nil)
	const one = "<Object><Key>key</Key></Object>"
	for _, doc := range []string{
		"<delete><object><key>key</key></object></delete>", "<Tagging>" + one + "</Tagging>", "junk",
		"<Delete><Object><Key>x</Key><Key>key</Key></Object></Delete>",
		"<Delete>" + one + "</Delete><Delete>" + one + "</Delete>", "<Delete><Objects>" + one + "</Objects></Delete>",
		"<Delete>" + one + "<Quiet>true</Quiet><Quiet>true</Quiet></Delete>",
		"<Delete><Object><Key>key<Object><Key>x</Key></Object></Key></Object></Delete>", "<Delete>" + one,
		"<Delete></Delete>", "<Delete/>", "<Delete><Quiet>true</Quiet></Delete>",
		"<Delete><!--<Object><Key>key</Key></Object>--></Delete>",
		"<Delete><Object><Key>key</Key><If-Match>x</If-Match></Object></Delete>",
	} {
		r := w.do("POST", "/bucket?delete", []byte(doc), "Content-MD5", md5Base64(doc))
		if r.StatusCode != 400 || r.code() != "MalformedXML" {
			t.Errorf("%s: %d %s", doc, r.StatusCode, r.body)
		}
	}
	w.must(200, "GET", "/bucket/key", nil)
}
