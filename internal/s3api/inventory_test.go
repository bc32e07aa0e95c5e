// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/iam"
)

const listAll = `<InventoryConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Destination><S3BucketDestination>` +
	`<Bucket>arn:aws:s3:::lists</Bucket><Format>CSV</Format></S3BucketDestination></Destination><IsEnabled>true</IsEnabled>` +
	`<Id>all</Id><IncludedObjectVersions>Current</IncludedObjectVersions><Schedule><Frequency>Weekly</Frequency></Schedule>` +
	`</InventoryConfiguration>`

// TestInventoryConfiguration puts, reads, lists and deletes inventory configurations as a client does.
func TestInventoryConfiguration(t *testing.T) {
	w := start(t, nil, nil)
	for _, name := range []string{"bucket", "lists"} {
		w.must(200, "PUT", "/"+name, nil)
	}
	if err := w.iam.Add(t.Context(), iam.Account{AccessKey: "alice", Secret: "alicesecret",
		Role: iam.RoleUserPlus}); err != nil {
		t.Fatal(err)
	}
	if r, err := w.try("alice", "alicesecret", "PUT", "/hers", nil); err != nil || r.StatusCode != 200 {
		t.Fatalf("%+v %v", r, err)
	}
	w.must(200, "PUT", "/bucket?inventory&id=all", []byte(listAll))
	if r := w.must(200, "GET", "/bucket?inventory&id=all", nil); !strings.HasSuffix(string(r.body), listAll) {
		t.Errorf("the configuration comes back as %s", r.body)
	}
	if r := w.must(200, "GET", "/bucket?inventory", nil); !strings.Contains(string(r.body), "<Id>all</Id>") ||
		!strings.Contains(string(r.body), "<IsTruncated>false</IsTruncated>") {
		t.Errorf("the list is %s", r.body)
	}
	for name, c := range map[string]struct{ id, doc, code string }{
		"another id":     {"other", listAll, "InvalidArgument"},
		"no destination": {"all", strings.Replace(listAll, ":::lists", ":::none", 1), "InvalidS3DestinationBucket"},
		"not ours":       {"all", strings.Replace(listAll, ":::lists", ":::hers", 1), "InvalidS3DestinationBucket"},
		"no document":    {"all", "text", "MalformedXML"},
	} {
		if r := w.do("PUT", "/bucket?inventory&id="+c.id, []byte(c.doc)); r.StatusCode != 400 || r.code() != c.code {
			t.Errorf("%s: %d %s, expected %s", name, r.StatusCode, r.body, c.code)
		}
	}
	if r := w.do("PUT", "/bucket?inventory&id=all",
		[]byte(strings.Replace(listAll, "CSV", "ORC", 1))); r.StatusCode != 501 {
		t.Errorf("ORC: %d %s", r.StatusCode, r.body)
	}
	if r, err := w.try("alice", "alicesecret", "PUT", "/bucket?inventory&id=all", []byte(listAll)); err != nil ||
		r.StatusCode != 403 {
		t.Errorf("a stranger: %+v %v", r, err)
	}
	w.must(http.StatusNoContent, "DELETE", "/bucket?inventory&id=all", nil)
	if r := w.do("GET", "/bucket?inventory&id=all", nil); r.StatusCode != 404 || r.code() != noConfiguration {
		t.Errorf("after the deletion: %d %s", r.StatusCode, r.body)
	}
}
